"""A network whose batch is free, from two imports of one module at two sizes of the batch.

Converters work with lengths that are numbers. Two imports differ exactly where a number came from the batch:
in the shape of a reshape, of a broadcast, of an array of equal numbers. There the length is left open (-1) or
taken from an array that has it (`broadcast_like`). Whatever else differs does not follow from the batch's
axis, and is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core import MXLiteError, ShapeError
from ...graph import Entry, infer_shapes, Node, Shape
from ...ops import TABLE
from ...symbol import Symbol
from ...symbol.compose import call
from ..building import NotSupportedError
from .package import torch_package

SIZES = (11, 13)
"""Times the example's batch: primes, so that the lengths hardly meet others of the network."""

DRAWN = {"_random_uniform": "_random_uniform_like", "_random_normal": "_random_normal_like"}

Batch = bool | str | Sequence[str] | Mapping[str, int]
"""Inputs of `forward` whose first axis, or the axis given, is the batch; True: every tensor with axes."""

Import = tuple[Symbol, Mapping[str, np.ndarray], Mapping[str, Shape]]
"""A symbol, the arrays of its variables, and the shapes of its inputs."""


def resized(arguments: Mapping[str, Any], batch: Batch, times: int) -> dict[str, Any]:
    """Arguments of forward with a batch `times` as long, of any numbers: the tracer reads shapes only.

    Raises ShapeError for an unknown name, an axis that is not there, and batches of several lengths.
    """
    torch = torch_package()
    tree = torch.utils._pytree
    names = [batch] if isinstance(batch, str) else batch
    axes = dict.fromkeys(arguments, 0) if names is True else names
    axes = dict(axes) if isinstance(axes, Mapping) else dict.fromkeys(axes, 0)  # type: ignore[arg-type]
    if unknown := set(axes) - set(arguments):
        raise ShapeError(
            f"dynamic_batch names {sorted(unknown)}, and forward was given {', '.join(arguments)}."
        )
    lengths: dict[int, str] = {}

    def longer(name: str, value: Any) -> Any:
        axis = axes[name]
        if not isinstance(value, torch.Tensor) or (names is True and not value.ndim):
            return value
        if not 0 <= axis < value.ndim:
            raise ShapeError(
                f"Input {name!r} has shape {tuple(value.shape)}, and no axis {axis} for a batch."
            )
        lengths.setdefault(value.shape[axis], name)
        if len(lengths) > 1:
            said = ", ".join(f"{n!r} has {length}" for length, n in lengths.items())
            raise ShapeError(f"The batch must be of one length in all inputs, but {said}: name its inputs.")
        return value.new_empty([d * times if i == axis else d for i, d in enumerate(value.shape)])

    changed = {
        name: tree.tree_map(lambda leaf, name=name: longer(name, leaf), arguments[name]) for name in axes
    }
    if not lengths:
        raise ShapeError("dynamic_batch finds no tensor with an axis for the batch.")
    return {**arguments, **changed}


def free_batch(first: Import, second: Import) -> tuple[Symbol, dict[str, np.ndarray]]:
    """The symbol that stands for both, with no length of the batch in it, and the arrays of its variables.

    Raises NotSupportedError, naming the node, where the module fixes the batch.
    """
    merged = _Merged(first, second)
    symbol = merged.run()
    for _, _, inputs in (first, second):
        try:
            infer_shapes(symbol.graph, inputs)
        except MXLiteError as error:
            raise NotSupportedError(f"The batch cannot be free: {error}") from None
    return symbol, merged.arrays


