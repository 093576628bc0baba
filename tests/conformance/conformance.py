"""What must hold for every operator, whatever it computes: one function per rule.

Every run goes the way of a program: shapes by the inference pass, the kernel by `Backend.choose`, the
call by `bind_call`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from mxlite.backends import Backend, bind_call, ChosenKernel
from mxlite.backends.cpu.backend import CPU
from mxlite.core.compat.npshape import UNKNOWN
from mxlite.core.dtype import is_floating
from mxlite.core.errors import DTypeError
from mxlite.graph.attrs import attr_text, parse_attrs
from mxlite.graph.infer import infer_shapes
from mxlite.graph.ir import Entry, Graph, Node, Shape, variable
from mxlite.graph.opdef import agreed_shape, Op
from mxlite.ops.random.philox import RandomStream
from tests.conformance.case import Case

GUARD = 256  # bytes on both sides of a work buffer
LOCAL_BYTES = 208 * 1024
"""What a kernel may have allocated at one moment: numpy's own buffers (64 KiB for each of three operands of a
strided or mixed operation) or temporaries as small as that, and Python's objects."""
KEPT_BYTES = 16 * 1024  # that a run may leave behind
NOTHING_BUT_ROUNDINGS = frozenset({"attention-mask-column"})
"""Rows with an output that is 0 but for roundings of numbers near 1: two kernels agree to those of 1."""

Arrays = dict[str, Any]

_backend: ContextVar[Backend] = ContextVar("backend", default=CPU)


@contextmanager
def kernels_of(backend: Backend) -> Iterator[None]:
    """Inside, calls run on kernels of `backend`, which must take numpy's arrays."""
    token = _backend.set(backend)
    try:
        yield
    finally:
        _backend.reset(token)


def takes(case: Case, dtype: str) -> bool:
    """Whether the operator has this type in the place of float64: some are of whole numbers only, and some
    say of which type an input is beside it.
    """
    kinds = tuple(np.dtype(k) for k in case.kinds(dtype))
    try:
        inputs, _ = case.op.infer_type(case.parsed, *kinds)
    except DTypeError:
        return False
    return tuple(inputs) == kinds


@dataclass(frozen=True)
class Call:
    """One operator with the shapes and dtypes of its arrays: what a bound node knows."""

    op: type[Op]
    attrs: Any
    shapes: tuple[tuple[Shape, ...], tuple[Shape, ...]]
    dtypes: tuple[tuple[Any, ...], tuple[Any, ...]]
    train: bool

    @classmethod
    def of(cls, case: Case, shapes: Sequence[Shape] | None = None, dtype: str | None = None) -> Call:
        """Infer what `case` leaves out: the inputs whose shape `follows` from the others."""
        return _inferred(case, None if shapes is None else tuple(map(tuple, shapes)), dtype)

    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.op.input_names(self.attrs), self.op.output_names(self.attrs)

    def layout(self) -> dict[str, tuple[Shape, Any]]:
        """Name of every input and output, and of their gradients -> shape, dtype."""
        found: dict[str, tuple[Shape, Any]] = {}
        for names, shapes, dtypes in zip(self.names(), self.shapes, self.dtypes):
            for n, s, d in zip(names, shapes, dtypes):
                found[n] = found["d_" + n] = (s, d)
        return found

    def execute(
        self,
        op: type[Op],
        inputs: Mapping[str, Any],
        *,
        wanted: Sequence[str] | None = None,
        alias: Mapping[str, str] | None = None,
        garbage: int = 0xFF,
    ) -> tuple[Arrays, Arrays]:
        """Run `op` (the operator or its gradient); returns its outputs and its inputs as they are afterwards.

        wanted: outputs that somebody reads; the others are None. alias: output -> input whose memory it
        takes. garbage: the byte that fills outputs and scratch before.
        """
        layout, ins = self.layout(), {n: None if x is None else x.copy() for n, x in inputs.items()}
        outs: Arrays = {}
        for name in op.output_names(self.attrs):
            shape, dtype = layout[name]
            if wanted is not None and name not in wanted:
                outs[name] = None
            elif alias and name in alias:
                outs[name] = ins[alias[name]].reshape(shape)
            else:
                outs[name] = _garbage(shape, dtype, garbage)
        run, guards = self.bind(op, ins, outs, garbage)
        with np.errstate(all="ignore"):
            run()
        for guard in guards:
            assert (guard == 0x3C).all(), f"{op.op_name} wrote outside its workspace"
        return outs, ins

    def kernel(self, op: type[Op]) -> ChosenKernel:
        """What the backend in use has for `op`."""
        first = self.dtypes[0][0] if self.dtypes[0] else self.dtypes[1][0]
        return _backend.get().choose(op, self.attrs, *self.shapes, first, self.dtypes[0])

    def bind(
        self, op: type[Op], ins: Arrays, outs: Arrays, garbage: int
    ) -> tuple[Callable[[], None], list[Any]]:
        """The call as a program makes it, and the guard bytes around its scratch."""
        backend, kernel = _backend.get(), self.kernel(op)
        block = backend.empty(GUARD + kernel.workspace + GUARD)
        block.fill(0x3C)
        work = block[GUARD : GUARD + kernel.workspace]
        work.fill(garbage)
        run = bind_call(
            kernel,
            backend.xp,
            op,
            self.attrs,
            list(ins.values()),
            list(outs.values()),
            work=work,
            rng=RandomStream(np.array([7, 3], np.uint64), 5),
            train=self.train,
            shapes=self.shapes,
        )
        return run, [block[:GUARD], block[GUARD + kernel.workspace :]]


