"""Backends: an array module and the kernels that are better than the reference.

A kernel is chosen once per node, when a program is bound or an imperative operation is called;
nothing is chosen while running. An operator without a row in the table runs its reference kernel,
and the plan says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from ctypes import addressof, c_char
from dataclasses import dataclass, field
from functools import partial
from math import prod
from time import thread_time
from types import ModuleType
from typing import Any, Protocol, TYPE_CHECKING

import numpy as np

from ..comm import Collectives, Communicator, current, HOST, Window
from ..core import host_memory, MissingMethodError, OutOfMemoryError
from ..core.record import record
from ..engine import Var
from ..graph.grouped import Grouped
from ..graph.ir import Shape
from ..graph.opdef import DType, Op, Shapes, Signature
from .checks import guard
from .remote import Remote
from .rewrite import Pipeline

if TYPE_CHECKING:
    from ..memplan import Device
    from ..memplan.cost.device import Precision

MOST_ELEMENTS = 2**36
"""Most elements of an array in a call for which a tuned kernel is chosen. Libraries count in fewer bits than
Python: for sizes that no memory holds, oneDNN divides by 0 and the process dies."""

ALIGN = 64  # bytes; one cache line, and what vector kernels like
PAGE = 4096  # bytes; alignment of arrays from `MANY_PAGES` on; an arena begins ALIGN after a page
MANY_PAGES = 16 * PAGE
"""Offsets within a page decide which sets of the first-level cache an array shares with others. Steps of an
LSTM, bound six times in a process, took 2.6 % more or less depending on where its weights lay, and 0.4 % if
they begin at pages. An arena that begins at a page, too, makes some networks slower and others faster, by
5 %. Large blocks of the C library begin ALIGN after a page; that was best over all networks."""


Run = Callable[[], None]


def plain_link(run: Callable[..., None], xp: Any, a: Any, *inputs: Any, **rest: Any) -> Run:
    """The call of a kernel that is not connected: `run` and its arguments, in groups if it takes them so."""
    if isinstance(run, Grouped):
        return partial(run.kernel, xp, a, **run.arranged(inputs, rest))
    return partial(run, xp, a, *inputs, **rest)


@dataclass(frozen=True)
class TileView:
    """How a call on a tile of larger arrays differs from one on arrays of its own.

    `strides`: by name, the elements between neighbours along each axis of arrays that are not contiguous.
    `adds`: outputs to whose old content, times `keeps`, the call adds. `dtypes`: by name, those of sums that
    are wider than the inputs. `work`: multiplications of all tiles together, 0 for arrays of its own.
    `any_width`: products of few columns run on the same kernels as others.
    """

    strides: tuple[tuple[str, Shape], ...] = ()
    adds: frozenset[str] = frozenset()
    keeps: float = 1.0
    dtypes: tuple[tuple[str, DType], ...] = ()
    work: int = 0
    any_width: bool = False

    @property
    def is_special(self) -> bool:
        """True if only kernels made for tiles can answer."""
        return bool(self.strides or self.adds or self.dtypes)


@dataclass(frozen=True)
class Request:
    """Request for a kernel for one node.

    `inputs` and `outputs` are the shapes of the *forward* call, also for a gradient operator; `dtypes` are
    those of its inputs, and `dtype` the first of them (float32 if there is no input). `used` are the
    inputs and outputs that this very call has; None: all. `train`: True if the program trains. `tile`: how it
    works on parts of arrays, in a region of tiles.
    """

    op: type[Op]
    attrs: Any
    inputs: Shapes
    outputs: Shapes
    dtype: DType
    dtypes: tuple[DType, ...]
    used: frozenset[str] | None = None
    train: bool = True
    tile: TileView = TileView()

    def is_used(self, name: str) -> bool:
        """True if this call has an input or output of that name."""
        if self.used is not None:
            return name in self.used
        return name in self.op.input_names(self.attrs) or name in self.op.output_names(self.attrs)

    def strides(self, name: str) -> Shape | None:
        """The strides of an array that is not contiguous; None for one that is."""
        return dict(self.tile.strides).get(name)

    def adds(self, name: str) -> float:
        """The factor of an output's old content: 0 unless the call adds to it."""
        return self.tile.keeps if name in self.tile.adds else 0.0

    def made(self, name: str) -> DType:
        """The type of an output of a product: wider than the inputs if it is a sum over tiles."""
        return dict(self.tile.dtypes).get(name, self.dtype)


Knobs = tuple[int, ...]
"""Small integers on which a kernel's code depends besides its request."""


