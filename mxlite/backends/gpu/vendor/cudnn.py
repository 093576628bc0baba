"""cuDNN through its Python front end: graphs of operations as plans with their own scratch, on raw addresses.

The one module that knows the package `cudnn` (nvidia-cudnn-frontend 1.32; cuDNN 9). Both are optional:
without them, or without the libraries that they call (`_NEEDED`), `session` is None and other kernels do the
work.

A graph is described by a function that builds it (`Build`) and becomes a plan in `Session.plan`: cuDNN's
heuristics list its engines, best first; those that are not deterministic are excluded, with true
float32 also those that multiply in fewer digits, the front end's own, and all that need more scratch than the
limit. The first of the rest that builds is taken. Its own scratch is part of the memory plan.

The order of a tensor's axes is always N, C, *S, whatever the memory layout: that is in the strides.
"""

from __future__ import annotations

import functools
import importlib
import logging
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from ....core import config
from ....core.errors import DeviceError
from ....core.process import forks
from ....graph.ir import Shape
from ..runtime.device import Run
from .libraries import is_loaded

_log = logging.getLogger("mxlite")

Build = Callable[["Maker"], None]

LIMIT = 64 << 20
"""Bytes of scratch that one call may need. When cuDNN needs more, it is for copies into the other layout."""

_NEEDED = {
    "cuBLASLt": (("nvidia/cu13/lib", "nvidia/cublas/lib"), ("libcublasLt.so.13", "libcublasLt.so.12")),
    "CUDA runtime": (("nvidia/cu13/lib", "nvidia/cuda_runtime/lib"), ("libcudart.so.13", "libcudart.so.12")),
    "cuDNN": (("nvidia/cudnn/lib",), ("libcudnn.so.9",)),
}
"""Libraries that are opened by their bare names, and their places in wheels, which the loader does not know.
Without cuBLASLt cuDNN would end the process. Without the runtime the front end builds plans that it cannot
run: it asks if the stream is captured, and clears scratch. CuPy's copy is linked into CuPy, where no other
library finds it. The front end looks for cuDNN beside this Python only, not in user or PYTHONPATH
packages."""
_TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}
DTYPES = frozenset(_TYPES)


def library() -> Any:
    """The package, or None if it, cuDNN or cuBLASLt is not installed or does not load."""
    return _loaded()[0]


def why_not_loaded() -> str:
    """Reason why `library` is None; empty if it is not."""
    return _loaded()[1]


@functools.cache
def _loaded() -> tuple[Any, str]:
    for what, where in _NEEDED.items():
        if not is_loaded(*where):
            return None, f"there is no {what}"
    try:
        found = importlib.import_module("cudnn")
        found.backend_version()
    except Exception as error:  # any kind is raised if shared libraries are missing or of another version
        return None, f"{type(error).__name__}: {error}"
    return found, ""


@dataclass(frozen=True)
class Tensor:
    """An array as described to cuDNN: its number, by which it gets an address, its shape and its strides."""

    number: int
    shape: Shape
    strides: Shape
    dtype: str

    @classmethod
    def activations(cls, number: int, shape: Shape, dtype: str, last: bool) -> Tensor:
        """Tensor (N, C, *S), stored in that order or channels last; it has at least two spatial axes."""
        n, c, *size = shape
        size = [*(1 for _ in range(2 - len(size))), *size]
        order = (n, *size, c) if last else (n, c, *size)
        steps = dense(order)
        strides = (steps[0], steps[-1], *steps[1:-1]) if last else steps
        return cls(number, (n, c, *size), strides, dtype)

    @classmethod
    def channels(cls, number: int, count: int, rank: int, dtype: str) -> Tensor:
        """Tensor (C,), to be broadcast over activations of `rank` axes."""
        return cls(number, (1, count, *(1,) * (rank - 2)), (count, *(1,) * (rank - 1)), dtype)


def dense(shape: Shape) -> Shape:
    """Strides of an array in C order, in elements."""
    steps = [1]
    for d in shape[:0:-1]:
        steps.append(steps[-1] * d)
    return tuple(reversed(steps))


class Maker:
    """A graph being built. Operations are those of the front end: `maker.graph.conv_fprop(...)`."""

    def __init__(self, cudnn: Any, graph: Any) -> None:
        self.cudnn = cudnn
        self.graph = graph

    def input(self, t: Tensor) -> Any:
        """Add an array that is read."""
        return self.graph.tensor(
            dim=list(t.shape), stride=list(t.strides), data_type=self.type(t.dtype), uid=t.number
        )

    def output(self, made: Any, t: Tensor) -> None:
        """Add an array to which `made` is written."""
        made.set_dim(list(t.shape)).set_stride(list(t.strides))
        made.set_output(True).set_data_type(self.type(t.dtype)).set_uid(t.number)

    def number(self, value: float) -> Any:
        """Add a float32 constant."""
        return self.graph.tensor_scalar(value, self.cudnn.scalar_type.RUNTIME_PARAM)

    def type(self, dtype: str) -> Any:
        return getattr(self.cudnn.data_type, _TYPES[dtype])


class CudnnPlan:
    """A graph that can run. `names`: of its arrays, `samples`: of one call, as set by its maker."""

    names: tuple[str, ...] = ()
    samples: int = 1

    def __init__(self, session: Session, graph: Any, name: str) -> None:
        self.session = session
        self.graph = graph
        self.workspace = int(graph.get_workspace_size())
        self.name = name

    def call(self, addresses: Mapping[int, int], work: int) -> Run:
        """A call on the stream that is current then. `addresses` by the tensors' numbers."""
        session, graph, pack = self.session, self.graph, dict(addresses)

        def run() -> None:
            try:
                session.execute(graph, pack, work)
            except Exception as error:  # the front end's own exception types differ between versions
                raise CudnnError(f"{self.name} could not be run: {error}") from error

        return run


