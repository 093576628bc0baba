"""Layers beside PyTorch's and beside numpy."""

import numpy as np
import pytest

import mxlite as mx
from mxlite import gluon
from mxlite.gluon import nn

X = np.random.default_rng(0)


def run(layer, *arrays, hybrid=False):
    """The output, and the gradients of the first input and of all parameters, of sum(out * fixed numbers)."""
    layer.initialize(mx.init.Xavier(), force_reinit=True)
    if hybrid:
        layer.hybridize()
    inputs = [mx.nd.array(a) for a in arrays]
    inputs[0].attach_grad()
    layer(*inputs)
    with mx.autograd.record():
        out = layer(*inputs)
        loss = (out * mx.nd.array(weights(out.shape))).sum()
    loss.backward()
    return (
        out.asnumpy(),
        inputs[0].grad.asnumpy(),
        {n: p.grad().asnumpy() for n, p in grads_of(layer).items()},
    )


def grads_of(layer):
    return {n: p for n, p in layer._structured().items() if p.grad_req != "null"}


def weights(shape):
    return np.random.default_rng(9).standard_normal(shape).astype("f")


def beside_torch(layer, theirs, x, names=None, atol=2e-5):
    """Compare with a PyTorch module whose parameters take our values; `names`: ours -> theirs."""
    import torch

    for hybrid in (False, True):
        out, dx, grads = run(layer, x, hybrid=hybrid)
        theirs.zero_grad()
        theirs.train()
        own = dict(theirs.named_parameters())
        with torch.no_grad():
            for name, p in layer._structured().items():
                target = own.get((names or {}).get(name, name))
                if target is not None:
                    target.copy_(torch.from_numpy(p.data().asnumpy()))
        tx = torch.from_numpy(x).requires_grad_()
        ty = theirs(tx)
        ty.backward(torch.from_numpy(weights(tuple(ty.shape))))
        np.testing.assert_allclose(out, ty.detach().numpy(), atol=atol, rtol=2e-5)
        np.testing.assert_allclose(dx, tx.grad.numpy(), atol=atol, rtol=2e-5)
        for name, grad in grads.items():
            np.testing.assert_allclose(
                grad, own[(names or {}).get(name, name)].grad.numpy(), atol=atol, rtol=1e-4
            )


