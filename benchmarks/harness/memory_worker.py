"""Plans networks with the real MXNet and reads the total; `python memory_worker.py mxnet`."""

from __future__ import annotations

import re
import sys
from typing import Any

from frameworks import load
from worker import serve

mx, VERSIONS = load(sys.argv[1])


def plan(symbol: str, shapes: dict[str, list[int]]) -> tuple[int, int]:
    """(MiB of internal memory, operator nodes of the training graph).

    Binding reserves addresses and touches no memory.
    """
    known = {name: tuple(shape) for name, shape in shapes.items()}
    net = mx.sym.load_json(symbol)
    text = net.simple_bind(mx.cpu(), grad_req="write", **known).debug_str()
    found = re.search(r"Total (\d+) MB allocated", text)
    assert found is not None, text[-500:]
    return int(found.group(1)), text.count("Op:")


def answer(do: str, **arguments: Any) -> Any:
    if do == "versions":
        return VERSIONS
    return {"plan": plan}[do](**arguments)


serve(answer)
