"""Control flow: operators whose parameters are graphs.

`mx.sym.contrib.foreach`, `while_loop` and `cond` make them; their names, parameters and files are MXNet
1.9.1's. A **subgraph** (the body of a loop, its condition, a branch) is a parameter listed in `Op.subgraphs`.
Its inputs are fed in one of three ways, its **plugs**:

    ("data", i)     row t of argument i in iteration t
    ("state", k)    state k: an initial value before the first iteration, then the previous iteration's result
    ("outer", i)    argument i as a whole: a weight, or any symbol from outside that the body uses

**Kernels** are not here: `backends/control_flow/control.py` builds them, from the kernels of the body's
operators and a memory plan of the body, whose arena is the node's workspace. So the surrounding network's
plan sees every byte.

**Backward recomputes.** A loop keeps nothing but the value of its states before each iteration: a hidden
output, T x the bytes of the states. A state that the gradient does not read, such as a running sum, is not
kept, nor one that is also an output, as in most recurrent cells: backward reads that output then.
Backward walks the iterations in reverse: it recomputes the body from the kept states, then runs the body's
gradient. That is one more forward per iteration, a third of the arithmetic of a training step, and needs the
values within one iteration instead of T. Gradients of outer arguments are summed in float32 or wider.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar

from ...core.compat.npshape import is_np_shape
from ...core.dtype import as_dtype
from ...core.errors import DTypeError, OpAttributeError
from ...core.record import record
from ...graph.ir import Entry
from ...graph.opdef import Op, Shapes
from .control_shapes import agreed, graph_flops, infer_through, state_name, subgraphs, types_through
from .subgraph import Subgraph

Plug = tuple[str, int]


class Control(Op):
    """Base of `_foreach`, `_while_loop` and `_cond`. The last subgraphs compute, an earlier one decides."""

    abstract = True
    variadic = "args"
    variadic_outputs = "outs"
    takes_open_shapes = True  # and asks the operators inside
    is_loop: ClassVar[bool] = True  # outputs have a row for each iteration

    @classmethod
    def input_names(cls, a):
        return tuple(f"arg{i}" for i in range(a.num_args - len(cls.subgraphs)))

    @classmethod
    def output_names(cls, a):
        return tuple(f"output{i}" for i in range(a.num_outputs)) + cls.hidden_names(a)

    @classmethod
    def num_outputs_of(cls, a):
        return a.num_outputs

    @classmethod
    def num_visible_outputs(cls, a):
        return a.num_outputs

    @classmethod
    def inferred_names(cls, a):
        return cls.input_names(a)

    @classmethod
    def hidden_names(cls, a) -> tuple[str, ...]:
        """Outputs for backward: `state<k>`, the states before each iteration, and `count`."""
        states = tuple(f"state{k}" for k in range(len(cls.state_args(a))))
        return states if cls.data_args(a) else (*states, "count")

    # -- wiring --------------------------------------------------------------------------------

    @classmethod
    def plugs(cls, a) -> tuple[tuple[Plug, ...], ...]:
        """The sources of each subgraph's inputs."""
        raise NotImplementedError

    @classmethod
    def data_args(cls, a) -> tuple[int, ...]:
        """Arguments that are read row by row."""
        return ()

    @classmethod
    def state_args(cls, a) -> tuple[int, ...]:
        """Arguments that hold the initial states."""
        return ()

    @classmethod
    def num_deciding(cls) -> int:
        """Number of subgraphs, the first ones, that only decide what is run."""
        return 1

    @classmethod
    def iterations(cls, a, shapes: Shapes) -> int:
        """The most iterations of the body."""
        return 1

    @classmethod
    def repeats(cls, a) -> dict[int, int]:
        """State -> output whose row t - 1 is the state before iteration t, so that it is not kept twice."""
        return _repeats(subgraphs(cls, a)[-1], len(cls.state_args(a))) if cls.is_loop else {}

    @classmethod
    def unneeded(cls, a):
        """Inputs that the body's gradient does not read; it reads arguments and states before each iteration.

        A state is read from the output that has it as a row, if there is one.
        """
        read: set[str] = {"count"}
        for sub, plugs in list(zip(subgraphs(cls, a), cls.plugs(a)))[cls.num_deciding() :]:
            for node, (kind, i) in zip(sub.inputs, plugs):
                if node.name not in sub.needed_by_gradient:
                    continue
                if kind == "state" and i in cls.repeats(a):
                    read |= {f"output{cls.repeats(a)[i]}", f"arg{cls.state_args(a)[i]}"}
                else:
                    read.add(f"state{i}" if kind == "state" else f"arg{i}")
        names = (*cls.input_names(a), *cls.output_names(a))
        return frozenset(names).difference(read) | {f"d_{n}" for n in cls.hidden_names(a)}

    # -- shapes, types, cost -------------------------------------------------------------------

    @classmethod
    def infer_shape(cls, a, *shapes):
        return infer_through(cls, a, shapes, is_np_shape())[0]

    @classmethod
    def infer_type(cls, a, *dtypes):
        args, states, graphs = types_through(cls, a, dtypes)
        outs = [None if g is None else [g.dtypes.get(e) for e in g.outputs] for g in graphs]
        given = agreed(cls, a, outs, "of type", DTypeError)
        for k, (old, new) in enumerate(zip(states, given[a.num_outputs - len(states) :])):
            if old is not None and new is not None and old != new:
                raise DTypeError(
                    f"{state_name(cls, a, k)} is {old} before an iteration and {new} after it; it must stay."
                )
        return tuple(args), (*given, *states, *[as_dtype("float64")] * ("count" in cls.hidden_names(a)))

    @classmethod
    def flops(cls, a, inputs, outputs):
        graphs = infer_through(cls, a, tuple(inputs), is_np_shape())[1]
        most = max(graph_flops(g) for g in graphs[cls.num_deciding() :])
        return cls.iterations(a, inputs) * (most + sum(map(graph_flops, graphs[: cls.num_deciding()])))

    @classmethod
    def backward_flops(cls, a, inputs, outputs):
        return 3 * cls.flops(a, inputs, outputs)

    # -- kernels -------------------------------------------------------------------------------

    @staticmethod
    def forward(xp, a, *args, outs):
        raise NotImplementedError("Backend.choose makes the kernels of operators with subgraphs.")

    @staticmethod
    def backward(xp, a, d_outs, args, outs, *, d_args):
        raise NotImplementedError("Backend.choose makes the kernels of operators with subgraphs.")


