"""Machine code from LLVM IR text: what is kept on disk is used only if it is what was written there."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mxlite.core import config
from mxlite.core.machine_code import llvm, native

needs_compiler = pytest.mark.skipif(not native.available(), reason="llvmlite is not installed")
posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps other rights")

TEXT = "define i64 @number(i64 %x) {{\n  %y = add i64 %x, {n}\n  ret i64 %y\n}}\n"


def plus(n, x=0):
    """x + n by way of machine code."""
    code = native.load(TEXT.format(n=n))
    return code.function("number", ctypes.c_int64, result=ctypes.c_int64)(x)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of this test's own, and no memory of what was loaded."""
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path / "cache"))
    with native.forgotten():
        yield tmp_path / "cache" / "native"


@pytest.fixture
def compilations(monkeypatch):
    """One item for each module that LLVM compiled."""
    texts, real = [], native.compile
    monkeypatch.setattr(native, "compile", lambda text, passes=0: (texts.append(text), real(text, passes))[1])
    return texts


@needs_compiler
def test_second_process_finds_the_code_of_the_first(cache, compilations):
    assert plus(5, 2) == 7
    assert plus(5, 3) == 8
    with native.forgotten():
        assert plus(5, 4) == 9
    assert len(compilations) == 1 and len(list(cache.iterdir())) == 1


@needs_compiler
def test_text_passes_and_cpu_are_part_of_the_key(cache, compilations, monkeypatch):
    plus(1)
    plus(2)
    native.load(TEXT.format(n=1), passes=1)
    at = native.target()
    monkeypatch.setattr(native, "target", lambda: at._replace(llvm="1.2.3"))
    native.load(TEXT.format(n=1))
    monkeypatch.setattr(native, "target", lambda: at._replace(cpu="x86-64"))
    if at.triple.startswith("x86_64"):
        native.load(TEXT.format(n=1))
    assert len(set(os.listdir(cache))) == len(compilations) >= 4


@needs_compiler
@pytest.mark.parametrize("harm", ["cut", "empty", "flipped", "longer", "header", "foreign"])
def test_file_that_is_not_what_was_written_is_compiled_anew(cache, compilations, harm):
    plus(1)
    (mine,) = cache.iterdir()
    whole = mine.read_bytes()
    if harm == "foreign":
        plus(2)
        (other,) = (p for p in cache.iterdir() if p != mine)
        mine.write_bytes(other.read_bytes())
    else:
        at = len(whole) // 2
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        bad = dict(cut=whole[:-1], empty=b"", flipped=flipped, longer=whole + b"\0", header=b"x" + whole[1:])
        mine.write_bytes(bad[harm])
    before = len(compilations)
    with native.forgotten():
        assert plus(1, 10) == 11
    assert len(compilations) == before + 1
    assert mine.read_bytes() == whole  # and repaired


@needs_compiler
def test_directory_that_cannot_be_made_is_no_cache(tmp_path, monkeypatch, compilations):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path / "file" / "below"))
    with native.forgotten(), pytest.warns(RuntimeWarning, match="cache folder"):
        assert plus(3, 1) == 4
    with native.forgotten():
        assert plus(3, 2) == 5
    assert len(compilations) == 2


@needs_compiler
def test_cache_can_be_off(tmp_path, monkeypatch, compilations):
    monkeypatch.setenv("MXLITE_CACHE_DIR", "off")
    monkeypatch.setattr(native.kept, "leave", None)  # nothing is written
    with native.forgotten():
        assert plus(3, 1) == 4
    assert len(compilations) == 1


@needs_compiler
@posix
def test_directory_that_others_may_write_is_no_cache(cache, compilations):
    plus(1)
    cache.chmod(0o777)
    with native.forgotten(), pytest.warns(RuntimeWarning, match="other users may write there"):
        plus(1)
    assert len(compilations) == 2
    cache.chmod(0o700)
    with native.forgotten():
        plus(1)
    assert len(compilations) == 2


@needs_compiler
def test_oldest_files_make_room(cache, monkeypatch):
    monkeypatch.setattr(native, "MOST_BYTES", 10_000)
    monkeypatch.setattr(native, "_unseen", 0)
    for i in range(12):
        native.write(f"{i:064x}", b"x" * 1500)
        os.utime(cache / f"{i:064x}.o", (1000 + i, 1000 + i))
    native.write("f" * 64, b"x" * 1500)
    left = sorted(p.stem for p in cache.iterdir())
    assert sum(p.stat().st_size for p in cache.iterdir()) <= 10_000
    assert left == [*(f"{i:064x}" for i in range(13 - len(left), 12)), "f" * 64]
    assert len(left) == 6


@needs_compiler
def test_many_processes_may_share_a_cache(cache):
    program = (
        "import ctypes; from mxlite.core.machine_code import native\n"
        "for n in range(8):\n"
        f"    text = {TEXT!r}.format(n=n)\n"
        "    f = native.load(text).function('number', ctypes.c_int64, result=ctypes.c_int64)\n"
        "    assert f(1) == n + 1\n"
    )
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}
    running = [subprocess.Popen([sys.executable, "-c", program], env=env) for _ in range(3)]
    assert [p.wait() for p in running] == [0, 0, 0]
    assert len(list(cache.iterdir())) == 8  # and no temporary file is left


@needs_compiler
def test_wrong_text_and_wrong_name_are_told(cache):
    with pytest.raises(RuntimeError, match="parsing error"):
        native.load("define nonsense")
    with pytest.raises(KeyError, match="no function 'other'"):
        native.load(TEXT.format(n=1)).address("other")


@needs_compiler
def test_function_keeps_its_code(cache):
    function = native.load(TEXT.format(n=77)).function("number", ctypes.c_int64, result=ctypes.c_int64)
    native._loaded.clear()
    for n in range(100, 120):
        plus(n)
    assert function(1) == 78


def test_without_llvmlite_there_is_no_compiler(monkeypatch):
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    for cached in (native.available, native.target, llvm.binding):
        cached.cache_clear()
    try:
        assert not native.available()
        from mxlite.memplan.compiled import compiled

        assert compiled([]) is None
    finally:
        monkeypatch.undo()
        for cached in (native.available, native.target, llvm.binding):
            cached.cache_clear()


@pytest.mark.parametrize(
    "platform, variables, wanted",
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/mxlite"),
        ("linux", {"HOME": "/home/me"}, "/home/me/.cache/mxlite"),
        ("darwin", {"HOME": "/Users/me"}, "/Users/me/Library/Caches/mxlite"),
        ("linux", {"MXLITE_CACHE_DIR": "/elsewhere"}, "/elsewhere"),
        ("linux", {"MXLITE_CACHE_DIR": "off"}, None),
        ("win32", {}, None),
    ],
)
@posix
def test_cache_is_where_the_system_wants_it(platform, variables, wanted, monkeypatch):
    for name in ("MXLITE_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert config.cache_dir() == wanted
