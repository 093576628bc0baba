"""The CPU backend: numpy's reference kernels, and oneDNN's and generated ones where they are faster."""

import numpy as np

from ..base import Backend
from . import cores, passes
from .compiled.sequence import join
from .compiled.team import rouse
from .identity import identity
from .kernels import table
from .threads import num_threads

CPU = Backend(
    "cpu",
    np,
    table(),
    prepare=cores.prepare,
    threads=num_threads,
    running=cores.running,
    simplify=lambda: passes.SIMPLIFY,
    combine=lambda: passes.COMBINE,
    lighten=lambda: (passes.lightened,),
    spare=lambda: (passes.forget_gates,),
    spared="gates computed again",
    pack=passes.pack,
    in_turn=cores.in_turn,
    with_threads=cores.with_threads,
    join=join,
    rouse=rouse,
    identity=identity,
)
