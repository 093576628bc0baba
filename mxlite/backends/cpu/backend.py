"""The CPU backend: numpy's reference kernels, and oneDNN's and generated ones where they are faster."""

import numpy as np

from ..base import Backend
from ..control_flow.control import control_kernel
from . import passes
from .compiled.calls.sequence import join
from .compiled.calls.team import rouse
from .runtime import cores
from .runtime.identity import identity
from .runtime.threads import num_threads

CPU = Backend(
    "cpu",
    np,
    passes.TARGET.kernels,
    prepare=cores.prepare,
    threads=num_threads,
    running=cores.running,
    optimize=passes.optimize,
    low_memory=passes.low_memory,
    in_turn=cores.in_turn,
    with_threads=cores.with_threads,
    join=join,
    rouse=rouse,
    identity=identity,
    control=control_kernel,
)
