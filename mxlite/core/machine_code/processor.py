"""The processor of this process as LLVM sees it; LLVM is asked once for each processor.

LLVM's answer depends on nothing but its version and the results of the instruction CPUID. So these are the
key of its answer in the user's cache: not a name, nor a report of the system, which may be older than a
virtual machine's move to another host.

Source: Intel's Software Developer's Manual, volume 2A, "CPUID"; AMD's Architecture Programmer's Manual,
volume 3, appendix E.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
from typing import Any

from .. import config
from ..disk import kept
from . import llvm, objectfile

_MAGIC = b"mxlite processor 1\n"

_TEXT = """
%registers = type {i32, i32, i32, i32}
define void @cpuid(i32 %leaf, i32 %part, ptr %out) {
  %x = call %registers asm sideeffect "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}"(i32 %leaf, i32 %part)
  store %registers %x, ptr %out
  ret void
}
define void @xgetbv(ptr %out) {
  %x = call {i32, i32} asm sideeffect "xgetbv", "={ax},={dx},{cx}"(i32 0)
  store {i32, i32} %x, ptr %out
  ret void
}
"""

_EAX, _EBX, _ECX, _EDX = range(4)
_LEAVES = {  # leaf, subleaf -> the registers that describe features, and not the current core or state
    (0x0, 0): (_EBX, _ECX, _EDX),
    (0x1, 0): (_EAX, _ECX, _EDX),
    (0x7, 0): (_EAX, _EBX, _ECX, _EDX),
    (0x7, 1): (_EAX, _EBX, _ECX, _EDX),
    (0xD, 1): (_EAX,),
    (0x14, 0): (_EAX, _EBX, _ECX),
    (0x19, 0): (_EAX, _EBX, _ECX),
    (0x1E, 1): (_EAX,),
    (0x24, 0): (_EAX, _EBX),
    (0x80000001, 0): (_ECX, _EDX),
    (0x80000007, 0): (_EDX,),
    (0x80000008, 0): (_EBX,),
    (0x80000021, 0): (_EAX,),
}
_OSXSAVE = 1 << 27  # of leaf 1's ECX: the system has said which registers it saves


def found() -> llvm.Target:
    """The target that code for this processor is compiled for. Raises ImportError without llvmlite."""
    facts = _facts()
    if facts is None:
        return llvm.host()
    if (text := _read("target", facts)) is not None:
        triple, cpu, features, words, version = json.loads(text)
        return llvm.Target(triple, cpu, frozenset(features), words, version)
    at = llvm.host()
    _write("target", facts, json.dumps([at.triple, at.cpu, sorted(at.features), at.text, at.llvm]).encode())
    return at


def _facts() -> str | None:
    """LLVM's library and the processor's answers; None if they cannot be had cheaply."""
    installed = _installed()
    if not objectfile.suits() or config.cache_dir() is None or kept.fault() is not None:
        return None
    blob = _read("cpuid", installed)
    try:
        if blob is None:
            blob = llvm.compile(_TEXT, llvm.host()._replace(cpu="x86-64", features=frozenset(), text=""))
            _write("cpuid", installed, blob)
        return f"{installed}\n{_answers(objectfile.Image(blob, lambda name: None))}"
    except objectfile.Unsuitable:
        return None


def _installed() -> str:
    """The installed llvmlite, named by the file of its library, without opening it. Raises ImportError."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("llvmlite is not installed")
    folder = os.path.join(next(iter(spec.submodule_search_locations)), "binding")
    facts = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if "llvmlite" in entry.name:
                status = entry.stat()
                facts.append(f"{entry.path} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(facts)


def _answers(image: objectfile.Image) -> str:
    """The results of CPUID, and of XGETBV if it may be used."""
    cpuid: Any = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)
    cpuid, out = cpuid(image.address("cpuid")), (ctypes.c_uint32 * 4)()

    def answer(leaf: int, part: int = 0) -> list[int]:
        cpuid(leaf, part, out)
        return list(out)

    last = {0: answer(0)[_EAX], 0x80000000: answer(0x80000000)[_EAX]}
    answers = {
        f"{leaf:x}.{part}": [answer(leaf, part)[register] for register in registers]
        for (leaf, part), registers in _LEAVES.items()
        if leaf <= last[leaf & 0x80000000]
    }
    if answer(1)[_ECX] & _OSXSAVE:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(image.address("xgetbv"))(out)
        answers["xgetbv"] = list(out[:2])
    return json.dumps(answers)


def _read(name: str, key: str) -> bytes | None:
    directory = kept.folder("processor")
    return None if directory is None else kept.read(os.path.join(directory, name), _MAGIC, key)


def _write(name: str, key: str, blob: bytes) -> None:
    if (directory := kept.folder("processor", make=True)) is not None:
        with kept.attempt(directory):
            kept.write(os.path.join(directory, name), _MAGIC, key, blob)