class Space(Protocol):
    """The schedules of one kernel's code, as `ChosenKernel.space`.

    `default` is what runs without records; it is one of `legal()`, those that are worth a measurement.
    `kernel(knobs)` is the kernel with such code, None if there is none; its name tells kernels apart that
    round otherwise. `features(knobs)` are facts of the code, log scaled, that other shapes have, too.
    """

    @property
    def default(self) -> Knobs: ...

    def legal(self) -> Sequence[Knobs]: ...

    def kernel(self, knobs: Knobs) -> ChosenKernel | None: ...

    def features(self, knobs: Knobs) -> Sequence[float]: ...


@dataclass(frozen=True)
class ChosenKernel:
    """A kernel for one node: its function, its scratch in bytes, and its name in a plan.

    `link` makes the call from `run` and its arguments. `seconds(device)` is the kernel's own estimate of a
    call's time, None if flops and bytes tell; `precision`: that of its products. `launches`: number of GPU
    kernels in a call, each of which has a launch overhead. `is_reference`: it has no threads but those of the
    array module. `always` are outputs that every run writes if the node has them, also a recomputation of
    others: a kernel that can only compute all at once would otherwise compute those in another way, with
    other roundings. `twice` are inputs that it reads in two passes over memory. `views` are arrays that need
    not be contiguous. `bits`: kernels for one call that differ in threads give the same results to the bit if
    these are equal, and not None: the split of sums among threads, or () if there is none. `bound_only`: to
    connect it takes as long as the reference kernel runs, which an imperative call, that connects each time,
    takes therefore; a bound program connects once. `is_computed`: it is made of the operator's computation.
    `space`: what may be varied of its code, None if nothing is said; `measured`: seconds out of the cache and
    in it, where records have them.
    """

    run: Callable[..., None]
    workspace: int
    name: str
    signature: Signature
    link: Callable[..., Run] = plain_link
    seconds: Callable[[Device], float] | None = None
    is_reference: bool = False
    always: tuple[str, ...] = ()
    in_place: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    precision: Precision = ""
    twice: tuple[str, ...] = ()
    launches: int = 1
    bits: tuple[Any, ...] | None = None
    views: frozenset[str] = frozenset()
    bound_only: bool = False
    is_computed: bool = False
    space: Space | None = None
    measured: tuple[float, float] | None = None

    def in_place_options(self, op: type[Op], a: Any) -> Mapping[str, tuple[str, ...]]:
        """The inputs that each output may overwrite: the operator's, then this kernel's."""
        found = op.in_place_options(a)
        if not self.in_place:
            return found
        return {
            out: tuple(dict.fromkeys((*found.get(out, ()), *self.in_place.get(out, ()))))
            for out in dict.fromkeys((*found, *self.in_place))
        }


Row = Callable[[Request], "ChosenKernel | None"]
"""A row of a backend's table: the kernel for a request, or None if it has none that is better than the
reference. It is called while plans are made: it allocates nothing large, and caches what it creates (a
primitive, compiled code) for the next request of the same kind."""


@dataclass(frozen=True)
class Kernel:
    """A row that replaces `Op.forward` wherever `fits(attrs, input shapes, dtype)`.

    `run` has the signature of the operator's `forward`. `workspace` is as `Op.workspace`, with the
    shapes of the forward call (for a gradient operator: of the forward it belongs to).
    """

    run: Callable[..., None]
    fits: Callable[[Any, Shapes, DType], bool] = lambda attrs, inputs, dtype: True
    workspace: Callable[[Any, Shapes, Shapes, DType], int] | None = None
    name: str = "fast"

    def __call__(self, r: Request) -> ChosenKernel | None:
        if not self.fits(r.attrs, r.inputs, r.dtype):
            return None
        nbytes = self.workspace(r.attrs, r.inputs, r.outputs, r.dtype) if self.workspace else 0
        return ChosenKernel(self.run, nbytes, self.name, Signature.of(self.run))


def tuned(kernels: Mapping[type[Op], Sequence[Row]], request: Request) -> ChosenKernel | None:
    """The kernel of the first row of a table that has one for a request."""
    rows = kernels.get(request.op, ())
    if rows and all(prod(s) <= MOST_ELEMENTS for s in (*request.inputs, *request.outputs)):
        for row in rows:
            if request.tile.is_special and not getattr(row, "tiles", False):
                continue
            found = row(request)
            if found is not None:
                return found
    return None


