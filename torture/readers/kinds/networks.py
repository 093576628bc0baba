"""Readers of foreign networks and of plans: ONNX, plan JSON."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import mxlite as mx
from torture.readers.kinds.reader import golden, Reader, SMALL, text
from torture.readers.mutate import harmed, harmed_tree


def _use_onnx(data: bytes, folder: Path) -> None:
    from mxlite.formats.onnx import get_model_metadata, import_model

    path = folder / "a.onnx"
    path.write_bytes(data)
    declared = get_model_metadata(str(path))["input_tensor_data"]
    given = {n: tuple(x if isinstance(x, int) and x > 0 else 1 for x in shape) for n, shape in declared}
    if any(np.prod(s, dtype=object) > SMALL for s in given.values()):
        given = {}
    symbol, arguments, states = import_model(str(path), given)
    shapes = {n: a.shape for n, a in (arguments | states).items()} | given
    _, outputs, _ = symbol.infer_shape(**shapes)
    inner = symbol.get_internals().infer_shape(**shapes)[1]
    if outputs is None or sum(int(np.prod(s, dtype=object)) for s in inner) > SMALL:
        return
    exe = symbol.simple_bind(mx.cpu(), grad_req="null", **shapes)
    exe.copy_params_from(arguments, states)
    for out in exe.forward():
        out.asnumpy()


def _plan_net() -> Any:
    h = mx.sym.Variable("data", shape=(4, 6))
    for i in range(3):
        h = mx.sym.relu(mx.sym.FullyConnected(h, num_hidden=6, name=f"fc{i}"))
    return mx.sym.SoftmaxOutput(h, name="softmax")


@cache
def _plans() -> list[bytes]:
    net = _plan_net()
    device = "20TFLOP/s,900GB/s"
    plans = [net.memory_plan(device=device), net.memory_plan(device=device, optimizer=mx.optimizer.Adam())]
    return [p.to_json().encode() for p in plans]


def _harmed_plan(data: bytes, random: Random, files: list[bytes]) -> bytes:
    if random.random() < 0.2:
        return harmed(data, random, files)
    tree = harmed_tree(json.loads(data), random)
    if isinstance(tree, dict) and random.random() < 0.9:
        tree.pop("digest", None)
        tree["digest"] = hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()
    return json.dumps(tree).encode("utf8", "surrogatepass")


def _use_plan(data: bytes, folder: Path) -> None:
    plan = mx.memplan.MemoryPlan.from_json(text(data))
    plan.summary(), plan.to_text()
    net = _plan_net()
    exe = net.simple_bind(mx.cpu(), plan=plan)
    exe.forward(is_train=True)
    exe.backward()
    exe.outputs[0].asnumpy()


READERS = (
    Reader("onnx", golden("onnx/*.onnx"), _use_onnx),
    Reader("plan", _plans, _use_plan, _harmed_plan),
)
