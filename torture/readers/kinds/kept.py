"""Readers of cached files: object files of machine code, timings."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from torture.readers.kinds.reader import json_or_bytes, Reader, scratch


@cache
def _objects() -> list[bytes]:
    from mxlite.core.machine_code import native

    texts = ("define i64 @f(i64 %x) {\n  %y = add i64 %x, 1\n  ret i64 %y\n}\n",)
    return [native.compile(t) for t in texts]


def _use_object(data: bytes, folder: Path) -> None:
    """Use it as a corrupted file of the cache: with its header it is never loaded, and correct code runs."""
    import ctypes
    import os

    from mxlite.core.disk import kept
    from mxlite.core.machine_code import native, objectfile

    text = "define i64 @f(i64 %x) {\n  %y = add i64 %x, 1\n  ret i64 %y\n}\n"
    os.environ["MXLITE_CACHE_DIR"] = str(folder / "cache")
    key = native._key(text, 0)
    directory = kept.folder("native", make=True)
    assert directory is not None
    path = Path(directory) / f"{key}.o"
    sound = _objects()[0]
    head = kept.head(native._MAGIC, key, sound)
    path.write_bytes((head + data) if len(data) % 4 else data)
    path.chmod(0o600)
    with native.forgotten():
        code = native.load(text)
        assert code.function("f", ctypes.c_int64, result=ctypes.c_int64)(41) == 42
    try:
        objectfile.Image(data, lambda name: None)  # without a digest: parsed, never run
    except objectfile.Unsuitable:
        pass


@cache
def _timings() -> list[bytes]:
    from mxlite.executor.measure.timings import Seconds, Timings

    folder = Path(scratch())
    timings = Timings(("a", "b"), str(folder / "t.json"))
    timings.seconds = {f"{i:064x}": Seconds(1e-3, 1e-4, 2e-4) for i in range(3)}
    timings.cache = (8388608, 4e9)
    content = {"mxlite_timings": 7, "facts": ["a", "b"], "cache": timings.cache, "seconds": timings.seconds}
    return [json.dumps(content).encode()]


def _use_timings(data: bytes, folder: Path) -> None:
    from mxlite.executor.measure.timings import Timings

    path = folder / "t.json"
    path.write_bytes(data)
    path.chmod(0o600)
    folder.chmod(0o700)
    found = Timings(("a", "b"), str(path))
    for s in found.seconds.values():
        assert s.in_steps(1e-3, 0.5, 0.5).cold >= 0


READERS = (
    Reader("object", _objects, _use_object),
    Reader("timings", _timings, _use_timings, json_or_bytes),
)
