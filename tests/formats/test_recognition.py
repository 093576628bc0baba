"""Operators that are spelled out in smaller ones are found again, and only those."""

import numpy as np
import pytest

from mxlite.formats.building import Builder, evaluate
from mxlite.formats.building.recognition import recognized
from mxlite.symbol import Group


def variable(b, name, *shape):
    array = np.random.default_rng(len(name) + sum(shape)).normal(size=shape).astype("float32")
    return b.variable(name, shape, array.dtype, array)


def found(value):
    """The operator by which a value is made, after asserting that it computes the same."""
    b = value.builder
    new = recognized(value)
    before, after = evaluate(Group([b.output(value, "before"), b.output(new, "after")]), b.arrays)
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)
    return new.entry.node.op.op_name


def layer_norm(b, x, axis=-1, eps=1e-5, square=lambda c: c**2.0):
    centred = x - b.reduce("mean", x, [axis])
    deviation = b.op("sqrt", b.reduce("mean", square(centred), [axis]) + eps)
    width = x.shape[-1]
    return (centred / deviation) * variable(b, "gamma", width) + variable(b, "beta", width)


@pytest.mark.parametrize("square", [lambda c: c**2.0, lambda c: c * c, lambda c: c.builder.op("square", c)])
def test_a_layer_normalization(square):
    b = Builder("t")
    assert found(layer_norm(b, variable(b, "x", 3, 4), square=square)) == "LayerNorm"


def test_what_is_no_layer_normalization():
    b = Builder("t")
    assert found(layer_norm(b, variable(b, "x", 4, 4), axis=0)) == "broadcast_add"
    assert found(layer_norm(b, variable(b, "x", 3, 4), square=lambda c: c * c * 2.0)) == "broadcast_add"
    assert found(variable(b, "x", 3, 4) * variable(b, "y", 4) + variable(b, "z", 4)) == "broadcast_add"


def test_a_gaussian_error_linear_unit():
    b = Builder("t")
    x = variable(b, "x", 3, 4)
    gate = b.op("erf", x / 2**0.5) + 1.0
    assert found((x * gate) * 0.5) == "gelu"
    assert found((x * 0.5) * gate) == "gelu"
    assert found(x * (b.op("erf", x * 0.5**0.5) + 1.0) * 0.5) == "gelu"
    assert found((x * gate) * 0.4) == "_mul_scalar"
    assert found((variable(b, "y", 3, 4) * gate) * 0.5) == "_mul_scalar"
    assert found(x * (b.op("erf", x / 2.0) + 1.0) * 0.5) == "_mul_scalar"


def scores(b, query, key, scale=0.5, both=False):
    turned = b.transpose(key, (0, 1, 3, 2))
    if both:
        return b.matmul(query * scale**0.5, turned * scale**0.5)
    return b.matmul(query, turned) * scale


@pytest.mark.parametrize("both", [False, True], ids=["scores scaled", "sides scaled"])
@pytest.mark.parametrize("mask", ["none", "causal", "window", "samples", "learned"])
def test_an_attention(both, mask):
    b = Builder("t")
    query, key, value = (variable(b, n, 2, 3, 5, 4) for n in ("query", "key", "values"))
    added = {
        "none": None,
        "causal": b.constant(np.triu(np.full((5, 5), -np.inf, "float32"), 1)),
        "window": b.constant(np.triu(np.full((5, 5), -np.inf, "float32"), 2)),
        "samples": b.constant(np.random.default_rng(1).normal(size=(2, 1, 1, 5)).astype("float32")),
        "learned": variable(b, "bias", 1, 3, 5, 5),
    }[mask]
    found_scores = scores(b, query, key, both=both)
    weights = found_scores if added is None else found_scores + added
    out = b.matmul(b.op("softmax", weights, axis=-1), value)
    assert found(out) == "scaled_dot_product_attention"
    attrs = recognized(out).entry.node.attrs
    assert attrs.causal == (mask == "causal") and attrs.use_mask == (mask not in ("none", "causal"))


def test_what_is_no_attention():
    b = Builder("t")
    query, key, value = (variable(b, n, 2, 3, 5, 5) for n in ("query", "key", "values"))
    made = scores(b, query, key)
    assert found(b.matmul(b.op("softmax", made, axis=2), value)) == "batch_dot"
    assert found(b.matmul(b.op("softmax", made, axis=-1, temperature=2.0), value)) == "batch_dot"
    assert found(b.matmul(value, b.op("softmax", made, axis=-1))) == "batch_dot"
    assert found(b.matmul(b.op("softmax", query, axis=-1), value)) == "batch_dot"
