"""Einstein sums."""

from __future__ import annotations

from string import ascii_letters

from ...core import FormatError
from .value import GraphValue


def contracted(equation: str, values: list[GraphValue]) -> GraphValue:
    """The sum of products that `equation` says, broadcasting.

    Axes of an ellipsis get their own letters; an equation without an arrow gets its right side.
    """
    b = values[0].builder
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(values):
        raise FormatError(f"equation {left!r} is for {len(terms)} inputs, {len(values)} are there.")
    spare = [c for c in ascii_letters if c not in left + right]
    ranks = [v.rank - len(t.replace("...", "")) for t, v in zip(terms, values) if "..." in t]
    rest = spare[: max(ranks, default=0)]
    if not arrow:
        named = left.replace("...", "").replace(",", "")
        right = "..." * bool(ranks) + "".join(sorted(c for c in set(named) if named.count(c) == 1))
    if min(ranks, default=0) < 0 or len(rest) < max(ranks, default=0):
        raise FormatError(f"equation {left!r} does not fit inputs {[v.shape for v in values]}.")
    lengths: dict[str, int] = {}
    for i, (term, value) in enumerate(zip(terms, values)):
        inside = value.rank - len(term.replace("...", ""))
        terms[i] = term.replace("...", "".join(rest[len(rest) - inside :]))
        if len(terms[i]) != value.rank:
            raise FormatError(f"term {term!r} does not fit an input of shape {value.shape}.")
        for c, length in zip(terms[i], value.shape):
            lengths[c] = max(length, lengths.get(c, 1)) if length else 0
    right = right.replace("...", "".join(rest))
    if any(c not in lengths for c in right):
        raise FormatError(
            f"the right side of equation {left!r} -> {right!r} names an axis that no input has."
        )
    out: GraphValue = b.op("einsum", *values, subscripts=f"{','.join(terms)}->{right}")
    return b.reshape(out, (lengths[c] for c in right))
