"""The backend of one GPU: its table of kernels, and the host's kernels for what the table lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ...comm import Collectives, Communicator, WIRE
from ...engine import get_engine, SWITCHING, Var
from ...graph.ir import Shape
from ...graph.opdef import DType
from ..base import Backend, ChosenKernel, Request, Run
from ..cpu.backend import CPU
from .handwritten.elements import convert, fill
from .kernels import table
from .passes import GPUTarget, low_memory, optimize
from .ranks.joined import joined as peers_of
from .ranks.messages import Messages, WINDOW
from .remote import GPU
from .runtime.array import DeviceArray, extent, is_dense, overlap, StridedView
from .runtime.cuda_device import CudaDevice
from .runtime.dlpack import capsule_of, CPU as HOST, CUDA, Given
from .runtime.host_kernel import on_host
from .runtime.rates import H200


@dataclass(frozen=True)
class GPUBackend(Backend):
    """See Backend. An operator without a row runs on the host, and the plan says so."""

    device: CudaDevice = None  # type: ignore[assignment]  # every one has it; fields before it have defaults

    @classmethod
    def of(cls, device: CudaDevice) -> GPUBackend:
        """The backend of a device."""
        lane = f"gpu{device.index}"
        kernels = table(device)
        target = GPUTarget.of(kernels)
        return cls(
            "gpu",
            np,
            kernels,
            lane,
            place=device,
            remote=GPU(device),
            device=device,
            copies_again=False,
            rates=H200,
            identity=lambda: (f"device={device.name}",),
            optimize=partial(optimize, target),
            low_memory=partial(low_memory, target),
            window=WINDOW,
        )

    def kernel(self, request: Request) -> ChosenKernel:
        found = self.tuned(request)
        return found or on_host(self.device, CPU, request.op, request.attrs, CPU.kernel(request))

    def join_ranks(self, comm: Communicator) -> None:
        if self.device.peers is None:
            joined = Var("GPUs of all ranks")
            get_engine().push(
                partial(self._join, comm), (), (WIRE, joined), name="join GPUs of ranks", kind="io"
            )
            get_engine().wait_for(joined)

    def exchange(self, tell: Callable[[Collectives], None]) -> Run:
        told = Messages(self.device)
        tell(told)
        return told.run()

    def _join(self, comm: Communicator) -> None:
        with self.device.active():
            self.device.peers = peers_of(self.device, comm)
        comm.devices = (*comm.devices, self.settle_all)

    def memory(self) -> int:
        return self.device.memory()[1]

    def empty(self, nbytes: int) -> DeviceArray:
        return self.device.empty(nbytes)

    def array(self, shape: Shape, dtype: DType) -> DeviceArray:
        block = self.device.empty(prod(shape) * dtype.itemsize).memory
        return DeviceArray(block, block.address, tuple(shape), dtype)

    def arena(self, nbytes: int) -> DeviceArray:
        return self.device.arena(nbytes)

    def host_empty(self, nbytes: int) -> Any:
        return self.device.pinned(nbytes)

    def issue(self, run: Callable[[], object], vars: Sequence[Var]) -> Callable[[], object]:
        device = self.device

        def issued() -> None:
            with SWITCHING, device.active():
                try:
                    run()
                finally:  # launches before a failure are under way, too
                    ticket = device.mark()
                    for var in vars:
                        var.fence = ticket

        return issued

    def settle(self, var: Var) -> None:
        self.device.wait_for(var.fence)
        self.device.checks.look(var.fence)

    def settle_all(self) -> None:
        if self.device.fault is None:  # otherwise it has been reported
            ticket = self._all()
            self.device.synchronize()
            self.device.pool.held()  # gives back what was borrowed
            self.device.checks.look(ticket)

    def seconds_of(self, run: Run) -> float:
        return self.device.time(run, 1)

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
        result = self._fetched(source, var)
        if var is not None:
            self.device.checks.look(var.fence)
        return result

    def _fetched(self, source: Any, var: Var | None) -> np.ndarray:
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

    def dlpack(self, array: Any, var: Var, **wishes: Any) -> Any:
        copy, place = wishes["copy"], wishes["dl_device"]
        if place is not None and tuple(place) != self.dlpack_device(array):
            if place[0] != HOST or copy is False:
                raise BufferError(f"an array on {self.device} cannot be shared with device {place}.")
            return self.to_host(array, var).__dlpack__(max_version=wishes["max_version"])
        if copy:
            original, array, var = array, self.array(array.shape, array.dtype), Var()
            self.issue(partial(self.assign, array, original), (var,))()
        self.show(array, var, wishes["stream"])
        versioned = wishes["max_version"] is not None and wishes["max_version"][0] >= 1
        return capsule_of(array, self.dlpack_device(array), array.memory, versioned)

    def dlpack_device(self, array: Any) -> tuple[int, int]:
        return CUDA, self.device.index

    def show(self, array: Any, var: Var, stream: int | None) -> None:
        """Let another library see an array, whose operations have all been issued.

        Later work on its `stream` comes after them. The stream is a handle, None or 1 for the default stream,
        2 for that of the thread, -1 for one that is ordered already (array API standard, `__dlpack__`).
        """
        if stream == 0:
            raise BufferError("stream 0 may mean two streams of CUDA; say 1 or 2.")
        self.device.pool.lend(array.memory)
        if stream != -1:
            with self.device.active():
                self.device.let_wait(1 if stream is None else stream, self._after(array, var))

    def adopt(self, given: Given, var: Var) -> Any:
        """An array over another library's memory, whose work on it our compute stream waits for already."""
        kind = StridedView(None, given.address, given.shape, given.strides, given.dtype)  # type: ignore[arg-type]
        low, high = extent(kind)
        memory = self.device.pool.borrow(low, high - low, given.release)
        with self.device.active():
            var.fence = memory.since = self.device.mark()
        whole = DeviceArray(memory, low, given.shape, given.dtype) if is_dense(kind) else None
        return kind._replace(memory=memory) if whole is None else whole

    def _after(self, target: Any, var: Var | None) -> int:
        """The ticket that a write to `target` from elsewhere has to wait for."""
        return max(self._all() if var is None else var.fence, target.memory.since)

    def _all(self) -> int:
        """The ticket of everything issued to the compute stream so far."""
        with self.device.active():
            return self.device.mark()

    def overlap(self, a: Any, b: Any) -> bool:
        return overlap(a, b)

    def address(self, array: Any) -> int:
        return self.device.address(array)
