"""Device rates that plans for a GPU assume: those of an H200, whichever GPU is present, so that plans agree.

Rates are those of NVIDIA's data sheet of the H200 (2024, the SXM form): 67 TFLOPS in FP32, 989 in TF32 and
1,979 in BFLOAT16 and FP16 with sparsity, of which dense products have half, and 4.8 TB/s. They are peak rates
of the hardware, not measured ones.

The launch time is what Benjamin Spector and others measured for an empty kernel, in a CUDA graph on an
H100 (Look Ma, No Bubbles, Hazy Research, 2025): 1.3 microseconds. A network of small layers takes as long for
its launches as for its work.
"""

from __future__ import annotations

from ....core import config
from ....memplan import Device
from ....memplan.cost.device import Precision

H200 = Device(
    67e12, 4.8e12, "NVIDIA H200", tf32_flops_per_s=494.5e12, half_flops_per_s=989.5e12, launch_s=1.3e-6
)


def precision_of(dtype: object, tf32: bool | None = None) -> Precision:
    """Precision of products of that dtype. `tf32`: True if it may be TF32; None: as
    MXLITE_ALLOW_TF32 says.
    """
    if str(dtype) in ("float16", "bfloat16"):
        return "half"
    allowed = config.allow_tf32() if tf32 is None else tf32
    return "tf32" if allowed and str(dtype) == "float32" else ""
