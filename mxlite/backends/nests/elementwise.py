"""The nest of an expression of arrays that broadcast: it reduces nothing."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.ir import Shape
from ...graph.opdef import DType
from ...te.expression import Expression
from .nest import Access, Mask, Nest, Nests, PlacedNest


def elementwise_nests(
    expression: Expression,
    constants: Sequence[float],
    lengths: Shape,
    masks: Sequence[Mask],
    dtypes: Sequence[DType],
    made: Sequence[DType],
    number: str = "float32",
    leads: Sequence[int] = (),
) -> Nests:
    """The nest over `lengths`, whose values are numbered as those of the expression.

    Inputs have these `masks` and `dtypes`, outputs the types `made`. Numbers are of the type `number`. leads:
    for each array, inputs and then outputs, the elements between its rows, if it is a part of a wider matrix.
    """
    whole = (True,) * len(lengths)
    kinds = map(str, (*dtypes, *made))
    places = [
        Access(k, mask, kind, strided=bool(leads))
        for k, (mask, kind) in enumerate(zip((*masks, *(whole for _ in made)), kinds))
    ]
    nest = Nest(
        whole,
        tuple(places[: len(dtypes)]),
        tuple(range(len(constants))),
        expression.steps,
        tuple(zip(expression.outputs, places[len(dtypes) :])),
    )
    strides = tuple((lead, 1, 0) for lead in leads)
    return Nests((), (), tuple(constants), number, [PlacedNest(nest, tuple(lengths), strides=strides)])