def normal(*shape):
    return X.standard_normal(shape).astype("f")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("ours", "theirs", "shape"),
    [
        (lambda: nn.Dense(5), lambda t: t.Linear(7, 5), (3, 7)),
        (lambda: nn.Dense(5, flatten=False, use_bias=False), lambda t: t.Linear(7, 5, bias=False), (2, 3, 7)),
        (lambda: nn.Dense(4), lambda t: t.Sequential(t.Flatten(), t.Linear(6, 4)), (2, 3, 2)),
        (lambda: nn.Conv1D(4, 3, 2, 1), lambda t: t.Conv1d(3, 4, 3, 2, 1), (2, 3, 9)),
        (lambda: nn.Conv2D(4, (3, 2), (1, 2), (1, 0)),
         lambda t: t.Conv2d(3, 4, (3, 2), (1, 2), (1, 0)), (2, 3, 6, 7)),
        (lambda: nn.Conv2D(6, 3, groups=3, dilation=2),
         lambda t: t.Conv2d(3, 6, 3, groups=3, dilation=2), (2, 3, 7, 7)),
        (lambda: nn.Conv3D(2, 2), lambda t: t.Conv3d(2, 2, 2), (2, 2, 4, 4, 4)),
        (lambda: nn.Conv1DTranspose(4, 3, 2, 1, 1), lambda t: t.ConvTranspose1d(3, 4, 3, 2, 1, 1), (2, 3, 5)),
        (lambda: nn.Conv2DTranspose(4, 4, 2, 1), lambda t: t.ConvTranspose2d(3, 4, 4, 2, 1), (2, 3, 5, 5)),
        (lambda: nn.Conv3DTranspose(2, 2, 2), lambda t: t.ConvTranspose3d(2, 2, 2, 2), (1, 2, 3, 3, 3)),
        (lambda: nn.MaxPool1D(), lambda t: t.MaxPool1d(2), (2, 3, 8)),
        (lambda: nn.MaxPool2D(3, 2, 1), lambda t: t.MaxPool2d(3, 2, 1), (2, 3, 7, 7)),
        (lambda: nn.MaxPool2D(3, 2, ceil_mode=True),
         lambda t: t.MaxPool2d(3, 2, ceil_mode=True), (2, 3, 8, 8)),
        (lambda: nn.MaxPool3D(), lambda t: t.MaxPool3d(2), (2, 3, 4, 4, 4)),
        (lambda: nn.AvgPool1D(3, 2, 1), lambda t: t.AvgPool1d(3, 2, 1), (2, 3, 8)),
        (lambda: nn.AvgPool2D(3, 2, 1, count_include_pad=False),
         lambda t: t.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 3, 7, 7)),
        (lambda: nn.AvgPool3D(), lambda t: t.AvgPool3d(2), (2, 3, 4, 4, 4)),
        (lambda: nn.GlobalAvgPool1D(), lambda t: t.AdaptiveAvgPool1d(1), (2, 3, 8)),
        (lambda: nn.GlobalAvgPool2D(), lambda t: t.AdaptiveAvgPool2d(1), (2, 3, 5, 4)),
        (lambda: nn.GlobalAvgPool3D(), lambda t: t.AdaptiveAvgPool3d(1), (2, 3, 5, 4, 2)),
        (lambda: nn.GlobalMaxPool1D(), lambda t: t.AdaptiveMaxPool1d(1), (2, 3, 8)),
        (lambda: nn.GlobalMaxPool2D(), lambda t: t.AdaptiveMaxPool2d(1), (2, 3, 5, 4)),
        (lambda: nn.GlobalMaxPool3D(), lambda t: t.AdaptiveMaxPool3d(1), (2, 3, 5, 4, 2)),
        (lambda: nn.Activation("softrelu"), lambda t: t.Softplus(), (3, 4)),
        (lambda: nn.LeakyReLU(0.1), lambda t: t.LeakyReLU(0.1), (3, 4)),
        (lambda: nn.ELU(0.7), lambda t: t.ELU(0.7), (3, 4)),
        (lambda: nn.SELU(), lambda t: t.SELU(), (3, 4)),
        (lambda: nn.GELU(), lambda t: t.GELU(), (3, 4)),
        (lambda: nn.SiLU(), lambda t: t.SiLU(), (3, 4)),
        (lambda: nn.Swish(), lambda t: t.SiLU(), (3, 4)),
        (lambda: nn.LayerNorm(), lambda t: t.LayerNorm(6), (3, 4, 6)),
        (lambda: nn.BatchNorm(), lambda t: t.BatchNorm1d(4), (5, 4, 3)),
        (lambda: nn.SyncBatchNorm(), lambda t: t.BatchNorm2d(4), (5, 4, 3, 3)),
        (lambda: nn.BatchNormReLU(), lambda t: t.Sequential(t.BatchNorm2d(4), t.ReLU()), (5, 4, 3, 3)),
        (lambda: nn.InstanceNorm(scale=True), lambda t: t.InstanceNorm2d(4, affine=True), (5, 4, 3, 3)),
        (lambda: nn.ReflectionPad2D(2), lambda t: t.ReflectionPad2d(2), (2, 3, 5, 4)),
        (lambda: nn.Flatten(), lambda t: t.Flatten(), (2, 3, 5, 4)),
    ],
)  # fmt: skip
def test_a_layer_is_that_of_pytorch(ours, theirs, shape):
    torch = pytest.importorskip("torch")
    layer, module = ours(), theirs(torch.nn)
    names = {"gamma": "weight", "beta": "bias"}
    inside = [n for n, _ in module.named_parameters()]
    if inside and "." in inside[0]:
        place = inside[0].partition(".")[0]
        names = {n: f"{place}.{t}" for n, t in (("gamma", "weight"), ("beta", "bias"))}
        names |= {n: f"{place}.{n}" for n in ("weight", "bias")}
    beside_torch(layer, module, normal(*shape), names)


@pytest.mark.torch
def test_prelu_and_embedding_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    beside_torch(nn.PReLU(in_channels=3), torch.nn.PReLU(3), normal(2, 3, 4), {"alpha": "weight"})
    layer = nn.Embedding(6, 3)
    layer.initialize()
    x = np.array([[1, 5], [1, 0]])
    with mx.autograd.record():
        out = layer(mx.nd.array(x))
    out.backward()
    assert np.array_equal(out.asnumpy(), layer.weight.data().asnumpy()[x])
    assert layer.weight.grad().asnumpy().sum(axis=1).tolist() == [3, 6, 0, 0, 0, 3]


