"""The matrices of Winograd's minimal filtering, F(m, 3).

m outputs of a correlation with 3 taps need m + 2 products instead of 3 m:

    y = At [(G g) * (Bt d)]        d: m + 2 inputs, g: 3 taps, y: m outputs

and in two dimensions, rows and columns alike, (m + 2)^2 instead of 9 m^2: 36 for 144 with m = 4. The same
matrices give the gradients, as each is linear in its argument:

    d_g = G^T [(A d_y) * (Bt d)]

Toom and Cook's construction: the polynomials are evaluated in m + 1 points and in infinity. The choice of
points determines how rounding errors grow. With F(4, 3) and 256 input channels, the largest error of a
convolution of normal numbers was, relative to its largest output:

    0, 1, -1, 2, -2             1.1e-5      the usual choice
    0, 1, -1, 1/2, -2           4.1e-6      more instructions, as not all points come in pairs
    0, 5/8, -5/8, 3/2, -3/2     4.0e-6
    0, 3/4, -3/4, 3/2, -3/2     2.9e-6
    (the sum itself             3.7e-7)

Sources: S. Winograd, Arithmetic complexity of computations, 1980; A. Lavin, S. Gray, Fast algorithms for
convolutional neural networks, 2016; B. Barabasz, A. Anderson, K. Soodhalter, D. Gregg, Error analysis and
improving the accuracy of Winograd convolution for deep neural networks, 2020 (on choosing points).
"""

from __future__ import annotations

import functools
from fractions import Fraction
from math import prod
from typing import NamedTuple

Matrix = tuple[tuple[float, ...], ...]

POINTS = {
    2: ("0", "1", "-1"),
    4: ("0", "3/4", "-3/4", "3/2", "-3/2"),
}


class Algorithm(NamedTuple):
    """F(m, 3): `output` is At (m, n), `kernel` is G (n, 3), `input` is Bt (n, n), with n = m + 2.

    `products`: indices of these products within those of a larger F.
    """

    output: Matrix
    kernel: Matrix
    input: Matrix
    products: tuple[int, ...]


@functools.cache
def algorithm(m: int, outputs: int | None = None) -> Algorithm:
    """The matrices for m outputs, or for `outputs` of fewer with the same weights.

    Fewer outputs need fewer points. The remaining rows of G depend on the removed points only by a factor of
    each row, which can be moved to Bt: so some of the products of F(m, 3) are all those of the
    smaller one, and the last tiles of an image whose size is no multiple of m need no others.
    """
    points = [Fraction(p) for p in POINTS[m]]
    few = m if outputs is None else outputs
    used, n = points[: few + 1], few + 2
    output = [[p**i for p in used] + [Fraction(int(i == few - 1))] for i in range(few)]
    kernel, rows = [], []
    for j, p in enumerate(used):
        rest = used[:j] + used[j + 1 :]
        gone = prod((p - q for q in points[few + 1 :]), start=Fraction(1))
        scale = prod((p - q for q in rest), start=gone)
        kernel.append([p**k / scale for k in range(3)])
        rows.append([gone * c for c in _polynomial(rest)] + [Fraction(0)])
    kernel.append([Fraction(0), Fraction(0), Fraction(1)])
    rows.append(_polynomial(used))
    assert len(rows) == n
    return Algorithm(_floats(output), _floats(kernel), _floats(rows), (*range(n - 1), m + 1))


def _polynomial(roots: list[Fraction]) -> list[Fraction]:
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
