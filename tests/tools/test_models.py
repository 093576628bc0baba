"""The zoo: parameter counts against published numbers and PyTorch, one small step of each, errors."""

import re

import numpy as np
import pytest

import mxlite as mx
from mxlite import models

PUBLISHED = {
    "bert_base": 109_483_778,
    "densenet121": 7_978_856,
    "densenet161": 28_681_000,
    "densenet169": 14_149_480,
    "densenet201": 20_013_928,
    "gpt2": 124_439_808,
    "gpt2_medium": 354_823_168,
    "lenet": 431_080,
    "mobilenet_v1": 4_231_976,
    "mobilenet_v2": 3_504_872,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg11": 132_863_336,
    "vgg13": 133_047_848,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "vgg16_bn": 138_365_992,
}
"""Trainable numbers of the reference implementations, classifier of 1000 classes (BERT: of 2)."""

ROUNDED = {
    "inception_bn": 11.3e6,
    "resnet20_cifar": 0.27e6,
    "resnet56_cifar": 0.85e6,
    "resnet110_cifar": 1.73e6,
    "resnet164_cifar_v2": 1.70e6,
    "unet": 31.04e6,
}
"""As papers print them."""

SMALL = {
    "mlp": dict(hidden=(8,), features=6),
    "lenet": {},
    "resnet18": dict(classes=4, image=(3, 32, 32)),
    "resnet50": dict(stages=(1, 1, 1, 1), stride_in="1x1", classes=4, image=(3, 32, 32)),
    "resnet50_v2": dict(stages=(2, 1, 1, 1), classes=4, image=(3, 32, 32)),
    "resnet18_v2": dict(stages=(1, 1), classes=4, image=(3, 32, 32)),
    "resnet50_memonger": dict(stages=(1, 1), classes=4, image=(3, 64, 64)),
    "resnet20_cifar": dict(width=4, image=(3, 16, 16)),
    "resnet164_cifar_v2": dict(width=2, image=(3, 8, 8)),
    "vgg11_bn": dict(classes=4, image=(3, 32, 32)),
    "inception_bn": dict(classes=4, image=(3, 64, 64)),
    "mobilenet_v1": dict(multiplier=0.25, classes=4, dropout=0.1, image=(3, 32, 32)),
    "mobilenet_v2": dict(multiplier=0.25, classes=4, image=(3, 32, 32)),
    "densenet121": dict(classes=4, dropout=0.1, image=(3, 32, 32)),
    "unet": dict(width=4, levels=3, image=(3, 16, 16)),
    "lstm": dict(hidden=8, vocabulary=11, steps=5, tied=True),
    "lstm_unrolled": dict(steps=3, layers=2, hidden=8, classes=5, features=4),
    "bert_base": dict(layers=2, width=8, heads=2, hidden=16, vocabulary=11, length=6),
    "gpt2": dict(layers=2, width=8, heads=2, hidden=16, vocabulary=11, length=6),
    "transformer": dict(
        layers=2, width=8, heads=2, hidden=16, vocabulary=11, source_length=5, length=6
    ),
}  # fmt: skip
"""Every builder, made small."""


def bound(name, batch=2, budget=None, **options):
    """An executor of a small network, its arrays filled."""
    net, shapes = models.get(name, **options), models.shapes_of(name, batch, **options)
    exe = net.simple_bind(mx.cpu(), grad_req="write", memory_budget=budget, **shapes)
    rng = np.random.default_rng(0)
    for key, array in exe.arg_dict.items():
        if key in ("data", "source", "segment", "length", "source_count") and len(array.shape) < 3:
            array[:] = rng.integers(1, 2 if key == "segment" else 5, array.shape).astype("float32")
        elif key.endswith("label"):
            array[:] = rng.integers(0, 2, array.shape).astype("float32")
        else:
            array[:] = (rng.standard_normal(array.shape) * 0.1).astype("float32") + key.endswith("gamma")
    for key, array in exe.aux_dict.items():
        array[:] = float(key.endswith("var"))
    return exe


