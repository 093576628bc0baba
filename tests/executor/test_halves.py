"""Of every kind of network: in mixed precision it never needs more bytes than in float32."""

from __future__ import annotations

from typing import Any

import pytest

import mxlite as mx
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.onednn import library

pytestmark = pytest.mark.skipif(
    library() is None or not usable(), reason="reference kernels widen what they read"
)
BODY = dict(layers=1, width=128, heads=4, hidden=512, vocabulary=300, length=64)
TOKENS = dict(data=(8, 64), segment=(8, 64), length=(8,))


def image(batch: int, size: int, channels: int = 3) -> dict[str, tuple[int, ...]]:
    return {"data": (batch, channels, size, size)}


NETWORKS: dict[str, tuple[str, dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "perceptron": ("mlp", {}, dict(data=(1024, 784))),
    "LeNet": ("lenet", {}, image(64, 28, 1)),
    "residual": ("resnet18", {}, image(4, 64)),
    "residual, norms first": ("resnet18_v2", {}, image(4, 64)),
    "bottlenecks": ("resnet50", {}, image(4, 64)),
    "residual, narrow": ("resnet20_cifar", {}, image(16, 32)),
    "VGG": ("vgg11_bn", {}, image(4, 64)),
    "channels apart": ("mobilenet_v1", {}, image(8, 64)),
    "U": ("unet", {"width": 16, "levels": 3}, image(4, 64)),
    "recurrent": ("lstm", {"hidden": 64, "vocabulary": 500}, mx.models.shapes_of("lstm", 16, hidden=64)),
    "recurrent, with its loss": (
        "lstm",
        {"hidden": 64, "vocabulary": 10_000, "loss": "cross_entropy"},
        mx.models.shapes_of("lstm", 16, hidden=64),
    ),
    "encoder": ("bert_base", BODY, TOKENS),
    "encoder, norms first": ("bert_base", BODY | {"pre_norm": True}, TOKENS),
    "decoder": ("gpt2", BODY, dict(data=(8, 64))),
}


def needs(net: Any, **how: Any) -> list[int]:
    """Bytes without a budget, and of all that is kept within one."""
    return [net.memory_plan(mx.cpu(), memory_budget=b, **how).peak_bytes for b in (None, 2**60)]


def least(net: Any, **how: Any) -> int:
    with pytest.raises(mx.MemoryBudgetError) as error:
        net.memory_plan(mx.cpu(), memory_budget=1, **how)
    return error.value.least_feasible_bytes


@pytest.mark.parametrize("kind", NETWORKS)
def test_training_takes_no_more(kind):
    name, options, shapes = NETWORKS[kind]
    net, sgd = mx.models.get(name, **options), mx.optimizer.SGD(momentum=0.9)
    full, mixed = (needs(net, amp=amp, optimizer=sgd, **shapes) for amp in (None, "bfloat16"))
    assert [a <= b for a, b in zip(mixed, full)] == [True, True], (mixed, full)


@pytest.mark.parametrize(
    "kind",
    [
        "perceptron",
        "LeNet",
        "residual, narrow",
        "VGG",
        "U",
        "recurrent, with its loss",
        "encoder",
        "decoder",
    ],
)
def test_the_least_of_training_is_no_more(kind):
    name, options, shapes = NETWORKS[kind]
    net, sgd = mx.models.get(name, **options), mx.optimizer.SGD(momentum=0.9)
    assert least(net, amp="bfloat16", optimizer=sgd, **shapes) <= least(net, optimizer=sgd, **shapes)


@pytest.mark.parametrize("kind", NETWORKS)
def test_inference_with_narrow_parameters_takes_no_more(kind):
    name, options, shapes = NETWORKS[kind]
    net = mx.models.get(name, **options)
    full = needs(net, grad_req="null", **shapes)
    types = net.amp_types("bfloat16", **shapes)
    mixed = needs(net, grad_req="null", amp="bfloat16", type_dict=types, **shapes)
    assert [a <= b for a, b in zip(mixed, full)] == [True, True], (mixed, full)
