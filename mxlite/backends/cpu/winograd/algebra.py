"""The matrices of Winograd's minimal filtering, F(m, 3).

m outputs of a correlation with 3 taps need m + 2 products instead of 3 m:

    y = At [(G g) * (Bt d)]        d: m + 2 inputs, g: 3 taps, y: m outputs

and in two dimensions, rows and columns alike, (m + 2)^2 instead of 9 m^2: 36 for 144 with m = 4. The same
matrices give the gradients, as each is linear in its argument:

    d_g = G^T [(A d_y) * (Bt d)]

Toom and Cook's construction: the polynomials are evaluated in m + 1 points and in infinity. Which points they
are says how rounding errors grow: 0, 1, -1, 2, -2, which is the most common choice, loses 11 bits more than
needed... see `POINTS`.

Sources: S. Winograd, Arithmetic complexity of computations, 1980; A. Lavin, S. Gray, Fast algorithms for
convolutional neural networks, 2016; B. Barabasz, A. Anderson, K. Soodhalter, D. Gregg, Error analysis and
improving the accuracy of Winograd convolution for deep neural networks, 2020 (on choosing points).
"""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import NamedTuple

Matrix = tuple[tuple[float, ...], ...]

POINTS = {
    2: ("0", "1", "-1"),
    4: ("0", "3/4", "-3/4", "3/2", "-3/2"),
    5: ("0", "1", "-1", "1/2", "-1/2", "2"),
    6: ("0", "1", "-1", "2", "-2", "1/2", "-1/2"),
}


class Algorithm(NamedTuple):
    """F(m, 3): `output` is At (m, n), `kernel` is G (n, 3), `input` is Bt (n, n), with n = m + 2."""

    output: Matrix
    kernel: Matrix
    input: Matrix


@functools.cache
def algorithm(m: int) -> Algorithm:
    """The matrices for m outputs."""
    points = [Fraction(p) for p in POINTS[m]]
    n = m + 2
    output = [[p**i for p in points] + [Fraction(int(i == m - 1))] for i in range(m)]
    kernel, rows = [], []
    for j, p in enumerate(points):
        others = points[:j] + points[j + 1 :]
        scale = Fraction(1)
        for q in others:
            scale *= p - q
        kernel.append([p**k / scale for k in range(3)])
        rows.append(_product(others) + [Fraction(0)])
    kernel.append([Fraction(0), Fraction(0), Fraction(1)])
    rows.append(_product(points))
    assert len(rows) == n
    return Algorithm(_floats(output), _floats(kernel), _floats(rows))


def _product(roots: list[Fraction]) -> list[Fraction]:
    """The coefficients of prod(x - r), lowest power first."""
    found = [Fraction(1)]
    for r in roots:
        found = [Fraction(0), *found]
        for i in range(len(found) - 1):
            found[i] -= r * found[i + 1]
    return found


def _floats(rows: list[list[Fraction]]) -> Matrix:
    return tuple(tuple(float(x) for x in row) for row in rows)


def transposed(a: Matrix) -> Matrix:
    return tuple(zip(*a))
