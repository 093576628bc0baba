"""Checkpoints of several ranks, read from files that are whole, damaged, or another's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mxlite.comm import own_parts
from mxlite.core import FormatError
from mxlite.module.saved.shards import ArrayPart, read
from mxlite.module.saved.statefile import pack_state, Packed

NUMBER, OTHER = "0123456789abcdef", "fedcba9876543210"
STEP = 1024


def checkpoint(folder: Path, array: np.ndarray, ranks: int, number: str = NUMBER, **change: Any) -> str:
    """The path of a checkpoint of so many ranks that share one array, in pieces of STEP elements."""
    flat, files = array.reshape(-1), []
    for q in range(ranks):
        own = [flat[s] for s in own_parts(flat.size, STEP, ranks, q)]
        held = np.concatenate([*own, np.zeros(3, flat.dtype)])  # a rank may keep more than it has
        content = {"kind": "shard", "checkpoint": number, "rank": q, "ranks": ranks, "arrays": [held]}
        packed = Packed(content | {"own": {"rank": q}} | change)
        files.append([f"x.{number}.{q}-of-{ranks}", packed.nbytes, packed.checksum])
        (folder / files[-1][0]).write_bytes(b"".join(packed.pieces()))
    named = {"checkpoint": number, "files": files}
    described = {"shard": [0, array.dtype.name, list(array.shape), STEP]}
    (folder / "x").write_bytes(pack_state({"a": described, "b": [1], "ranks": named}))
    return str(folder / "x")


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("shape", [(3, 1), (1024,), (67, 91)])
def test_any_number_of_ranks_reads_its_parts(tmp_path: Path, ranks: int, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).standard_normal(shape).astype("float32")
    tree, shards = read(checkpoint(tmp_path, array, ranks))
    assert tree["b"] == [1] and shards is not None and shards.content(ranks - 1)["own"] == {"rank": ranks - 1}
    assert tree["a"].shape == shape and np.array_equal(tree["a"].asnumpy(), array)
    for others in (1, 2, 3):
        for rank in range(others):
            part = ArrayPart(tree["a"], rank, others).array().asnumpy()
            own = np.array_split(array.reshape(-1), others)[rank]  # all of it is one piece of a step's
            assert np.array_equal(part[: own.size], own)


def _shard(q: int) -> str:
    return f"x.{NUMBER}.{q}-of-3"


def _cut(folder: Path) -> None:
    os.truncate(folder / _shard(1), 200)


def _flip(folder: Path) -> None:
    data = bytearray((folder / _shard(1)).read_bytes())
    data[-20] ^= 1
    (folder / _shard(1)).write_bytes(data)


def _mix(folder: Path) -> None:
    """A shard of another checkpoint, of the same length, in the place of one."""
    (folder / "other").mkdir()
    checkpoint(folder / "other", np.ones((50, 60), "float32"), 3, OTHER)
    shutil.copy(folder / "other" / f"x.{OTHER}.1-of-3", folder / _shard(1))


DAMAGES = {
    "missing": (lambda f: (f / _shard(1)).unlink(), r"1-of-3 is missing: .*x is the checkpoint of 3 ranks"),
    "cut": (_cut, r"1-of-3 has 200 bytes, but .*x names a shard of 4,\d\d\d"),
    "flipped": (_flip, "1-of-3 is cut off or corrupt: the checksum"),
    "mixed": (_mix, f"1-of-3 is the shard of rank 1 of 3 in checkpoint {OTHER}, .* names the .* {NUMBER}"),
    "swapped": (lambda f: shutil.copy(f / _shard(2), f / _shard(1)), "1-of-3 is the shard of rank 2 of 3"),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_checkpoint_is_refused_by_the_name_of_the_file(tmp_path: Path, what: str) -> None:
    damage, says = DAMAGES[what]
    path = checkpoint(tmp_path, np.zeros((50, 60), "float32"), 3)
    damage(tmp_path)
    with pytest.raises(FormatError, match=says):
        read(path).tree["a"].asnumpy()


@pytest.mark.parametrize(
    "change, says",
    [
        ({"arrays": []}, r"0-of-2 has nothing of array 0, but .*x wants 512 of float32"),
        ({"arrays": [np.zeros(9, "float32")]}, "has 9 elements of float32 of array 0, but .* wants 512"),
        ({"arrays": [np.zeros(9999, "float64")]}, "has 9,999 elements of float64 of array 0"),
        ({"arrays": [np.zeros((2, 2))]}, r"\['arrays'\]\[0\] must be an array of kind .* with 1 axes"),
        ({"kind": "resume"}, "holds a state, but not a shard"),
        ({"rank": "x"}, r"0-of-2 is corrupt: its content\['rank'\] must be a whole number"),
    ],
)
def test_a_shard_is_checked_field_by_field(tmp_path: Path, change: Any, says: str) -> None:
    path = checkpoint(tmp_path, np.zeros(1024, "float32"), 2, own=np.zeros(4096, "uint8"), **change)
    with pytest.raises(FormatError, match=says):
        read(path).tree["a"].asnumpy()


@pytest.mark.parametrize(
    "described, files, says",
    [
        ([0, "float32", [10**18], STEP], None, "an array of 4,000,000,000,000,000,000 bytes in shards of"),
        ([0, "float32", [1024], 1], None, r"shared array\[3\] must be a whole number from 1024"),
        ([0, "object", [1024], STEP], None, "does not describe an array"),
        ([0, "float32", [-1], STEP], None, "does not describe an array"),
        ([7, "float32", [1024], STEP], None, "has nothing of array 7"),
        ([0, "float32"], None, "a list of 4"),
        (None, [["../secret", 10, 0]], "must be the name of a file"),
        (None, [["x", -1, 0]], r"\['files'\]\[0\]\[1\]"),
        (None, [], "names no shards"),
    ],
)
def test_the_file_that_names_shards_is_checked(tmp_path: Path, described: Any, files: Any, says: str) -> None:
    path = checkpoint(tmp_path, np.zeros(1024, "float32"), 2)
    shards = read(path).shards
    assert shards is not None
    named = [[f"x.{NUMBER}.{q}-of-2", os.path.getsize(f"{path}.{NUMBER}.{q}-of-2"), 0] for q in range(2)]
    named = named if files is None else files
    for row, name in zip(named, sorted(tmp_path.glob("x.*"))):
        row[2] = row[2] or int.from_bytes(name.read_bytes()[12:16], "little")
    tree = {"a": {"shard": described or [0, "float32", [1024], STEP]}}
    (tmp_path / "x").write_bytes(pack_state(tree | {"ranks": {"checkpoint": NUMBER, "files": named}}))
    with pytest.raises(FormatError, match=says):
        for extent in read(path).tree["a"].extents():
            extent.source.read(extent.offset, 4 * extent.length)
