"""Metrics of many rows on a GPU: blocks share them, and what they find is added up."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite import ops
from mxlite.backends import Backend
from mxlite.backends.gpu.kernels import table
from mxlite.backends.gpu.kernels.loss import metric_sums
from tests.backends.gpu.gpu_case import agree
from tests.conformance.cases import CASES
from tests.emulators.emulated_device import compiler, EmulatedDevice

CASE_NAMES = [n for n in CASES if n.startswith("_metric_")]


@pytest.mark.skipif(compiler is None, reason="g++ is not installed")
@pytest.mark.parametrize("name", CASE_NAMES)
def test_several_blocks_find_what_one_does(name, monkeypatch):
    monkeypatch.setattr(metric_sums, "FEW", 2)  # rows of a block, so that all are short of them
    monkeypatch.setattr(metric_sums, "MOST_BLOCKS", 3)
    device = EmulatedDevice()
    agree(CASES[name], "float32", backend=Backend("emulated", np, table(device)))
    assert "add_up" in device.launched


@pytest.mark.parametrize(
    "op, attrs", [("_metric_hits", {"axis": 1}), ("_metric_difference", {"of": "square"})]
)
def test_metrics_of_every_pixel_stay_on_the_gpu_and_take_no_memory(op, attrs):
    """A number of scratch for each pixel would be 16 MiB here."""
    op, pred = ops.find_op(op), (16, 3, 512, 512)
    label = (16, 512, 512) if "axis" in attrs else pred
    kinds = tuple(map(np.dtype, ("float64", "float32", "float32", "float32")))
    backend = Backend("emulated", np, table(EmulatedDevice()))
    chosen = backend.choose(op, op.Attrs(**attrs), ((4,), (1,), label, pred), (), kinds[0], kinds)
    assert not chosen.is_reference and chosen.workspace <= 16 * metric_sums.MOST_BLOCKS
