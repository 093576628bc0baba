"""Base of all optimizers: rates, multipliers, update counts, checkpoints.

An optimizer has two forms that give the same bits. Imperative: `update(index, weight, grad, state)` pushes
one operation. Fused: `update_rule()` names the operator that stands in the graph, and before each step
`hyper(index)` gives the two numbers it reads, so that a gradient can die right after its update. Both forms
take learning rate and weight decay from `hyper`, which counts the update; a step uses one form or the other.

Schedules, multipliers and Adam's bias correction are computed on the host in Python floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

import numpy as np

from ...core.disk.schema import anything, fields, flag, key, Kind, MOST, named, optional, real, row, several
from ...core.dtype import is_floating
from ...core.errors import FormatError, MissingMethodError, OpAttributeError, ScheduledRateError
from ...core.log import Log
from ...core.wanted import number, wanted
from ...executor.request.masters import follow, note
from ...graph.update import UpdateRule
from ...ndarray import NDArray
from ..registry import Registry
from .lr_scheduler import LRScheduler, set_state_of, state_of

_log = Log(__name__)

Class = TypeVar("Class", bound=type)
Hyper = TypeVar("Hyper", bound=Callable[..., tuple[float, ...]])


def alike(hyper: Hyper) -> Hyper:
    """Decorator of an `Optimizer.hyper` that depends only on count, multipliers and attributes: parameters
    that agree in these have equal rates.
    """
    hyper.is_alike = True  # type: ignore[attr-defined]
    return hyper


_UPDATES = frozenset({"create_state", "create_state_multi_precision", "update", "update_multi_precision"})
"""Methods that say how a weight is updated."""


class Optimizer:
    """Base of all optimizers.

    `rescale_grad` multiplies every gradient (Module gives 1 / batch size). `clip_gradient`: each element of
    the rescaled gradient is cut to [-clip, clip]; None, 0 and negative mean no clipping. `wd` adds
    `wd * weight` to the gradient. A `learning_rate` given beside a `lr_scheduler` is written to the
    scheduler's `base_lr`; with neither it is 0.01. `param_idx2name` maps the indices used in `update` to
    names: those that end in neither `_weight` nor `_gamma` then get no weight decay. `sym` is where
    `__lr_mult__` and `__wd_mult__` are read from. Counting starts at `begin_num_update`. With
    `multi_precision`, weights of float16 and bfloat16 are updated through a float32 copy kept with the state.
    `param_dict` belongs to Gluon; it is not used.
    """

    decayed: ClassVar[tuple[str, ...]] = ("_weight", "_gamma")  # ends of names that get weight decay
    limits: ClassVar[dict[str, Kind]] = {  # of settings in a file, where a finite number is not all they are
        "clip_gradient": optional(real()),
        "begin_num_update": real(-MOST, MOST),
    }

    def __init__(
        self,
        rescale_grad: float = 1.0,
        param_idx2name: Mapping[int, str] | None = None,
        wd: float = 0.0,
        clip_gradient: float | None = None,
        learning_rate: float | None = None,
        lr_scheduler: LRScheduler | None = None,
        sym: Any = None,
        begin_num_update: int = 0,
        multi_precision: bool = False,
        param_dict: Any = None,
    ) -> None:
        self.rescale_grad = number("rescale_grad", rescale_grad)
        self.wd = number("wd", wd)
        self.clip_gradient = None if clip_gradient is None else number("clip_gradient", clip_gradient)
        self.lr = 0.01 if learning_rate is None else number("learning_rate", learning_rate)
        if lr_scheduler is not None and not callable(lr_scheduler):
            raise OpAttributeError(
                f"lr_scheduler must be an LRScheduler, or called as one is; got {lr_scheduler!r}."
            )
        self.lr_scheduler = lr_scheduler
        if lr_scheduler is not None and learning_rate is not None:
            with suppress(AttributeError):  # of a function that belongs to an object, say
                lr_scheduler.base_lr = self.lr
            if getattr(lr_scheduler, "base_lr_orig", self.lr) != self.lr:
                _log.info(
                    "learning_rate %g has no effect: %s starts from its own base_lr %g.",
                    self.lr,
                    type(lr_scheduler).__name__,
                    lr_scheduler.base_lr_orig,  # type: ignore[attr-defined]
                )
        self.begin_num_update = begin_num_update
        self.num_update = begin_num_update
        self.multi_precision = multi_precision
        if param_idx2name is not None:
            wanted("param_idx2name", param_idx2name, "a dict of indices and names", Mapping)
        if sym is not None:
            wanted("sym", sym, "a Symbol", has=("attr_dict", "list_arguments"))
        self.idx2name = dict(param_idx2name or {})
        self.sym_info: tuple[Any, ...] = () if sym is None else (sym.attr_dict(), sym.list_arguments())
        self.lr_mult: dict[Any, float] = {}
        self.wd_mult: dict[Any, float] = {}
        self._counts: dict[Any, int] = {}
        self._behind: tuple[list[Any], int] | None = None  # parameters whose count is written later, and it
        self._kinds: tuple[Any, Any] | None = None  # of parameters, and the key they were found for
        self._rows: tuple[Any, Any, Any] = (None, None, None)  # rates of kinds, kinds, rates of all
        self._even: tuple[Any, ...] | None = None  # parameters whose counts are known to be equal
        self.set_lr_mult({})
        self.set_wd_mult({})

    @staticmethod
    def register(cls: Class) -> Class:
        """Class decorator, the same as the function `register`."""
        return _registry.register(cls)

    @staticmethod
    def create_optimizer(name: str | Optimizer, **kwargs: Any) -> Optimizer:
        """The same as the function `create`."""
        return create(name, **kwargs)

    # -- rates ---------------------------------------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """The rate before multipliers, at the present number of updates."""
        return self.lr if self.lr_scheduler is None else self.lr_scheduler(self.num_update)

    def set_learning_rate(self, lr: float) -> None:
        """ScheduledRateError, which is a UserWarning too, if a scheduler decides the rate."""
        if self.lr_scheduler is not None:
            raise ScheduledRateError(
                f"The learning rate comes from a {type(self.lr_scheduler).__name__}; "
                f"change the scheduler instead."
            )
        self.lr = number("lr", lr)

    def set_lr_mult(self, args_lr_mult: Mapping[Any, float]) -> None:
        """Multiply the learning rate of single parameters, by name or index; the symbol's `__lr_mult__` is
        kept where this mapping says nothing."""
        wanted("set_lr_mult", args_lr_mult, "a dict of names and numbers", Mapping)
        self.lr_mult = self._multipliers("__lr_mult__")
        self.lr_mult.update((k, number(f"lr_mult of {k!r}", v)) for k, v in args_lr_mult.items())

    def set_wd_mult(self, args_wd_mult: Mapping[Any, float]) -> None:
        """Multiply the weight decay of single parameters; 0 for names that are neither weight nor gamma."""
        wanted("set_wd_mult", args_wd_mult, "a dict of names and numbers", Mapping)
        self.wd_mult = {n: 0.0 for n in self.idx2name.values() if not n.endswith(self.decayed)}
        self.wd_mult.update(self._multipliers("__wd_mult__"))
        self.wd_mult.update((k, number(f"wd_mult of {k!r}", v)) for k, v in args_wd_mult.items())

    def _multipliers(self, key: str) -> dict[Any, float]:
        if not self.sym_info:
            return {}
        attributes, names = self.sym_info
        marked = [n for n in names if key in attributes.get(n, {})]
        return {n: number(f"{key} of {n!r}", attributes[n][key]) for n in marked}

    def _multiplied(self, value: float, multipliers: Mapping[Any, float], index: Any) -> float:
        if index in multipliers:
            return value * multipliers[index]
        return value * multipliers.get(self.idx2name.get(index), 1.0)

    @property
    def _index_update_count(self) -> dict[Any, int]:
        """Number of updates of each parameter."""
        self._write_counts()
        return self._counts

    def _write_counts(self) -> None:
        if self._behind is not None:
            self._counts.update(dict.fromkeys(*self._behind))
            self._behind = None

    @alike
    def hyper(self, index: Any) -> tuple[float, ...]:
        """Learning rate and weight decay of one parameter for its next update, which this counts; and
        the count, if `update_rule` has three rates."""
        self._update_count(index)
        return self._get_lr(index), self._get_wd(index)

    def hypers(self, indices: tuple[Any, ...]) -> np.ndarray:
        """`hyper` of each of these parameters in turn, a row each, float64.

        Parameters of equal count and multipliers are evaluated once if `hyper` is `alike`: a step of a
        deep network has thousands. The counts of all others are written when they are read. The array
        must not be written to.
        """
        if not (getattr(type(self).hyper, "is_alike", False) and self._has_plain_rates):
            return np.array([self.hyper(i) for i in indices], np.float64)
        if indices is not self._even:
            known = set(map(self._index_update_count.get, indices))
            if len(known) != 1 or None in known:  # the first time in their own order
                return np.array([self.hyper(i) for i in indices], np.float64)
        firsts, others, inverse = self._kinds_of(indices)
        if self._behind is not None and self._behind[0] is not others:
            self._write_counts()  # other parameters are concerned now
        behind, self._behind = self._behind, None  # counts that are not needed below
        try:
            rows = [self.hyper(i) for i in firsts]
            behind = others, self._counts[firsts[0]]
        finally:
            self._behind = behind
        self._even = indices
        if self._rows[0] != rows or self._rows[1] is not inverse:
            self._rows = rows, inverse, np.array(rows, np.float64)[inverse]
            self._rows[2].setflags(write=False)
        found: np.ndarray = self._rows[2]
        return found

    def _kinds_of(self, indices: tuple[Any, ...]) -> tuple[list[Any], list[Any], np.ndarray]:
        """The first parameter of each pair of multipliers, all the others, and the pair's number of each."""
        key = (indices, self.lr_mult, self.wd_mult, self.idx2name)
        if self._kinds is None or self._kinds[0] != key:
            pairs = [
                tuple(self._multiplied(1.0, m, i) for m in (self.lr_mult, self.wd_mult)) for i in indices
            ]
            first = dict(zip(reversed(pairs), reversed(indices)))
            number = {p: n for n, p in enumerate(first)}
            inverse = np.array([number[p] for p in pairs], np.intp)
            firsts = list(first.values())
            others = list(set(indices).difference(firsts))
            # Copies, so that a change in place gives another key.
            kept = key[0], dict(self.lr_mult), dict(self.wd_mult), dict(self.idx2name)
            self._kinds = kept, (firsts, others, inverse)
        found: tuple[list[Any], list[Any], np.ndarray] = self._kinds[1]
        return found

    def _update_count(self, index: Any) -> None:
        self._even = None
        for i in index if isinstance(index, (list, tuple)) else (index,):
            count = self._index_update_count.get(i, self.begin_num_update) + 1
            self._index_update_count[i] = count
            self.num_update = max(count, self.num_update)

    def count(self, indices: Sequence[Any], updates: int) -> None:
        """Count `updates` more for each of these parameters."""
        self._even = None
        for i in indices if updates else ():
            self._index_update_count[i] = self._index_update_count.get(i, self.begin_num_update) + updates
            self.num_update = max(self._index_update_count[i], self.num_update)

    @property
    def rates_follow_count(self) -> bool:
        """True if `hyper` depends on the number of updates."""
        is_plain = type(self).hyper is Optimizer.hyper and self._has_plain_rates
        return self.lr_scheduler is not None or not is_plain

    @property
    def _has_plain_rates(self) -> bool:
        """True if no subclass has a rate of its own beside `hyper`."""
        cls = type(self)
        return (
            cls.learning_rate is Optimizer.learning_rate
            and cls._update_count is Optimizer._update_count
            and cls._get_lr is Optimizer._get_lr
            and cls._get_wd is Optimizer._get_wd
        )

    def _get_lr(self, index: Any) -> float:
        return float(self._multiplied(self.learning_rate, self.lr_mult, index))

    def _get_wd(self, index: Any) -> float:
        return float(self._multiplied(self.wd, self.wd_mult, index))

    # -- updates -------------------------------------------------------------------------------

    def _get_lrs(self, indices: Sequence[Any]) -> list[float]:
        """The rates of several weights; MXNet's name, as is `_get_wds`."""
        return [self._get_lr(i) for i in indices]

    def _get_wds(self, indices: Sequence[Any]) -> list[float]:
        """The decays of several weights."""
        return [self._get_wd(i) for i in indices]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A class that changes how weights are updated has no fused form, unless it says one itself."""
        super().__init_subclass__(**kwargs)
        if "update_rule" not in vars(cls) and _UPDATES.intersection(vars(cls)):
            cls.update_rule = Optimizer.update_rule  # type: ignore[method-assign]

    def create_state(self, index: Any, weight: NDArray) -> Any:
        """State kept for one weight besides the weight: None, an NDArray or a tuple."""
        return None

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Change `weight` and `state` in place. `index` is the parameter's number or name."""
        raise MissingMethodError(f"{type(self).__name__} must define update(index, weight, grad, state).")

    def update_rule(self) -> UpdateRule | None:
        """The fused form, fixed for the life of a bound program; None if there is only the imperative one."""
        return None

    def state_of(self, arrays: tuple[Any, ...]) -> Any:
        """The state that `create_state` would return, holding these arrays: None, one array, or the tuple."""
        return None if not arrays else arrays[0] if len(arrays) == 1 else arrays

    def create_state_multi_precision(self, index: Any, weight: NDArray) -> Any:
        """`(float32 weight, its state)` for a 16-bit weight under `multi_precision`, else `create_state`.

        As in MXNet, the state comes first with SGD, NAG and LARS: `master_last`.
        """
        if self._is_mixed(weight):
            master = weight.astype("float32")
            return self.with_master(master, self.create_state(index, master))
        return self.create_state(index, weight)

    master_last: ClassVar[bool] = False  # True if the float32 weight comes after the state

    def with_master(self, master: NDArray, state: Any) -> tuple[Any, Any]:
        """The state of a 16-bit weight: its float32 copy and the state of that, in MXNet's order."""
        return (state, master) if self.master_last else (master, state)

    def update_multi_precision(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        """`update`, through the float32 copy where `create_state_multi_precision` made one.

        The copy follows what was written to the weight meanwhile, see `executor/request/masters.py`.
        """
        if self._is_mixed(weight):
            master, own = reversed(state) if self.master_last else state
            follow(weight, master)
            self.update_mixed(index, weight, grad, master, own)
            note(weight, master)
        else:
            self.update(index, weight, grad, state)

    def update_mixed(self, index: Any, weight: NDArray, grad: NDArray, master: NDArray, state: Any) -> None:
        """Change a 16-bit `weight` through `master`, its float32 copy."""
        self.update(index, master, grad.astype("float32"), state)
        master.copyto(weight)

    def _is_mixed(self, weight: NDArray) -> bool:
        return self.multi_precision and is_floating(weight.dtype) and np.dtype(weight.dtype).itemsize == 2

    def _gradient_attrs(self) -> dict[str, float]:
        """Parameters for preparing a gradient in operators; a negative clip means none."""
        return {"rescale_grad": self.rescale_grad, "clip_gradient": self._clip()}

    def _clipped(self, grad: NDArray) -> NDArray:
        """A rescaled gradient, cut to the bound if there is one."""
        bound = self._clip()
        return grad.clip(-bound, bound) if bound > 0 else grad

    def _clip(self) -> float:
        return self.clip_gradient if self.clip_gradient is not None and self.clip_gradient > 0 else -1.0

    # -- checkpoints ---------------------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        """Update counts and the scheduler's position, as plain numbers."""
        return {
            "num_update": self.num_update,
            "begin_num_update": self.begin_num_update,
            "counts": [[index, count] for index, count in self._index_update_count.items()],
            "lr_scheduler": None if self.lr_scheduler is None else state_of(self.lr_scheduler),
        }

    def set_progress(self, progress: Mapping[str, Any]) -> None:
        """Continue from `progress()`. FormatError if it is not one, or if only one side has a scheduler."""
        checked_progress(progress, _OWN_PROGRESS)
        num_update, begin = int(progress["num_update"]), int(progress["begin_num_update"])
        counts = {index: int(count) for index, count in progress["counts"]}
        scheduler = progress["lr_scheduler"]
        if bad := [n for n in counts.values() if not begin <= n]:
            raise FormatError(
                f"The optimizer's progress is corrupt: {bad[0]} updates, though it counts from {begin}."
            )
        if (scheduler is None) != (self.lr_scheduler is None):
            have, had = ("no", "one") if self.lr_scheduler is None else ("a", "none")
            raise FormatError(f"This optimizer has {have} lr_scheduler, the saved one had {had}.")
        if self.lr_scheduler is not None:
            set_state_of(self.lr_scheduler, scheduler)
        self.num_update, self.begin_num_update = num_update, begin
        self._counts, self._behind, self._even = counts, None, None

    def settings(self) -> dict[str, Any]:
        """The optimizer's own public numbers: rate, decay, momentum and the like."""
        return {
            k: v
            for k, v in vars(self).items()
            if not k.startswith("_")
            and k not in ("num_update", "lr_scheduler")
            and (v is None or isinstance(v, (bool, int, float)))
        }

    def set_settings(self, settings: Mapping[str, Any]) -> None:
        """Take over `settings()` of an optimizer of the same class."""
        mine = self.settings()
        kinds: dict[str, Kind] = {
            k: flag if isinstance(v, bool) else optional(real()) if v is None else real()
            for k, v in mine.items()
        }
        kinds |= {k: v for cls in type(self).__mro__[::-1] for k, v in vars(cls).get("limits", {}).items()}
        # A value equal to the present one is accepted from a file.
        kinds = {k: anything if _is(settings, k, v) else kinds[k] for k, v in mine.items()}
        fields(kinds)(settings, f"The saved settings of {type(self).__name__}")
        vars(self).update(settings)


def _is(settings: Any, key: str, value: Any) -> bool:
    """True if a file has exactly this value."""
    if not isinstance(settings, Mapping) or key not in settings:
        return False
    return type(settings[key]) is type(value) and settings[key] == value


def checked_progress(progress: Any, kinds: Mapping[str, Kind]) -> None:
    """Raise FormatError unless `progress` has these fields; others belong to a subclass."""
    where = "The optimizer's progress is corrupt: it"
    named(anything)(progress, where)
    fields(kinds)({k: v for k, v in progress.items() if k in kinds}, where)


_OWN_PROGRESS: dict[str, Kind] = {
    "num_update": real(-MOST, MOST),
    "begin_num_update": real(-MOST, MOST),
    "counts": several(row(key, real(-MOST, MOST))),
    "lr_scheduler": anything,  # its own to check
}
_registry: Registry[Optimizer] = Registry("optimizer", Optimizer)


def register(cls: Class) -> Class:
    """Class decorator: make an optimizer known by its lower-case name."""
    return _registry.register(cls)


def create(name: str | Optimizer, **kwargs: Any) -> Optimizer:
    """An optimizer by name, without regard to case: `create("sgd", learning_rate=0.1, momentum=0.9)`."""
    return _registry.create(name, **kwargs)


def alias(*names: str) -> Callable[[Class], Class]:
    """Class decorator: further names of an optimizer."""
    return _registry.alias(*names)