def connected(
    connect: Callable[..., Run],
    workspace: int,
    name: str,
    *,
    like: Callable[..., Any] | Signature | None = None,
    mutates: bool = False,
    views: frozenset[str] = frozenset(),
    **facts: Any,
) -> ChosenKernel:
    """A kernel that is connected to its arrays once and then only run: it may keep their addresses.

    `connect(xp, a, <inputs>, *, <outputs>, <services>)` has the parameters of a kernel and returns the call.
    A bound program connects when it is built; an imperative call connects and runs. Arrays passed to
    `connect` are in C order, but for `views`. `like`: the function whose parameters count, or these, if
    `connect` takes arbitrary ones. `facts` are further fields of ChosenKernel.
    """
    signature = like if isinstance(like, Signature) else Signature.of(like or connect)

    def link(_: Any, xp: Any, a: Any, *inputs: Any, **rest: Any) -> Run:
        names = (*signature.needs, *signature.needs[-1:] * len(inputs))  # the last may take all that follow
        named = (*zip(names, inputs), *rest.items())
        if all(n in views or _is_dense(x) for n, x in named):
            return connect(xp, a, *inputs, **rest)
        return partial(run, xp, a, *inputs, **rest)

    def run(xp: Any, a: Any, *inputs: Any, **rest: Any) -> None:
        if all(map(_is_dense, (*inputs, *rest.values()))):
            connect(xp, a, *inputs, **rest)()
            return
        own = [_dense(xp, x) for x in inputs]
        made = {n: _dense(xp, x) for n, x in rest.items()}
        connect(xp, a, *own, **made)()
        for was, now in (*(zip(inputs, own) if mutates else ()), *((rest[n], x) for n, x in made.items())):
            for x, y in zip(was, now) if isinstance(was, tuple) else ((was, now),):
                if x is not y:
                    x[...] = y

    return ChosenKernel(run, workspace, name, signature, link, views=views, **facts)


def _is_dense(x: Any) -> bool:
    """True if `x` is no array, or one in C order; for a tuple: if all of it is."""
    if isinstance(x, tuple):
        return all(_is_dense(y) for y in x)
    flags = getattr(x, "flags", None)
    return flags is None or flags.c_contiguous


def _dense(xp: Any, x: Any) -> Any:
    """`x` itself, or a copy of it in C order."""
    if _is_dense(x):
        return x
    if isinstance(x, tuple):
        return tuple(_dense(xp, y) for y in x)
    return xp.ascontiguousarray(x)


def no_control(backend: Backend, request: Request) -> ChosenKernel:
    """For backends that run no control flow: those of tests and checks."""
    raise MissingMethodError(f"Backend {backend.name!r} runs no {request.op.__name__}: give it `control`.")


def _assumed() -> Device:
    from ..memplan.cost.device import DEFAULT  # arrays need no planner, and it takes a while to import

    return DEFAULT


