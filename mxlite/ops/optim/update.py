"""The variants of an optimizer step: one formula, and the operators derived from it.

A class here says its formula once, as `step` (see recording.py). From it are derived

    X_update          rates are attributes: `mx.nd.sgd_update(w, g, lr=0.1, out=w)`
    mp_X_update       the same for a 16-bit weight with a float32 master copy, the last state
    _fused_X          a node of a training program: no output, changes weight and states, and reads its rates
                      from a row of `hyper`, a float64 array (P, R), when it runs: a schedule needs no
                      new program. A learning rate that is nan leaves weight and states as they are
    _fused_mp_X       both
    _lazy_X           _fused_X that changes only rows whose flag in `rows`, uint8, is not 0
    _lazy_mp_X        _fused_mp_X that does the same
    multi_X_update    many weights in one call, arrays weight by weight: w0, g0, s0, w1, g1, s1, ...

All give the same bits. Arithmetic is in the type of the weight (of the master copy), in chunks whose scratch
stays in the cache.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from math import prod
from typing import Any, ClassVar

from ...core.dtype import FLAGS, float32, is_floating
from ...core.errors import DTypeError, OpAttributeError, ShapeError
from ...core.record import record
from ...graph.opdef import DType, one_type, Op, with_parameters
from .recording import Evaluation, evaluation, Rates

CHUNK = 16384  # elements at a time

_float64, _uint8 = FLAGS[1], FLAGS[3]


class Update(Op):
    """A step whose rates are attributes; `out` is usually `weight`.

    `step(xp, a, r, weight, grad, *states)` is its formula, which gives the new weight and states.

    If the gradient does nothing but accumulate into the one state, that part may come first, and term by term
    for a gradient that is a sum: ``state = k * state + lr * s * grad``, `growth(a)` being (k, s) then. The
    rest of the step is the formula `rest(xp, a, r, weight, state)`.
    """

    accepts = "float"
    in_place = {"out": "weight"}
    same_shape = True
    recomputable = False
    rates: ClassVar[tuple[str, ...]] = ("lr", "wd")
    step: ClassVar[Callable[..., Any]]
    rest: ClassVar[Callable[..., Any]]
    step_of: ClassVar[type[Update]]
    form: ClassVar[str] = "plain"
    has_master: ClassVar[bool] = False
    splits: ClassVar[bool] = True  # each element by itself, so that parts of a weight may be stepped apart

    def __init_subclass__(cls) -> None:
        cls.step_of = cls
        cls.mutates = cls.inputs[2:]
        # One more, for an output that is not read.
        cls.workspace = staticmethod(_workspace(cls, 1))  # type: ignore[method-assign]

        def run(xp: Any, a: Any, arrays: Sequence[Any], work: Any) -> None:
            one(cls, xp, a, Rates(*(getattr(a, n) for n in cls.rates)), arrays, work)

        cls.forward = staticmethod(_kernel(cls.inputs, ("out",), run))
        super().__init_subclass__()

    @classmethod
    def scratch(cls, a: Any, dtype: DType) -> int:
        """Number of arrays that `whole` needs beside those of the step."""
        return _whole(cls, a, dtype, True).scratch  # type: ignore[arg-type]

    @classmethod
    def whole(cls, xp: Any, a: Any, r: Rates, arrays: Sequence[Any], work: Any) -> None:
        """The step of one weight; `arrays` are weight, grad, *states, out."""
        made = _whole(cls, a, arrays[0].dtype, bool(r.wd))  # type: ignore[arg-type]
        in_chunks(xp, made, r, arrays, work)

    @staticmethod
    def growth(a: Any) -> tuple[float, float] | None:
        """(k, s) of the state's accumulation, for steps that can be split that way."""
        return None

    @staticmethod
    def flops(a: Any, inputs: Any, outputs: Any) -> int:
        return 4 * len(inputs) * prod(inputs[0])


def one(cls: type[Update], xp: Any, a: Any, rates: Rates, arrays: Sequence[Any], work: Any) -> None:
    """The step of one weight: `arrays` are weight, grad, *states, out. A gradient of another type is cast."""
    cls.whole(xp, a, rounded(rates, arrays[0].dtype), arrays, work)


def rounded(rates: Sequence[Any], dtype: DType) -> Rates:
    """Rates as a formula of arrays of a type meets them."""
    return Rates(dtype.type(rates[0]), dtype.type(rates[1]), *map(float, rates[2:]))


