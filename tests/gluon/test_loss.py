"""Losses beside PyTorch's and beside their formulas."""

import numpy as np
import pytest

import mxlite as mx
from mxlite import gluon

RNG = np.random.default_rng(1)
LOSS = gluon.loss


def run(loss, *arrays):
    """The loss and the gradient of its sum, call by call and as a program, which must agree."""
    found = []
    for _ in range(2):
        inputs = [mx.nd.array(a) for a in arrays]
        inputs[0].attach_grad()
        with mx.autograd.record():
            out = loss(*inputs)
        out.backward()
        found.append((out.asnumpy(), inputs[0].grad.asnumpy()))
        loss.hybridize()
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return found[0]


def normal(*shape):
    return RNG.standard_normal(shape).astype("f")


P, T = normal(4, 5), normal(4, 5)
Z = (T > 0).astype("f")
S = np.sign(T)
C = np.array([0, 3, 1, 4], "f")
Q = np.exp(T) / np.exp(T).sum(1, keepdims=True)


def log_softmax(x):
    return x - x.max(-1, keepdims=True) - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))


def log_sigmoid(x):
    return -np.logaddexp(0, -x)


@pytest.mark.parametrize(
    ("loss", "arrays", "expected"),
    [
        (LOSS.L2Loss(), (P, T), ((P - T) ** 2 / 2).mean(1)),
        (LOSS.L2Loss(weight=3.0), (P, T), (3 * (P - T) ** 2 / 2).mean(1)),
        (LOSS.L1Loss(), (P, T), abs(P - T).mean(1)),
        (LOSS.L1Loss(), (P, T, normal(4, 1) * 0 + 2), abs(P - T).mean(1) * 2),
        (LOSS.L1Loss(batch_axis=1), (P, T), abs(P - T).mean(0)),
        (LOSS.HuberLoss(rho=0.5), (P, T),
         np.where(abs(P - T) > 0.5, abs(P - T) - 0.25, (P - T) ** 2).mean(1)),
        (LOSS.SigmoidBCELoss(), (P, Z), -(Z * log_sigmoid(P) + (1 - Z) * log_sigmoid(-P)).mean(1)),
        (LOSS.SigmoidBCELoss(from_sigmoid=True), (Q, Z), -(Z * np.log(Q) + (1 - Z) * np.log(1 - Q)).mean(1)),
        (LOSS.SoftmaxCELoss(), (P, C), -log_softmax(P)[range(4), C.astype(int)]),
        (LOSS.SoftmaxCELoss(from_logits=True), (log_softmax(P), C), -log_softmax(P)[range(4), C.astype(int)]),
        (LOSS.SoftmaxCELoss(sparse_label=False), (P, Q), -(Q * log_softmax(P)).sum(1)),
        (LOSS.KLDivLoss(), (log_softmax(P), Q), (Q * (np.log(Q) - log_softmax(P))).sum(1)),
        (LOSS.KLDivLoss(from_logits=False), (P, Q), (Q * (np.log(Q) - log_softmax(P))).sum(1)),
        (LOSS.HingeLoss(), (P, S), np.maximum(0, 1 - P * S).mean(1)),
        (LOSS.SquaredHingeLoss(margin=0.5), (P, S), (np.maximum(0, 0.5 - P * S) ** 2).mean(1)),
        (LOSS.LogisticLoss(), (P, S), np.logaddexp(0, -P * S).mean(1)),
        (LOSS.LogisticLoss(label_format="binary"), (P, Z), np.logaddexp(0, -P * S).mean(1)),
        (LOSS.TripletLoss(), (P, T, Z), np.maximum(0, ((P - T) ** 2 - (P - Z) ** 2).sum(1) + 1)),
        (LOSS.PoissonNLLLoss(), (P, Z), (np.exp(P) - Z * P).mean().reshape(1)),
        (LOSS.PoissonNLLLoss(from_logits=False), (np.exp(P), Z), (np.exp(P) - Z * P).mean().reshape(1)),
    ],
)  # fmt: skip
def test_a_loss_is_its_formula(loss, arrays, expected):
    out, _ = run(loss, *arrays)
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.torch
def test_gradients_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    f = torch.nn.functional
    counts = RNG.integers(0, 5, (4, 5)).astype("f")
    for loss, (x, *rest), theirs in [
        (LOSS.SoftmaxCrossEntropyLoss(), (P, C), lambda p, c: f.cross_entropy(p, c.long(), reduction="sum")),
        (
            LOSS.SigmoidBCELoss(),
            (P, Z),
            lambda p, z: f.binary_cross_entropy_with_logits(p, z, reduction="sum") / 5,
        ),
        (LOSS.HuberLoss(), (P, T), lambda p, t: f.smooth_l1_loss(p, t, reduction="sum") / 5),
        (
            LOSS.PoissonNLLLoss(compute_full=True),
            (P, counts),
            lambda p, t: f.poisson_nll_loss(p, t, log_input=True, full=True),
        ),
        (LOSS.KLDivLoss(), (log_softmax(P), Q), lambda p, q: f.kl_div(p, q, reduction="sum")),
        (
            LOSS.CosineEmbeddingLoss(margin=0.1),
            (P, T, np.sign(C - 0.5)),
            lambda a, b, y: f.cosine_embedding_loss(a, b, y, margin=0.1, reduction="sum"),
        ),
    ]:
        out, dx = run(loss, x, *rest)
        tx = torch.from_numpy(x).requires_grad_()
        value = theirs(tx, *map(torch.from_numpy, rest))
        value.backward()
        np.testing.assert_allclose(out.sum(), value.item(), rtol=1e-4)
        np.testing.assert_allclose(dx, tx.grad.numpy(), atol=2e-5)


