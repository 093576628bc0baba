"""Parameters of trained networks, from local files."""

from __future__ import annotations

import os
from typing import Any

from ...core.errors import MissingFileError

HOME = os.path.join("~", ".mxnet", "models")


def filled(net: Any, name: str, pretrained: bool, ctx: Any, root: str) -> Any:
    """`net` with the parameters of `root/name.params` if they are asked for. MissingFileError if it is not
    there.
    """
    if pretrained:
        file = os.path.join(os.path.expanduser(root), f"{name}.params")
        if not os.path.exists(file):
            raise MissingFileError(
                f"{name}: pretrained=True needs {file}, which is not there, and mxlite downloads nothing. "
                f"A file that MXNet's save_parameters has written will do; root= names its folder."
            )
        net.load_parameters(file, ctx=ctx)
    return net
