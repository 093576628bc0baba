"""Object files are put into memory as LLVM puts them there, and processes whose code is kept open no LLVM."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mxlite.core.disk import kept
from mxlite.core.machine_code import llvm, native, objectfile, processor

pytestmark = [
    pytest.mark.skipif(not native.available(), reason="llvmlite is not installed"),
    pytest.mark.skipif(not objectfile.suits(), reason="object files are loaded on Linux and x86-64 alone"),
]

CALLS = """
@table = private constant [3 x i64] [i64 7, i64 11, i64 13]
@count = internal global i64 40
@zeros = internal global [512 x i64] zeroinitializer
@itself = internal global ptr @count
declare i64 @given(i64)
declare float @floorf(float)
define internal i64 @picked(i64 %i) noinline {
  %p = getelementptr [3 x i64], ptr @table, i64 0, i64 %i
  %x = load i64, ptr %p
  ret i64 %x
}
define i64 @constant(i64 %i) {
  %x = call i64 @picked(i64 %i)
  ret i64 %x
}
define i64 @counted(i64 %by) {
  %p = load ptr, ptr @itself
  %x = load i64, ptr %p
  %y = add i64 %x, %by
  store i64 %y, ptr @count
  ret i64 %y
}
define i64 @zero(i64 %i) {
  %p = getelementptr [512 x i64], ptr @zeros, i64 0, i64 %i
  %x = load i64, ptr %p
  store i64 5, ptr %p
  ret i64 %x
}
define i64 @outside(i64 %x) {
  %y = call i64 @given(i64 %x)
  %z = add i64 %y, 1
  ret i64 %z
}
define i64 @floored(i64 %x) {
  %f = sitofp i64 %x to float
  %h = fdiv float %f, 8.0
  %g = call float @floorf(float %h)
  %y = fptosi float %g to i64
  ret i64 %y
}
"""

TRIPLED = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: 3 * x)
SYMBOLS = {"given": ctypes.cast(TRIPLED, ctypes.c_void_p).value}


def outside(name):
    return SYMBOLS.get(name) or native._outside(name)


def number(loaded, name, x):
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address(name))(x)


@pytest.mark.parametrize("load", ["here", "by LLVM"])
def test_constants_variables_and_calls_are_where_the_code_looks_for_them(load):
    blob = native.compile(CALLS)
    loaded = (
        objectfile.Image(blob, outside) if load == "here" else llvm.Engine(blob, native.target(), SYMBOLS)
    )
    assert [number(loaded, "constant", i) for i in range(3)] == [7, 11, 13]
    assert [number(loaded, "counted", 2) for _ in range(2)] == [42, 44]
    assert [number(loaded, "zero", 511) for _ in range(2)] == [0, 5]
    assert number(loaded, "outside", 5) == 16
    assert [number(loaded, "floored", x) for x in (17, -1)] == [2, -1]


def test_only_what_is_for_others_is_found():
    loaded = objectfile.Image(native.compile(CALLS), outside)
    assert [loaded.address(name) for name in ("picked", "given", "nothing", "")] == [0] * 4


def rights(address):
    for line in Path("/proc/self/maps").read_text().splitlines():
        least, most = (int(x, 16) for x in line.split()[0].split("-"))
        if least <= address < most:
            return line.split()[1]
    return None


def test_code_cannot_be_written_and_goes_with_its_object():
    loaded = objectfile.Image(native.compile(CALLS), outside)
    address = loaded.address("counted")
    assert rights(address) == "r-xp"
    others = [objectfile.Image(native.compile(CALLS), outside) for _ in range(3)]
    assert len({x.address("counted") for x in others} | {address}) == 4
    del loaded
    gc.collect()
    assert rights(address) is None


def small_code(text):
    """As a compiler's default code model has it: distances of 32 bits in place of addresses."""
    binding = llvm.binding()
    target = binding.Target.from_triple(native.target().triple)
    return target.create_target_machine(codemodel="small").emit_object(binding.parse_assembly(text))


def flipped(blob, at, bit=1):
    return blob[:at] + bytes([blob[at] ^ bit]) + blob[at + 1 :]


