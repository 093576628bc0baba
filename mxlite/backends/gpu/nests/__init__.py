"""Loop nests of computations as generated CUDA C++, see `backends/nests/build.py`.

Each nest is a kernel, and which of its loops are threads follows from the nest (`printer.py`):

    nothing is reduced        a thread has up to four neighbouring elements
    the last axis is reduced  a group of threads, of a warp or a block, goes along the row of a kept point
    the last axis is kept     neighbouring threads have neighbouring columns; threadIdx.y shares their rows
    terms are added           a thread has a kept point, and of the places those with one remainder: it goes
                              through all terms and adds its own in their order, without atomic additions

How many threads share a row follows from shapes alone, and so does the order of each sum: bits depend neither
on the device nor on where arrays lie.
"""

from .launches import Launches as Launches, THREADS as THREADS
