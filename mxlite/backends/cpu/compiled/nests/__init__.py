"""Loop nests of computations as generated code, see `backends/nests/build.py`.

The kept points of a nest are its units, which threads share:

    the last axis is reduced    a unit is a kept point; vectors go along the last axis
    the last axis is kept       a unit is a piece of the last axis at one point of the other kept axes; a
                                vector has columns, a few of which are worked on at a time, so that the
                                bytes of a row are read together

Sums of many numbers are taken in blocks, whose sums are added, so that errors grow slowly. One function has
all nests of a computation; between two of them threads wait for each other. Lengths are arguments.
"""

from .loops import ColumnSum as ColumnSum, Computed as Computed, Loops as Loops
from .row_product import RowProduct as RowProduct
from .space import NestPart as NestPart
