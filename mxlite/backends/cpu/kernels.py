"""The table of CPU kernels. A row replaces a reference kernel where it is measurably better."""

import numpy as np

from ..base import Backend

CPU = Backend("cpu", np)
