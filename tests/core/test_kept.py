"""The cache folder: where it cannot be used all works without it, and one warning names it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from mxlite.cli import main
from mxlite.core.disk import kept
from mxlite.core.machine_code import native

ROOT = Path(__file__).resolve().parents[2]
posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps other rights")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache that nothing lies in yet and nobody was warned of."""
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "_told", set())
    with native.forgotten():
        yield tmp_path / "cache"


def use(number=3):
    """Code is compiled, kept if that is possible, and right."""
    code = native.load(f"define i64 @plus(i64 %x) {{\n  %y = add i64 %x, {number}\n  ret i64 %y\n}}\n")
    assert code.function("plus", ctypes.c_int64, result=ctypes.c_int64)(4) == 4 + number


def fails_with(number):
    """What stands for `open`, `write` or `close` of a disk that has this trouble."""

    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    return refuse


def test_a_file_in_the_place_of_the_folder(cache):
    cache.write_text("")
    warned_once(cache, "it is no folder")


def test_a_folder_that_cannot_be_made(cache, monkeypatch):
    monkeypatch.setattr(os, "makedirs", fails_with(errno.EROFS))
    warned_once(cache, "Read-only file system")


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_folder_in_which_no_file_can_be_made(cache, monkeypatch, number):
    monkeypatch.setattr(kept.tempfile, "mkstemp", fails_with(number))
    warned_once(cache, os.strerror(number))


def test_a_full_disk(cache, monkeypatch):
    monkeypatch.setattr(kept, "leave", fails_with(errno.ENOSPC))
    warned_once(cache, os.strerror(errno.ENOSPC))


@posix
def test_a_folder_that_others_may_write(cache):
    (cache / "native").mkdir(parents=True)
    (cache / "native").chmod(0o777)
    warned_once(cache, "other users may write there")


@posix
def test_a_folder_of_somebody_else(cache, monkeypatch):
    (cache / "native").mkdir(parents=True, mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(cache).st_uid + 1)
    warned_once(cache, "it belongs to another user")


def warned_once(cache, says):
    """Two modules of code work, and the first alone warns: once, naming the folder."""
    if not native.available():
        pytest.skip("llvmlite is not installed: nothing is to be kept")
    with pytest.warns(RuntimeWarning, match=f"cache folder .*({says}).*MXLITE_CACHE_DIR") as caught:
        use(3)
    assert len(caught) == 1 and str(cache) in str(caught[0].message)
    with warnings.catch_warnings(), native.forgotten():
        warnings.simplefilter("error")
        use(5)


@pytest.mark.skipif(not native.available(), reason="llvmlite is not installed: nothing is to be kept")
def test_no_cache_at_all_is_no_reason_to_warn(cache, monkeypatch):
    monkeypatch.setenv("MXLITE_CACHE_DIR", "off")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        use()
    assert not cache.exists() and kept.fault() is None


def test_a_cache_that_can_only_be_read_is_read(cache, monkeypatch):
    path = str(cache / "file")
    cache.mkdir()
    kept.write(path, b"magic\n", "key", b"what was found")
    monkeypatch.setattr(os, "utime", fails_with(errno.EROFS))
    assert kept.read(path, b"magic\n", "key") == b"what was found"
    assert kept.read(path, b"magic\n", "other") is None


def test_what_disappears_while_room_is_made_is_no_trouble(cache, monkeypatch):
    """Another process makes room too."""
    cache.mkdir()
    for i in range(4):
        (cache / str(i)).write_bytes(b"x" * 100)
        os.utime(cache / str(i), (1000 + i, 1000 + i))
    real = os.scandir

    class Gone:
        name = path = "gone"

        @staticmethod
        def is_file(follow_symlinks):
            return True

        stat = staticmethod(fails_with(errno.ENOENT))

    @contextlib.contextmanager
    def scandir(path):
        with real(path) as entries:
            yield [Gone(), *entries]

    monkeypatch.setattr(os, "scandir", scandir)
    kept.make_room(str(cache), 250)
    assert sorted(p.name for p in cache.iterdir()) == ["2", "3"]


def test_two_writers_of_one_entry_leave_a_whole_one(cache):
    """Both write what is right for the key; a reader sees the one or the other, never a part."""
    cache.mkdir()
    program = (
        "import sys; from mxlite.core.disk import kept\n"
        "path, letter = sys.argv[1:]\n"
        "for _ in range(50):\n"
        "    kept.write(path, b'magic', 'key', letter.encode() * 200_000)\n"
        "    assert len(set(kept.read(path, b'magic', 'key'))) == 1\n"
    )
    path = str(cache / "entry")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    writers = [subprocess.Popen([sys.executable, "-c", program, path, x], env=env) for x in "ab"]
    assert [w.wait(timeout=120) for w in writers] == [0, 0]
    assert os.listdir(cache) == ["entry"]


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda root: None, None),
        (lambda root: root.mkdir(mode=0o700), None),
        (lambda root: root.write_text(""), "is no folder"),
        (lambda root: (root.mkdir(), root.chmod(0o777)), "other users may write there"),
        (lambda root: root.symlink_to(root), "symbolic links|Too many levels"),
    ],
)
@posix
def test_the_doctor_tells_what_is_wrong(cache, make, says, capsys):
    make(cache)
    assert main(["doctor"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "cache folder" in line)
    assert str(cache) in line
    assert "NOT USED" not in line if says is None else re.search(f"NOT USED: .*({says})", line)
