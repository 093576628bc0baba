"""Losses: of classes as importers call them, and those put on a network that has none."""

from __future__ import annotations

from collections.abc import Mapping

from ...core import FormatError
from ...core.errors import nearest
from ...graph import Shape
from ...symbol import operator_function, Symbol, Variable
from .value import GraphValue

LOSSES = ("softmax", "mse")
"""The losses that `with_loss` knows."""

_SOFTMAX = ("softmax", "log_softmax")


def class_loss(
    kind: str, x: GraphValue, target: GraphValue, weight: GraphValue | None, ignored: int, reduction: str
) -> GraphValue:
    """The loss of class numbers, `kind` cross_entropy or nll_loss.

    x: (N, C, ...);  target: (N, ...);  weight: (C,) or None  ->  as target, or without axes if reduced.
    """
    b = x.builder
    inputs = [x, target] if weight is None else [x, target, weight]
    out = b.op(kind, *inputs, use_weight=weight is not None, ignore_index=ignored, reduction=reduction)
    return b.reshape(out, target.shape if reduction == "none" else ())


def with_loss(network: Symbol, loss: str, shapes: Mapping[str, Shape] | None = None) -> Symbol:
    """`network` with a loss on its only output, which reads the variable `<loss>_label`.

    shapes: of inputs, by name, as far as the network does not know them.

    "softmax": the cross-entropy with class numbers; over the last axis of 2 or 3, over axis 1 of more, as
    pictures have it. A softmax over that axis that ends the network becomes part of it.  "mse": half the
    squared error.

    Raises FormatError for any other loss, and for a network that has several outputs or a loss already.
    """
    if loss not in LOSSES:
        raise FormatError(f"The loss {loss!r} is none of {', '.join(LOSSES)}.{nearest(loss, LOSSES)}")
    if len(network.entries) != 1:
        raise FormatError(
            f"A loss is put on one output, but there are {len(network.entries)}: {network.list_outputs()}. "
            f"Choose one, as in net.get_internals()[{network.list_outputs()[0]!r}]."
        )
    (entry,) = network.entries
    node = entry.node
    if node.op is not None and node.op.is_loss:
        raise FormatError(f"{node.name!r} is a {node.op.op_name}: the network has a loss already.")
    label = Variable(f"{loss}_label")
    if loss == "mse":
        return operator_function("LinearRegressionOutput")(network, label, name="mse")
    _, made, _ = network.infer_shape_partial(**(shapes or {}))
    rank = len(made[0]) if made and made[0] else 2
    axis = 1 if rank > 3 else rank - 1
    if node.op is not None and node.op.op_name in _SOFTMAX and node.attrs.axis in (axis, axis - rank):
        network = Symbol((node.inputs[0],))
    how = {} if rank == 2 else {"multi_output" if axis == 1 else "preserve_shape": True}
    return operator_function("SoftmaxOutput")(network, label, name="softmax", **how)
