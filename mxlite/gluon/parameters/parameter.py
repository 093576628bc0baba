"""Parameter: an array of a block that is learnt, on one device or a copy on each of several."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...core import as_dtype, Context, cpu, current_context, DTypeError, ShapeError, StateError
from ...core.errors import ArgumentError, DeferredInitializationError, nearest, OpAttributeError
from ...core.wanted import found, wanted
from ...module.initial import initializer
from ...ndarray import NDArray, zeros
from ...ndarray.gradients.keepers import keep_before_write, watch
from ...ndarray.memory.lazy import make_zero
from ...symbol import autograd, Symbol, Variable
from .devices import listed

Init = initializer.Initializer | str | None
_REQS = ("write", "add", "null")
_STYPES = ("default", "row_sparse", "csr")


class Parameter:
    """An array of a block, with its gradient.

    name: unique in a network.  grad_req: 'write', 'add' or 'null'.  shape: 0 stands for a length that
    is not known yet; the first forward pass decides it if `allow_deferred_init`.  lr_mult, wd_mult:
    factors on the Trainer's rate and decay.  init: an initializer that goes before the network's.
    differentiable: False for what no gradient reaches, as running averages.
    """

    # MXNet's names, which a parameter made of another one copies; both lie with the arrays here.
    _grad: None = None
    _ctx_map: None = None

    def __init__(
        self,
        name: str,
        grad_req: str = "write",
        shape: Any = None,
        dtype: Any = np.float32,
        lr_mult: float = 1.0,
        wd_mult: float = 1.0,
        init: Any = None,
        allow_deferred_init: bool = False,
        differentiable: bool = True,
        stype: str = "default",
        grad_stype: str = "default",
    ) -> None:
        self.name: str = wanted("Parameter: name", name, "text", str)
        self.lr_mult = lr_mult
        self.wd_mult = wd_mult
        self.init = init
        self._shape: tuple[int, ...] | None = (shape,) if isinstance(shape, int) else _tuple(shape)
        self._dtype = dtype
        self._allow_deferred_init = allow_deferred_init
        self._differentiable = differentiable
        for kind, value in (("stype", stype), ("grad_stype", grad_stype)):
            if value not in _STYPES:
                raise OpAttributeError(
                    f"Parameter {name!r}: {kind} must be one of {_STYPES}, got {value!r}."
                    f"{nearest(str(value), _STYPES)}"
                )
        self._stype = stype
        self._grad_stype = grad_stype
        self._data: dict[Context, NDArray] | None = None
        # Fills the arrays as soon as the shape is known.
        self._deferred_init: Callable[[], None] | None = None
        self._ctx_list: list[Context] = []
        self._var: tuple[Any, Symbol] | None = None
        self._grad_req = "null"
        self.grad_req = grad_req
        self._trainer: Callable[[], Any] = lambda: None

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.name} (shape={self.shape}, dtype={np.dtype(self.dtype).name})"

    # -- what it is ----------------------------------------------------------------------------

    @property
    def grad_req(self) -> str:
        """How its gradient is written: 'write', 'add' or 'null'."""
        return self._grad_req

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if req not in _REQS:
            raise OpAttributeError(
                f"Parameter {self.name!r}: grad_req must be one of {_REQS}, got {req!r}."
                f"{nearest(str(req), _REQS)}"
            )
        req = req if self._differentiable else "null"
        if req != self._grad_req:
            self._grad_req = req
            self._attach()

    @property
    def dtype(self) -> Any:
        """The type of its elements; setting it casts them."""
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: Any) -> None:
        self.cast(dtype)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Its shape; 0 for lengths that are not known yet, None if nothing is."""
        return self._shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        new = _tuple(shape)
        known = self._shape
        if known is not None and (
            new is None
            or len(new) != len(known)
            or any(a > 0 and b > 0 and a != b for a, b in zip(known, new))
        ):
            raise ShapeError(f"Parameter {self.name!r} is {known}, which {new} does not fit.")
        self._shape = new

    @property
    def stype(self) -> str:
        """Its storage type: of arrays on the CPU they are 'default' in every bound program."""
        return self._stype

    @property
    def trainer(self) -> Callable[[], Any]:
        """A function that gives the Trainer that updates it, the last one that was made, or None."""
        return self._trainer

    @trainer.setter
    def trainer(self, trainer: Callable[[], Any]) -> None:
        self._trainer = trainer

    @property
    def is_computed(self) -> bool:
        """True if its class makes what blocks compute with anew at each call: `data` is its own."""
        return type(self).data is not Parameter.data

    @property
    def is_plain(self) -> bool:
        """True if it is of float32, and dense as its gradient."""
        return as_dtype(self._dtype) == np.float32 and self._stype == self._grad_stype == "default"

    # -- values --------------------------------------------------------------------------------

    def initialize(
        self, init: Any = None, ctx: Any = None, default_init: Any = None, force_reinit: bool = False
    ) -> None:
        """Make its arrays and fill them, on one device or each of a list.

        `init` goes before the parameter's own initializer, and that before `default_init` (Uniform(0.07)).
        A shape that is not known yet defers this to the first forward pass if the parameter allows that;
        else ShapeError.
        """
        if self._data is not None and not force_reinit:
            warnings.warn(
                f"Parameter {self.name!r} is initialized already and stays as it is; "
                f"force_reinit=True initializes it again.",
                stacklevel=2,
            )
            return
        self._data = None
        usual = initializer.Uniform() if default_init is None else initializer.create(default_init)
        own = init if init is not None else self.init if self.init is not None else usual
        devices = listed(ctx)

        def fill() -> None:
            with autograd.pause():
                values = zeros(self._shape, ctx=cpu(), dtype=self._dtype)
                usual(
                    initializer.InitDesc(
                        self.name,
                        {"__init__": own},  # type: ignore[dict-item]
                    ),
                    values,
                )
                self._place(values, devices)
                trainer = self.trainer()
                if trainer is not None:
                    trainer.begin(self)

        if self.is_known:
            self._deferred_init = None
            fill()
        elif self._allow_deferred_init:
            self._deferred_init, self._ctx_list = fill, devices
        else:
            raise ShapeError(
                f"Parameter {self.name!r} cannot be initialized: its shape is {self._shape}, and 0 stands "
                f"for "
                f"what is not known. in_units=, in_channels= or shape= tell it."
            )

    @property
    def is_known(self) -> bool:
        """True if its whole shape is known."""
        return self._shape is not None and all(n > 0 for n in self._shape)

    @property
    def is_initialized(self) -> bool:
        """True if it has its arrays."""
        return self._data is not None

    @property
    def is_deferred(self) -> bool:
        """True if it will be initialized as soon as its shape is known."""
        return self._deferred_init is not None

    def finish(self) -> None:
        """Initialize it now, if that was deferred. ShapeError if its shape is still not known."""
        if self._deferred_init is None:
            return
        if not self.is_known:
            raise ShapeError(
                f"Parameter {self.name!r} is {self._shape}: the forward pass did not tell its shape."
            )
        fill, self._deferred_init = self._deferred_init, None
        fill()

    def _place(self, values: NDArray, devices: Sequence[Context]) -> None:
        """Make an array on each device, with these values."""
        self._data = {c: values.copyto(c) for c in devices}
        self._attach()

    def _attach(self) -> None:
        """Give every array its gradient, or none."""
        for context, array in (self._data or {}).items():
            if self._grad_req == "null":
                self._data[context] = array.detach()  # type: ignore[index]
            else:
                array.attach_grad(self._grad_req, self._grad_stype)
            watch(array)

    def _here(self) -> dict[Context, NDArray]:
        if self._data is not None:
            return self._data
        if self._deferred_init is not None:
            raise DeferredInitializationError(
                f"Parameter {self.name!r} has no values yet: its shape is {self._shape}, and the first "
                f"forward "
                f"pass decides it. Call the network once, or tell the shape with in_units=, in_channels= "
                f"or the "
                f"like."
            )
        raise StateError(
            f"Parameter {self.name!r} is not initialized. net.initialize() does that, or "
            f"net.collect_params().initialize(); net.params has no parameters of children."
        )

    def data(self, ctx: Context | None = None) -> NDArray:
        """Its array on a device; None: the only one, or that on the current device.

        A subclass may make another one of it, as GluonNLP's weights that are dropped do: blocks compute with
        that one call by call, and gradients, updates and files are of the array itself.
        """
        return self._check_and_get(self._data, ctx)

    def _check_and_get(self, arrays: dict[Context, NDArray] | None, ctx: Context | None) -> NDArray:
        """The array of a device among `arrays`; MXNet's name. StateError if there is none."""
        if arrays is None:
            arrays = self._here()  # raises
        if ctx is None:
            if len(arrays) == 1:
                return next(iter(arrays.values()))
            ctx = current_context()
        try:
            return arrays[ctx]
        except KeyError:
            raise StateError(
                f"Parameter {self.name!r} is not on {ctx}: it was initialized on {list(arrays)}."
            ) from None

    def list_data(self) -> list[NDArray]:
        """Its arrays on all devices."""
        return list(self._here().values())

    def grad(self, ctx: Context | None = None) -> NDArray:
        """Its gradient on a device, as `data`. StateError if it asks for none."""
        return self._gradient(self._check_and_get(self._data, ctx))

    def list_grad(self) -> list[NDArray]:
        """Its gradients on all devices."""
        return [self._gradient(a) for a in self._here().values()]

    def _gradient(self, array: NDArray) -> NDArray:
        grad = array.grad
        if grad is None:
            raise StateError(f"Parameter {self.name!r} has no gradient: its grad_req is {self._grad_req!r}.")
        return grad

    def list_ctx(self) -> list[Context]:
        """The devices that it is on, or will be."""
        return list(self._ctx_list) if self._deferred_init is not None else list(self._here())

    def set_data(self, data: Any) -> None:
        """Write values to its arrays on all devices. What was recorded before keeps the old ones."""
        if not hasattr(data, "shape"):
            raise ArgumentError(
                f"Parameter {self.name!r}: set_data wants an array of shape {self._shape}, got {found(data)}."
            )
        self.shape = data.shape
        if self._data is None:
            if self._deferred_init is None:
                self._here()  # raises
            devices = self._ctx_list

            def fill() -> None:
                self._place(_as_array(data).astype(self._dtype, copy=False), devices)

            self._deferred_init = fill
            return
        for array in self._data.values():
            keep_before_write(array)
            with autograd.pause():
                array[:] = data

    def zero_grad(self) -> None:
        """Set its gradients to 0."""
        if self._grad_req != "null" and self._data is not None:
            for grad in self.list_grad():
                make_zero(grad)

    def reset_ctx(self, ctx: Any) -> None:
        """Move it to one device, or have a copy on each of a list."""
        devices = listed(ctx)
        if self._data is not None:
            with autograd.pause():
                self._place(self.mean(), devices)
        elif self._deferred_init is not None:
            fill, before = self._deferred_init, self._ctx_list

            def moved() -> None:
                self._ctx_list = before
                fill()
                self.reset_ctx(devices)

            self._deferred_init, self._ctx_list = moved, devices
        else:
            raise StateError(f"Parameter {self.name!r} is not initialized, so it has no device to leave.")

    def mean(self) -> NDArray:
        """The mean of its arrays, on the CPU: one that is on one device only as it is."""
        arrays = [a.as_in_context(cpu()) for a in self.list_data()]
        if len(arrays) == 1:
            return arrays[0].detach()
        total = arrays[0].copy()
        for a in arrays[1:]:
            total += a
        return total / len(arrays)

    def cast(self, dtype: Any) -> None:
        """Convert its values and its gradient to another type."""
        self._dtype = dtype
        if self._data is not None:
            with autograd.pause():
                self._data = {c: a.astype(dtype) for c, a in self._data.items()}
            self._attach()

    def take(self, data: NDArray, ctx: Any, cast_dtype: bool = False, dtype_source: str = "current") -> None:
        """Take the values of a file. ShapeError or DTypeError if they are not like the parameter.

        With `cast_dtype` another type is no error: the values become the parameter's ('current'), or the
        parameter becomes of the file's type ('saved').
        """
        if dtype_source not in ("current", "saved"):
            raise OpAttributeError(f"dtype_source must be 'current' or 'saved', got {dtype_source!r}.")
        known = self._shape
        if known is not None and (
            len(known) != len(data.shape) or any(a > 0 and a != b for a, b in zip(known, data.shape))
        ):
            raise ShapeError(f"Parameter {self.name!r} is {known}, but in the file it is {data.shape}.")
        if as_dtype(self._dtype) != as_dtype(data.dtype):
            if not cast_dtype:
                raise DTypeError(
                    f"Parameter {self.name!r} is of {np.dtype(self._dtype).name}, but in the file of "
                    f"{np.dtype(data.dtype).name}; cast_dtype=True converts it."
                )
            if dtype_source == "current":
                data = data.astype(self._dtype)
            else:
                self.cast(data.dtype)
        self._shape = tuple(data.shape)
        if self._data is None:
            devices = (
                self._ctx_list if self._deferred_init is not None else [cpu()] if ctx is None else listed(ctx)
            )
            self._deferred_init = None
            self._place(data, devices)
            return
        if ctx is not None and set(listed(ctx)) != set(self._data):
            raise StateError(
                f"Parameter {self.name!r} is on {list(self._data)}, and cannot be loaded on {listed(ctx)}: "
                f"reset_ctx moves it."
            )
        self.set_data(data)

    def row_sparse_data(self, row_id: NDArray) -> NDArray:
        """Its values: parameters are stored dense, whatever their storage type, so all rows are there."""
        return self.data(row_id.context)

    def list_row_sparse_data(self, row_id: NDArray) -> list[NDArray]:
        """Its values on all devices, see `row_sparse_data`."""
        return self.list_data()

    def var(self) -> Symbol:
        """The variable that stands for it in symbols: the same one each time, until something about it
        changes.
        """
        about = self._shape, str(self._dtype), self.lr_mult, self.wd_mult, self.init
        if self._var is None or self._var[0] != about:
            init = self.init
            made = Variable(
                self.name,
                shape=self._shape,
                dtype=self._dtype,
                lr_mult=self.lr_mult,
                wd_mult=self.wd_mult,
                init=init if init is None or hasattr(init, "dumps") else initializer.create(init),
            )
            self._var = about, made
        return self._var[1]


def _tuple(shape: Any) -> tuple[int, ...] | None:
    return None if shape is None else tuple(max(int(n), 0) for n in shape)


def _as_array(value: Any) -> NDArray:
    return value if isinstance(value, NDArray) else nd.array(value)
