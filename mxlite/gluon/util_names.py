"""mx.gluon.utils: batches over devices, clipping of gradients, checksums of files."""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from .. import ndarray as nd
from ..core import StateError
from ..core.errors import MissingFileError, ShapeError
from ..core.wanted import whole
from ..ndarray import NDArray
from .blocks.hook_handle import HookHandle as HookHandle

_PIECE = 1 << 20  # bytes
REPOSITORY = "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/"
"""Where MXNet's parameters and data sets lay; MXNET_GLUON_REPO in the environment says another place."""


def split_data(data: NDArray, num_slice: int, batch_axis: int = 0, even_split: bool = True) -> list[NDArray]:
    """An array in `num_slice` parts along the batch.

    ShapeError if that does not divide evenly; without `even_split` the first parts have one sample more then.
    """
    count = whole("split_data: num_slice", num_slice, 1)
    size = data.shape[batch_axis]
    if (even_split and size % count) or size < count:
        raise ShapeError(
            f"split_data: {size} samples, along axis {batch_axis} of {data.shape}, do not divide into "
            f"{count} equal parts. Use a batch size that is a multiple of {count}, or even_split=False with "
            f"at least {count} samples."
        )
    if count == 1:
        return [data]
    step, longer = divmod(size, count)
    edges = [i * step + min(i, longer) for i in range(count + 1)]
    if batch_axis == 0:
        return [data[a:b] for a, b in pairwise(edges)]
    return [nd.slice_axis(data, axis=batch_axis, begin=a, end=b) for a, b in pairwise(edges)]


def split_and_load(
    data: Any, ctx_list: Sequence[Any], batch_axis: int = 0, even_split: bool = True
) -> list[NDArray]:
    """`split_data` with each part on its device."""
    array = data if isinstance(data, NDArray) else nd.array(data, ctx=ctx_list[0])
    if len(ctx_list) == 1:
        return [array.as_in_context(ctx_list[0])]
    parts = split_data(array, len(ctx_list), batch_axis, even_split)
    return [part.as_in_context(ctx) for part, ctx in zip(parts, ctx_list)]


def clip_global_norm(arrays: Sequence[NDArray], max_norm: float, check_isfinite: bool = True) -> Any:
    """Scale all arrays in place so that their norm, taken over all together, is `max_norm` at most.

    Returns the norm before, a number; without `check_isfinite` an array, and nothing waits.
    """
    if not arrays:
        raise StateError("clip_global_norm: there are no arrays.")
    device = arrays[0].context
    total = nd.add_n(*(nd.sum(nd.square(a)).astype("float32").as_in_context(device) for a in arrays)).sqrt()
    if check_isfinite:
        norm = float(total.asscalar())
        if not math.isfinite(norm):
            warnings.warn(
                "clip_global_norm: the norm is nan or infinite; so is what is clipped.", stacklevel=2
            )
        factor = max_norm / (norm + 1e-8)
        if factor < 1.0:
            for a in arrays:
                a *= factor
        return norm
    scale = nd.minimum(max_norm / (total + 1e-8), 1.0)
    for a in arrays:
        a *= scale.astype(a.dtype).as_in_context(a.context)
    return total


def check_sha1(filename: str, sha1_hash: str) -> bool:
    """True if the file has this SHA-1 checksum, in hexadecimal digits."""
    found = hashlib.sha1(usedforsecurity=False)
    with open(filename, "rb") as file:
        while piece := file.read(_PIECE):
            found.update(piece)
    return found.hexdigest() == sha1_hash


def download(
    url: str,
    path: str | None = None,
    overwrite: bool = False,
    sha1_hash: str | None = None,
    retries: int = 5,
    verify_ssl: bool = True,
) -> str:
    """The file at `path` that is there already: mxlite downloads nothing. MissingFileError if it is not."""
    name = url.rpartition("/")[2]
    place = name if path is None else os.path.join(path, name) if os.path.isdir(path) else path
    if os.path.exists(place) and (not sha1_hash or check_sha1(place, sha1_hash)):
        return place
    raise MissingFileError(
        f"{place} is not there{' with that checksum' if os.path.exists(place) else ''}, and mxlite downloads "
        f"nothing: fetch {url} with another program and put it there."
    )


def replace_file(src: str, dst: str) -> None:
    """Move a file to `dst` in one step, also where another is there."""
    os.replace(src, dst)


def repo_url() -> str:
    """The address of the repository, with a slash at its end."""
    return os.environ.get("MXNET_GLUON_REPO", REPOSITORY).rstrip("/") + "/"


def repo_file_url(namespace: str, filename: str) -> str:
    """The address of a file there."""
    return f"{repo_url()}{namespace}/{filename}"


# MXNet's names, which GluonNLP and other libraries import.
_get_repo_url, _get_repo_file_url = repo_url, repo_file_url