def test_every_builder_is_tried_small():
    builders = {models.about(n).build for n in models.list_models()}
    assert {models.about(n).build for n in SMALL} == builders


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_many_as_published(name):
    assert models.parameters_of(name) == PUBLISHED[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_parameters_are_about_as_many_as_printed(name):
    assert models.parameters_of(name) == pytest.approx(ROUNDED[name], rel=0.01)


@pytest.mark.parametrize("name", SMALL)
def test_forward_and_backward_give_finite_gradients_that_are_not_all_zero(name):
    exe = bound(name, **SMALL[name])
    exe.forward(is_train=True)
    exe.backward()
    out = exe.outputs[0].asnumpy()
    axis = 1 if name == "unet" else -1
    np.testing.assert_allclose(out.sum(axis=axis), 1, rtol=1e-5)
    for key, grad in exe.grad_dict.items():
        assert np.isfinite(grad.asnumpy()).all(), key
    silent = [
        k for k, g in exe.grad_dict.items()
        if k.endswith("weight") and not g.asnumpy().any()
    ]  # fmt: skip
    assert not silent


@pytest.mark.parametrize("name", ["resnet50", "gpt2", "lstm"])
def test_gradients_are_the_same_within_a_budget(name):
    net, shapes = models.get(name, **SMALL[name]), models.shapes_of(name, 2, **SMALL[name])
    with pytest.raises(mx.MemoryBudgetError) as error:
        net.memory_plan(mx.cpu(), memory_budget=1, **shapes)
    results = []
    for budget in (None, error.value.least_feasible_bytes):
        mx.random.seed(0)
        exe = bound(name, budget=budget, **SMALL[name])
        exe.forward(is_train=True)
        exe.backward()
        results.append({k: g.asnumpy() for k, g in exe.grad_dict.items()})
    assert all(np.array_equal(results[0][k], results[1][k]) for k in results[0])


def test_names_of_nodes_do_not_depend_on_what_was_made_before():
    for name in SMALL:
        assert models.get(name, **SMALL[name]).tojson() == models.get(name, **SMALL[name]).tojson(), name


def test_files_of_every_model_are_read_back():
    for name in SMALL:
        text = models.get(name, **SMALL[name]).tojson()
        assert mx.sym.load_json(text).tojson() == text, name


def test_one_set_of_options_serves_network_and_shapes():
    options = dict(steps=3, hidden=8, features=4)
    net, shapes = models.get("lstm_unrolled", **options), models.shapes_of("lstm_unrolled", 5, **options)
    assert shapes["t0_data"] == (5, 4) and shapes["l0_init_c"] == (5, 8)
    assert set(shapes) <= set(net.list_arguments())
    assert net.memory_plan(mx.cpu(), **shapes).peak_bytes > 0


def test_descriptions_name_the_inputs():
    for name in models.list_models():
        model = models.about(name)
        shapes = model.shapes_of(2)
        named = {k for k in shapes if not re.match(r"t[2-9]|t\d\d|l[1-9]", k)}
        assert all(k in model.description for k in named), name
        assert set(shapes) <= set(model.symbol().list_arguments()), name


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: models.get("resnet51"), mx.UnknownNameError, "Did you mean 'resnet50'"),
        (lambda: models.get("resnet50", clases=3), mx.OpAttributeError, "Did you mean 'classes'"),
        (lambda: models.resnet(51), mx.OpAttributeError, "depth must be one of"),
        (lambda: models.resnet(50, 3), mx.OpAttributeError, "version must be"),
        (lambda: models.resnet(50, stride_in="2x2"), mx.OpAttributeError, "stride_in"),
        (lambda: models.resnet_cifar(57), mx.OpAttributeError, "6n \\+ 2"),
        (lambda: models.resnet_cifar(170, 2), mx.OpAttributeError, "9n \\+ 2"),
        (lambda: models.vgg(17), mx.OpAttributeError, "depth must be one of"),
        (lambda: models.densenet(100), mx.OpAttributeError, "depth must be one of"),
        (lambda: models.mobilenet(3), mx.OpAttributeError, "version"),
        (lambda: models.mobilenet(multiplier=0), mx.OpAttributeError, "multiplier"),
        (lambda: models.unet(levels=0), mx.OpAttributeError, "levels"),
        (lambda: models.transformer_encoder(width=10, heads=3), mx.OpAttributeError, "multiple of heads"),
        (lambda: models.shapes_of("vgg11", image=(3, 4)), mx.OpAttributeError, "channels, height, width"),
        (lambda: models.shapes_of("vgg11", image=5), mx.OpAttributeError, "channels, height, width"),
        (
            lambda: models.shapes_of("vgg11", image=(3, "a", 4)),
            mx.OpAttributeError,
            "channels, height, width",
        ),
        (lambda: models.shapes_of("mlp", features=0), mx.OpAttributeError, "'data' of mlp would be"),
        (lambda: models.shapes_of("lenet", 0), mx.OpAttributeError, "'data' of lenet would be"),
        (lambda: models.transformer_decoder(layers=-1), mx.OpAttributeError, "layers must be at least 1"),
        (lambda: models.resnet(18, stages=(1, -1)), mx.OpAttributeError, "stages must be blocks"),
    ],
)
def test_what_cannot_be_built_says_why(call, error, says):
    with pytest.raises(error, match=says):
        call()


