"""Messages that small arrays share."""

from __future__ import annotations

import pytest

from mxlite import comm


@pytest.mark.parametrize("kind, itemsize", [("float32", 4), ("bfloat16", 2)])
def test_messages_are_shared_by_small_arrays_of_one_type(kind, itemsize):
    sizes = [100, 1 << 20, 40, 7, 10_000, 3]
    arrays = [(n * itemsize, kind) for n in sizes] + [(12, "another")]
    made = list(comm.buckets(arrays))
    assert sorted(i for b in made for i in b) == list(range(len(arrays)))
    assert all(b == sorted(b) for b in made) and [1] in made and [len(sizes)] in made
    assert [len(b) for b in made if 0 in b] == [4 if itemsize == 4 else 5]