@functools.lru_cache(maxsize=16)  # every rule asks for the same
def _inferred(case: Case, shapes: tuple[Shape, ...] | None, dtype: str | None) -> Call:
    op, attrs = case.op, case.parsed
    names = op.input_names(attrs)
    ins = [variable(n) for n in names]
    node = Node(op, attrs, tuple(ins), "node")
    outs = [Entry(node, i) for i in range(node.num_outputs)]
    # The node stands among the effects, since an optimizer's step has no output to hold it by.
    graph = Graph(tuple(outs), (node,))
    given = dict(zip(names, shapes or case.shapes))
    known = {n: s for n, s in given.items() if not case.follows(n)}
    graph = infer_shapes(graph, known)
    in_dtypes, out_dtypes = op.infer_type(attrs, *(np.dtype(k) for k in case.kinds(dtype)))
    in_shapes = tuple(graph.shapes[e] for e in ins)
    if shapes is None:
        assert in_shapes == tuple(map(tuple, case.shapes)), (
            f"inferred {in_shapes}, the row says {case.shapes}"
        )
    out_shapes = tuple(graph.shapes[e] for e in outs)
    return Call(op, attrs, (in_shapes, out_shapes), (in_dtypes, out_dtypes), case.train)


def _garbage(shape: Shape, dtype: Any, byte: int) -> Any:
    """An array of which every byte is `byte`; 0xFF makes every float a nan."""
    return np.full(math.prod(shape) * dtype.itemsize, byte, np.uint8).view(dtype).reshape(shape)


def forward_run(call: Call, arrays: Sequence[Any], **how: Any) -> tuple[Arrays, Arrays]:
    return call.execute(call.op, dict(zip(call.names()[0], arrays)), **how)


def gradient_inputs(call: Call, arrays: Sequence[Any], heads: Mapping[str, Any] | None = None) -> Arrays:
    """What the gradient operator reads, after a forward run. `heads` replaces head gradients."""
    outs, ins = forward_run(call, arrays)
    rng = np.random.default_rng(2)
    drawn: Arrays = {}
    for name, shape, dtype in zip(call.names()[1], call.shapes[1], call.dtypes[1]):
        drawn["d_" + name] = np.asarray(rng.standard_normal(shape)).astype(dtype)
    return _read_by_gradient(call, {**ins, **outs, **drawn, **(heads or {})})