def outputs_for(exe, **tokens):
    """Outputs without dropout, after some inputs are replaced."""
    for key, values in tokens.items():
        exe.arg_dict[key][:] = np.asarray(values, "float32")
    exe.forward(is_train=False)
    return exe.outputs[0].asnumpy()


@pytest.mark.parametrize("name", ["gpt2", "transformer"])
def test_a_token_changes_nothing_before_it_and_something_behind(name):
    exe = bound(name, batch=1, **SMALL[name])
    a = outputs_for(exe, data=[[1, 2, 3, 4, 5, 6]])
    b = outputs_for(exe, data=[[1, 2, 3, 7, 5, 6]])
    assert np.array_equal(a[:3], b[:3])
    assert (a[3:] != b[3:]).any(axis=1).all()


def test_tokens_beyond_the_length_change_nothing():
    exe = bound("bert_base", batch=1, **SMALL["bert_base"])
    base = outputs_for(exe, data=[[1, 2, 3, 4, 5, 6]], length=[4])
    assert np.array_equal(base, outputs_for(exe, data=[[1, 2, 3, 4, 9, 9]], length=[4]))
    assert not np.array_equal(base, outputs_for(exe, data=[[1, 2, 9, 4, 9, 9]], length=[4]))
    exe = bound("transformer", batch=1, **SMALL["transformer"])
    base = outputs_for(exe, source=[[1, 2, 3, 4, 5]], source_count=[3])
    assert np.array_equal(base, outputs_for(exe, source=[[1, 2, 3, 9, 9]], source_count=[3]))
    assert not np.array_equal(base, outputs_for(exe, source=[[1, 2, 9, 9, 9]], source_count=[3]))


# -- against PyTorch ---------------------------------------------------------------------------


@pytest.mark.torch
def test_resnet_computes_what_pytorch_layers_of_the_same_weights_do():
    """A bottleneck network with strides and skips, layer by layer in PyTorch, from the same arrays."""
    torch = pytest.importorskip("torch")
    F = torch.nn.functional
    exe = bound("resnet50", stages=(2, 1), classes=4, image=(3, 16, 16))
    exe.forward(is_train=True)
    exe.backward()
    w = {k: torch.tensor(v.asnumpy(), requires_grad=True) for k, v in exe.arg_dict.items()}

    def unit(x, conv, bn, stride, pad):
        x = F.conv2d(x, w[f"{conv}_weight"], stride=stride, padding=pad)
        return F.batch_norm(x, None, None, w[f"{bn}_gamma"], w[f"{bn}_beta"], training=True, eps=1e-5)

    x = F.max_pool2d(F.relu(unit(w["data"], "stem_conv", "stem_bn", 2, 3)), 3, 2, 1)
    for name, stride, first in (
        ("stage1_block1", 1, True),
        ("stage1_block2", 1, False),
        ("stage2_block1", 2, True),
    ):
        out = F.relu(unit(x, f"{name}_conv1", f"{name}_bn1", 1, 0))
        out = F.relu(unit(out, f"{name}_conv2", f"{name}_bn2", stride, 1))
        out = unit(out, f"{name}_conv3", f"{name}_bn3", 1, 0)
        x = F.relu(out + (unit(x, f"{name}_skip_conv", f"{name}_skip_bn", stride, 0) if first else x))
    score = F.linear(x.mean((2, 3)), w["fc_weight"], w["fc_bias"])
    np.testing.assert_allclose(exe.outputs[0].asnumpy(), score.softmax(1).detach().numpy(), rtol=2e-4)
    F.cross_entropy(score, w["softmax_label"].detach().long(), reduction="sum").backward()
    for key in ("fc_weight", "stage1_block1_conv2_weight", "stage2_block1_skip_bn_gamma", "stem_conv_weight"):
        expected = w[key].grad.numpy()
        np.testing.assert_allclose(
            exe.grad_dict[key].asnumpy(), expected, rtol=1e-2, atol=1e-3 * abs(expected).max()
        )


