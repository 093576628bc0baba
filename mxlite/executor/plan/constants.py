"""Constant folding in inference: nodes that depend on parameters alone run only when these change.

Examples are weights in the layout of a kernel, norms folded into weights, weights cast to 16 bits: nodes that
depend on no input and draw nothing. `hoist` moves them to the front of a step and gives their results that
the rest reads storage of their own; a program skips them as long as no parameter has been written.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Any

import numpy as np

from ...backends import Backend, rewrite
from ...backends.rewrite import Rewrite, Stage, told
from ...graph import Graph, Node, Shape
from .step import Key, PlannedStep

CONSTANTS = "constants"
"""The name of this rewrite."""


def hoist(step: PlannedStep, backend: Backend, in_place: bool = False) -> PlannedStep:
    """`step`, an inference pass, with its constant nodes first; itself if there are none. O(nodes).

    If inputs cannot be told from parameters, as for arrays given to `bind`, there are none. in_place:
    True if parameters may be kept in another form in place, see `away.py`.
    """
    inputs = {key[1] for key, category in step.category.items() if category == "inputs"}
    if not inputs:
        return step
    known = frozenset(e for n in _constant(step.graph, inputs) for e in n.outputs)
    plain = rewrite.Step.of(step.graph, step.storage, train=step.train, constant=known, in_place=in_place)
    packed = backend.optimize().run(Stage.CONSTANTS, plain)
    graph = packed.graph
    if packed is not plain:
        storage = {packed.stands[e]: k for e, k in step.storage.items()}
        away = {storage.get(e, ("var", e.node.name)): form for e, form in packed.forms.items()}
        step = replace(step, graph=graph, storage=storage, forms=away)
    constant = _constant(step.graph, inputs)
    first = [n for n in step.graph.nodes if n in constant]
    rest = [n for n in step.graph.nodes if n not in constant]
    storage = dict(step.storage)
    owned: dict[Key, tuple[Shape, np.dtype[Any]]] = dict(step.owned)
    category = dict(step.category)
    for n in rest:
        for e in n.inputs:
            if e.node in constant and e.node.op is not None and e not in storage:
                key = ("const", f"{e.node.name}.{e.index}")
                if key in owned:  # two nodes with the same name
                    key = ("const", f"{e.node.name}.{e.index}.{len(owned)}")
                storage[e] = key
                owned[key] = (step.graph.shapes[e], step.graph.dtypes[e])
                category[key] = "arguments"
    count = sum(1 for n in first if n.op is not None)
    if not count:
        return step
    order = replace(step.graph, order=(*first, *rest))
    before = rewrite.Step.of(step.graph, step.storage, train=step.train)
    order = told(Rewrite(CONSTANTS, before, before.became(order))).graph
    added = sum(1 for n in graph.nodes if n.op is not None) - step.num_forward
    return replace(
        step,
        graph=order,
        num_forward=step.num_forward + added,
        storage=storage,
        owned=owned,
        category=category,
        num_constant=count,
    )


def constant_bytes(step: PlannedStep) -> int:
    """Bytes of storage that `hoist` created, and additional bytes of parameters in another form."""
    nbytes = {key: int(np.prod(s)) * d.itemsize for key, (s, d) in step.owned.items()}
    extra = sum(form.nbytes - nbytes[key] for key, form in step.forms.items())
    return extra + sum(n for key, n in nbytes.items() if key[0] == "const")


def _constant(graph: Graph, inputs: Set[str]) -> set[Node]:
    """The nodes that depend on no variable in `inputs`."""
    constant: set[Node] = set()
    for node in graph.nodes:
        if node.op is None:
            if node.name not in inputs:
                constant.add(node)
        elif node.inputs and all(e.node in constant for e in node.inputs) and _is_pure(node):
            constant.add(node)
    return constant


def _is_pure(node: Node) -> bool:
    assert node.op is not None
    return not (node.op.has_stream(node.attrs) or node.op.mutated(node.attrs) or node.op.subgraphs)
