"""The backend of one GPU: its table of kernels, and the host's kernels for what the table lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...engine import Var
from ...graph.opdef import DType, Op, Shapes
from ..base import Backend, ChosenKernel, Request
from ..cpu import CPU
from .array import DeviceArray
from .cuda_device import CudaDevice
from .elements import convert, fill
from .host_kernel import on_host
from .kernels import table


@dataclass(frozen=True)
class GPUBackend(Backend):
    """See Backend. An operator without a row runs on the host, and the plan says so."""

    device: CudaDevice = None  # type: ignore[assignment]  # every one has it; fields before it have defaults

    @classmethod
    def of(cls, device: CudaDevice) -> GPUBackend:
        """The backend of a device."""
        return cls("gpu", np, table(device), lane=f"gpu{device.index}", device=device)

    def choose(
        self,
        op: type[Op],
        attrs: Any,
        inputs: Shapes,
        outputs: Shapes,
        dtype: DType,
        dtypes: tuple[DType, ...] | None = None,
        used: frozenset[str] | None = None,
        train: bool = True,
    ) -> ChosenKernel:
        kinds = dtypes or (dtype,) * len(inputs)
        found = self.tuned(Request(op, attrs, inputs, outputs, dtype, kinds, used, train))
        if found is not None:
            return found
        kernel = CPU.choose(op, attrs, inputs, outputs, dtype, kinds, used, train)
        return on_host(self.device, CPU, op, attrs, kernel)

    def memory(self) -> int:
        return self.device.memory()[1]

    def empty(self, nbytes: int) -> DeviceArray:
        return self.device.empty(nbytes)

    def arena(self, nbytes: int) -> DeviceArray:
        return self.device.arena(nbytes)

    def host_empty(self, nbytes: int) -> Any:
        return self.device.pinned(nbytes)

    def issue(self, run: Callable[[], object], vars: Sequence[Var]) -> Callable[[], object]:
        device = self.device

        def issued() -> None:
            with device.active():
                run()
                ticket = device.mark()
            for var in vars:
                var.fence = ticket

        return issued

    def settle(self, var: Var) -> None:
        self.device.wait_for(var.fence)

    def settle_all(self) -> None:
        self.device.synchronize()

    def assign(self, target: Any, source: Any) -> None:
        if target.dtype == source.dtype and target.shape == source.shape:
            self.device.copy(target, source)
        else:
            convert(self.device, target, source)()

    def fill(self, target: Any, value: float) -> None:
        fill(self.device, target, value)()

    def from_host(self, target: Any, values: np.ndarray, var: Var | None = None) -> None:
        whole = np.empty(target.shape, target.dtype)
        with np.errstate(all="ignore"):
            whole[...] = values
        fence = self._all() if var is None else var.fence
        self.device.upload(target, whole, max(fence, target.memory.since))

    def to_host(self, source: Any, var: Var | None = None) -> np.ndarray:
        result = np.empty(source.shape, source.dtype)
        self.device.download(result, source, self._all() if var is None else var.fence)
        return result

    def _all(self) -> int:
        """The ticket of everything that was put on the compute stream by now."""
        with self.device.active():
            return self.device.mark()

    def overlap(self, a: Any, b: Any) -> bool:
        return bool(a.overlaps(b))

    def address(self, array: Any) -> int:
        return self.device.address(array)
