"""The backend of one GPU: its table of kernels, and the host's kernels for what the table lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...engine import Var
from ...graph.opdef import DType, Op, Shapes
from ..base import Backend, ChosenKernel, Request
from ..cpu import CPU
from .array import DeviceArray, overlap
from .cuda_device import CudaDevice
from .elements import convert, fill
from .host_kernel import on_host
from .kernels import table
from .passes import Passes


@dataclass(frozen=True)
class GPUBackend(Backend):
    """See Backend. An operator without a row runs on the host, and the plan says so."""

    device: CudaDevice = None  # type: ignore[assignment]  # every one has it; fields before it have defaults

    @classmethod
    def of(cls, device: CudaDevice) -> GPUBackend:
        """The backend of a device."""
        lane = f"gpu{device.index}"
        kernels = table(device)
        passes = Passes(kernels)
        return cls(
            "gpu",
            np,
            kernels,
            lane,
            place=device,
            is_remote=True,
            device=device,
            simplify=passes.simplify,
            combine=passes.combine,
        )

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
                try:
                    run()
                finally:  # what was launched before a failure is under way, too
                    ticket = device.mark()
                    for var in vars:
                        var.fence = ticket

        return issued

    def settle(self, var: Var) -> None:
        self.device.wait_for(var.fence)

    def settle_all(self) -> None:
        self.device.synchronize()

    def assign(self, target: Any, source: Any) -> None:
        if overlap(target, source):  # numpy would take care, too
            copied = self.array(source.shape, source.dtype)
            self.assign(copied, source)
            source = copied
        dense = target.flags.c_contiguous and source.flags.c_contiguous
        if dense and target.dtype == source.dtype and target.shape == source.shape:
            self.device.copy(target, source)
        else:
            convert(self.device, target, source)()

    def fill(self, target: Any, value: float) -> None:
        if target.flags.c_contiguous:
            fill(self.device, target, value)()
        else:
            one = self.array((), target.dtype)
            fill(self.device, one, value)()
            convert(self.device, target, one)()

    def from_host(self, target: Any, values: np.ndarray, var: Var | None = None) -> None:
        if not target.flags.c_contiguous:
            dense = self.array(values.shape, target.dtype)
            self.from_host(dense, values, Var())  # nobody else has seen it
            self.issue(partial(self.assign, target, dense), () if var is None else (var,))()
            return
        whole = values
        if values.shape != target.shape or values.dtype != target.dtype or not values.flags.c_contiguous:
            whole = np.empty(target.shape, target.dtype)
            with np.errstate(all="ignore"):
                whole[...] = values
        self.device.upload(target, whole, self._after(target, var))

    def to_host(self, source: Any, var: Var | None = None) -> np.ndarray:
        result = np.empty(source.shape, source.dtype)
        self.device.download(result, source, self._all() if var is None else var.fence)
        return result

    look = to_host

    def receive(self, target: Any, source: Any, sender: Backend, var: Var, source_var: Var) -> None:
        dense = target.flags.c_contiguous and target.dtype == source.dtype and target.shape == source.shape
        if not dense or not isinstance(sender, GPUBackend):
            self.from_host(target, sender.look(source, source_var), var)
            return
        sender.settle(source_var)
        self.device.take_over(target, source, self._after(target, var))

    def part(self, array: Any, key: Any) -> Any:
        return array.part(key)

    def look_up(self, target: Any, source: Any, key: Any) -> None:
        self.from_host(target, self.to_host(source)[key])

    def put_at(self, target: Any, key: Any, values: Any) -> None:
        whole = self.to_host(target)
        with np.errstate(all="ignore"):
            whole[key] = self.to_host(values) if isinstance(values, DeviceArray) else values
        self.from_host(target, whole)

    def seeds(self, state: np.ndarray) -> Any:
        there = self.array((2,), state.dtype)
        for i in range(2):
            self.fill(there[i], state[i])
        return there

    def _after(self, target: Any, var: Var | None) -> int:
        """The ticket that a write to `target` from elsewhere has to wait for."""
        return max(self._all() if var is None else var.fence, target.memory.since)

    def _all(self) -> int:
        """The ticket of everything that was put on the compute stream by now."""
        with self.device.active():
            return self.device.mark()

    def overlap(self, a: Any, b: Any) -> bool:
        return overlap(a, b)

    def address(self, array: Any) -> int:
        return self.device.address(array)