class _foreach(Control):
    """Loop over the rows of the data: ``out[t], state = body(data[t], state)``. See
    `mx.sym.contrib.foreach`.

    data: (T, ...) each, rows of data (T,) are (1,);  states;  outer arguments  ->  outputs: (T, ...) each,
    then the last states. Arguments are in the order data, states, the others; `in_data_locs`, `in_state_locs`
    and `remain_locs` say which inputs of `body` they are.
    """

    subgraphs = ("body",)

    @record
    class Attrs:
        body: Subgraph
        num_args: int
        num_outputs: int
        num_out_data: int
        in_data_locs: tuple[int, ...]
        in_state_locs: tuple[int, ...] = ()
        remain_locs: tuple[int, ...] = ()

        def __post_init__(self) -> None:
            count = len(self.body.inputs)
            locs = (*self.in_data_locs, *self.in_state_locs, *self.remain_locs)
            if self.num_args != count + 1:
                raise OpAttributeError(
                    f"num_args is {self.num_args}; body has {count} inputs, it counts as one more."
                )
            if sorted(locs) != list(range(count)) or not self.in_data_locs:
                raise OpAttributeError(
                    f"in_data_locs, in_state_locs and remain_locs must share out {count} inputs, "
                    f"some of them data."
                )
            _check_outputs(self, "body", self.num_out_data + len(self.in_state_locs))

    @classmethod
    def plugs(cls, a):
        by_input: dict[int, Plug] = {}
        for i, at in enumerate(chain(a.in_data_locs, a.in_state_locs, a.remain_locs)):
            k = i - len(a.in_data_locs)
            kind = "data" if k < 0 else "state" if k < len(a.in_state_locs) else "outer"
            by_input[at] = (kind, k if kind == "state" else i)
        return (tuple(by_input[at] for at in sorted(by_input)),)

    @classmethod
    def data_args(cls, a):
        return tuple(range(len(a.in_data_locs)))

    @classmethod
    def state_args(cls, a):
        return tuple(range(len(a.in_data_locs), len(a.in_data_locs) + len(a.in_state_locs)))

    @classmethod
    def num_deciding(cls):
        return 0

    @classmethod
    def iterations(cls, a, shapes):
        return shapes[0][0]


