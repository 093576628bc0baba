"""The table of CPU kernels. A row replaces a reference kernel where it is measurably better."""

import numpy as np

from ..base import Backend
from .blas import share_cores

CPU = Backend("cpu", np, prepare=share_cores)
