"""First difference between two problems, for messages about a plan of one applied to the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from ..problem import Problem

_FREE = ("name", "seconds", "warm", "cold")
"""Numbered names change when a network is built twice; times only weigh plans."""
LONGEST = 60  # characters of a name that is shown


def first_difference(made: Problem, wanted: Problem) -> str | None:
    """The first task, value or number in which `made` differs from `wanted`, in words; None if a plan of one
    is a plan of the other. Names, modelled and measured seconds and the category of fixed bytes may differ.
    O(tasks + values).
    """
    for kind, ours, theirs in _lists(made, wanted):
        for n, (a, b) in enumerate(zip(ours, theirs)):
            if a == b:
                continue
            for field in fields(a):
                x, y = getattr(a, field.name), getattr(b, field.name)
                if x != y and field.name not in _FREE:
                    return (
                        f"{kind} {n}, {_short(a.name)} there and {_short(b.name)} here, has {field.name} "
                        + (f"{_short(x)} in the plan and {_short(y)} here")
                    )
        if len(ours) != len(theirs):
            return f"the plan has {len(ours)} {kind}s, here are {len(theirs)}"
    if made.num_forward != wanted.num_forward:
        return f"the plan has {made.num_forward} forward tasks, here are {wanted.num_forward}"
    for category in sorted({*made.fixed_bytes, *wanted.fixed_bytes}):
        x, y = (p.fixed_bytes.get(category, 0) for p in (made, wanted))
        if x != y and made.fixed_total != wanted.fixed_total:
            return f"the plan has {x} bytes of {category}, here are {y}"
    if made.least_arena != wanted.least_arena:
        return (
            f"inference needs an arena of {made.least_arena} bytes in the plan, of {wanted.least_arena} here"
        )
    return None


def _lists(made: Problem, wanted: Problem) -> tuple[tuple[str, Sequence[Any], Sequence[Any]], ...]:
    return ("task", made.tasks, wanted.tasks), ("value", made.values, wanted.values)


def _short(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