class _while_loop(Control):
    """Loop ``outs[t], state = func(state)`` while ``cond(state)`` is not 0. See `mx.sym.contrib.while_loop`.

    states and outer arguments  ->  outputs: (`max_iterations`, ...) each, rows of iterations that did not
    run are 0 (MXNet 1.9.1: undefined), then the last states. `cond_input_locs` and `func_input_locs` say
    which arguments the inputs of `cond` and `func` are, `func_var_locs` which inputs of `func` are the
    states.
    """

    subgraphs = ("cond", "func")

    @record
    class Attrs:
        cond: Subgraph
        func: Subgraph
        num_args: int
        num_outputs: int
        num_out_data: int
        max_iterations: int
        cond_input_locs: tuple[int, ...]
        func_input_locs: tuple[int, ...]
        func_var_locs: tuple[int, ...]

        def __post_init__(self) -> None:
            count = self.num_args - 2
            _check_locs(self, ("cond", "func"), count)
            inputs = len(self.func_input_locs)
            if len(set(self.func_var_locs)) != len(self.func_var_locs) or not all(
                0 <= at < inputs for at in self.func_var_locs
            ):
                raise OpAttributeError(
                    f"func_var_locs {self.func_var_locs} must name inputs of func, below {inputs}."
                )
            if self.max_iterations < 0:
                raise OpAttributeError(f"max_iterations must be 0 or more, got {self.max_iterations}.")
            if len(self.cond.graph.outputs) != 1:
                raise OpAttributeError(f"cond must have one output, it has {len(self.cond.graph.outputs)}.")
            _check_outputs(self, "func", self.num_out_data + len(self.func_var_locs))

    @classmethod
    def plugs(cls, a):
        states = {at: k for k, at in enumerate(a.func_var_locs)}
        func = tuple(
            ("state", states[at]) if at in states else ("outer", i) for at, i in enumerate(a.func_input_locs)
        )
        changing = {i: k for k, i in enumerate(cls.state_args(a))}
        cond = tuple(("state", changing[i]) if i in changing else ("outer", i) for i in a.cond_input_locs)
        return cond, func

    @classmethod
    def state_args(cls, a):
        return tuple(a.func_input_locs[at] for at in a.func_var_locs)

    @classmethod
    def iterations(cls, a, shapes):
        return a.max_iterations


class _cond(Control):
    """``then_branch`` if `cond` is not 0, else ``else_branch``; only that one is run. See
    `mx.sym.contrib.cond`.

    outer arguments  ->  outputs, of the same shapes and types from either branch. `cond_input_locs`,
    `then_input_locs` and `else_input_locs` say which arguments the inputs of the subgraphs are.
    """

    subgraphs = ("cond", "then_branch", "else_branch")
    is_loop = False

    @record
    class Attrs:
        cond: Subgraph
        then_branch: Subgraph
        else_branch: Subgraph
        num_args: int
        num_outputs: int
        cond_input_locs: tuple[int, ...]
        then_input_locs: tuple[int, ...]
        else_input_locs: tuple[int, ...]

        def __post_init__(self) -> None:
            _check_locs(self, ("cond", "then", "else"), self.num_args - 3)
            if len(self.cond.graph.outputs) != 1:
                raise OpAttributeError(f"cond must have one output, it has {len(self.cond.graph.outputs)}.")
            _check_outputs(self, "then_branch", self.num_outputs)
            _check_outputs(self, "else_branch", self.num_outputs)

    @classmethod
    def plugs(cls, a):
        locs = (a.cond_input_locs, a.then_input_locs, a.else_input_locs)
        return tuple(tuple(("outer", i) for i in row) for row in locs)


def _check_outputs(a: Any, field: str, count: int) -> None:
    found = len(getattr(a, field).graph.outputs)
    if not found == count == a.num_outputs:
        raise OpAttributeError(
            f"{field} has {found} outputs, num_outputs is {a.num_outputs}; {count} are expected."
        )


def _check_locs(a: Any, names: tuple[str, ...], count: int) -> None:
    """Check that every argument is some subgraph's input, and every input of a subgraph an argument."""
    seen: set[int] = set()
    for name in names:
        locs = getattr(a, f"{name}_input_locs")
        inputs = len(getattr(a, name if hasattr(a, name) else f"{name}_branch").inputs)
        if len(locs) != inputs or len(set(locs)) != inputs or not all(0 <= i < count for i in locs):
            raise OpAttributeError(
                f"{name}_input_locs {locs} must name {inputs} different arguments below {count}."
            )
        seen.update(locs)
    if len(seen) != count:
        raise OpAttributeError(f"of {count} arguments {len(seen)} are used; num_args is {a.num_args}.")


@lru_cache(maxsize=1024)
def _repeats(body: Subgraph, num_states: int) -> dict[int, int]:
    def source(e: Entry) -> Entry:
        while e.node.op is not None and e.node.op.op_name == "_copy":
            e = e.node.inputs[0]
        return e

    sources = [source(e) for e in body.graph.outputs]
    rows = sources[: len(sources) - num_states]
    return {k: rows.index(e) for k, e in enumerate(sources[len(rows) :]) if e in rows}
