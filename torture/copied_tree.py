"""A copy of the tree in which faults can be planted, and its tests run."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

TREE = Path(__file__).resolve().parents[1]
_COPIED = (
    "mxlite",
    "tests",
    "torture",
    "examples",
    "docs",
    "benchmarks",
    "scripts",
    "pyproject.toml",
    "README.md",
)


class CopiedTree:
    """The tree copied into a temporary folder, which is removed after the ``with`` block.

    path: its location. Bytecode is kept between runs, and so are generated kernels, in a separate cache. What
    a run with a faulty file leaves in that cache is dropped, so that other runs do not use it.
    """

    def __enter__(self) -> CopiedTree:
        self._folder = TemporaryDirectory()
        self.path = Path(self._folder.name, "tree")
        self.path.mkdir()
        for name in _COPIED:
            source = TREE / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, self.path / name, ignore=ignored)
            elif source.exists():
                shutil.copy(source, self.path / name)
        self._kept = Path(self._folder.name, "kept")
        self._cache = Path(self._folder.name, "cache")
        self._kept.mkdir(mode=0o700)
        self._cache.mkdir(mode=0o700)
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.path),
            "OMP_NUM_THREADS": "1",
            "MXLITE_CACHE_DIR": str(self._cache),
        }
        self._server = subprocess.Popen(
            [sys.executable, str(self.path / "torture" / "forked_tests.py")],
            cwd=self.path,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._server.communicate()  # closes its input, which ends it
        self._folder.cleanup()

    def write(self, file: str, text: str) -> None:
        """Write `text` into the file, and make sure that no bytecode of another text is used for it."""
        path = self.path / file
        path.write_text(text)
        if path.suffix == ".py":
            # Bytecode records its source only by modification time in seconds and length.
            Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

    def run(self, tests: list[str], seconds: float, sound: bool = False) -> tuple[int | None, str]:
        """pytest's exit status and the end of its output; None for a status that did not arrive in time.

        sound: the tree is unchanged, so what the tests leave in the cache may stay.
        """
        shutil.rmtree(self._cache)
        shutil.copytree(self._kept, self._cache, copy_function=os.link)
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps({"tests": tests, "seconds": seconds}) + "\n")
        self._server.stdin.flush()
        status, said = json.loads(self._server.stdout.readline())
        if sound:
            shutil.rmtree(self._kept)
            self._cache.rename(self._kept)
            self._cache.mkdir(mode=0o700)
        return status, said