@record
class Backend:
    """An array module `xp` and the table of kernels that are better than `xp`'s reference.

    `prepare` is called before a program is bound; it is cheap when repeated. `threads()` is the number of
    threads that a kernel chosen now uses, and `with running(n):` sets it for the tuned kernels that this
    thread chooses, connects and runs inside: what was chosen for one number must not be run with another.
    `in_turn(n)` says if two such kernels would compete for the cores. `join(calls)` may merge calls of a
    list: it returns pairs of a position in the list, and the call that replaces those from there to the next
    position. `with_threads(kernel, n)` is a kernel chosen inside `running(n)`, for programs that run inside
    another. `rouse(n)` wakes the `n` threads of this thread's kernels, which sleep after a pause: call it
    before a kernel is timed.

    Passes rewrite graphs (see `backends/rewrite.py`). `optimize()` are those that every program has: they
    rewrite a forward graph, with shapes and dtypes, before it is differentiated (`Stage.FORWARD`), into one
    that computes the same outputs from the same variables faster, then a whole step (`STEP`), and inference
    whose parameters stay, so that it works on them in a form that its kernels read faster (`CONSTANTS`).
    `low_memory()` are those by which a step holds less and takes longer. Without a budget it holds a little
    less (`UNBOUNDED`). Within one, a node that is cheaper to recompute when its small results are kept is
    split in two, one of which runs once (`BOUNDED`), and variants revert what keeps more than necessary for
    the sake of time: both steps are planned (see `memplan/remat/steps.py`).
    `copies_again`: True if 16-bit copies of weights are always recomputed rather than held; otherwise
    `low_memory` and the planner decide. `rates` is the device that seconds are modelled for if none is
    described; `identity()` are the facts that measured ones depend on. `control(backend, request)` chooses
    the kernel of an operator with subgraphs, made of kernels that this backend chooses for their nodes.
    `window` is what sums over ranks take here beside their arrays.

    `copy(target, source)` copies an array to host memory or back, from and to blocks of `empty` and
    `host_empty`, while kernels run; it returns when the copy is complete.

    `lane` is the engine's device for operations on its arrays, `place` what they have as `device`. The
    methods below `array` are all that the rest of mxlite does with the elements of an array besides kernels:
    where `is_remote`, the arrays lie in memory of their own, of which the host sees nothing, and the device
    works on while the engine goes on, so that what runs there is pushed as `issue` makes it. `remote` is what
    programs on such a device are made with; who has none runs call by call.
    """

    name: str
    xp: ModuleType
    kernels: Mapping[type[Op], Sequence[Row]] = field(default_factory=dict)
    lane: str = "cpu"
    place: Any = "cpu"
    remote: Remote | None = None
    prepare: Callable[[], None] = lambda: None
    threads: Callable[[], int] = lambda: 1
    running: Callable[[int], AbstractContextManager[None]] = lambda threads: nullcontext()
    in_turn: Callable[[int], bool] = lambda threads: False
    with_threads: Callable[[ChosenKernel, int], ChosenKernel] = lambda kernel, threads: kernel
    join: Callable[[Sequence[Run]], Sequence[tuple[int, Run]]] = lambda calls: list(enumerate(calls))
    rouse: Callable[[int], None] = lambda threads: None
    optimize: Callable[[], Pipeline] = Pipeline
    low_memory: Callable[[], Pipeline] = Pipeline
    copies_again: bool = True
    rates: Device = field(default_factory=_assumed)
    identity: Callable[[], tuple[str, ...]] = lambda: ()
    copy: Callable[[Any, Any], None] = np.copyto
    control: Callable[[Backend, Request], ChosenKernel] = no_control
    window: Window = HOST

    @property
    def is_remote(self) -> bool:
        """True if arrays lie in memory of the device's own."""
        return self.remote is not None

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
        """The kernel for one node; see `Request` (`dtypes` are all like `dtype` unless given)."""
        kinds = dtypes or (dtype,) * len(inputs)
        return self.kernel(Request(op, attrs, inputs, outputs, dtype, kinds, used, train))

    def kernel(self, request: Request) -> ChosenKernel:
        """The kernel for a request."""
        r, op = request, request.op
        if (op.forward_op or op).subgraphs:
            return self.control(self, request)
        if issubclass(op, Composite):
            return op.compose(self, request)
        return self.tuned(request) or self.reference(op, r.attrs, r.inputs, r.outputs, r.dtype)

    def tuned(self, request: Request) -> ChosenKernel | None:
        """The kernel of the first row of the table that has one for the request."""
        return tuned(self.kernels, request)

    @staticmethod
    def reference(op: type[Op], attrs: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> ChosenKernel:
        """The kernel that every operator has."""
        forward_op = op.forward_op
        ask = forward_op.backward_workspace if forward_op else op.workspace
        work = ask(attrs, inputs, outputs, dtype)
        return ChosenKernel(op.forward, work, "reference", op.signature, is_reference=True)

    def memory(self) -> int:
        """Total memory in bytes. More is never requested: the system would grant it, and kill its user."""
        return host_memory()

    def empty(self, nbytes: int) -> Any:
        """A 1-D uint8 array of `nbytes` that begins at a page if it is large, at ALIGN otherwise.

        Raises OutOfMemoryError.
        """
        return self._aligned(nbytes, PAGE if nbytes >= MANY_PAGES else ALIGN, 0)

    def _aligned(self, nbytes: int, align: int, behind: int) -> Any:
        """`nbytes` that begin `behind` bytes after a multiple of `align`."""
        if nbytes > self.memory():
            raise OutOfMemoryError(f"An array of {nbytes} bytes: this machine has {self.memory()}.")
        try:
            if guard.on:
                return guard.guarded(behind + nbytes, align)[behind:]
            block = self.xp.empty(nbytes + align + behind, "uint8")
        except MemoryError:
            raise OutOfMemoryError(f"There is no room for an array of {nbytes} bytes.") from None
        start = -addressof(c_char.from_buffer(block)) % align + behind
        return block[start : start + nbytes]

    def join_ranks(self, comm: Communicator) -> None:
        """Let kernels here exchange messages with those of all ranks of `comm`, which all call it.

        Raises DeviceError if a rank lacks what it takes.
        """

    def exchange(self, tell: Callable[[Collectives], None]) -> Run:
        """The call that does with the collectives of this device what `tell` does with those it is given."""
        return partial(tell, current())

    def host_empty(self, nbytes: int) -> Any:
        """A block as from `empty`, in host memory, for arrays that leave the device for a while."""
        try:
            return self.empty(nbytes)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"No room for {nbytes} bytes of offloaded arrays in host memory: {error} "
                f"offload= takes a number of bytes that is not exceeded."
            ) from None

    def array(self, shape: Shape, dtype: DType) -> Any:
        """An uninitialised, aligned array in C order."""
        n = dtype.itemsize
        for d in shape:
            n *= d
        return self.empty(n).view(dtype).reshape(shape)

    def arena(self, nbytes: int) -> Any:
        """A block as from `empty`, for an arena: ALIGN after a page, and it takes no more of the device than
        it has bytes.
        """
        return self._aligned(nbytes, PAGE, ALIGN) if nbytes >= MANY_PAGES else self.empty(nbytes)

    # -- elements: inside an operation of the engine, on this backend's lane -----------------------------

    def issue(self, run: Callable[[], object], vars: Sequence[Var]) -> Callable[[], object]:
        """The closure to push to the engine so that `run`, which touches `vars`, runs in order: for an
        asynchronous device, it also tracks the device's progress.
        """
        return run

    def settle(self, var: Var) -> None:
        """Return when the device too has completed what the engine has finished on `var`."""

    def settle_all(self) -> None:
        """Return when the device has completed everything that the engine has finished."""

    def assign(self, target: Any, source: Any) -> None:
        """Copy elements of `source`, cast and broadcast, to `target`; both of this backend."""
        with np.errstate(all="ignore"):
            target[...] = source

    def fill(self, target: Any, value: float) -> None:
        """Set every element to `value`."""
        target.fill(value)

    def from_host(self, target: Any, values: np.ndarray, var: Var | None = None) -> None:
        """Copy elements of a numpy array, cast and broadcast, to `target`, whose Var is `var`. Done when it
        returns.
        """
        self.assign(target, values)

    def to_host(self, source: Any, var: Var | None = None) -> np.ndarray:
        """A numpy array with the elements of `source`, whose Var is `var`."""
        copied: np.ndarray = source.copy()
        return copied

    def look(self, source: Any, var: Var | None = None) -> np.ndarray:
        """As `to_host`, but it may return the array itself: for immediate reads only."""
        seen: np.ndarray = source
        return seen

    def receive(self, target: Any, source: Any, sender: Backend, var: Var, source_var: Var) -> None:
        """Copy an array of another backend to `target`, whose Var is `var`. Done when it returns."""
        self.from_host(target, sender.look(source, source_var), var)

    def part(self, array: Any, key: Any) -> Any:
        """The elements selected by a key of ints, slices, None and ...: a view, also for a single element.
        One that is not in C order is usable for `assign` and `fill` only.
        """
        return array[key if any(item is Ellipsis for item in key) else (*key, ...)]

    def look_up(self, target: Any, source: Any, key: Any) -> None:
        """Copy `source[key]`, with a key of numpy index arrays, to all of `target`."""
        target[...] = source[key]

    def put_at(self, target: Any, key: Any, values: Any) -> None:
        """Copy a number, or an array of this backend, to `target[key]`, a key of numpy index arrays."""
        with np.errstate(all="ignore"):
            target[key] = values

    def seeds(self, state: np.ndarray) -> Any:
        """[seed, step] of a random stream, uint64, in the memory that kernels read."""
        return state

    def seconds_of(self, run: Run) -> float:
        """Seconds that the device takes for `run`, by itself.

        Here those of CPU time of this thread: it has its share of a team's work, and waiting for a core is no
        cost of a kernel.
        """
        start = thread_time()
        run()
        return thread_time() - start

    def dlpack(self, array: Any, var: Var, **wishes: Any) -> Any:
        """A DLPack capsule of an array; `wishes` are the arguments of `__dlpack__`."""
        return array.__dlpack__(**wishes)

    def dlpack_device(self, array: Any) -> tuple[int, int]:
        """DLPack's (device type, number)."""
        found: tuple[int, int] = array.__dlpack_device__()
        return found

    def overlap(self, a: Any, b: Any) -> bool:
        """True if two arrays may share bytes."""
        return np.may_share_memory(a, b)

    def address(self, array: Any) -> int:
        """Address of an array's first byte."""
        return int(array.ctypes.data)


class Composite(Op):
    """An operator composed of others, whose kernels are composed of theirs."""

    abstract = True

    @classmethod
    def compose(cls, backend: Backend, request: Request) -> ChosenKernel:
        """The kernel for a request. It is no better than the backend's kernels of its operators."""
        raise NotImplementedError
