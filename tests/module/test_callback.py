"""Callbacks: MXNet's log lines, checkpoints when they are due, and the progress bar."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import pytest

from mxlite import ndarray as nd
from mxlite.module.metrics import metric
from mxlite.module.watch import callback
from mxlite.module.watch.callback import BatchEndParam
from mxlite.module.watch.progress import TqdmProgress


def accuracy(right: int = 3, of: int = 4) -> metric.EvalMetric:
    m = metric.Accuracy()
    m.update([nd.array([1] * of)], [nd.array([[0, 1]] * right + [[1, 0]] * (of - right))])
    return m


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO)
    return lambda: [r.getMessage() for r in caplog.records]


def test_speedometer_writes_mxnets_line(lines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 2))  # two seconds between any two looks at it
    monkeypatch.setattr(callback.time, "perf_counter", lambda: float(next(clock)))
    meter, m = callback.Speedometer(batch_size=32, frequent=2), accuracy()
    for n in range(5):
        meter(BatchEndParam(0, n, m, None))
    assert lines() == [
        "Epoch[0] Batch [0-2]\tSpeed: 32.00 samples/sec\taccuracy=0.750000",
        "Epoch[0] Batch [2-4]\tSpeed: 32.00 samples/sec\taccuracy=nan",
    ]
    assert m.get_global()[1] == 0.75


def test_speedometer_without_reset_counts_from_the_start(lines: Any) -> None:
    meter, m = callback.Speedometer(1, 2, auto_reset=False), metric.create([accuracy(), accuracy(1)])
    for n in (0, 1, 2, 3, 4, 0, 1, 2):
        meter(BatchEndParam(1, n, m, None))
    heads = [line.split("\t")[0] for line in lines()]
    assert heads == ["Epoch[1] Batch [0-2]", "Epoch[1] Batch [0-4]", "Epoch[1] Batch [0-2]"]
    assert all(line.endswith("\taccuracy=0.750000\taccuracy=0.250000") for line in lines())


def test_speedometer_works_without_a_metric(lines: Any) -> None:
    meter = callback.Speedometer(1, 1)
    for n in range(2):
        meter(BatchEndParam(3, n, None, None))
    assert lines()[0].startswith("Iter[3] Batch [1]\tSpeed: ")


def test_train_metric_is_logged_every_period(lines: Any) -> None:
    m, log = accuracy(), callback.log_train_metric(2, auto_reset=True)
    for n in range(3):
        log(BatchEndParam(0, n, m, None))
    assert lines() == ["Iter[0] Batch[0] Train-accuracy=0.750000", "Iter[0] Batch[2] Train-accuracy=nan"]


def test_bar_of_characters(lines: Any) -> None:
    bar = callback.ProgressBar(total=4, length=8)
    for n in (1, 4):
        bar(BatchEndParam(0, n, None, None))
    assert lines() == ["[==------] 25%\r", "[========] 100%\r"]


def test_validation_metrics_are_logged(lines: Any) -> None:
    callback.LogValidationMetricsCallback()(BatchEndParam(2, 0, accuracy(), None))
    assert lines() == ["Epoch[2] Validation-accuracy=0.750000"]


def test_checkpoints_are_written_when_due(tmp_path: Path, lines: Any) -> None:
    class Net:
        def save(self, path: str) -> None:
            Path(path).write_text("{}")

    prefix = str(tmp_path / "net")
    save = callback.do_checkpoint(prefix, period=2)
    for epoch in range(4):
        save(epoch, Net(), {"w": nd.array([epoch])}, {"m": nd.array([9])})
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "net-0002.params",
        "net-0004.params",
        "net-symbol.json",
    ]
    loaded = nd.load(f"{prefix}-0004.params")
    assert {k: v.asnumpy().tolist() for k, v in loaded.items()} == {"arg:w": [3.0], "aux:m": [9.0]}
    assert lines()[-1] == f'Saved checkpoint to "{prefix}-0004.params"'


def test_a_modules_own_checkpoint_is_called_when_due() -> None:
    calls = []

    class Mod:
        def save_checkpoint(self, *args: Any) -> None:
            calls.append(args)

    save = callback.module_checkpoint(Mod(), "p", period=3, save_optimizer_states=True)
    for epoch in range(7):
        save(epoch)
    assert calls == [("p", 3, True), ("p", 6, True)]


def test_progress_shows_loss_accuracy_speed_and_peak() -> None:
    text = io.StringIO()
    bar = TqdmProgress(32, total=3, num_epoch=2, peak_bytes=32 * 2**20, file=text, min_interval_s=0)
    m = metric.create(["ce", "acc"])
    for epoch in range(2):
        for n in range(3):
            m.update([nd.array([1])], [nd.array([[0.5, 0.5]])])
            bar(BatchEndParam(epoch, n, m, {}))
        bar(epoch, None, {}, {})
    out = text.getvalue()
    for piece in (
        "Epoch 1/2",
        "Epoch 2/2",
        "3/3",
        "loss=0.6931",
        "accuracy=0.0000",
        "images/s",
        "peak 32.00 MiB",
    ):
        assert piece in out, piece


def test_progress_can_be_left_and_resumed_in_the_middle() -> None:
    text = io.StringIO()
    bar = TqdmProgress(4, total=10, file=text, min_interval_s=0)
    bar.close()
    for n in (6, 7):  # resumed at batch 6
        bar(BatchEndParam(0, n, None, {}))
    bar.close()
    bar.close()
    assert "8/10" in text.getvalue() and "Epoch 1:" in text.getvalue()
