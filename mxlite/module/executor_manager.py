"""`mx.executor_manager`: split of a batch over several devices, which iterators of MXNet's programs use."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.errors import ShapeError


def _split_input_slice(batch_size: int, work_load_list: Sequence[float]) -> list[slice]:
    """The samples of a batch that each device gets, in proportion to its work load; the last gets the rest.

    Private in MXNet, too, and used all the same. ShapeError where a device would get none.
    """
    shares = [round(load * batch_size / sum(work_load_list)) for load in work_load_list]
    shares[-1] += max(0, batch_size - sum(shares))
    cuts, begin = [], 0
    for share in shares:
        end = min(begin + share, batch_size)
        if begin >= end:
            raise ShapeError(f"{batch_size} samples are too few for work loads {list(work_load_list)}.")
        cuts.append(slice(begin, end))
        begin = end
    return cuts
