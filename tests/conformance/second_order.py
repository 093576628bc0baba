"""A rule for operators that write their gradient with operators: it is right, and has a gradient itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mxlite.backends import bind_call
from mxlite.backends.cpu.backend import CPU
from mxlite.core.dtype import is_floating
from mxlite.core.errors import DerivativeError
from mxlite.graph.gradient import backward
from mxlite.graph.infer import infer_shapes, infer_types
from mxlite.graph.ir import Entry, Graph, Node, variable
from mxlite.ops import find_op
from mxlite.ops.random.philox import RandomStream
from tests.conformance.case import Case
from tests.conformance.conformance import Call

Arrays = dict[str, Any]


def evaluate(
    graph: Graph, arrays: Mapping[str, Any], *, train: bool = True, known: Graph | None = None
) -> list[Any]:
    """The outputs of `graph`, node by node, each into fresh memory. `arrays` are those of its variables.

    Every node draws the same random bits, so a gradient sees those of its forward call. `known` is a graph
    of the same nodes whose shapes and dtypes were inferred before.
    """
    graph = known or inferred(graph, arrays)
    values: dict[Entry, Any] = {}
    for node in graph.nodes:
        if node.op is None:
            values[Entry(node)] = arrays[node.name].copy()
            continue
        of = node.forward or node
        outs = [Entry(of, i) for i in range(of.num_outputs)]
        shapes = (tuple(graph.shapes[e] for e in of.inputs), tuple(graph.shapes[e] for e in outs))
        first = graph.dtypes[(of.inputs or outs)[0]]
        kernel = CPU.choose(node.op, node.attrs, *shapes, first)
        given = dict(zip(node.input_names, (values[e] for e in node.inputs)))
        entries = [Entry(node, i) for i in range(node.num_outputs)]
        made = [np.empty(graph.shapes[e], graph.dtypes[e]) for e in entries]
        for x in made:
            x.view(np.uint8).fill(0xFF) if x.ndim and x.size else x.fill(0)
        with np.errstate(all="ignore"):
            bind_call(
                kernel,
                CPU.xp,
                node.op,
                node.attrs,
                [given.get(n) for n in node.op.input_names(node.attrs)],
                made,
                work=CPU.empty(kernel.workspace),
                rng=RandomStream(np.array([7, 3], np.uint64), 5),
                train=train,
                shapes=shapes,
            )()
        values.update(zip(entries, made))
    return [values[e] for e in graph.outputs]


def inferred(graph: Graph, arrays: Mapping[str, Any]) -> Graph:
    """`graph` with the shapes and dtypes that follow from those of its variables."""
    graph = infer_shapes(graph, {n: x.shape for n, x in arrays.items()})
    return infer_types(graph, {n: x.dtype for n, x in arrays.items()})


def check_derivative(case: Case, eps: float = 1e-6) -> None:
    """`derivative` gives what `backward` gives, and its own gradient is the one that differences say.

    The second gradient is that of sum(g * v), for the first gradients g and random v, with respect to every
    input that has a gradient and to every head gradient, along a random direction each.
    """
    if case.op.derivative is None or case.dtype != "float64":
        return
    call = Call.of(case)
    op, attrs = call.op, call.attrs
    ins, outs = call.names()
    variables = {n: variable(n) for n in ins}
    node = Node(op, attrs, tuple(variables.values()), "node")
    rng = np.random.default_rng(4)
    arrays: Arrays = dict(zip(ins, case.inputs()))
    visible = range(op.num_visible_outputs(attrs))
    heads: dict[int, Entry] = {}
    for i in visible:
        if is_floating(call.dtypes[1][i]):
            heads[i] = variable(f"d_{outs[i]}")
            arrays[f"d_{outs[i]}"] = np.asarray(rng.standard_normal(call.shapes[1][i]))
    graph = Graph(tuple(Entry(node, i) for i in visible))
    wrt = [n for n in ins if is_floating(arrays[n].dtype)]

    # Once with all head gradients, and where there are several, with each of them alone.
    alone = [{i: e} for i, e in heads.items()] if len(heads) > 1 else []
    for chosen in (heads, *alone):
        try:
            training, grads = backward(graph, [variables[n] for n in wrt], chosen, find_op)
        except DerivativeError:
            return  # the operator says that these parameters have none
        exist = {n: g for n, g in zip(wrt, grads) if g is not None}
        results = evaluate(training, _of(training, arrays), train=case.train)
        got = dict(zip(exist, results[len(graph.outputs) :]))
        want = {}
        if op.grad_op is not None:
            want = _kernel_gradients(call, arrays, [outs[i] for i in chosen], case)
        for n, g in want.items():
            if n not in got:
                assert not np.any(g), f"{op.op_name}.derivative gives no gradient of {n}"
                continue
            np.testing.assert_allclose(
                got[n],
                g,
                rtol=1e-9,
                atol=1e-9 * max(1.0, float(np.max(np.abs(g), initial=0))),
                err_msg=f"{op.op_name}.derivative: gradient of {n}",
            )
    _, grads = backward(graph, [variables[n] for n in wrt], heads, find_op)
    exist = {n: g for n, g in zip(wrt, grads) if g is not None}
    if not exist:
        return
    moving = [n for n in (case.grad_inputs if case.grad_inputs is not None else exist) if n in exist]
    moving += [f"d_{outs[i]}" for i in heads]
    variables |= {f"d_{outs[i]}": e for i, e in heads.items()}
    _check_again(case, graph.outputs, exist, arrays, variables, moving, eps)


def _check_again(
    case: Case,
    forward: tuple[Entry, ...],
    firsts: Mapping[str, Entry],
    arrays: Arrays,
    variables: Mapping[str, Entry],
    moving: Sequence[str],
    eps: float,
) -> None:
    rng = np.random.default_rng(5)
    first = Graph(tuple(dict.fromkeys(firsts.values())))
    # The forward outputs and the first gradients take part for their shapes: gradient nodes ask for them.
    whole = Graph((*forward, *first.outputs))
    known = inferred(whole, _of(whole, arrays))
    cotangents = {i: variable(f"v{i}") for i in range(len(first.outputs))}
    given = {**arrays, **{f"v{i}": rng.standard_normal(known.shapes[e]) for i, e in enumerate(first.outputs)}}
    given = {n: np.asarray(x) for n, x in given.items()}
    _, grads = backward(first, [variables[n] for n in moving], cotangents, find_op)
    exist = {n: g for n, g in zip(moving, grads) if g is not None}
    second = Graph((*whole.outputs, *exist.values()))
    results = evaluate(second, _of(second, given), train=case.train)
    got = dict(zip(exist, results[len(whole.outputs) :]))

    def objective(values: Arrays) -> float:
        results = evaluate(whole, _of(whole, values), train=case.train, known=known)[len(forward) :]
        return sum(float(np.vdot(g, given[f"v{i}"])) for i, g in enumerate(results))

    for name in moving:
        x = arrays[name]
        direction = rng.standard_normal(x.shape)
        ahead, behind = (objective({**arrays, name: np.asarray(x + s * direction)}) for s in (eps, -eps))
        numeric = (ahead - behind) / (2 * eps)
        exact = float(np.vdot(got[name], direction)) if name in got else 0.0
        scale = max(1.0, abs(exact), abs(numeric))
        assert abs(numeric - exact) <= 10 * case.tolerance * scale, (
            f"{case.op.op_name}.derivative: its gradient in {name} is {exact} along a direction, "
            f"differences say {numeric}"
        )


def _of(graph: Graph, arrays: Arrays) -> Arrays:
    """The arrays that `graph` reads."""
    return {n.name: arrays[n.name] for n in graph.nodes if n.op is None}


def _kernel_gradients(call: Call, arrays: Arrays, arrived: Sequence[str], case: Case) -> Arrays:
    """What `gradient_is` and `backward` give, when the gradients of the outputs `arrived` arrive."""
    op, attrs = call.op, call.attrs
    ins = call.names()[0]
    found: Arrays = {}
    for name, head in op.gradient_is.items():
        if head.removeprefix("d_") in arrived:
            for n in ins if name == op.variadic else (name,):
                found[n] = arrays[head]
    if op.grad_op is not None:
        outs, after = call.execute(op, {n: arrays[n] for n in ins})
        have = {**after, **outs, **{f"d_{o}": arrays[f"d_{o}"] for o in arrived}}
        needs = op.grad_op.input_names(attrs)
        made, _ = call.execute(op.grad_op, {n: have.get(n) for n in needs})
        found |= {n.removeprefix("d_"): x for n, x in made.items()}
    return {n: x for n, x in found.items() if n in arrays and is_floating(arrays[n].dtype)}