@pytest.mark.parametrize(
    "harm, said",
    {
        "nothing": (lambda b: b"", "broken file"),
        "32 bits": (lambda b: flipped(b, 4, 3), "no relocatable ELF"),
        "another machine": (lambda b: flipped(b, 18), "no relocatable ELF"),
        "a program": (lambda b: flipped(b, 16, 3), "no relocatable ELF"),
        "cut": (lambda b: b[:-1], "broken file|ends behind"),
        "half": (lambda b: b[: len(b) // 2], "broken file|ends behind"),
        "many sections": (lambda b: b[:60] + b"\xff\x7f" + b[62:], "broken file"),
        "small code": (lambda b: small_code(CALLS), "relocation of kind"),
    }.values(),
)
def test_other_files_are_left_to_llvm(harm, said):
    with pytest.raises(objectfile.Unsuitable, match=said):
        objectfile.Image(bytes(harm(native.compile(CALLS))), outside)


def test_unknown_functions_are_named():
    with pytest.raises(objectfile.Unsuitable, match="'given' is unknown"):
        objectfile.Image(native.compile(CALLS), native._outside)


def test_every_byte_of_a_file_may_be_wrong():
    """Nothing but Unsuitable comes of it; the code itself is not run."""
    blob = native.compile("define i64 @f() {\n  ret i64 1\n}\n")
    for at in range(len(blob)):
        for bit in (1, 128):
            try:
                objectfile.Image(flipped(blob, at, bit), outside)
            except objectfile.Unsuitable:
                pass


def test_code_that_is_not_loaded_here_is_loaded_by_llvm(monkeypatch):
    monkeypatch.setattr(objectfile, "suits", lambda: False)
    with native.forgotten():
        code = native.load("define i64 @f(i64 %x) {\n  ret i64 %x\n}\n")
    assert isinstance(code._engine, llvm.Engine)
    assert code.function("f", ctypes.c_int64, result=ctypes.c_int64)(9) == 9


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """One item for each time that LLVM was asked for the processor, in an empty cache."""
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path))
    asked, real = [], llvm.host
    monkeypatch.setattr(llvm, "host", lambda: (asked.append(1), real())[1])
    processor.found()
    asked.clear()
    return asked


def test_llvm_is_asked_for_a_processor_once(asked):
    assert processor.found() == llvm.host()
    assert len(asked) == 1  # by the line above


@pytest.mark.parametrize("changed", ["CPUID", "registers the system saves", "llvmlite", "file"])
def test_another_processor_or_llvm_is_asked_anew(asked, changed, monkeypatch, tmp_path):
    real = processor._answers
    if changed == "CPUID":
        monkeypatch.setattr(processor, "_LEAVES", {(1, 0): (0,)})
    elif changed == "registers the system saves":
        monkeypatch.setattr(processor, "_answers", lambda image: real(image).replace("xgetbv", "other"))
    elif changed == "llvmlite":
        monkeypatch.setattr(processor, "_installed", lambda: "another")
    else:
        path = tmp_path / "processor" / "target"
        path.write_bytes(path.read_bytes()[:-1])
    assert processor.found() == llvm.host()
    assert len(asked) >= 2


def test_answers_are_of_the_processor_and_not_of_a_core():
    facts = set()
    cores = os.sched_getaffinity(0)
    try:
        for core in cores:
            os.sched_setaffinity(0, {core})
            facts.add(processor._facts())
    finally:
        os.sched_setaffinity(0, cores)
    (only,) = facts
    if only is not None:
        assert "1.0" in json.loads(only.splitlines()[-1])


def test_processes_that_find_all_code_open_no_llvm(tmp_path):
    program = """
import sys
import numpy as np
import mxlite as mx
net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4), name="softmax")
exe = net.simple_bind(mx.cpu(), data=(8, 16), softmax_label=(8,))
for a in exe.arg_arrays:
    a[:] = 0.5
exe.forward(is_train=True)
exe.backward()
print(exe.outputs[0].asnumpy().tobytes().hex(), exe.grad_arrays[1].asnumpy().tobytes().hex())
print("llvmlite" in sys.modules)
"""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "MXLITE_CACHE_DIR": str(tmp_path)}
    ran = [
        subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    (first, opened), (second, reopened) = (r.stdout.split("\n")[:2] for r in ran)
    assert (opened, reopened) == ("True", "False")
    assert first == second


def test_without_a_cache_llvm_is_asked(monkeypatch):
    monkeypatch.setenv("MXLITE_CACHE_DIR", "off")
    monkeypatch.setattr(kept, "write", None)
    assert processor._facts() is None
    assert processor.found() == llvm.host()
