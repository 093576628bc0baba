"""Plans networks with the real MXNet and reads the total; `python memory_worker.py mxnet`."""

from __future__ import annotations

import re
import sys
from typing import Any

from frameworks import load
from networks import lstm, resnet  # `frameworks` makes them importable
from worker import serve

mx, VERSIONS = load(sys.argv[1])


def resnet_plan(topology: str, depth: int, batch: int) -> tuple[int, int]:
    net = getattr(resnet, topology)(mx, resnet.STAGES[depth])
    return total(net, {"data": (batch, 3, 224, 224)})


def lstm_plan(form: str, steps: int) -> tuple[int, int]:
    return total(*lstm.unrolled(mx, form, steps))


def total(net: Any, shapes: dict[str, tuple[int, ...]]) -> tuple[int, int]:
    """(MiB of internal memory, operator nodes of the training graph).

    Binding reserves addresses and touches no memory.
    """
    text = net.simple_bind(mx.cpu(), grad_req="write", **shapes).debug_str()
    found = re.search(r"Total (\d+) MB allocated", text)
    assert found is not None, text[-500:]
    return int(found.group(1)), text.count("Op:")


def answer(do: str, **arguments: Any) -> Any:
    if do == "versions":
        return VERSIONS
    return {"resnet": resnet_plan, "lstm": lstm_plan}[do](**arguments)


serve(answer)