class _Merged:
    """Walks over the nodes of both imports, which come in one order."""

    def __init__(self, first: Import, second: Import) -> None:
        self.symbols = first[0], second[0]
        self.given = first[1], second[1]
        self.arrays = dict(first[1])
        self.graphs = [infer_shapes(symbol.graph, inputs) for symbol, _, inputs in (first, second)]
        self.moved: dict[Entry, Entry] = {}
        self.count = 0  # of calls made
        self.partner: dict[Node, Node] = {}
        self.holders: dict[tuple[int, int], tuple[Entry, int]] = {}  # two lengths -> an array and an axis
        inputs = [n for n in self.graphs[0].arguments if n.name in first[2]]
        for node in inputs:
            for axis, pair in enumerate(zip(first[2][node.name], second[2][node.name])):
                self.holders.setdefault(pair, (Entry(node), axis))

    def run(self) -> Symbol:
        ours, theirs = (graph.nodes for graph in self.graphs)
        for node, other in zip(ours, theirs):
            if node.op is not other.op or len(node.inputs) != len(other.inputs):
                self._refuse(
                    node, f"it is {_kind(node)} at one size of the batch and {_kind(other)} at another"
                )
            if any((self.partner.get(e.node), e.index) != f for e, f in zip(node.inputs, other.inputs)):
                self._refuse(node, "it reads other values at another size of the batch")
            self.partner[node] = other
            self._merge(node, other)
        if len(ours) != len(theirs):
            self._refuse(max(ours, theirs, key=len)[-1], "the number of nodes depends on the batch")
        return Symbol(tuple(self.moved.get(e, e) for e in self.symbols[0].entries))

    def _merge(self, node: Node, other: Node) -> None:
        inputs = tuple(self.moved.get(e, e) for e in node.inputs)
        if node.op is None:
            self.moved[Entry(node)] = self._variable(node, other)
        elif node.attrs != other.attrs:
            last = self._open(node, other, inputs).node
            self.moved[Entry(node)] = Entry(_like(last, last.inputs, node.name))
        elif any(e is not f for e, f in zip(inputs, node.inputs)):
            now = _like(node, inputs, node.name)
            self.moved |= {Entry(node, i): Entry(now, i) for i in range(node.num_outputs)}
        for entry, theirs in zip(node.outputs, other.outputs):
            lengths = (g.shapes.get(e, ()) for g, e in zip(self.graphs, (entry, theirs)))
            for axis, pair in enumerate(zip(*lengths)):
                if _differ(pair):
                    self.holders.setdefault(pair, (self.moved.get(entry, entry), axis))

    def _open(self, node: Node, other: Node, inputs: Sequence[Entry]) -> Entry:
        """The result of a node whose shape differs, with the batch's length left out of that shape."""
        name = _kind(node)
        rest, theirs = ({k: v for k, v in n.given.items() if k != "shape"} for n in (node, other))
        shape = getattr(node.attrs, "shape", None) or ()
        axes = [
            i for i, pair in enumerate(zip(shape, getattr(other.attrs, "shape", None) or ())) if _differ(pair)
        ]
        if rest != theirs or not axes or name not in (*DRAWN, "_full", "_reshape_to", "broadcast_to"):
            said = (", ".join(f"{k}={v}" for k, v in n.given.items()) for n in (node, other))
            self._refuse(node, " and for another batch ".join(said))
        if name == "_reshape_to":
            before = list(zip(*(g.shapes[n.inputs[0]] for g, n in zip(self.graphs, (node, other)))))
            kept = [i for i in axes if before[i : i + 1] == [(shape[i], other.attrs.shape[i])]]
            found = [i for i in axes if i not in kept]
            if len(found) > 1 or 0 in shape:
                self._refuse(node, f"the lengths {found} of its shape {shape} depend on the batch")
            return self._call("Reshape", inputs, node, shape=_at(found, -1, _at(kept, 0, shape)))
        if name == "broadcast_to":
            short = [i for i in axes if self.graphs[0].shapes[node.inputs[0]][i] == 1]
            return self._stretched(
                self._call(name, inputs, node, shape=_at(axes, 0, shape)), node, other, short
            )
        if name == "_full":
            return self._stretched(
                self._call(name, (), node, shape=_at(axes, 1, shape), **rest), node, other, axes
            )
        zeros = self._call("_full", (), node, shape=_at(axes, 1, shape), value=0.0, dtype=rest.pop("dtype"))
        return self._call(DRAWN[name], [self._stretched(zeros, node, other, axes)], node, **rest)

    def _variable(self, node: Node, other: Node) -> Entry:
        """An array of numbers that repeat themselves, or count, along the axes that follow the batch."""
        mine, his = (arrays.get(node.name) for arrays in self.given)
        if mine is None or his is None or np.array_equal(mine, his, equal_nan=mine.dtype.kind == "f"):
            return Entry(node)
        axes = [i for i, pair in enumerate(zip(mine.shape, his.shape)) if _differ(pair)]
        if mine.ndim == his.ndim and axes:
            one, step = _one(mine, axes), _step(mine, axes)
            if step is not None and np.array_equal(one, _one(his, axes)) and step == _step(his, axes):
                about = {**node.annotations, "__shape__": str(one.shape)}
                short = Entry(Node(None, None, (), node.name, annotations=about))
                self.arrays[node.name] = one
                if not step:
                    return self._stretched(short, node, other, axes)
                return self._call("broadcast_add", [short, self._counted(node, other, axes[0], step)], node)
        return self._refuse(node, f"it holds numbers that depend on the batch, of shape {mine.shape}")

    def _counted(self, node: Node, other: Node, axis: int, step: float) -> Entry:
        """0, `step`, 2 * `step`, ... along one axis of the node's, the other axes of length 1."""
        array = self.arrays[node.name]
        shape = (1,) * array.ndim
        zeros = self._call("_full", (), node, shape=shape, value=0.0, dtype=str(array.dtype))
        line = self._stretched(zeros, node, other, [axis])
        counted = self._call("_contrib_arange_like", [line], node, axis=axis, step=step)
        return self._call("Reshape", [counted], node, shape=_at([axis], -1, shape))

    def _stretched(self, entry: Entry, node: Node, other: Node, axes: Sequence[int]) -> Entry:
        """`entry` with axes of length 1 as long as those of the node, which follow some array's."""
        lengths = [g.shapes[Entry(n)] for g, n in zip(self.graphs, (node, other))]
        for axis in axes:
            pair = (lengths[0][axis], lengths[1][axis])
            if pair not in self.holders:
                self._refuse(node, f"its axis {axis} is {pair[0]} for one batch and {pair[1]} for another")
            holder, place = self.holders[pair]
            attrs = {"lhs_axes": (axis,), "rhs_axes": (place,)}
            entry = self._call("broadcast_like", [entry, self.moved.get(holder, holder)], node, **attrs)
        return entry

    def _call(self, operator: str, inputs: Sequence[Entry], node: Node, **attrs: Any) -> Entry:
        """A call that does a part of a node's work."""
        given = {k: v for k, v in attrs.items() if v is not None}
        self.count += 1
        return Entry(
            call(TABLE[operator], operator, list(inputs), {}, given, f"{node.name}_batch{self.count}")
        )

    def _refuse(self, node: Node, why: str) -> Any:
        raise NotSupportedError(f"The batch cannot be free: {_kind(node)} {node.name!r} fixes it, {why}.")


