"""Base of the readers of files, and helpers that several of them use."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

import mxlite as mx
from torture.readers.mutate import harmed, harmed_tree

GOLDEN = Path(__file__).resolve().parents[3] / "tests" / "golden"


SMALL = 200_000  # elements of results that are computed with


@dataclass(frozen=True)
class Reader:
    """seeds: sound files; harm(data, random, seeds) -> a possibly corrupted file; use(data, folder)."""

    name: str
    seeds: Callable[[], list[bytes]]
    use: Callable[[bytes, Path], None]
    harm: Callable[[bytes, Random, list[bytes]], bytes] = harmed
    refusals: tuple[type[Exception], ...] = (mx.MXLiteError,)

    def case(self, seed: int) -> bytes:
        """The corrupted file of a seed."""
        random = Random(f"{self.name} {seed}")
        files = self.seeds()
        return self.harm(random.choice(files), random, files)


def golden(*patterns: str) -> Callable[[], list[bytes]]:
    return cache(lambda: [p.read_bytes() for x in patterns for p in sorted(GOLDEN.glob(x))])


def json_or_bytes(data: bytes, random: Random, files: list[bytes]) -> bytes:
    """JSON with changed values, or changed bytes."""
    if random.random() < 0.25:
        return harmed(data, random, files)
    return json.dumps(harmed_tree(json.loads(data), random)).encode("utf8", "surrogatepass")


def text(data: bytes) -> str:
    return data.decode("utf8", "replace")


def scratch() -> str:
    from tempfile import mkdtemp

    return mkdtemp(prefix="mxlite-readers-")
