"""Stand-in for a GPU that is not present: enough of one to plan for it."""

from __future__ import annotations

from typing import Any, cast, NoReturn

from ....core.errors import DeviceError
from .cuda_device import CudaDevice
from .driver import Driver


class AbsentDriver:
    """Driver with the properties of an H200 (NVIDIA, H200 data sheet) that refuses all work.

    Kernels are chosen by what they compute and for which architecture, so a plan for it has their layouts and
    their scratch. What cuBLASLt and cuDNN would request is known only where they run.
    """

    name = "a GPU that is not here"
    architecture = "sm_90"
    multiprocessors = 132
    shared_bytes = 227 * 1024

    def activate(self) -> None: ...

    def restore(self, before: int) -> None: ...

    def blas(self) -> None:
        return None

    def stream(self) -> int:
        return 0

    def event(self, timed: bool = False) -> int:
        return 0

    def memory(self) -> tuple[int, int]:
        return 141 * 10**9, 141 * 10**9

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: Any, **__: Any) -> NoReturn:
            raise DeviceError(f"There is no GPU here to run anything on ({name}); plans can be made for it.")

        return refuse


class AbsentDevice(CudaDevice):
    """The device of an AbsentDriver, on which nothing is measured: kernels are chosen by rules."""

    def __init__(self) -> None:
        super().__init__(cast(Driver, AbsentDriver()), 0)

    @property
    def time(self) -> NoReturn:
        raise AttributeError("there is no GPU here to measure with.")