def _read_by_gradient(call: Call, have: Arrays) -> Arrays:
    assert call.op.grad_op is not None
    return {n: have[n] for n in call.op.grad_op.input_names(call.attrs)}


def _has_gradient(call: Call) -> bool:
    visible = call.op.num_visible_outputs(call.attrs)
    differentiable = any(is_floating(d) for d in call.dtypes[1][:visible])
    return bool(differentiable and call.op.grad_op and call.op.grad_op.output_names(call.attrs))


def operators(call: Call) -> list[type[Op]]:
    """The operator and, if it has one, its gradient."""
    return [call.op, call.op.grad_op] if _has_gradient(call) and call.op.grad_op else [call.op]


def stages(call: Call, arrays: Sequence[Any]) -> Iterator[tuple[type[Op], Arrays]]:
    """Those operators, each with inputs to run on."""
    for op in operators(call):
        is_forward = op is call.op
        yield op, dict(zip(call.names()[0], arrays)) if is_forward else gradient_inputs(call, arrays)


def same_bits(got: Any, want: Any, what: str) -> None:
    """Bit for bit."""
    if got is None or want is None:
        assert got is want, what
    else:
        assert got.dtype == want.dtype and got.shape == want.shape, what
        a, b = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (got, want))
        differ = a != b if got.size else ()
        assert not np.any(differ), f"{what}: {got} instead of {want}"


def check_writes_all_and_reads_no_garbage(case: Case) -> None:
    """Whatever outputs and scratch held before, results are the same: nothing is left out, nothing read."""
    call = Call.of(case)
    for op, inputs in stages(call, case.inputs()):
        first = call.execute(op, inputs, garbage=0xFF)
        second = call.execute(op, inputs, garbage=0x01)
        for a, b, kind in zip(first, second, ("output", "input")):
            for name in a:
                same_bits(b[name], a[name], f"{op.op_name}: {kind} {name} differs after other garbage")


def check_inputs_are_untouched(case: Case) -> None:
    """Inputs that are not in `mutates` keep every bit."""
    call = Call.of(case)
    for op, inputs in stages(call, case.inputs()):
        _, after = call.execute(op, inputs)
        for name, before in inputs.items():
            if name not in op.mutated(call.attrs):
                same_bits(after[name], before, f"{op.op_name}: input {name} was written")


def check_in_place(case: Case) -> None:
    """Each option of `in_place`, the kernel's own too, and all that go together, gives the bits that separate
    memory gives.
    """
    call = Call.of(case)
    layout = call.layout()
    for op, inputs in stages(call, case.inputs()):
        want, _ = call.execute(op, inputs)
        choices: list[list[tuple[str, str] | None]] = []
        for out, donors in call.kernel(op).in_place_options(op, call.attrs).items():
            pairs: list[tuple[str, str] | None] = [None]
            for donor in donors:
                if (
                    out in want
                    and inputs.get(donor) is not None
                    and _nbytes(layout[out]) == inputs[donor].nbytes
                ):
                    if layout[out][1] == inputs[donor].dtype:
                        pairs.append((out, donor))
            choices.append(pairs)
        for chosen in itertools.islice(itertools.product(*choices), 64):
            alias = dict(pair for pair in chosen if pair)
            if alias and len(set(alias.values())) == len(alias):
                got, _ = call.execute(op, inputs, alias=alias)
                for name in want:
                    same_bits(got[name], want[name], f"{op.op_name}: {name} differs in place {alias}")


def _nbytes(kind: tuple[Shape, Any]) -> int:
    return math.prod(kind[0]) * kind[1].itemsize


