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


def test_paths_that_are_dropped_by_drawn_numbers_ask_at_run_time():
    """As torchvision's StochasticDepth and Dropout in place: a path is there while it does not train."""

    class Dropped(torch.nn.Module):
        def forward(self, x):
            noise = torch.empty([x.shape[0], 1]).bernoulli_(0.75)
            return torch.nn.functional.dropout(x * noise.div_(0.75), 0.5, inplace=True)

    symbol, args, aux = mx.from_torch(Dropped(), torch.ones(40, 5))
    made = [n.op.op_name for n in symbol.graph.nodes if n.op is not None]
    assert made == ["Dropout", "Dropout"] and not args
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", x=(40, 5))
    executor.copy_params_from(args, aux)
    ones = mx.nd.ones((40, 5))
    assert np.allclose(executor.forward(is_train=False, x=ones)[0].asnumpy(), 1)
    trained = executor.forward(is_train=True, x=ones)[0].asnumpy()
    assert np.allclose(np.unique(trained.round(4)), [0, 2 / 0.75], atol=1e-3)
    assert 0 < (trained == 0).all(1).sum() < 40


def test_noise_is_drawn_anew():
    class Noisy(torch.nn.Module):
        def forward(self, x):
            return x + torch.randn_like(x) + torch.rand(()), torch.bernoulli(x)

    symbol, _, _ = mx.from_torch(Noisy(), torch.full((50, 40), 0.5))
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", x=(50, 40))
    first, second = (
        [o.asnumpy() for o in executor.forward(is_train=True, x=mx.nd.full((50, 40), 0.5))] for _ in range(2)
    )
    assert abs(first[0].std() - 1) < 0.1 and set(np.unique(first[1])) == {0.0, 1.0}
    assert not np.allclose(first[0], second[0])


def test_a_step_is_planned_within_a_budget():
    torch.manual_seed(1)
    module = GPTLoss()
    inputs = (tokens(16, 8), tokens(16, 8))
    whole = mx.torch.plan(module, inputs).mxlite
    budget = int(whole.peak_bytes * 0.9)
    assert mx.torch.plan(module, inputs, budget=budget).mxlite.peak_bytes <= budget


def test_rows_by_index_and_their_gradients_have_kernels():
    """Indices may count from the end. A take that counts round has none."""

    class Rows(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(50, 16))

        def forward(self, i):
            return torch.tanh(self.table[i]) + self.table.index_select(0, i % 50)

    module, places = Rows(), torch.randint(-50, 50, (40,))
    symbol, args, aux = mx.from_torch(module, places)
    assert {n.attrs.mode for n in symbol.graph.nodes if n.op is not None and n.op.op_name == "take"} == {
        "clip"
    }
    (name,) = {*symbol.list_arguments()} - {*args}
    executor = symbol.simple_bind(mx.cpu(), type_dict={name: "int64"}, **{name: (40,)})
    executor.copy_params_from(args, aux)
    (out,) = executor.forward(is_train=True, **{name: places.numpy()})
    executor.backward([mx.nd.ones(out.shape)])
    want = module(places)
    want.sum().backward()
    np.testing.assert_allclose(out.asnumpy(), want.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        executor.grad_dict["table"].asnumpy(), module.table.grad.numpy(), rtol=1e-4, atol=1e-5
    )