@pytest.mark.torch
@pytest.mark.parametrize(("layout", "label_layout"), [("NTC", "NT"), ("TNC", "TN")])
def test_ctc_is_pytorchs_with_the_blank_last(layout, label_layout):
    torch = pytest.importorskip("torch")
    x, labels = normal(3, 8, 6), np.array([[0, 1, 2], [4, 4, -1], [3, -1, -1]], "f")
    lengths, times = np.array([3, 2, 1], "f"), np.array([8, 6, 7], "f")
    for given in (False, True):
        mine = (x if layout == "NTC" else x.swapaxes(0, 1), labels if label_layout == "NT" else labels.T)
        extra = (times, lengths) if given else ()
        out, dx = run(LOSS.CTCLoss(layout, label_layout), *map(np.ascontiguousarray, mine), *extra)
        tx = torch.from_numpy(x).requires_grad_()
        theirs = torch.nn.functional.ctc_loss(
            tx.log_softmax(-1).transpose(0, 1), torch.from_numpy(np.maximum(labels, 0)).long(),
            torch.from_numpy(times if given else times * 0 + 8).long(), torch.from_numpy(lengths).long(),
            blank=5, reduction="none",
        )  # fmt: skip
        theirs.sum().backward()
        np.testing.assert_allclose(out, theirs.detach().numpy(), rtol=1e-4)
        np.testing.assert_allclose(dx if layout == "NTC" else dx.swapaxes(0, 1), tx.grad.numpy(), atol=1e-4)


def test_positive_samples_may_weigh_more():
    weight = np.full((1, 5), 3, "f")
    out, _ = run(Weighed(), P, Z, weight)
    expected = -(3 * Z * log_sigmoid(P) + (1 - Z) * log_sigmoid(-P)).mean(1)
    np.testing.assert_allclose(out, expected, rtol=1e-5)


class Weighed(LOSS.SigmoidBCELoss):
    def hybrid_forward(self, F, pred, label, pos_weight):
        return super().hybrid_forward(F, pred, label, None, pos_weight)


def test_smoothed_metric_learning_is_its_formula():
    apart = ((P[:, None] - T[None]) ** 2).sum(2)
    label = np.eye(4) * 0.7 + (1 - np.eye(4)) * 0.3 / 3
    out, _ = run(LOSS.SDMLLoss(), P, T)
    np.testing.assert_allclose(out, (label * (np.log(label) - log_softmax(-apart))).sum(1), rtol=1e-4)


def test_a_wrong_option_is_told():
    with pytest.raises(mx.OpAttributeError, match="layout must be one of"):
        LOSS.CTCLoss("CNT")
    with pytest.raises(mx.OpAttributeError, match="label_format must be"):
        LOSS.LogisticLoss(label_format="bool")
    assert repr(LOSS.L2Loss()) == "L2Loss(batch_axis=0, w=1.0)"


def test_losses_of_users_weigh_as_those_of_mxnet():
    class Distance(gluon.loss.Loss):
        def hybrid_forward(self, F, pred, label, sample_weight=None):
            label = gluon.loss._reshape_like(F, label, pred)
            return gluon.loss._apply_weighting(F, F.abs(pred - label), self._weight, sample_weight)

    loss = Distance(weight=2.0, batch_axis=0)
    found = loss(mx.nd.array([[1], [5]]), mx.nd.array([2, 2]), mx.nd.array([[1], [0.5]]))
    assert found.asnumpy().tolist() == [[2], [3]]
