"""Files of a hybrid block that Module and `SymbolBlock.imports` read: a symbol, and a checkpoint's
parameters.
"""

from __future__ import annotations

from typing import Any

from ... import ndarray as nd
from ...core import StateError
from ...core.wanted import whole


def exported(block: Any, path: str, epoch: int = 0) -> tuple[str, str]:
    """Write `path-symbol.json` and `path-0000.params` of the form in which the block was called last."""
    whole("export: epoch", epoch, 0)
    trace = block._last_trace
    if trace is None:
        raise StateError(
            f"export: {block.name!r} has not run yet, so the number of its inputs is not known. Call it once "
            f"on arrays, after hybridize()."
        )
    files = f"{path}-symbol.json", f"{path}-{epoch:04d}.params"
    symbol = trace.symbol
    states = set(symbol.list_auxiliary_states())
    names = {*symbol.list_arguments(), *states}
    arrays = {
        f"{'aux' if n in states else 'arg'}:{n}": p.mean()
        for n, p in block.collect_params().items()
        if n in names
    }
    symbol.save(files[0])
    nd.save(files[1], arrays)
    return files
