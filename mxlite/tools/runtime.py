"""`mx.runtime`: the features of this installation, under MXNet's names.

    mx.runtime.Features().is_enabled("CUDA")

MXNet fixed most of them when it was compiled. Here a feature is on if it works in this process, and the
features of libraries that mxlite does not have are off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from ..backends.cpu.onednn import find
from ..backends.gpu import num_gpus
from ..core.errors import MXLiteError, nearest

_OFF = """
    TENSORRT CPU_SSE4A SSE F16C JEMALLOC BLAS_ATLAS BLAS_MKL BLAS_APPLE OPENCV CAFFE DIST_KVSTORE CXX14
    DEBUG TVM_OP
    CPU_SSE CPU_SSE2 CPU_SSE3 CPU_SSE4_1 CPU_SSE4_2 CPU_AVX CPU_AVX2 NCCL BLAS_OPEN SIGNAL_HANDLER
""".split()


@dataclass(frozen=True)
class Feature:
    """One feature and whether it is on."""

    name: str
    enabled: bool

    def __repr__(self) -> str:
        return f"{'✔' if self.enabled else '✖'} {self.name}"


class UnknownFeatureError(MXLiteError, RuntimeError):
    """No feature has that name."""


@cache
def _found() -> Mapping[str, Feature]:
    gpus = num_gpus() > 0
    on = {
        "CUDA": gpus,
        "CUDNN": gpus,
        "CUDA_RTC": gpus,
        "OPENMP": True,
        "LAPACK": True,  # numpy's
        "MKLDNN": find().library is not None,
        "PROFILER": True,
        "INT64_TENSOR_SIZE": True,
    }
    return MappingProxyType(
        {name: Feature(name, value) for name, value in {**on, **dict.fromkeys(_OFF, False)}.items()}
    )


class Features(Mapping[str, Feature]):
    """All features by name; there is one such mapping."""

    _only: Features | None = None

    def __new__(cls) -> Features:
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __getitem__(self, name: str) -> Feature:
        return _found()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_found())

    def __len__(self) -> int:
        return len(_found())

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self.values()))}]"

    def is_enabled(self, feature_name: str) -> bool:
        """True if the feature is on; case does not matter. UnknownFeatureError if there is none."""
        name = feature_name.upper()
        if name not in self:
            raise UnknownFeatureError(f"No feature is called {feature_name!r}.{nearest(name, tuple(self))}")
        return self[name].enabled


def feature_list() -> list[Feature]:
    """All features."""
    return list(Features().values())