def master(cls: type[Update], xp: Any, a: Any, rates: Rates, arrays: Sequence[Any], work: Any) -> None:
    """The step of one 16-bit weight, whose old value is not read: weight, grad, *states, master, out."""
    _, grad, *states, wide, out = arrays
    one(cls, xp, a, rates, (wide, grad, *states, wide), work)
    if out is not None:
        xp.copyto(out, wide, casting="unsafe")


def rest_of(cls: type[Update], xp: Any, a: Any, rates: Rates, weight: Any, state: Any, work: Any) -> None:
    """The rest of a step whose gradient has been accumulated into `state`."""
    r = rounded(rates, weight.dtype)
    own = settings(cls, a)  # type: ignore[arg-type]
    rest = evaluation(cls.rest, own, 2, weight.dtype, bool(r.wd))
    in_chunks(xp, rest, r, (weight, state, weight), work)


@functools.lru_cache(maxsize=1024)
def settings(cls: Any, a: Any) -> Any:
    """The parameters that a formula reads, from those of any form of its step; its rates are 1."""
    names = [f.name for f in fields(cls.Attrs) if f.name in cls.rates or hasattr(a, f.name)]
    return cls.Attrs(**{n: 1 if n in cls.rates else getattr(a, n) for n in names})


@functools.lru_cache(maxsize=1024)
def _whole(cls: Any, a: Any, dtype: DType, decays: bool) -> Evaluation:
    """The evaluation of a step; `a` are the parameters of any of its forms."""
    return evaluation(cls.step, settings(cls, a), len(cls.inputs), dtype, decays, not cls.in_place)


def in_chunks(xp: Any, made: Evaluation, r: Rates, arrays: Sequence[Any], work: Any) -> None:
    """Evaluate a formula of arrays of any size: its inputs, and the output, which may be None."""
    run = made.bound(xp, r)
    for scratch, parts in chunks(xp, work, made.scratch, arrays):
        run(parts, scratch)


