"""Primitives: created once for shapes, bound to addresses with their program, then only executed."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from ctypes import addressof, c_char
from typing import Any, TypeVar

from ....core import config
from ...call import Calls as Calls, in_turn as in_turn
from ..runtime.threads import num_threads
from .constants import POST_OP, QUERY_IMPLEMENTATION, QUERY_MD, SCALES, SCRATCHPAD, SRC_1
from .library import Library, library, OneDNNError
from .memory import Memory

Run = Callable[[], None]
P = TypeVar("P")


class _Arg(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_int), ("memory", ctypes.c_void_p)]


class Attr:
    """Attributes of a primitive: the scratchpad is always the caller's; post-operations; scales.

    `eltwise(alg, alpha, beta)`, `add_to_output(scale)` and `binary(alg, memory)` append post-operations in
    the order they are called; `scales(arg)` adds an argument for the factor of another (SCALES | arg).
    """

    def __init__(self) -> None:
        self._lib = _lib()
        self.handle = self._lib.new("dnnl_primitive_attr_create")
        self._lib.call("dnnl_primitive_attr_set_scratchpad_mode", self.handle, ctypes.c_int(1))
        self._post: Any = None
        self.operands: dict[int, Memory] = {}
        self._count = 0

    def eltwise(self, alg: int) -> Attr:
        self._append(
            "dnnl_post_ops_append_eltwise", ctypes.c_int(alg), ctypes.c_float(0.0), ctypes.c_float(0.0)
        )
        return self

    def add_to_output(self, scale: float = 1.0) -> Attr:
        """dst = result + scale * dst. Ignored by eltwise primitives (a trap): do not use it there."""
        self._append("dnnl_post_ops_append_sum", ctypes.c_float(scale), ctypes.c_int32(0), ctypes.c_int(0))
        return self

    def binary(self, alg: int, operand: Memory) -> Attr:
        """dst = dst `alg` operand; the operand is argument POST_OP * (i + 1) | SRC_1."""
        self.operands[POST_OP * (self._count + 1) | SRC_1] = operand
        self._append("dnnl_post_ops_append_binary", ctypes.c_int(alg), operand.handle)
        return self

    def scales(self, arg: int) -> Attr:
        """The factor of `arg` is read when the primitive runs: float32 numbers, argument SCALES | arg."""
        from ....core.dtype import float32
        from .memory import memory

        one = ctypes.c_int(0)  # for all of the argument
        self._lib.call("dnnl_primitive_attr_set_scales_mask", self.handle, ctypes.c_int(arg), one)
        self.operands[SCALES | arg] = memory((1,), float32)
        return self

    def _append(self, function: str, *args: Any) -> None:
        if self._post is None:
            self._post = self._lib.new("dnnl_post_ops_create")
        self._lib.call(function, self._post, *args)
        self._lib.call("dnnl_primitive_attr_set_post_ops", self.handle, self._post)
        self._count += 1

    def __del__(self) -> None:
        if self._post is not None:
            self._lib.handle.dnnl_post_ops_destroy(self._post)
        self._lib.handle.dnnl_primitive_attr_destroy(self.handle)


class Primitive:
    """A primitive and its properties.

    function: name of the C function that creates the descriptor, without `dnnl_` and
    `_primitive_desc_create`. args: that function's arguments between the engine and the attributes, ctypes
    objects and Memory. keep: objects that must outlive the primitive.

    `implementation` is oneDNN's name for the code it chose, `scratch` its scratch in bytes. Raises
    OneDNNError if oneDNN has no such primitive.
    """

    def __init__(self, function: str, *args: Any, attr: Attr | None = None, keep: Any = None) -> None:
        lib = self._lib = _lib()
        self.attr = attr or Attr()
        plain = [a.handle if isinstance(a, Memory) else a for a in args]
        plain = [plain[0], lib.engine, plain[1]] if function == "reorder" else plain
        last = [lib.engine] if function == "reorder" else []
        first = [] if function == "reorder" else [lib.engine]
        self._keep = (args, keep)
        before = lib.use_threads(num_threads())  # the split of the work is fixed at creation
        try:
            self.descriptor = lib.new(
                f"dnnl_{function}_primitive_desc_create", *first, *plain, *last, self.attr.handle
            )
            try:
                self.handle = lib.new("dnnl_primitive_create", self.descriptor)
            except BaseException:
                lib.handle.dnnl_primitive_desc_destroy(self.descriptor)
                raise
        finally:
            if before is not None:
                lib.use_threads(before)
        name = ctypes.c_char_p()
        lib.call(
            "dnnl_primitive_desc_query", self.descriptor, ctypes.c_int(QUERY_IMPLEMENTATION), ctypes.c_int(0),
            ctypes.byref(name),
        )  # fmt: skip
        self.implementation = (name.value or b"").decode()
        scratch = self.wants(SCRATCHPAD)
        self.scratch = scratch.nbytes if scratch is not None else 0

    @property
    def is_reference(self) -> bool:
        """True if oneDNN has only slow reference code. Recurrent kernels are named so, yet fast."""
        return "ref" in self.implementation and "rnn" not in self.implementation

    def wants(self, arg: int) -> Memory | None:
        """The layout this primitive requires for an argument; None if it has no such argument."""
        handle = self._lib.handle.dnnl_primitive_desc_query_md(
            self.descriptor, ctypes.c_int(QUERY_MD[arg]), ctypes.c_int(0)
        )
        if not handle:
            return None
        found = Memory(ctypes.c_void_p(handle), keep=self)
        return found if found.nbytes else None

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._lib.handle.dnnl_primitive_destroy(self.handle)
            self._lib.handle.dnnl_primitive_desc_destroy(self.descriptor)


def cached(make: Callable[..., P]) -> Callable[..., P | None]:
    """`make`, cached by arguments and number of threads.

    None if oneDNN must not be used, is not installed, or has only reference code for it.
    """

    @functools.lru_cache(maxsize=4096)
    def once(threads: int, *args: Any) -> P | None:
        try:
            made = make(*args)
        except OneDNNError:
            return None
        return None if isinstance(made, Primitive) and made.is_reference else made

    @functools.wraps(make)
    def ask(*args: Any) -> P | None:
        if "onednn" not in config.kernel_kinds() or library() is None:
            return None
        return once(num_threads(), *args)

    return ask


class _Handles:
    """Memory handles of one call, destroyed with it."""

    def __init__(self, lib: Library) -> None:
        self._lib = lib
        self.handles: list[ctypes.c_void_p] = []

    def add(self, md: Memory, address: int) -> ctypes.c_void_p:
        handle = self._lib.new("dnnl_memory_create", md.handle, self._lib.engine, ctypes.c_void_p(address))
        self.handles.append(handle)
        return handle

    def __del__(self) -> None:
        for handle in self.handles:
            self._lib.handle.dnnl_memory_destroy(handle)


def reorder(source: Memory, target: Memory, attr: Attr | None = None) -> Primitive:
    """The primitive that copies SRC in layout `source` to DST in layout `target`."""
    return Primitive("reorder", source, target, attr=attr)


def bind(primitive: Primitive, arrays: Mapping[int, tuple[Memory, Any]], work: Any = None) -> Run:
    """A call of `primitive` on these arrays: argument -> (its layout, a numpy array or an address).

    `work` is an array of at least `primitive.scratch` bytes. Arrays stay referenced by the call. Only
    addresses are used: an array must have the bytes that its layout spans.
    """
    lib = primitive._lib
    handles = _Handles(lib)
    arrays = dict(arrays)
    if primitive.scratch:
        scratch = primitive.wants(SCRATCHPAD)
        assert scratch is not None and work is not None and work.nbytes >= primitive.scratch
        arrays[SCRATCHPAD] = scratch, work
    args = (_Arg * len(arrays))(
        *(_Arg(arg, handles.add(md, address_of(array))) for arg, (md, array) in arrays.items())
    )
    run = functools.partial(lib.execute, primitive.handle, lib.stream, ctypes.c_int(len(arrays)), args)
    run.keep = (primitive, handles, arrays)  # type: ignore[attr-defined]
    return run


def point(run: Run, arg: int, array: Any) -> None:
    """Make a call created by `bind`, or several in turn, read its argument `arg` from `array`, and keep
    that alive in place of the one before.
    """
    for call in run if isinstance(run, Calls) else (run,):
        keep = getattr(call, "keep", None)
        if not isinstance(keep, tuple):  # it is no primitive
            continue
        primitive, handles, arrays = keep
        if arg in arrays:
            handle = handles.handles[list(arrays).index(arg)]
            primitive._lib.call("dnnl_memory_set_data_handle", handle, ctypes.c_void_p(address_of(array)))
            arrays[arg] = arrays[arg][0], array


def address_of(array: Any) -> int:
    """Address of an array's first element; 0 for None; an int is an address already."""
    if array is None or isinstance(array, int):
        return array or 0
    try:  # three times as fast as the other
        return addressof(c_char.from_buffer(array))
    except (TypeError, ValueError):  # read only, empty, or of a type that buffers do not know
        return int(array.__array_interface__["data"][0])


def _lib() -> Library:
    lib = library()
    if lib is None:
        raise RuntimeError("oneDNN is not there; ask library() first.")
    return lib