def _one(array: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """The array with the first place alone along `axes`."""
    return array[tuple(slice(1) if i in axes else slice(None) for i in range(array.ndim))].copy()


def _step(array: np.ndarray, axes: Sequence[int]) -> float | None:
    """0 if the array repeats itself along `axes`, its step if it counts along the only one; else None."""
    one = _one(array, axes)
    if np.array_equal(np.broadcast_to(one, array.shape), array):
        return 0.0
    if len(axes) > 1 or array.dtype.kind not in "iuf":
        return None
    line = np.moveaxis(array, axes[0], 0).reshape(array.shape[axes[0]], -1)[:, 0]
    step = line[1] - line[0]
    places = np.arange(len(line), dtype=array.dtype).reshape(
        [-1 if i in axes else 1 for i in range(array.ndim)]
    )
    return float(step) if np.array_equal(one + step * places, array) else None


def _like(node: Node, inputs: tuple[Entry, ...], name: str) -> Node:
    return Node(node.op, node.attrs, inputs, name, node.given, dict(node.annotations), absent=node.absent)


def _kind(node: Node) -> str:
    return node.op.op_name if node.op is not None else "constant"


def _differ(pair: tuple[int, int]) -> bool:
    return pair[0] != pair[1]


def _at(axes: Sequence[int], length: int, shape: Shape) -> Shape:
    """`shape` with `length` at these axes."""
    return tuple(length if i in axes else d for i, d in enumerate(shape))
