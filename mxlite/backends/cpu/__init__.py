"""The CPU: numpy's reference kernels, and oneDNN's and generated ones where they are better."""

import numpy as np

from ..base import Backend
from . import cores, passes
from .kernels import table

CPU = Backend(
    "cpu",
    np,
    table(),
    prepare=cores.prepare,
    enter=cores.enter,
    simplify=passes.simplify,
    combine=passes.combine,
    in_turn=cores.in_turn,
)