def check_unwanted_outputs(case: Case) -> None:
    """Leaving any output out (None), or all but one, does not change the others."""
    call = Call.of(case)
    for op, inputs in stages(call, case.inputs()):
        want, _ = call.execute(op, inputs)
        if len(want) < 2:
            continue
        parts = [part for name in want for part in (tuple(n for n in want if n != name), (name,))]
        for wanted in dict.fromkeys(parts):  # of two outputs, all but the one are the other
            got, _ = call.execute(op, inputs, wanted=wanted)
            for n in wanted:
                same_bits(got[n], want[n], f"{op.op_name}: {n} differs when only {wanted} is wanted")


def check_missing_head_gradients(case: Case) -> None:
    """A head gradient that is None counts as zero; at least one arrives."""
    call = Call.of(case)
    if call.op.grad_op is None:
        return
    heads = {"d_" + o: i for i, o in enumerate(call.names()[1])}
    read = [h for h in heads if h in call.op.grad_op.input_names(call.attrs)]
    if len(read) < 2:
        return
    for missing in read:
        shape, dtype = call.layout()[missing]
        zero = gradient_inputs(call, case.inputs(), {missing: np.zeros(shape, dtype)})
        want, _ = call.execute(call.op.grad_op, zero)
        got, _ = call.execute(call.op.grad_op, {**zero, missing: None})
        for name in want:
            np.testing.assert_allclose(
                got[name], want[name], rtol=1e-12, atol=1e-12, err_msg=f"{missing} is None"
            )


def gradients_of(call: Call, arrays: Sequence[Any]) -> tuple[Arrays, Arrays, Arrays]:
    """Outputs by name, gradients by input name, and the head gradients (`d_<output>`) they belong to.

    Heads of hidden outputs are zero. No gradients where an output is of whole numbers.
    """
    ins, outs = call.names()
    visible = outs[: call.op.num_visible_outputs(call.attrs)]
    rng = np.random.default_rng(4)
    heads: Arrays = {}
    for name, shape, dtype in zip(outs, call.shapes[1], call.dtypes[1]):
        drawn = rng.standard_normal(shape) if name in visible and is_floating(dtype) else np.zeros(shape)
        heads["d_" + name] = np.asarray(drawn).astype(dtype)
    result, _ = forward_run(call, arrays)
    grads: Arrays = {}
    if not any(is_floating(d) for d in call.dtypes[1][: len(visible)]):
        return result, grads, heads
    for name, head in call.op.gradient_is.items():
        for n in ins if name == call.op.variadic else (name,):
            grads[n] = heads[head]
    if call.op.grad_op is not None and call.op.grad_op.output_names(call.attrs):
        made = call.execute(call.op.grad_op, gradient_inputs(call, arrays, heads))[0]
        grads |= {n.removeprefix("d_"): g for n, g in made.items()}
    return result, grads, heads


def check_gradient(case: Case, eps: float = 1e-6) -> None:
    """Gradients against central differences in float64, each input along a random direction."""
    if case.dtype != "float64":
        return
    call = Call.of(case)
    arrays = case.inputs()
    ins, outs = call.names()
    rng = np.random.default_rng(3)
    visible = outs[: call.op.num_visible_outputs(call.attrs)]
    _, found, heads = gradients_of(call, arrays)
    grads = {"d_" + n: g for n, g in found.items()}
    wanted = case.grad_inputs if case.grad_inputs is not None else [n for n in ins if "d_" + n in grads]

    def objective(inputs: Sequence[Any]) -> float:
        result, _ = forward_run(call, inputs)
        if case.objective is not None:
            return float(case.objective(call.attrs, dict(zip(ins, inputs)), result))
        return sum(
            float(np.vdot(result[o], heads["d_" + o])) for o in visible if is_floating(result[o].dtype)
        )

    for i, name in enumerate(ins):
        if name not in wanted:
            continue
        for _ in range(2):
            direction = rng.standard_normal(arrays[i].shape)
            moved = [[*arrays[:i], arrays[i] + step * direction, *arrays[i + 1 :]] for step in (eps, -eps)]
            numeric = (objective(moved[0]) - objective(moved[1])) / (2 * eps)
            exact = float(np.vdot(grads["d_" + name], direction))
            scale = max(1.0, abs(exact), abs(numeric))
            assert abs(numeric - exact) <= case.tolerance * scale, (
                f"{call.op.op_name}: d_{name} is {exact} along a direction, differences say {numeric}"
            )


