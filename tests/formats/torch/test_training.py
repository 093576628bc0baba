"""Imported networks are planned and trained, and go back to PyTorch."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is where these networks come from")

import torch

import mxlite as mx
from tests.formats.torch.modules import NETWORKS
from tests.formats.torch.modules.language import GPT, GPTLoss, tokens

pytestmark = pytest.mark.torch


def test_tied_weights_are_one_argument():
    _, args, _ = mx.from_torch(GPT(), tokens(2, 8))
    assert "wte.weight" in args and "lm_head.weight" not in args


def test_a_scalar_output_is_a_loss_and_a_trained_network_goes_back():
    torch.manual_seed(1)
    module, inputs = GPTLoss(), (tokens(2, 8), tokens(2, 8))
    symbol, args, aux = mx.from_torch(module, inputs)
    data = mx.io.NDArrayIter({"idx": inputs[0].numpy()}, {"target": inputs[1].numpy()}, batch_size=2)
    net = mx.mod.Module(symbol, data_names=("idx",), label_names=("target",))
    net.bind(data.provide_data, data.provide_label)
    net.set_params(args, aux)
    net.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.01})
    batch, losses = next(iter(data)), []
    for _ in range(5):
        net.forward_backward(batch)
        losses.append(float(net.get_outputs()[0].asnumpy()))
        net.update()
    assert losses[-1] < losses[0] - 0.3
    mx.torch.load_into(module, *net.get_params())
    net.forward(batch, is_train=False)
    assert abs(module(*inputs).item() - float(net.get_outputs()[0].asnumpy())) < 1e-4


def test_moving_averages_go_back():
    torch.manual_seed(1)
    module, inputs = NETWORKS["vision-resnet"]()
    symbol, args, aux = mx.from_torch(module, inputs)
    assert all(n.endswith(("running_mean", "running_var")) for n in aux) and aux
    executor = symbol.simple_bind(mx.cpu(), x=tuple(inputs[0].shape))
    executor.copy_params_from(args, aux)
    out = executor.forward(is_train=True, x=mx.nd.array(inputs[0].numpy()))[0]
    executor.backward([mx.nd.ones(out.shape)])
    mx.torch.load_into(module, {}, executor.aux_dict)
    out = executor.forward(is_train=False, x=mx.nd.array(inputs[0].numpy()))[0]
    with torch.no_grad():
        assert np.abs(module.eval()(*inputs).numpy() - out.asnumpy()).max() < 1e-4


def test_dropout_asks_at_run_time():
    module = torch.nn.Sequential(torch.nn.Dropout(0.5)).eval()
    symbol, _, _ = mx.from_torch(module, torch.ones(4, 50))
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", input=(4, 50))
    ones = mx.nd.ones((4, 50))
    assert (executor.forward(is_train=False, input=ones)[0].asnumpy() == 1).all()
    assert set(np.unique(executor.forward(is_train=True, input=ones)[0].asnumpy())) == {0.0, 2.0}


def test_a_step_is_planned_within_a_budget():
    torch.manual_seed(1)
    module = GPTLoss()
    inputs = (tokens(16, 8), tokens(16, 8))
    whole = mx.torch.plan(module, inputs)
    budget = int(whole.peak_bytes * 0.9)
    assert mx.torch.plan(module, inputs, budget=budget).peak_bytes <= budget
