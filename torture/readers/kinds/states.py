"""Readers of optimizer states, and of saved training states."""

from __future__ import annotations

import json
import struct
import zlib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import mxlite as mx
from torture.readers.kinds.reader import Reader, scratch
from torture.readers.mutate import harmed, harmed_tree

_HEAD = struct.Struct("<8sIIQ")


def _dressed(header: bytes, arrays: bytes) -> bytes:
    body = struct.pack("<Q", len(header)) + header + arrays
    return struct.pack("<8sII", b"MXLSTATE", 1, zlib.crc32(body)) + body


def _harmed_state(data: bytes, random: Random, files: list[bytes]) -> bytes:
    """Corrupt values of the header, its text, or the arrays' bytes; mostly with a correct checksum."""
    how = random.random()
    if how < 0.1:
        return harmed(data, random, files)
    (length,) = struct.unpack_from("<Q", data, 16)
    header, arrays = data[24 : 24 + length], data[24 + length :]
    if how < 0.25:
        header = harmed(header, random, [f[24:] for f in files])
    elif how < 0.9:
        header = json.dumps(harmed_tree(json.loads(header), random), separators=(",", ":")).encode()
    if how > 0.8 and arrays:
        if random.random() < 0.3 and arrays[:8] == b"MXLSTATE":
            arrays = _harmed_state(arrays, random, files)
        else:
            arrays = harmed(arrays, random, files)
    return _dressed(header, arrays)


def _schedules() -> list[Any]:
    s = mx.lr_scheduler
    return [
        None,
        s.FactorScheduler(2, 0.9),
        s.MultiFactorScheduler([2, 4, 6], 0.5),
        s.PolyScheduler(10, warmup_steps=2),
        s.CosineScheduler(10),
    ]


def _optimizers() -> list[Any]:
    names = "sgd nag signum adam adamw lamb ftml adagrad adadelta ftrl rmsprop adamax nadam sgld dcasgd lars"
    made = []
    for i, name in enumerate([*names.split(), "lbsgd"]):
        schedule = _schedules()[i % 5]
        more: dict[str, Any] = {} if schedule is None else {"lr_scheduler": schedule}
        if name in ("sgd", "nag", "dcasgd", "lars", "lbsgd"):
            more["momentum"] = 0.9
        if name == "lbsgd":
            more |= {"batch_scale": 2, "warmup_epochs": 2}
        if name == "rmsprop":
            more["centered"] = True
        made.append(mx.optimizer.create(name, wd=0.01, clip_gradient=1.0 if i % 2 else None, **more))
    return made


def _step(updater: Any) -> None:
    for index in (0, 1):
        weight, grad = mx.nd.ones((2, 3)), mx.nd.ones((2, 3)) * 0.5
        updater(index, grad, weight)
        assert weight.asnumpy().shape == (2, 3)


@cache
def _states() -> list[bytes]:
    made = []
    for optimizer in _optimizers():
        updater = mx.optimizer.get_updater(optimizer)
        for _ in range(3):
            _step(updater)
        made += [updater.get_states(dump_optimizer=True), updater.get_states()]
    return made


def _use_states(data: bytes, folder: Path) -> None:
    start = data.find(b'"optimizer":"')
    name = data[start + 13 : start + 40].partition(b'"')[0].decode("latin1")
    matching = [o for o in _optimizers() if type(o).__name__.lower() == name] or _optimizers()[3:4]
    updater = mx.optimizer.get_updater(matching[0])
    try:
        updater.set_states(data)
    except mx.MXLiteError:
        _step(updater)  # nothing was changed
        raise
    _step(updater)
    updater.set_states(updater.get_states(dump_optimizer=True))
    _step(updater)


def _module(folder: Path, kind: int) -> tuple[Any, Any, str]:
    net = mx.sym.SoftmaxOutput(
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc"), name="softmax"
    )
    data = mx.io.NDArrayIter(
        np.arange(24, dtype="f").reshape(6, 4), np.arange(6, dtype="f") % 3, 2, shuffle=True, seed=3
    )
    module = mx.mod.Module(net)
    module.bind(data.provide_data, data.provide_label)
    module.init_params(mx.init.One())
    schedule = _schedules()[kind % 5]
    name = ("sgd", "adam", "rmsprop")[kind % 3]
    parameters: dict[str, Any] = {} if schedule is None else {"lr_scheduler": schedule}
    module.init_optimizer(optimizer=name, optimizer_params=parameters)
    return module, data, str(folder / "run")


@cache
def _resumes() -> list[bytes]:
    made = []
    for kind in range(3):
        folder = Path(scratch())
        module, data, prefix = _module(folder, kind)
        module.fit(data, num_epoch=1, checkpoint_prefix=prefix)
        made.append(Path(f"{prefix}.resume").read_bytes())
    return made


_KEPT: dict[int, Any] = {}


def _use_resume(data: bytes, folder: Path) -> None:
    kind = 1 if b"adam" in data else 2 if b"rmsprop" in data else 0
    if kind not in _KEPT:
        _KEPT[kind] = _module(Path(scratch()), kind)
    module, source, prefix = _KEPT[kind]
    Path(f"{prefix}.resume").write_bytes(data)
    try:
        module.load_resume_state(prefix, source)
        for batch in source:
            module.forward_backward(batch)
            module.update()
        module.get_outputs()[0].asnumpy()
        module.get_params()[0]["fc_weight"].asnumpy()
    except BaseException:
        del _KEPT[kind]
        raise
    finally:
        source.reset()


READERS = (
    Reader("states", _states, _use_states, _harmed_state),
    Reader("resume", _resumes, _use_resume, _harmed_state),
)
