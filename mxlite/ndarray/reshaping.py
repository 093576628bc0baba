"""MXNet's language of shapes for `reshape`."""

from __future__ import annotations

from math import prod

from ..core import ShapeError
from .storage import Shape


def reshaped(shape: Shape, wanted: tuple[int, ...], reverse: bool = False) -> Shape:
    """The shape that `wanted` asks of an array of `shape`.

    0 keeps an axis, -1 is what is left (once), -2 all axes that are left, -3 the product of two axes, -4 splits an
    axis into the two numbers that follow, one of which may be -1. `reverse` reads both from the right.
    """
    codes = [int(c) for c in wanted]
    if reverse:
        # -4 and its two numbers are one code, so they turn around as one.
        codes = _turned(codes)
        shape = shape[::-1]
    made: list[int] = []
    axis = 0
    guess = -1
    i = 0

    def take() -> int:
        nonlocal axis
        if axis >= len(shape):
            raise ShapeError(f"cannot reshape {shape} to {tuple(wanted)}: it asks for more axes than there are.")
        axis += 1
        return shape[axis - 1]

    while i < len(codes):
        code = codes[i]
        i += 1
        if code > 0:
            made.append(code)
            axis += 1
        elif code == 0:
            made.append(take())
        elif code == -1:
            if guess >= 0:
                raise ShapeError(f"cannot reshape {shape} to {tuple(wanted)}: only one axis can be -1.")
            guess = len(made)
            made.append(-1)
            axis += 1
        elif code == -2:
            made += shape[axis:]
            axis = len(shape)
        elif code == -3:
            made.append(take() * take())
        elif code == -4:
            pair = codes[i : i + 2]
            i += 2
            made += _split(take(), pair, shape, wanted)
        else:
            raise ShapeError(f"cannot reshape {shape} to {tuple(wanted)}: {code} is not a code (0, -1, -2, -3, -4).")
    size = prod(shape)
    if guess >= 0:
        rest = prod(d for d in made if d != -1)
        if not rest or size % rest:
            raise ShapeError(f"cannot reshape {shape} to {tuple(wanted)}: {size} is no multiple of {rest}.")
        made[guess] = size // rest
    if prod(made) != size:
        raise ShapeError(f"cannot reshape {shape} to {tuple(wanted)}: {size} elements are not {prod(made)}.")
    return tuple(made[::-1] if reverse else made)


def _split(length: int, pair: list[int], shape: Shape, wanted: tuple[int, ...]) -> list[int]:
    if len(pair) == 2:
        left, right = pair
        if left == -1 and right > 0 and length % right == 0:
            left = length // right
        elif right == -1 and left > 0 and length % left == 0:
            right = length // left
        if left > 0 and right > 0 and left * right == length:
            return [left, right]
    raise ShapeError(f"cannot reshape {shape} to {tuple(wanted)}: -4 cannot split {length} into {pair}.")


def _turned(codes: list[int]) -> list[int]:
    groups: list[list[int]] = []
    i = 0
    while i < len(codes):
        step = 3 if codes[i] == -4 else 1
        group = codes[i : i + step]
        groups.append([-4, *group[1:][::-1]] if step == 3 else group)
        i += step
    return [c for group in reversed(groups) for c in group]
