"""Metrics against MXNet 1.9.1's numbers and scikit-learn."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from mxlite.core import MXLiteError, OpAttributeError, ShapeError, UnknownNameError
from mxlite.module.metrics import metric
from mxlite.ndarray import array

LABELS = [[array([0, 1, 2, 1])], [array([2, 2])]]
PREDS = [
    [array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.2, 0.3, 0.5], [0.3, 0.4, 0.3]])],
    [array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])],
]


def value(m: metric.EvalMetric, labels: Any = LABELS, preds: Any = PREDS) -> tuple[str, float]:
    for label, pred in zip(labels, preds):
        m.update(label, pred)
    return m.get()


@pytest.mark.parametrize(
    "m, expected",
    [
        (metric.create("acc"), ("accuracy", 0.6666666666666666)),
        (metric.create("ce"), ("cross-entropy", 0.9796893199284872)),
        (metric.create("nll_loss"), ("nll-loss", 0.9796893199284872)),
        (metric.create("top_k_accuracy", top_k=2), ("top_k_accuracy_2", 0.8333333333333334)),
        (metric.Perplexity(1), ("perplexity", 2.3119742293114918)),
        (metric.Perplexity(None), ("perplexity", 2.663628577049781)),
        (metric.Loss(), ("loss", 0.3333333333333333)),
        (metric.create(lambda label, pred: (3.0, 4)), ("custom(<lambda>)", 0.75)),
    ],
)
def test_classification_metrics_are_mxnets(m: metric.EvalMetric, expected: tuple[str, float]) -> None:
    name, number = value(m)
    assert name == expected[0]
    assert number == pytest.approx(expected[1], rel=1e-6)


@pytest.mark.parametrize(
    "name, expected", [("mse", 3.2083333134651184), ("mae", 1.4166666567325592), ("rmse", 1.7131530046463013)]
)
def test_regression_metrics_average_over_batches_as_mxnets(name: str, expected: float) -> None:
    labels = [[array([1, 2, 3])], [array([1, 1])]]
    preds = [[array([1.5, 2, 5])], [array([2, 4])]]
    assert value(metric.create(name), labels, preds) == (name, pytest.approx(expected, rel=1e-6))


@pytest.mark.parametrize(
    "average, local, whole", [("macro", 2 / 3, 2 / 3), ("micro", 2 / 3, 0.6666666666666665)]
)
def test_f1_is_mxnets(average: str, local: float, whole: float) -> None:
    m = metric.F1(average=average)
    m.update([array([1, 0, 1, 1])], [array([[0.4, 0.6], [0.3, 0.7], [0.8, 0.2], [0.1, 0.9]])])
    m.reset_local()
    m.update([array([0, 1])], [array([[0.4, 0.6], [0.3, 0.7]])])
    assert m.get() == ("f1", pytest.approx(local))
    assert m.get_global() == ("f1", pytest.approx(whole))


BINARY = [
    ([1, 0, 1, 1], [[0.4, 0.6], [0.3, 0.7], [0.8, 0.2], [0.1, 0.9]]),
    ([0, 1, 0], [[0.4, 0.6], [0.3, 0.7], [0.9, 0.1]]),
]


@pytest.mark.parametrize(
    "name, average, expected",
    [
        ("mcc", "macro", 0.08333333333333334),
        ("mcc", "micro", 0.09128709291752768),
        ("pcc", None, 0.09128709291752768),
        ("pearsonr", "macro", 0.20108156009310885),
        ("pearsonr", "micro", 0.24759377737138724),
    ],
)
def test_correlations_are_mxnets(name: str, average: str | None, expected: float) -> None:
    m = metric.create(name, **({} if average is None else {"average": average}))
    for label, pred in BINARY:
        scores = np.array(pred, "float32")
        m.update([array(label)], [array(scores[:, 1] if name == "pearsonr" else scores)])
    assert m.get() == (name, pytest.approx(expected)) == m.get_global()
    m.reset_local()
    assert math.isnan(m.get()[1]) and m.get_global()[1] == pytest.approx(expected)
    again = metric.create(json.dumps(m.get_config()))
    assert type(again) is type(m) and again.get_config() == m.get_config()


def test_pcc_learns_of_classes_as_they_come() -> None:
    m = metric.PCC()
    m.update([array([0, 1, 2, 3, 3, 2])], [array([0, 2, 2, 3, 3, 0])])
    assert m.get() == ("pcc", pytest.approx(0.560448538317805))
    m.reset()
    m.update([array([0, 1])], [array([0, 1])])
    m.update([array([2, 3])], [array([[0, 0, 1, 0], [0, 0, 0, 1]])])
    assert m.get()[1] == pytest.approx(1)
    m.reset()
    m.update([array([1, 1])], [array([1, 1])])
    assert math.isnan(m.get()[1])
    with pytest.raises(ShapeError, match="class of 0 or more"):
        m.update([array([-1])], [array([0])])
    assert value(metric.MCC(), [[array([1, 1])]], [[array([[0, 1], [0, 1]])]]) == ("mcc", 0)
    assert math.isnan(value(metric.PearsonCorrelation(), [[array([1, 1])]], [[array([1, 2])]])[1])


def test_metrics_agree_with_scikit_learn() -> None:
    sk = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    label = rng.integers(0, 5, 200)
    score = rng.random((200, 5)).astype("float32")
    score /= score.sum(1, keepdims=True)
    batch = ([array(label)], [array(score)])
    exact = score.astype("float64") / score.sum(1, dtype="float64")[:, None]
    for m, expected in [
        (metric.Accuracy(), sk.accuracy_score(label, score.argmax(1))),
        (metric.TopKAccuracy(3), sk.top_k_accuracy_score(label, score, k=3)),
        (
            metric.CrossEntropy(),
            sk.log_loss(label, exact),
        ),
        (metric.MSE(), sk.mean_squared_error(np.eye(5)[label], score)),
    ]:
        m.update(*(([array(np.eye(5)[label])], batch[1]) if isinstance(m, metric.MSE) else batch))
        assert m.get()[1] == pytest.approx(expected, rel=1e-5), m.name
    two = label % 2
    m = metric.F1(average="micro")
    for part in np.split(np.arange(200), 4):
        m.update([array(two[part])], [array(score[part][:, :2])])
    assert m.get()[1] == pytest.approx(sk.f1_score(two, score[:, :2].argmax(1)))


def test_local_and_global_values_part_ways() -> None:
    m = metric.Accuracy()
    assert math.isnan(m.get()[1]) and math.isnan(m.get_global()[1])
    m.update(LABELS[0], PREDS[0])
    m.reset_local()
    assert math.isnan(m.get()[1]) and m.get_global()[1] == 0.75
    m.update(LABELS[1], PREDS[1])
    assert m.get()[1] == 0.5 and m.get_global()[1] == pytest.approx(2 / 3)
    m.reset()
    assert math.isnan(m.get_global()[1])


def test_several_metrics_at_once() -> None:
    m = metric.create(["acc", metric.CrossEntropy(), lambda label, pred: 1.0])
    m.update(LABELS[0], PREDS[0])
    names, values = m.get()
    assert names == ["accuracy", "cross-entropy", "custom(<lambda>)"]
    assert values == [0.75, pytest.approx(0.9780057668685913), 1.0]
    assert m.get_global_name_value() == m.get_name_value() == list(zip(names, values))
    assert str(m).startswith("EvalMetric: {'accuracy': 0.75")
    assert m.get_metric(0).name == "accuracy"
    with pytest.raises(UnknownNameError, match="metric 3"):
        m.get_metric(3)
    m.reset()
    assert all(math.isnan(v) for v in m.get()[1])


def test_names_choose_arrays() -> None:
    m = metric.Accuracy(output_names=["b"], label_names=["y"])
    m.update_dict({"x": array([9]), "y": array([1])}, {"a": array([[1, 0]]), "b": array([[0, 1]])})
    assert m.get()[1] == 1.0
    both = metric.CompositeEvalMetric([metric.Accuracy(), "ce"], output_names=["b"], label_names=["y"])
    both.update_dict({"x": array([9]), "y": array([1])}, {"a": array([[1, 0]]), "b": array([[0, 1]])})
    assert both.get()[1] == [1.0, pytest.approx(0.0, abs=1e-6)]


def test_config_creates_the_same_metric() -> None:
    for m in (
        metric.Accuracy(axis=2),
        metric.TopKAccuracy(3),
        metric.Perplexity(0),
        metric.F1(average="micro"),
    ):
        config = m.get_config()
        again = metric.create(config.pop("metric"), **config)
        assert type(again) is type(m) and again.get_config() == m.get_config() and again.name == m.name
    with pytest.raises(NotImplementedError, match="function"):
        metric.np(lambda label, pred: 0).get_config()


def test_function_metrics_may_leave_outputs_out() -> None:
    def error(label: np.ndarray, pred: np.ndarray) -> float:
        return float(np.abs(label - pred).sum())

    m = metric.np(error)
    assert m.name == "error"
    with pytest.raises(ShapeError, match=r"number of labels, 1,.*2"):
        m.update([array([1])], [array([1]), array([2])])
    m = metric.np(error, allow_extra_outputs=True)
    m.update([array([1])], [array([3]), array([2])])
    assert m.get() == ("error", 2.0)


def test_ignored_labels_may_be_out_of_range() -> None:
    m = metric.Perplexity(-1)
    m.update([array([[0, -1]])], [array([[0.5, 0.5], [1.0, 0.0]])])
    assert m.get()[1] == pytest.approx(2.0)
    m.reset()
    m.update([array([-1])], [array([[0.5, 0.5]])])
    assert math.isnan(m.get()[1])


@pytest.mark.parametrize(
    "name, label, pred, words",
    [
        ("acc", [0, 1], [[1.0, 0.0]], "2 labels.*1 predictions"),
        ("acc", [0, 1], [1.0, 0.0, 1.0], "no axis 1"),
        ("ce", [0, 1], [[1.0, 0.0]], r"\(1, 2\) for 2 labels"),
        ("ce", [0, 2], [[1.0, 0.0], [1.0, 0.0]], "0 to 2.*2 classes"),
        ("ce", [-1], [[1.0, 0.0]], "-1 to -1.*2 classes"),
        ("mse", [0, 1], [[1.0, 0.0]], r"labels \(2, 1\).*\(1, 2\)"),
        ("f1", [0, 1, 2], [[1.0, 0.0]] * 3, "two classes"),
        ("f1", [0, 1], [[1.0, 0.0]] * 3, r"\(3, 2\) for 2"),
    ],
)
def test_shapes_that_do_not_fit_are_named(name: str, label: list[int], pred: Any, words: str) -> None:
    m = metric.create(name)
    with pytest.raises((MXLiteError, ValueError), match=words):
        m.update([array(label)], [array(pred)])
    assert math.isnan(m.get()[1])


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'accuracy'"):
        metric.create("acuracy")
    with pytest.raises(OpAttributeError, match="Did you mean 'top_k'"):
        metric.create("top_k_accuracy", topk=5)
    with pytest.raises(ValueError, match="above 1"):
        metric.TopKAccuracy(1)
    with pytest.raises(ValueError, match="macro"):
        metric.F1(average="mean")
    with pytest.raises(ShapeError, match="number of labels, 1,"):
        metric.Accuracy().update([array([1])], PREDS[0] * 2)


def test_a_users_metric_with_its_own_sums_works() -> None:
    class Count(metric.EvalMetric):
        def __init__(self) -> None:
            super().__init__("count")

        def update(self, labels: Any, preds: Any) -> None:
            self.sum_metric += 6
            self.num_inst += 2

    m = metric.create([Count()])
    m.update(*([LABELS[0], PREDS[0]]))
    assert m.get_name_value() == m.get_global_name_value() == [("count", 3.0)]


def test_a_nameless_function_gives_its_metric_a_name_that_says_so():
    assert metric.np(lambda label, pred: 0).name == "custom(<lambda>)"
    assert metric.np(lambda label, pred: 0, name="mine").name == "mine"


def test_perplexity_takes_a_label_beyond_the_classes_for_the_last_one():
    """As MXNet's `pick` does; vocabularies that begin at 1 come to it."""
    pred = np.array([[0.5, 0.2, 0.3], [0.1, 0.1, 0.8], [0.6, 0.3, 0.1]], "float32")
    for ignore in (None, 0):
        m = metric.Perplexity(ignore)
        m.update([np.array([3, 2, -1])], [pred])
        want = np.exp(-np.log([0.3, 0.8, 0.6]).mean())
        assert m.get()[1] == pytest.approx(want, rel=1e-6)
        op, options = m.operation(np.array([3, 2, -1]), pred)  # what a device adds up
        sums, taken = np.zeros(4), np.zeros(1)
        op.forward(np, op.Attrs(**options), sums, taken, np.array([3, 2, -1]), pred)
        assert np.exp(sums[2] / sums[3]) == pytest.approx(want, rel=1e-6), sums


def test_a_metric_has_further_names():
    @metric.register
    @metric.alias("second-name", "third-name")
    class FirstName(metric.EvalMetric):
        def __init__(self):
            super().__init__("first")

    assert type(metric.create("third-name")) is type(metric.create("firstname")) is FirstName