class CudnnError(DeviceError):
    """Failure to run a plan that was built; the message has cuDNN's words."""


class Session:
    """cuDNN on one device. `stream()` is the current stream; plans are cached by key, and built where
    `active()` has made the device this thread's.

    `place` is what a graph is planned for: `{"handle": ...}`, or properties of a device that is not present.

    There is one handle, which is told of a stream when that changes: another one would allocate
    at its first call, which a capture does not allow. It is told of a capture's stream before the capture
    (`use`), since it asks the driver about a stream. Threads take turns.
    """

    def __init__(
        self,
        cudnn: Any,
        stream: Callable[[], int],
        place: Mapping[str, Any] | None = None,
        active: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.cudnn = cudnn
        self.stream = stream
        self._active = active
        self._lock = forks.lock()
        self._using = forks.lock()
        with active():  # a handle belongs to the device that is current
            self._handle = None if place else cudnn.create_handle()
        self._set: int | None = None  # the stream that the handle was told of
        self._place = dict(place or {"handle": self._handle})
        self._plans: dict[Any, CudnnPlan | None] = {}

    def plan(
        self,
        key: Any,
        name: str,
        dtype: str,
        build: Build,
        limit: int = LIMIT,
        names: tuple[str, ...] = (),
    ) -> CudnnPlan | None:
        """The plan of the graph of `build`; None if cuDNN has none. Equal keys mean equal graphs."""
        tf32 = config.allow_tf32()
        key = (key, dtype, limit, tf32)
        with self._lock:
            if key not in self._plans:
                with self._active():
                    made = self._made(name, dtype, build, limit, tf32)
                if made is not None:
                    made.names = names
                self._plans[key] = made
            return self._plans[key]

    def _made(self, name: str, dtype: str, build: Build, limit: int, tf32: bool) -> CudnnPlan | None:
        cudnn, notes = self.cudnn, self.cudnn.numerical_note
        struck = [notes.NONDETERMINISTIC]
        if dtype == "float32" and not tf32:
            struck += [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS]
        kinds = cudnn.data_type
        try:
            graph = cudnn.pygraph(
                io_data_type=getattr(kinds, _TYPES[dtype]),
                intermediate_data_type=kinds.FLOAT,
                compute_data_type=kinds.FLOAT,
                **self._place,
            )
            build(Maker(cudnn, graph))
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
            if foreign := _foreign(graph):
                graph.deselect_engines(foreign)
            graph.deselect_numeric_notes(struck)
            graph.deselect_workspace_greater_than(limit)
            graph.check_support()
            graph.build_plans()
            made = CudnnPlan(self, graph, name)
        except (cudnn.cudnnGraphNotSupportedError, NotImplementedError):
            return None  # cuDNN's signal that it has no engine for this
        except Exception as error:  # any kind is raised on failure, or after changes
            _log.warning("%s could not be planned, and is not used: %s", name, error)
            return None
        return made if made.workspace <= limit else None

    def execute(self, graph: Any, pack: Mapping[int, int], work: int) -> None:
        """Put a planned graph on the current stream. `pack`: addresses by the tensors' numbers."""
        with self._using:
            self._tell(self.stream())
            graph.execute(pack, work, handle=self._handle)

    def use(self, stream: int) -> None:
        """Set the handle's stream before something is executed there. A failure here will recur there."""
        with self._using, suppress(Exception):
            self._tell(stream)

    def _tell(self, stream: int) -> None:
        if stream != self._set:
            self.cudnn.set_stream(handle=self._handle, stream=stream)
            self._set = stream


def _foreign(graph: Any) -> list[str]:
    """Plans that are not cuDNN's: the front end has engines written in Python, which it compiles as it plans
    and puts first where it knows them to be faster. Their rounding and allocations are not verified here.
    """
    every = enumerate(graph.plans)
    return [graph.get_plan_name_at_index(i) for i, plan in every if plan.cpp_index is None]


def session(device: Any) -> Session | None:
    """cuDNN on a device with streams, or None if it is not available."""
    if not hasattr(device, "stream"):
        return None
    with _lock:
        if device not in _sessions:
            _sessions[device] = _opened(device)
        found = _sessions[device]
    return None if isinstance(found, str) else found


def why_none(device: Any) -> str:
    """Reason why `session` is None on a device with streams; empty if it is not."""
    return "" if session(device) is not None else str(_sessions[device])


_lock = forks.lock()
_sessions: weakref.WeakKeyDictionary[Any, Session | str] = weakref.WeakKeyDictionary()


def _opened(device: Any) -> Session | str:
    """The session, or the reason why there is none."""
    cudnn = library()
    if cudnn is None:
        return why_not_loaded()
    kept = weakref.ref(device)  # so that the cached session does not keep it alive

    def stream() -> int:
        device: Any = kept()
        return int(device.stream)

    def active() -> AbstractContextManager[None]:
        device: Any = kept()
        chosen: AbstractContextManager[None] = getattr(device, "active", nullcontext)()
        return chosen

    try:
        made = Session(cudnn, stream, active=active)
        if hasattr(device, "before_capture"):
            device.before_capture.append(made.use)
        return made
    except Exception as error:  # no driver, or one too old for this cuDNN
        _log.warning("cuDNN is not used on %r, which it does not open: %s", device, error)
        return f"{type(error).__name__}: {error}"
