"""mx.gluon.model_zoo.model_store: parameters of trained networks, from local files."""

from __future__ import annotations

import os
from glob import escape, glob
from typing import Any

from ...core.errors import MissingFileError, RangeError
from ..util_names import check_sha1

HOME = os.path.join("~", ".mxnet", "models")
_model_sha1: dict[str, str] = {}
"""SHA-1 checksum by name, of what a program demands of these files. GluonNLP enters its own."""


def get_model_file(name: str, root: str = HOME) -> str:
    """The file of a network's parameters below `root`: `name.params`, or, as MXNet has written it, with a
    dash and eight digits behind the name.

    MissingFileError if there is none, or none with the checksum that is demanded.
    """
    folder = os.path.expanduser(root)
    wanted = _model_sha1.get(name)
    named = glob(f"{escape(folder)}/{escape(name)}-{'?' * 8}.params")
    files = [os.path.join(folder, f"{name}.params"), *sorted(named)]
    there = [file for file in files if os.path.exists(file)]
    for file in there:
        if wanted is None or check_sha1(file, wanted):
            return file
    found = f"has another checksum than {wanted}" if there else "is not there"
    raise MissingFileError(
        f"{name}: its parameters would be in {(there or files)[0]}, which {found}, and mxlite downloads "
        f"nothing. A file that MXNet's save_parameters has written will do; root= names its folder."
    )


def short_hash(name: str) -> str:
    """The first eight digits of the checksum. RangeError if there is none."""
    if name not in _model_sha1:
        raise RangeError(f"There is no checksum of {name!r}.")
    return _model_sha1[name][:8]


def filled(net: Any, name: str, pretrained: bool, ctx: Any, root: str) -> Any:
    """`net`, with its trained parameters if they are asked for; see `get_model_file`."""
    if pretrained:
        net.load_parameters(get_model_file(name, root), ctx=ctx)
    return net