def chunks(xp: Any, work: Any, count: int, arrays: Sequence[Any]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """(scratch arrays, parts of `arrays`) in matching parts of at most CHUNK elements.

    arrays[0] is the weight, arrays[1] the gradient, which is cast to the weight's type. The last one is the
    output; None if it is not read: then it is scratch.
    """
    flat: list[Any] = [None if x is None else x.reshape(-1) for x in arrays]
    dtype, size = flat[0].dtype, flat[0].size
    widen, unread = flat[1].dtype != dtype, flat[-1] is None
    rows, length = count + widen + unread, min(size, CHUNK)
    scratch = work[: rows * length * dtype.itemsize].view(dtype).reshape(rows, length)
    for begin in range(0, size, CHUNK):
        parts = flat if size <= CHUNK else [x if x is None else x[begin : begin + CHUNK] for x in flat]
        own = scratch if size - begin >= length else scratch[:, : size - begin]
        if unread:
            parts = [*parts[:-1], own[-1]]
        if widen:
            xp.copyto(own[count], parts[1])
            parts = [parts[0], own[count], *parts[2:]]
        yield own[:count], tuple(parts)


# -- parts of formulas


def prepared(xp: Any, a: Any, grad: Any) -> Any:
    """``clip(rescale_grad * grad)``"""
    return clipped(xp, rescaled(a, grad), a.clip_gradient)


def decayed(xp: Any, a: Any, r: Rates, weight: Any, grad: Any, bound: float) -> Any:
    """``clip(rescale_grad * grad + wd * weight, bound)``"""
    grad = rescaled(a, grad)
    return clipped(xp, grad + weight * r.wd if r.wd else grad, bound)


def rescaled(a: Any, grad: Any) -> Any:
    """``rescale_grad * grad``"""
    return grad if a.rescale_grad == 1 else grad * a.rescale_grad


def clipped(xp: Any, x: Any, bound: float) -> Any:
    """`x` cut to [-bound, bound]; `x` itself if `bound` is negative."""
    return x if bound < 0 else cut(xp, x, bound)


def cut(xp: Any, x: Any, bound: float) -> Any:
    """`x` cut to [-bound, bound]."""
    real = x.dtype.type
    return xp.minimum(xp.maximum(x, real(-bound)), real(bound))


def parameters(name: str, *, lr: float | None = None, last: Mapping[str, Any] = {}, **own: float) -> type:
    """A step's parameters: the learning rate, `own`, those that every step has, and `last`, with their
    defaults. `lr` has none unless it is given."""
    fixed = {"wd": 0.0, "rescale_grad": 1.0, "clip_gradient": -1.0}
    defaults: dict[str, Any] = {**own, **{n: d for n, d in fixed.items() if n not in own}, **last}
    kinds = {"lr": float, **{n: type(d) for n, d in defaults.items()}}
    body = defaults | ({} if lr is None else {"lr": lr})
    caller = {"__module__": __name__, "__annotations__": kinds}
    return record(type(name, (), body | caller))


def _kernel(inputs: Sequence[str], outputs: Sequence[str], run: Callable[..., None]) -> Callable[..., None]:
    """A kernel with these parameters; `run(xp, a, arrays, work)` gets inputs and outputs in order."""

    def forward(xp: Any, a: Any, *arrays: Any, work: Any, **made: Any) -> None:
        run(xp, a, (*arrays, *(made[o] for o in outputs)), work)

    return with_parameters(forward, inputs, outputs, ("work",))


def _workspace(base: type[Update], more: int, wide: bool = False) -> Callable[..., int]:
    """`Op.workspace` for a step and `more` arrays like a chunk of the first input, in float32 if `wide`."""

    def workspace(a: Any, inputs: Any, outputs: Any, dtype: DType) -> int:
        kind = float32 if wide else dtype
        return (base.scratch(a, kind) + more) * min(CHUNK, prod(inputs[0])) * kind.itemsize

    return workspace


# -- variants of a step ----------------------------------------------------------------------------------


def forms(
    base: type[Update], lazily: Sequence[bool] = (), preloaded: bool = False, multi: str = "multi_"
) -> dict[str, type[Op]]:
    """The forms of a step by their names, which follow from its own: X, or _X of one that is not public.

    lazily: for each `_lazy_X` whether it has a master copy. preloaded: True for `preloaded_multi_X_update`.
    """
    hidden = "_" * base.op_name.startswith("_")
    x = base.op_name.removesuffix("_update").removeprefix(hidden)
    made = [mixed(base, f"{hidden}mp_{x}_update")]
    for masters in (False, True):
        own = f"{'mp_' * masters}{x}"
        made += [fused(base, f"_fused_{own}", masters), many(base, f"{hidden}{multi}{own}_update", masters)]
        if preloaded:
            made.append(many(base, f"preloaded_multi_{own}_update", masters, preloaded=True))
        if masters in lazily:
            made.append(lazy(base, f"_lazy_{own}", masters))
    return {op.__name__: op for op in made}


def mixed(base: type[Update], name: str) -> type[Op]:
    """`mp_X`: weight and gradient are of 16 bits, the states and the master copy `weight32` of 32.

    The step is computed on the master copy and rounded into `out`.
    """
    inputs = (*base.inputs, "weight32")

    def run(xp: Any, a: Any, arrays: Sequence[Any], work: Any) -> None:
        master(base, xp, a, Rates(*(getattr(a, n) for n in base.rates)), arrays, work)

    return _form(
        base,
        name,
        "mixed",
        f"`{base.op_name}` of a 16-bit weight through its float32 copy `weight32`, which is changed in "
        f"place.\n\n"
        f"weight, grad: (...) of 16 bits;  states, weight32: (...) float32  ->  out: (...) as weight.",
        inputs=inputs,
        mutates=inputs[2:],
        in_place=base.in_place,
        same_shape=True,
        Attrs=base.Attrs,
        infer_type=classmethod(mixed_types),
        workspace=staticmethod(_workspace(base, 1, wide=True)),
        forward=staticmethod(_kernel(inputs, ("out",), run)),
        has_master=True,
    )


def fused(base: type[Update], name: str, masters: bool = False) -> type[Op]:
    """`_fused_X`: the step inside a training program."""
    inputs = (*base.inputs, *(("weight32",) if masters else ()), "hyper")

    def run(xp: Any, a: Any, arrays: Sequence[Any], work: Any) -> None:
        *own, hyper = arrays
        rates = Rates(*hyper[a.row])
        if rates.lr != rates.lr:
            return
        (master if masters else one)(base, xp, a, rates, (*own, own[0]), work)

    def infer_shape(a: Any, *shapes: Any) -> Any:
        *own, hyper = shapes
        return (*_row_shapes(base, a, own, hyper), hyper), ()

    def infer_type(cls: type[Op], a: Any, *dtypes: Any) -> Any:
        *own, hyper = dtypes
        if hyper is not None and hyper != _float64:
            raise DTypeError(f"hyper must be float64, got {hyper}.")
        return (*_row_types(cls, a, own, masters), _float64), ()

    return _form(
        base,
        name,
        "fused",
        f"`{base.op_name}` in a program{', through the float32 copy `weight32`' if masters else ''}: "
        f"{', '.join(f'`{n}`' for n in ('weight', *inputs[2:-1]))} {'are' if inputs[2:-1] else 'is'} "
        f"changed.\n\n"
        f"{', '.join(inputs[:-1])}: (...);  hyper: (P, {len(base.rates)}) float64, row `row` is "
        f"[{', '.join(base.rates)}], read when it runs.",
        inputs=inputs,
        outputs=(),
        inferred=inputs[2:-1],
        mutates=("weight", *inputs[2:-1]),
        Attrs=_row_attrs(base),
        infer_shape=staticmethod(infer_shape),
        infer_type=classmethod(infer_type),
        workspace=staticmethod(_workspace(base, masters, wide=masters)),
        forward=staticmethod(_kernel(inputs, (), run)),
        timed_as=staticmethod(lambda a: replace(a, row=0)),
        has_master=masters,
    )


def _row_shapes(base: type[Update], a: Any, own: Sequence[Any], hyper: Any) -> Any:
    """Shapes of weight, gradient and states, whose rates are a row of `hyper`."""
    weight, *others = own
    if any(s is not None and s != weight for s in others):
        raise ShapeError(f"the gradient and the states must be as the weight, {weight}, got {tuple(others)}.")
    if len(hyper) != 2 or hyper[1] != len(base.rates) or not 0 <= a.row < hyper[0]:
        raise ShapeError(f"hyper must be (P, {len(base.rates)}) with a row {a.row}, got {hyper}.")
    return (weight,) * len(own)


def _row_types(cls: type[Op], a: Any, own: Sequence[Any], masters: bool) -> Any:
    """Types of weight, gradient and states."""
    if masters:
        return mixed_types(cls, a, *own)[0]
    dtype = one_type(own, "weight, gradient and states")
    if dtype is not None and not is_floating(dtype):
        raise DTypeError(f"a weight must be of a floating type, got {dtype}.")
    return (dtype,) * len(own)


def lazy(base: type[Update], name: str, masters: bool = False) -> type[Op]:
    """`_lazy_X`: the step inside a training program, on the rows that are flagged."""
    own_inputs = (*base.inputs, *(("weight32",) if masters else ()))
    inputs = (*own_inputs, "rows", "hyper")
    step = master if masters else one

    def block(weight: Any) -> tuple[int, int]:
        """Rows that are changed at a time, and the elements of one."""
        width = prod(weight[1:])
        return min(weight[0], max(1, CHUNK // max(1, width))), width

    def run(xp: Any, a: Any, arrays: Sequence[Any], work: Any) -> None:
        *own, flags, hyper = arrays
        rates = Rates(*hyper[a.row])
        if rates.lr != rates.lr:
            return
        count, width = block(own[0].shape)
        tables = [x.reshape(len(flags), width) for x in own]
        gathered, rest = [], work
        for x in own:
            room = count * width * x.dtype.itemsize
            gathered.append(rest[:room].view(x.dtype).reshape(count, width))
            rest = rest[_lines(room) :]
        for begin in range(0, len(flags), max(1, count)):
            chosen = flags[begin : begin + count].view(bool)
            found = xp.count_nonzero(chosen)
            if not found:
                continue
            parts = [t[begin : begin + count] for t in tables]
            if found == len(chosen):
                step(base, xp, a, rates, (*parts, parts[0]), rest)
                continue
            taken = [
                xp.compress(chosen, part, axis=0, out=into[:found]) for part, into in zip(parts, gathered)
            ]
            step(base, xp, a, rates, (*taken, taken[0]), rest)
            for i, part in enumerate(parts):
                if i != 1:  # the gradient stays as it is
                    part[chosen] = taken[i]

    def infer_shape(a: Any, *shapes: Any) -> Any:
        weight, rows, hyper = shapes[0], shapes[-2], shapes[-1]
        if not weight or (rows is not None and rows != weight[:1]):
            raise ShapeError(f"rows must have a flag for each row of the weight, {weight}, got {rows}.")
        return (*_row_shapes(base, a, shapes[:-2], hyper), weight[:1], hyper), ()

    def infer_type(cls: type[Op], a: Any, *dtypes: Any) -> Any:
        return (*_row_types(cls, a, dtypes[:-2], masters), _uint8, _float64), ()

    def workspace(a: Any, inputs: Any, outputs: Any, dtype: Any) -> int:
        count, width = block(inputs[0])
        wide = float32.itemsize if masters else dtype.itemsize
        sizes = [dtype.itemsize] * 2 + [wide] * (len(own_inputs) - 2)  # weight and gradient; states
        gathered = sum(_lines(count * width * size) for size in sizes)
        scratch = _workspace(base, masters, wide=masters)
        return gathered + scratch(a, ((count, width),), outputs, dtype)

    return _form(
        base,
        name,
        "lazy",
        f"`{base.op_name}` in a program, of the rows that `rows` flags"
        f"{', through the float32 copy `weight32`' if masters else ''}; the others stay as they are.\n\n"
        f"{', '.join(own_inputs)}: (R, ...);  rows: (R,) uint8;  hyper: (P, {len(base.rates)}) float64, row "
        f"`row` is [{', '.join(base.rates)}], read when it runs.",
        inputs=inputs,
        outputs=(),
        inferred=(*own_inputs[2:], "rows"),
        mutates=("weight", *own_inputs[2:]),
        Attrs=_row_attrs(base),
        infer_shape=staticmethod(infer_shape),
        infer_type=classmethod(infer_type),
        workspace=staticmethod(workspace),
        forward=staticmethod(_kernel(inputs, (), run)),
        timed_as=staticmethod(lambda a: replace(a, row=0)),
        has_master=masters,
    )


def _lines(nbytes: int) -> int:
    """Bytes rounded up to a whole cache line."""
    return -(-nbytes // 64) * 64


def many(base: type[Update], name: str, masters: bool = False, preloaded: bool = False) -> type[Op]:
    """`multi_X`: many weights in one call, arrays weight by weight.

    With `preloaded` the rates are the last two arrays. `step_count` are the numbers of updates, for a step
    that uses them.
    """
    counts = "step_count" if base.rates[2:] else ""
    each = len(base.inputs) + masters
    step = master if masters else one

    def forward(xp: Any, a: Any, *args: Any, outs: Any, work: Any) -> None:
        if preloaded:
            *args, lrs, wds = args  # type: ignore[assignment]
        else:
            lrs, wds = a.lrs, a.wds
        times = getattr(a, counts) if counts else ()
        for i, out in enumerate(outs):
            own = args[i * each : (i + 1) * each]
            step(base, xp, a, Rates(lrs[i], wds[i], *times[i : i + 1]), (*own, out), work)

    def infer_shape(a: Any, *shapes: Any) -> Any:
        count = a.num_weights
        if len(shapes) != count * each + 2 * preloaded:
            raise ShapeError(
                f"{count} weights need {count * each + 2 * preloaded} arrays, got {len(shapes)}."
            )
        for i in range(count):
            own = shapes[i * each : (i + 1) * each]
            if any(s != own[0] for s in own):
                raise ShapeError(f"the arrays of weight {i} must be of one shape, got {own}.")
        if preloaded and shapes[-2:] != ((count,), (count,)):
            raise ShapeError(f"lrs and wds must be ({count},), got {shapes[-2:]}.")
        return shapes, tuple(shapes[i * each] for i in range(count))

    def infer_type(cls: type[Op], a: Any, *dtypes: Any) -> Any:
        needed = a.num_weights * each + 2 * preloaded
        if len(dtypes) != needed:
            raise OpAttributeError(f"num_weights={a.num_weights} needs {needed} arrays, got {len(dtypes)}.")
        types: list[Any] = []
        for i in range(a.num_weights):
            own = dtypes[i * each : (i + 1) * each]
            types += (mixed_types(cls, a, *own) if masters else Op.infer_type.__func__(base, a, *own))[0]  # type: ignore[attr-defined]
        rates = [float32 if d is None else d for d in dtypes[len(types) :]]
        return (*types, *rates), tuple(types[i * each] for i in range(a.num_weights))

    def changed(cls: type[Op], a: Any) -> tuple[str, ...]:
        return tuple(f"arg{i * each + k}" for i in range(a.num_weights) for k in range(2, each))

    def in_place_options(cls: type[Op], a: Any) -> Mapping[str, tuple[str, ...]]:
        return {f"output{i}": (f"arg{i * each}",) for i in range(a.num_weights)}

    def workspace(a: Any, inputs: Any, outputs: Any, dtype: Any) -> int:
        one = _workspace(base, 1, masters)
        return max((one(a, (s,), (), dtype) for s in outputs), default=0)

    return _form(
        base,
        name,
        "many",
        f"`{base.op_name}` of many weights in one call.\n\n"
        f"args: for each weight in turn {', '.join([*base.inputs, *(['weight32'] if masters else [])])}"
        f"{', and at the end lrs and wds, (num_weights,) each' if preloaded else ''}  ->  the new weights; "
        f"`out` are usually the weights.",
        inputs=(),
        variadic="args",
        variadic_outputs="outs",
        Attrs=_many_attrs(base, preloaded, counts),
        num_outputs_of=classmethod(lambda cls, a: a.num_weights),
        mutated=classmethod(changed),
        in_place_options=classmethod(in_place_options),
        infer_shape=staticmethod(infer_shape),
        infer_type=classmethod(infer_type),
        workspace=staticmethod(workspace),
        forward=staticmethod(forward),
        has_master=masters,
        is_preloaded=preloaded,
        counts=counts,
    )


def _form(base: type[Update], name: str, form: str, doc: str, **body: Any) -> type[Op]:
    """A variant of a step as an operator, declared in the module of the step.

    `step_of` and `form` are for kernels that are generated from the formula.
    """
    body = dict(recomputable=False, flops=staticmethod(Update.flops), step_of=base, form=form, **body)
    return type(name, (Op,), dict(body, op_name=name, __doc__=doc, __module__=base.__module__))


def mixed_types(cls: type[Op], a: Any, *dtypes: Any) -> Any:
    """weight and grad of one 16-bit type, all others float32."""
    weight = dtypes[0] if dtypes[0] is not None else dtypes[1]
    if weight is not None and (not is_floating(weight) or weight.itemsize != 2):
        raise DTypeError(f"weight must be float16 or bfloat16, got {weight}; {cls.op_name} is for those.")
    if dtypes[1] is not None and dtypes[1] != weight:
        raise DTypeError(f"grad must be {weight}, as the weight is, got {dtypes[1]}.")
    if wrong := [d for d in dtypes[2:] if d is not None and d != float32]:
        raise DTypeError(f"the states and the master copy must be float32, got {wrong[0]}.")
    return (weight, weight, *(float32,) * (len(dtypes) - 2)), (weight,)


def _row_attrs(base: type[Update]) -> type:
    """The step's parameters, with `row` of `hyper` in place of the rates."""
    return _attrs(f"{base.__name__}_row", base, base.rates, {"row": int})


def _many_attrs(base: type[Update], preloaded: bool, counts: str) -> type:
    own: dict[str, Any] = {"num_args": int}
    if not preloaded:
        own |= {"lrs": tuple[float, ...], "wds": tuple[float, ...]}
    if counts:
        own[counts] = tuple[int, ...]
    without = (*base.rates, "lazy_update")
    return _attrs(f"{base.__name__}_many", base, without, own, {"num_weights": (int, 1)}, check=_counts)


def _counts(self: Any) -> None:
    for name in ("lrs", "wds", "step_count"):
        if hasattr(self, name) and len(getattr(self, name)) != self.num_weights:
            raise OpAttributeError(f"{name} must have {self.num_weights} numbers, one for each weight.")


def _attrs(
    name: str,
    base: type[Update],
    without: Sequence[str],
    first: Mapping[str, Any],
    last: Mapping[str, tuple[Any, Any]] = {},
    check: Callable[[Any], None] | None = None,
) -> type:
    """The parameters of `base` except those in `without`, between others: `first` gives their types, `last`
    types and defaults. Each instance is checked by the step's own check, and by `check`.
    """
    own = base.Attrs
    kept = {n: kind for n, kind in inspect.get_annotations(own).items() if n not in without}
    body: dict[str, Any] = {n: getattr(own, n) for n in kept if hasattr(own, n)}
    body |= {n: default for n, (_, default) in last.items()}
    body["__annotations__"] = {**first, **kept, **{n: kind for n, (kind, _) in last.items()}}
    checks = [c for c in (getattr(own, "__post_init__", None), check) if c is not None]

    def check_all(self: Any) -> None:
        for one_check in checks:
            one_check(self)

    body["__post_init__"] = check_all
    return record(type(name, (), dict(body, __module__=own.__module__)))
