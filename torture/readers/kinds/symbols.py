"""Readers of networks as text: MXNet's Symbol JSON."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

import mxlite as mx
from torture.readers.kinds.reader import golden, json_or_bytes, Reader, SMALL


@cache
def _symbols() -> list[bytes]:
    data = mx.sym.Variable("data", shape=(2, 3, 8, 8))
    net = mx.sym.Convolution(data, num_filter=4, kernel=(3, 3), pad=(1, 1), name="conv")
    net = mx.sym.Activation(mx.sym.BatchNorm(net, name="bn"), act_type="relu")
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max")
    parts = mx.sym.SliceChannel(net, num_outputs=2, name="parts")
    net = mx.sym.Concat(parts[0], mx.sym.transpose(parts[1], axes=(0, 1, 3, 2)), dim=1)
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=5), name="softmax")
    outputs, state = mx.sym.contrib.foreach(
        lambda x, s: (x + s[0], [mx.sym.tanh(x)]),
        mx.sym.Variable("data", shape=(3, 4)),
        [mx.sym.Variable("s")],
    )
    lost = mx.sym.broadcast_mul(mx.sym.Variable("data", shape=(2, 6)), mx.sym.Variable("w", shape=(1, 6)))
    lost = mx.sym.slice(mx.sym.reshape(mx.sym.Dropout(lost), shape=(-1, 3)), begin=(0, 1), end=(2, 3))
    made = mx.sym.Group([mx.sym.sum(lost, axis=1), mx.sym.arange(0, 5, 2), mx.sym.zeros((2, 2))])
    return [net.tojson().encode(), mx.sym.Group([outputs, *state]).tojson().encode(), made.tojson().encode()]


def _use_symbol(data: bytes, folder: Path) -> None:
    path = folder / "net-symbol.json"
    path.write_bytes(data)
    symbol = mx.sym.load(str(path))
    names = symbol.list_arguments() + symbol.list_auxiliary_states() + symbol.list_outputs()
    symbol.attr_dict()
    again = mx.sym.load_json(symbol.tojson())
    assert names == again.list_arguments() + again.list_auxiliary_states() + again.list_outputs()
    symbol.debug_str()
    known = {"data": (2, 3, 8, 8)} if "data" in names and len(names) > 6 else {}
    arguments, outputs, states = symbol.infer_shape(**known)
    if arguments is None or None in outputs:
        return
    inner = symbol.get_internals().infer_shape(**known)[1]
    if sum(int(np.prod(s, dtype=object)) for s in (*arguments, *inner, *states)) > SMALL:
        return
    exe = symbol.simple_bind(mx.cpu(), grad_req="null", **known)
    for out in exe.forward():
        out.asnumpy()


def _symbol_files() -> list[bytes]:
    return _symbols() + golden("mxnet/lenet-symbol.json", "mxnet/control-*.json")()


READERS = (Reader("symbol", _symbol_files, _use_symbol, json_or_bytes),)