@pytest.mark.torch
@pytest.mark.parametrize("pre_norm", [False, True])
def test_encoder_layer_computes_what_pytorch_s_does(pre_norm):
    torch = pytest.importorskip("torch")
    options = dict(
        layers=1, width=8, heads=2, hidden=16, vocabulary=11, length=6, segments=0, dropout=0.0, padded=False,
        pre_norm=pre_norm, classes=3,
    )  # fmt: skip
    exe = bound("bert_base", **options)
    exe.forward(is_train=True)
    w = {k: torch.tensor(v.asnumpy()) for k, v in exe.arg_dict.items()}
    layer = torch.nn.TransformerEncoderLayer(
        8, 2, 16, 0.0, "gelu", layer_norm_eps=1e-12, batch_first=True, norm_first=pre_norm
    )
    parts = ("query", "key", "value")
    layer.load_state_dict({
        "self_attn.in_proj_weight": torch.cat([w[f"layer0_self_{p}_weight"] for p in parts]),
        "self_attn.in_proj_bias": torch.cat([w[f"layer0_self_{p}_bias"] for p in parts]),
        "self_attn.out_proj.weight": w["layer0_self_out_weight"],
        "self_attn.out_proj.bias": w["layer0_self_out_bias"],
        "linear1.weight": w["layer0_ffn_in_weight"], "linear1.bias": w["layer0_ffn_in_bias"],
        "linear2.weight": w["layer0_ffn_out_weight"], "linear2.bias": w["layer0_ffn_out_bias"],
        "norm1.weight": w["layer0_self_norm_gamma"], "norm1.bias": w["layer0_self_norm_beta"],
        "norm2.weight": w["layer0_ffn_norm_gamma"], "norm2.bias": w["layer0_ffn_norm_beta"],
    })  # fmt: skip
    F = torch.nn.functional

    def norm(x, name):
        return F.layer_norm(x, (8,), w[f"{name}_gamma"], w[f"{name}_beta"], 1e-12)

    with torch.no_grad():
        x = norm(w["embed_weight"][w["data"].long()] + w["position_weight"], "embed_norm")
        x = layer(x)
        if pre_norm:
            x = norm(x, "norm")
        x = torch.tanh(F.linear(x[:, 0], w["pooler_weight"], w["pooler_bias"]))
        expected = F.linear(x, w["score_weight"], w["score_bias"]).softmax(-1).numpy()
    np.testing.assert_allclose(exe.outputs[0].asnumpy(), expected, rtol=1e-4)


@pytest.mark.torch
@pytest.mark.parametrize("tied", [False, True])
def test_lstm_has_as_many_parameters_as_pytorch_s(tied):
    torch = pytest.importorskip("torch")
    core = torch.nn.LSTM(20, 20, 2)
    count = sum(p.numel() for p in core.parameters()) + (1 if tied else 2) * 50 * 20 + 50
    assert models.parameters_of("lstm", hidden=20, vocabulary=50, tied=tied) == count


def test_a_language_model_can_be_trained_from_any_initializer():
    net = mx.models.get("lstm", layers=2, hidden=8, vocabulary=9)
    states = [(n, (2, 3, 8)) for n in ("lstm_state", "lstm_state_cell")]
    module = mx.mod.Module(net, ["data", *(n for n, _ in states)], ["softmax_label"])
    module.bind([("data", (4, 3)), *states], [("softmax_label", (12,))])
    module.init_params(mx.init.Xavier())
    vector = module.get_params()[0]["lstm_parameters"].asnumpy()
    assert vector.std() > 0.1 and set(vector[-4 * 8 * 4 :].tolist()) == {
        0.0,
        1.0,
    }  # biases, of the forget gates 1
