"""Training that cannot teach anything says so."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import mxlite as mx

DENSE = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc")
LOSS = mx.sym.SoftmaxOutput(DENSE, mx.sym.Variable("softmax_label"), name="softmax")


def samples() -> Any:
    return mx.io.NDArrayIter(np.ones((8, 3), "float32"), np.zeros(8, "float32"), 4)


@pytest.mark.parametrize("fused", [True, False, None])
@pytest.mark.parametrize(
    "network", [DENSE, mx.sym.softmax(DENSE), mx.sym.Group([LOSS, DENSE])], ids=["dense", "softmax", "group"]
)
def test_fit_refuses_an_output_that_is_no_loss_and_says_what_to_add(network: Any, fused: Any) -> None:
    names = [n for n in network.list_arguments() if n.endswith("label")]
    module = mx.mod.Module(network, label_names=names, fused_update=fused)
    with pytest.raises(mx.BindError, match=r"SoftmaxOutput[^$]*BlockGrad"):
        module.fit(samples(), num_epoch=1, eval_metric=mx.metric.Loss())


def test_each_way_to_run_a_fused_step_refuses_it() -> None:
    exe = DENSE.simple_bind(mx.cpu(), optimizer=mx.optimizer.SGD(), data=(4, 3))
    for run in (exe.step, exe.finish_step):
        exe.forward(is_train=True)
        with pytest.raises(mx.BindError, match="'fc_output'"):
            run(np.ones((2, 2)))


@pytest.mark.parametrize("hide", [mx.sym.BlockGrad, lambda x: mx.sym.argmax(x, axis=1)])
@pytest.mark.parametrize("fused", [True, False])
def test_a_network_that_gives_no_parameter_a_gradient_is_warned_of(
    hide: Any, fused: bool, caplog: Any
) -> None:
    module = mx.mod.Module(hide(DENSE), label_names=None, fused_update=fused)
    with caplog.at_level(logging.WARNING):
        module.fit(mx.io.NDArrayIter(np.ones((8, 3), "float32"), None, 4), num_epoch=1, eval_metric="loss")
    assert [r.getMessage().split(":")[0] for r in caplog.records] == ["Nothing will be learnt"]
    assert "'fc_weight'" in caplog.text and "BlockGrad" in caplog.text


@pytest.mark.parametrize("fused", [True, False])
def test_outputs_that_are_only_looked_at_beside_a_loss_are_no_matter(fused: bool, caplog: Any) -> None:
    network = mx.sym.Group([LOSS, mx.sym.BlockGrad(DENSE), mx.sym.argmax(DENSE, axis=1)])
    module = mx.mod.Module(network, fused_update=fused)
    with caplog.at_level(logging.WARNING):
        module.fit(samples(), num_epoch=1, eval_metric="loss")
    assert not caplog.records