def check_float32(case: Case) -> None:
    """The same in float32 is close to float64's."""
    if case.dtype != "float64":
        return
    small, large = Call.of(case, dtype="float32"), Call.of(case)
    arrays = case.inputs(dtype="float32")
    wide = [x.astype(d) for x, d in zip(arrays, large.dtypes[0])]
    for (op, given), (_, exact) in zip(stages(small, arrays), stages(large, wide)):
        if op is not case.op:  # the same head gradients, rounded
            exact = {n: x if x is None else given[n].astype(x.dtype) for n, x in exact.items()}
        got, got_in = small.execute(op, given)
        want, want_in = large.execute(op, exact)
        got |= {n: got_in[n] for n in op.mutated(small.attrs) if n in got_in}
        want |= {n: want_in[n] for n in op.mutated(large.attrs) if n in want_in}
        for name in want:
            np.testing.assert_allclose(
                np.asarray(got[name], np.float64),
                np.asarray(want[name], np.float64),
                rtol=case.tolerance32,
                atol=case.tolerance32 * max(1e-2, float(np.max(np.abs(want[name].astype(float)), initial=0))),
                err_msg=f"{op.op_name}: {name}",
            )


def check_repeats(case: Case) -> None:
    """Two runs give the same bits."""
    call = Call.of(case)
    for op, inputs in stages(call, case.inputs()):
        first, second = call.execute(op, inputs), call.execute(op, inputs)
        for a, b in zip(first, second):
            for name in a:
                same_bits(b[name], a[name], f"{op.op_name}: {name} differs in a second run")


def check_completes_shapes(case: Case) -> None:
    """Inputs that are inferred follow from the others (`Call.of` leaves them out and compares)."""
    Call.of(case)


def check_open_shapes(case: Case) -> None:
    """With any axis of the inputs open, or axis 0 of all, inference finds nothing but what is so; given the
    outputs as well, neither. Nothing that is known of an input is refused. Inputs that may be inferred are
    known or not, never open."""
    call = Call.of(case)
    op, names = case.op, case.op.input_names(case.parsed)
    node = Node(op, case.parsed, tuple(variable(n) for n in names), "node")
    outs = [Entry(node, i) for i in range(node.num_outputs)]
    graph = Graph(tuple(outs), (node,))
    whole = {**dict(zip(node.inputs, call.shapes[0])), **dict(zip(outs, call.shapes[1]))}
    inferred = op.inferred_names(case.parsed)
    needed = [n for n in names if n not in inferred or n in case.given]
    places = [(n, axis) for n, s in zip(names, call.shapes[0]) if n not in inferred for axis in range(len(s))]
    for opened in [*({p} for p in places), {p for p in places if p[1] == 0}]:
        known = {
            n: tuple(UNKNOWN if (n, axis) in opened else d for axis, d in enumerate(s))
            for n, s in zip(names, call.shapes[0])
            if n in needed
        }
        for given in ({}, dict(zip(outs, call.shapes[1]))):
            found = infer_shapes(dataclasses.replace(graph, shapes=given), known).shapes
            for entry, shape in found.items():
                assert agreed_shape(shape, whole[entry]) is not None, (
                    f"{op.op_name} of {known} with {len(given)} outputs known: {entry.node.name} is found "
                    f"to be {shape}, but it is {whole[entry]}"
                )


