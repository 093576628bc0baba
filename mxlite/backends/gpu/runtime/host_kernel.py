"""Host kernels for nodes on a GPU: the fallback for operators that the GPU's table lacks.

Inputs are copied to host memory, the kernel runs there, its outputs are copied back. This is correct, slow,
and cannot be captured in a CUDA graph; the plan calls such a kernel "host: ...".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....graph.opdef import Op
from ....ops.random.philox import RandomStream
from ...base import Backend, ChosenKernel, Run
from .array import DeviceArray
from .cuda_device import CudaDevice


def on_host(
    device: CudaDevice, host: Backend, op: type[Op], attrs: Any, kernel: ChosenKernel
) -> ChosenKernel:
    """`kernel`, one of `host`'s for `op`, for arrays on `device`. It takes no scratch there."""
    forward = op.forward_op or op
    needs, mutated = kernel.signature.needs, op.mutated(attrs)
    # If inputs are one variadic group, their names are no parameters: all of them count as changed.
    changed = tuple(i for i, n in enumerate(needs) if n in mutated or (mutated and n == forward.variadic))

    def link(run: Callable[..., None], xp: Any, a: Any, *inputs: Any, **rest: Any) -> Run:
        own = changed if len(inputs) == len(needs) else tuple(range(len(inputs))) if mutated else ()
        return HostCall(device, host, op, kernel, a, inputs, own, rest)

    def run(xp: Any, a: Any, *inputs: Any, **rest: Any) -> None:
        link(kernel.run, xp, a, *inputs, **rest)()

    # An imperative call runs it too: the reference kernel, as it is, reads no arrays of a device.
    return replace(
        kernel,
        run=run,
        link=link,
        workspace=0,
        name=f"host: {kernel.name}",
        is_reference=False,
        bound_only=False,
    )


class HostCall:
    """One call, with its arrays in host memory allocated beforehand."""

    def __init__(
        self,
        device: CudaDevice,
        host: Backend,
        op: type[Op],
        kernel: ChosenKernel,
        attrs: Any,
        inputs: Sequence[Any],
        changed: Sequence[int],
        rest: dict[str, Any],
    ) -> None:
        self.blocks_capture = f"{op.op_name} runs on the host"
        self._device = device
        self._in: list[tuple[np.ndarray, DeviceArray]] = []
        self._out: list[tuple[np.ndarray, DeviceArray]] = []
        own = [
            self._mirror(x, (self._in, *((self._out,) if i in changed else ()))) for i, x in enumerate(inputs)
        ]
        made = {}
        for name, x in rest.items():
            if name == "work":
                made[name] = host.empty(kernel.workspace)
            elif name == "rng" and x is not None:
                made[name] = RandomStream(self._mirror(x.state, (self._in,)), x.stream)
            elif name in kernel.signature.makes:
                made[name] = self._mirror(x, (self._out,))
            else:
                made[name] = x
        self._run = kernel.link(kernel.run, host.xp, attrs, *own, **made)

    def _mirror(self, x: Any, lists: Sequence[list[tuple[np.ndarray, DeviceArray]]]) -> Any:
        """The host's array for one on the device, entered in `lists`; for a tuple, all of them."""
        if isinstance(x, tuple):
            return tuple(self._mirror(y, lists) for y in x)
        if not isinstance(x, DeviceArray):
            return x
        mirror = np.empty(x.shape, x.dtype)
        for entered in lists:
            entered.append((mirror, x))
        return mirror

    def __call__(self) -> None:
        device, stream = self._device, self._device.stream
        driver = device.driver
        for mirror, x in self._in:
            if x.nbytes:
                driver.copy(mirror.ctypes.data, x.address, x.nbytes, stream)
        driver.synchronize(stream)
        with np.errstate(all="ignore"):
            self._run()
        for mirror, x in self._out:
            if x.nbytes:
                driver.copy(x.address, mirror.ctypes.data, x.nbytes, stream)
        driver.synchronize(stream)  # the next call overwrites the same mirrors
