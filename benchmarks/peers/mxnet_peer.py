"""Apache MXNet's side; run by the Python that MXLITE_MXNET_PYTHON names, 3.8 or later."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import mxnet as mx
import numpy as np
from harness.worker import serve
from networks.transformer_block import transformer_block

from peers.peer import Arrays, inferred, Peer, trained


class MXNet(Peer):
    """A Module, trained as in MXNet's examples; its engine runs steps asynchronously."""

    def versions(self) -> dict[str, str]:
        return {"mxnet": mx.__version__, "python": platform.python_version(), "numpy": np.__version__}

    def build(self, spec: dict[str, Any], **options: Any) -> None:
        rebuild = spec["rebuild"]
        net = transformer_block(mx.sym, **rebuild) if rebuild else mx.sym.load(spec["symbol"])
        data, label = Arrays(spec["arrays"], "data"), Arrays(spec["arrays"], "label")
        train = spec["train"]
        self.labels = label["softmax_label"]
        data_shapes, label_shapes = (
            [mx.io.DataDesc(n, a[n].shape, layout=spec["layouts"].get(n, "N")) for n in a]
            for a in (data, label)
        )
        self.module = mx.mod.Module(net, list(data), list(label), context=mx.cpu())
        self.module.bind(data_shapes, label_shapes if train else None, train)
        values, states = (
            {n: mx.nd.array(a[n]) for n in a} for a in (Arrays(spec["arrays"], k) for k in KINDS)
        )
        self.module.init_params(arg_params=values, aux_params=states)
        if train:
            self.module.init_optimizer(
                kvstore=None,
                optimizer="sgd",
                optimizer_params=dict(
                    learning_rate=spec["rate"],
                    momentum=spec["momentum"],
                    wd=0.0,
                    rescale_grad=1 / spec["rows"],
                ),
            )
        self.batch = mx.io.DataBatch(
            [mx.nd.array(data[n]) for n in data], [mx.nd.array(label[n]) for n in label] if train else None
        )

    def push_step(self) -> None:
        if self.spec["train"]:
            self.module.forward_backward(self.batch)
            self.module.update()
        else:
            self.module.forward(self.batch, is_train=False)

    def wait(self) -> None:
        mx.nd.waitall()

    def loss(self, turn: int) -> float:
        out = self.module.get_outputs()[0].asnumpy()
        return trained(out, self.labels) if self.spec["train"] else inferred(out, self.labels, turn)


KINDS = ("arg", "aux")

serve(MXNet().answer)
