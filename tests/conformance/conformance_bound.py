"""Rules for an operator in a bound program: arenas, in-place, recomputation, engines, gradient requests.

The operator stands between copies, so that its inputs and outputs lie in the arena and the planner may
overwrite them:

    variable -> _copy -> OPERATOR -> _copy -> output
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxlite import ndarray as nd, ops
from mxlite.core.dtype import is_floating
from mxlite.engine import use_engine
from mxlite.graph.infer import infer_shapes
from mxlite.graph.ir import Entry, Graph, Node, variable
from mxlite.symbol import Symbol
from tests.conformance.case import Case
from tests.conformance.conformance import Call, gradients_of, same_bits

Arrays = dict[str, Any]


def _network(call: Call, mirrored: bool) -> Symbol:
    marks = {"__force_mirroring__": "True"} if mirrored else {}
    attrs = ops.Copy.Attrs()
    kept = {*call.op.mutated(call.attrs), *call.op.aux}
    ins = []
    for name, dtype in zip(call.names()[0], call.dtypes[0]):
        entry = variable(name, __dtype__=str(dtype))
        if name not in kept:
            entry = Entry(Node(ops.Copy, attrs, (entry,), f"{name}_in", annotations=dict(marks)))
        ins.append(entry)
    node = Node(call.op, call.attrs, tuple(ins), "node", annotations=dict(marks))
    outs = []
    for i in range(node.num_visible_outputs):
        entry = Entry(node, i)
        if not call.op.is_loss:
            entry = Entry(Node(ops.Copy, attrs, (entry,), f"out{i}"))
        outs.append(entry)
    return Symbol(tuple(outs))


def _bindable(case: Case) -> Call | None:
    """The call, unless it has no output, no input, or draws random numbers (the step decides which)."""
    call = Call.of(case)
    visible = call.op.num_visible_outputs(call.attrs)
    draws = "rng" in call.op.signature.services
    return None if not visible or not case.shapes or draws else call


def _bind(net: Symbol, call: Call, arrays: list[Any], grad_req: Any) -> Any:
    shapes = dict(zip(call.names()[0], call.shapes[0]))
    args = net.list_arguments()
    every = {n: nd.array(x, dtype=x.dtype) for n, x in zip(call.names()[0], arrays)}
    grads = {
        n: nd.array(np.full(shapes[n], 3.0), dtype=every[n].dtype)
        for n in args
        if is_floating(every[n].dtype)
    }
    return net.bind(
        None,
        {n: every[n] for n in args},
        args_grad=grads,
        grad_req={n: grad_req if n in grads else "null" for n in args},
        aux_states={n: every[n] for n in net.list_auxiliary_states()},
    )


def check_bound_equals_called(case: Case) -> None:
    """Planned, in place, recomputed, on either engine: the bits of outputs and gradients are the same."""
    call = _bindable(case)
    if call is None:
        return
    arrays = case.inputs()
    called = gradients_of(call, arrays)
    for mirrored in (False, True):
        exe = None
        for engine in ("naive", "threaded"):
            with use_engine(engine):
                if exe is None:
                    exe = _bind(_network(call, mirrored), call, arrays, "write")
                else:
                    _forget(exe, call, arrays)
                _check_step(case, call, exe, called, f"{engine}{', recomputed' * mirrored}")


def _forget(exe: Any, call: Call, arrays: list[Any]) -> None:
    """Inputs are what they were before the first step, and all that it made is garbage."""
    held = {**exe.arg_dict, **exe.aux_dict}
    for name, x in zip(call.names()[0], arrays):
        held[name][...] = nd.array(x, dtype=x.dtype)
    made = [*exe.outputs, *(g for g in exe.grad_arrays if g is not None)]
    nd.waitall()
    for storage in (exe._arena.block, *(a.storage for a in made)):
        storage.reshape(-1).view(np.uint8)[...] = 0xFF


def _check_step(case: Case, call: Call, exe: Any, called: tuple[Arrays, Arrays, Arrays], how: str) -> None:
    outs, grads, heads = called
    got = exe.forward(is_train=case.train)
    for i, out in enumerate(got):
        want = outs[call.names()[1][i]]
        same_bits(out.asnumpy(), want, f"{call.op.op_name}, {how}: output {i}")
    if not case.train or not grads:
        return
    names = call.names()[1][: len(got)]
    out_grads = [
        nd.array(heads["d_" + n], dtype=heads["d_" + n].dtype) if is_floating(got[i].dtype) else None
        for i, n in enumerate(names)
    ]
    exe.backward(None if call.op.is_loss else out_grads)
    for name, want in grads.items():
        if name in exe.grad_dict and exe.grad_dict[name] is not None:
            result = exe.grad_dict[name].asnumpy()
            same_bits(result, want, f"{call.op.op_name}, {how}: gradient of {name}")


def check_gradient_requests(case: Case) -> None:
    """'add' adds to what is there, 'null' leaves it alone."""
    call = _bindable(case)
    if call is None or not case.train:
        return
    arrays = case.inputs()
    _, grads, heads = gradients_of(call, arrays)
    if not grads:
        return
    net = _network(call, False)
    names = call.names()[1][: call.op.num_visible_outputs(call.attrs)]
    with use_engine("naive"):
        exe = _bind(net, call, arrays, "add")
        exe.forward(is_train=True)
        out_grads = [nd.array(heads["d_" + n], dtype=heads["d_" + n].dtype) for n in names]
        exe.backward(None if call.op.is_loss else out_grads)
        for name, want in grads.items():
            if name in exe.grad_dict and exe.grad_dict[name] is not None:
                got = exe.grad_dict[name].asnumpy()
                same_bits(got, np.full_like(want, 3) + want, f"{call.op.op_name}: 'add' of {name}")
        exe = _bind(net, call, arrays, "null")
        exe.forward(is_train=True)
        assert all(g is None or (g.asnumpy() == 3).all() for g in exe.grad_arrays)


def check_infers_backwards(case: Case) -> None:
    """Where all arrays are of one shape, an output's shape tells the inputs'."""
    call = Call.of(case)
    if not call.op.same_shape or not case.shapes:
        return
    names = call.names()[0]
    node = Node(call.op, call.attrs, tuple(variable(n) for n in names), "node")
    like = variable("like")
    both = Node(ops.elemwise_add, ops.elemwise_add.Attrs(), (Entry(node), like), "both")
    graph = infer_shapes(Graph((Entry(both),)), {"like": tuple(case.shapes[0])})
    assert all(graph.shapes[e] == tuple(case.shapes[0]) for e in node.inputs)


RULES = {
    "gives the same bound, planned and recomputed, on both engines": check_bound_equals_called,
    "honours every gradient request": check_gradient_requests,
    "tells input shapes from output shapes": check_infers_backwards,
}
