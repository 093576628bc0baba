"""`mx.contrib.amp`: what programs read that ask whether MXNet's mixed precision is on. It is not.

Here mixed precision is an option of a bound program, and the names of MXNet's functions say so. GluonNLP,
among others, imports `amp` of this module and reads `_amp_initialized`.
"""

import sys
from typing import Any

from ..core.compat.absent import absent
from ..core.errors import UnknownAttributeError

INSTEAD = "mixed precision is net.hybridize(amp='bfloat16'), Module(..., amp=), or simple_bind(..., amp=)"
_FUNCTIONS = (
    "init init_trainer scale_loss unscale convert_model convert_symbol convert_hybrid_block "
    "convert_bucketing_module"
)
_amp_initialized = False
amp = sys.modules[__name__]


def __getattr__(name: str) -> Any:
    found = absent("mx.contrib.amp", name, dict.fromkeys(_FUNCTIONS.split(), INSTEAD))
    raise UnknownAttributeError(found, name, lambda: sorted(globals()))
