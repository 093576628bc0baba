"""Machine code and plans are read from the cache: nothing there that others can have written is believed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from mxlite.core.disk import kept
from mxlite.core.machine_code import native
from mxlite.executor.measure.timings import Timings

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps other rights"),
    pytest.mark.skipif(not native.available(), reason="llvmlite is not installed"),
]
ROOT = Path(__file__).resolve().parents[2]
TEXT = "define i64 @number(i64 %x) {{\n  %y = add i64 %x, {n}\n  ret i64 %y\n}}\n"


def plus(n, x=0):
    """x + n by way of machine code, which comes from disk or is compiled."""
    with native.forgotten():
        code = native.load(TEXT.format(n=n))
        return code.function("number", ctypes.c_int64, result=ctypes.c_int64)(x)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "_told", set())
    return tmp_path / "cache"


@pytest.fixture
def forged(cache):
    """A file that is right in every byte, its digest too, but holds another's code: it adds 100, not 1."""
    assert plus(1, 10) == 11
    (path,) = (cache / "native").iterdir()
    kept.write(str(path), native._MAGIC, path.stem, native.compile(TEXT.format(n=100)))
    assert plus(1, 10) == 110, "what the user alone can have written is loaded"
    return path


def of_another_user(path, monkeypatch):
    """As the system would say it of another's file."""
    real = os.fstat

    def fstat(file):
        found = real(file)
        return os.stat_result((*found[:4], found.st_uid + stat.S_ISREG(found.st_mode), *found[5:10]))

    monkeypatch.setattr(os, "fstat", fstat)


def link(path, _):
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))


def pipe(path, _):
    path.unlink()
    os.mkfifo(path)


def tcp(path, _):
    path.unlink()
    with socket.socket(socket.AF_UNIX) as here, contextlib.chdir(path.parent):
        here.bind(path.name)


HARMS = {
    "others may write": lambda path, _: path.chmod(0o602),
    "the group may write": lambda path, _: path.chmod(0o620),
    "another user's": of_another_user,
    "a link": link,
    "a pipe": pipe,
    "a socket": tcp,
}


@pytest.mark.parametrize("harm", HARMS)
def test_forged_code_is_never_loaded(forged, harm, monkeypatch):
    HARMS[harm](forged, monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plus(1, 10) == 11
    monkeypatch.undo()
    found = forged.lstat()
    assert stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o600, "and it is mended"


def test_a_folder_in_the_place_of_a_file_is_warned_of_once(forged):
    forged.unlink()
    forged.mkdir()
    with pytest.warns(RuntimeWarning, match="cache folder") as caught:
        assert [plus(1, 10), plus(1, 11)] == [11, 12]
    assert len(caught) == 1


def refused(folder, says):
    """Everything works, with one message; and nothing is left there."""
    before = sorted(folder.iterdir())
    with pytest.warns(RuntimeWarning, match=says) as caught:
        assert [plus(1, 10), plus(2, 10)] == [11, 12]
    assert len(caught) == 1 and sorted(folder.iterdir()) == before


def test_a_linked_folder_is_no_cache(forged, cache):
    forged.parent.rename(cache / "elsewhere")
    (cache / "native").symlink_to(cache / "elsewhere")
    refused(cache / "elsewhere", "symbolic link")


def test_a_folder_replaced_after_it_was_looked_at_is_not_read(forged, monkeypatch):
    """Whoever may write above can rename it: the opened folder is asked, not its name."""
    monkeypatch.setattr(kept, "folder", lambda name, make=False: str(forged.parent))
    forged.parent.chmod(0o777)
    assert kept.read(str(forged), native._MAGIC, forged.stem) is None
    forged.parent.chmod(0o700)
    assert kept.read(str(forged), native._MAGIC, forged.stem) is not None


def test_a_file_replaced_after_it_was_looked_at_is_not_read(forged, monkeypatch):
    """What was looked at is read, though a forged file has its name by then."""
    mine = kept.read(str(forged), native._MAGIC, forged.stem)
    other, real = forged.with_suffix(".other"), os.fstat
    kept.write(str(other), native._MAGIC, forged.stem, b"forged")

    def fstat(file):
        found = real(file)
        if stat.S_ISREG(found.st_mode) and other.exists():
            other.chmod(0o666)
            other.rename(forged)
        return found

    monkeypatch.setattr(os, "fstat", fstat)
    assert kept.read(str(forged), native._MAGIC, forged.stem) == mine
    assert not other.exists()


def test_a_file_that_grows_after_it_was_looked_at_is_read_no_further(cache, monkeypatch):
    cache.mkdir(mode=0o700)
    path, real = cache / "file", os.fstat
    path.write_bytes(b"x" * 100)

    def fstat(file):
        found = real(file)
        if stat.S_ISREG(found.st_mode):
            with open(path, "ab") as more:
                more.truncate(2**40)
        return found

    monkeypatch.setattr(os, "fstat", fstat)
    assert kept.content(str(path), 1000) is None


@pytest.mark.parametrize(
    "mode, says",
    [(0o777, "other users may write there"), (0o775, "other users may write there"), (0o1777, None)],
)
def test_the_root_is_looked_at_too(cache, mode, says):
    """Who may rename below it can put other folders there; in one like /tmp only the owner can."""
    cache.mkdir()
    cache.chmod(mode)
    if says is None:
        assert plus(1, 10) == 11 and (cache / "native").exists()
    else:
        refused(cache, says)


def test_files_and_folders_are_private_whatever_the_umask(cache):
    before = os.umask(0)
    try:
        assert plus(1, 10) == 11
        Timings(("a",), str(cache / "timings" / "t.json")).update({}, (1, 1.0))
    finally:
        os.umask(before)
    found = {p.relative_to(cache).parts[0]: stat.S_IMODE(p.lstat().st_mode) for p in cache.rglob("*.*")}
    assert found == {"native": 0o600, "timings": 0o600}
    assert {stat.S_IMODE(p.stat().st_mode) for p in (cache, *cache.iterdir())} == {0o700}


def test_timings_that_others_may_write_count_for_nothing(cache):
    path = cache / "timings" / "t.json"
    Timings(("a",), str(path)).update({}, (1, 1.0))
    assert Timings(("a",), str(path)).cache == (1, 1.0)
    path.chmod(0o666)
    assert Timings(("a",), str(path)).cache is None
    path.unlink()
    os.mkfifo(path)
    assert Timings(("a",), str(path)).cache is None


def test_a_disk_that_is_full_in_the_middle_of_a_file_leaves_none(cache):
    """A real limit of the system, at a byte within the code."""
    program = (
        "import ctypes, os, resource, signal, warnings\n"
        "from mxlite.core.machine_code import native\n"
        "native.target()\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    for n in (1, 2):\n"
        f"        code = native.load({TEXT!r}.format(n=n))\n"
        "        assert code.function('number', ctypes.c_int64, result=ctypes.c_int64)(1) == n + 1\n"
        "assert len(caught) == 1 and 'File too large' in str(caught[0].message), caught\n"
    )
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    assert list((cache / "native").iterdir()) == []