def test_embedding_with_sparse_gradients_trains_the_rows_that_were_read():
    layer = nn.Embedding(6, 3, sparse_grad=True)
    layer.initialize()
    before = layer.weight.data().asnumpy()
    trainer = gluon.Trainer(layer.collect_params(), "sgd", {"learning_rate": 1.0})
    with mx.autograd.record():
        out = layer(mx.nd.array([1, 5]))
    out.backward()
    assert layer.weight.grad().stype == "row_sparse"
    trainer.step(1)
    changed = (layer.weight.data().asnumpy() != before).all(axis=1)
    assert changed.tolist() == [False, True, False, False, False, True]


def test_group_norm_scales_each_group():
    layer, x = nn.GroupNorm(2), normal(3, 4, 5)
    out, _, _ = run(layer, x)
    groups = x.reshape(3, 2, 10)
    mean, var = groups.mean(-1, keepdims=True), groups.var(-1, keepdims=True)
    np.testing.assert_allclose(out, ((groups - mean) / np.sqrt(var + 1e-5)).reshape(x.shape), atol=1e-5)
    assert layer.gamma.shape == (2,)


def test_batch_norm_moves_its_averages_in_training_and_uses_them_in_inference():
    for hybrid in (False, True):
        layer, x = nn.BatchNorm(), normal(6, 3, 4)
        run(layer, x, hybrid=hybrid)
        mean, var = x.mean((0, 2)), x.var((0, 2))
        np.testing.assert_allclose(layer.running_mean.data().asnumpy(), mean * 0.1, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(layer.running_var.data().asnumpy(), 0.9 + var * 0.1, rtol=1e-4)
        out = layer(mx.nd.array(x)).asnumpy()
        expected = (x - mean[:, None] * 0.1) / np.sqrt(0.9 + var[:, None] * 0.1 + 1e-5)
        np.testing.assert_allclose(out, expected, atol=1e-4)


def test_without_scale_or_center_a_norm_does_not_learn_these():
    layer = nn.BatchNorm(scale=False, center=False)
    run(layer, normal(6, 3, 4))
    assert layer.gamma.grad_req == layer.beta.grad_req == "null"


def test_dropout_drops_in_training_only_and_shares_draws_along_axes():
    layer, x = nn.Dropout(0.5, axes=(1,)), mx.nd.ones((50, 20))
    assert (layer(x).asnumpy() == 1).all()
    with mx.autograd.train_mode():
        out = layer(x).asnumpy()
    assert set(np.unique(out)) == {0, 2} and (out == out[:, :1]).all()
    assert (nn.Dropout(0)(x).asnumpy() == 1).all()


def test_functions_are_layers():
    x = mx.nd.array([-1, 2])
    assert (
        nn.Lambda("relu")(x).asnumpy().tolist()
        == nn.Lambda(lambda a: a.clip(0, 9))(x).asnumpy().tolist()
        == [0, 2]
    )
    for layer in (nn.HybridLambda("relu"), nn.HybridLambda(lambda F, a: F.relu(a))):
        for _ in range(2):
            assert layer(x).asnumpy().tolist() == [0, 2]
            layer.hybridize()
    assert repr(nn.HybridLambda("relu")) == "HybridLambda(relu)"
    with pytest.raises(TypeError, match="has no function 'rel'"):
        nn.HybridLambda("rel")


def test_shapes_that_do_not_fit_are_told():
    with pytest.raises(
        mx.ShapeError, match=r"Conv2D: kernel_size must be a number or 2 of them, got \(3, 3, 3\)"
    ):
        nn.Conv2D(3, (3, 3, 3))
    with pytest.raises(mx.OpAttributeError, match="layout must name N, C and 1 spatial axes, got 'NCHW'"):
        nn.Conv1D(3, 3, layout="NCHW")
    layer = nn.Dense(3, in_units=4)
    layer.initialize()
    with pytest.raises(mx.ShapeError, match=r"\(3, 4\)"):
        layer(mx.nd.ones((2, 5)))