def check_attrs_round_trip(case: Case) -> None:
    """Parameters survive being written as text, those given and all of them."""
    want = case.parsed
    if want is case.attrs:
        return  # no user writes them
    assert parse_attrs(case.op, {k: attr_text(v) for k, v in case.attrs.items()}) == want
    everything = {f.name: attr_text(getattr(want, f.name)) for f in dataclasses.fields(want)}
    assert parse_attrs(case.op, everything) == want


def check_allocates_nothing_large(case: Case, elements: int = 220_000) -> None:
    """At sizes where a whole temporary would be seen, a run allocates less than LOCAL_BYTES at a time."""
    case = dataclasses.replace(case, attrs={**case.attrs, **case.large_attrs}) if case.large_attrs else case
    shapes = case.large or _long(case, elements)
    call = Call.of(case, shapes)
    arrays = case.inputs(call.shapes[0])
    largest = max(math.prod(shape) * max(dtype.itemsize, 2) for shape, dtype in call.layout().values())
    assert largest > 2 * LOCAL_BYTES, "the row's `large` shapes are too small to tell a temporary"
    ins = dict(zip(call.names()[0], arrays))
    outs = _run_without_large(call, call.op, ins)
    if _has_gradient(call):
        assert call.op.grad_op is not None
        heads = {"d_" + n: _ones(s, d) for n, s, d in zip(call.names()[1], call.shapes[1], call.dtypes[1])}
        _run_without_large(call, call.op.grad_op, _read_by_gradient(call, {**ins, **outs, **heads}))


def _ones(shape: Shape, dtype: Any) -> Any:
    """To be read only: the same memory for all."""
    return _many_ones(2 ** max(math.prod(shape) - 1, 0).bit_length(), dtype)[: math.prod(shape)].reshape(
        shape
    )


@functools.lru_cache(maxsize=8)
def _many_ones(elements: int, dtype: Any) -> Any:
    ones = np.ones(elements, dtype)
    ones.flags.writeable = False
    return ones


def _run_without_large(call: Call, op: type[Op], inputs: Arrays) -> Arrays:
    """Outputs of a run that allocated nothing large."""
    layout = call.layout()
    outs = {n: _garbage(*layout[n], 0xFF) for n in op.output_names(call.attrs)}
    run, _ = call.bind(op, dict(inputs), outs, 0xFF)
    for _ in range(2):  # the first one may allocate what Python, numpy and the kernel keep
        with np.errstate(all="ignore"):
            tracemalloc.start()
            try:
                before = tracemalloc.get_traced_memory()[0]
                run()
                after, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        # Python keeps freed tuples and frames for later, some more with each run of a long loop.
        peak -= before + min(max(after - before, 0), KEPT_BYTES)
        if peak < LOCAL_BYTES:
            return outs
    raise AssertionError(f"{op.op_name} allocated {peak} bytes outside its workspace")


def _long(case: Case, elements: int) -> list[Shape]:
    """The row's shapes with axis 0 made long wherever it is the first input's."""
    if not case.shapes:
        return []
    first = tuple(case.shapes[0])
    factor = -(-elements // math.prod(first))
    return [
        (s[0] * factor, *s[1:]) if s and s[0] == first[0] and not case.follows(n) else tuple(s)
        for n, s in zip(case.op.input_names(case.parsed), case.shapes)
    ]


RULES: dict[str, Callable[[Case], None]] = {
    "completes shapes": check_completes_shapes,
    "finds no wrong length around open axes": check_open_shapes,
    "writes all its outputs and reads no garbage": check_writes_all_and_reads_no_garbage,
    "leaves its inputs untouched": check_inputs_are_untouched,
    "gives the same in place": check_in_place,
    "skips outputs that nobody wants": check_unwanted_outputs,
    "takes a missing head gradient as zero": check_missing_head_gradients,
    "has the gradient that differences say": check_gradient,
    "is close in float32": check_float32,
    "repeats bit for bit": check_repeats,
    "has parameters that survive text": check_attrs_round_trip,
    "allocates nothing large": check_allocates_nothing_large,
}
