"""PyTorch's and JAX's columns of benchmarks/gpu.py compute what mxlite's networks do; all on the CPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import mxlite as mx

STEPS = 3


def small(module, kind):
    """A small network of each kind that the benchmark has."""
    known, suite = module("gpu_columns.nets"), module("networks.suite")
    stages = (2, 1)
    if kind == "bottlenecks":
        symbol = partial(mx.models.resnet, depth=50, stages=stages)
        return replace(known.resnet(50, 4, stages), symbol=symbol, data=(4, 3, 32, 32))
    if kind == "cifar":
        net = suite.cifar(20, 8)
        twin = ("ResNet", {**net.twin[1], "stages": (1, 1, 1)})
        return replace(net, symbol=partial(mx.models.resnet_cifar, depth=8), twin=twin, data=(8, 3, 16, 16))
    if kind == "memonger":
        return replace(known.memonger((3, 2), 2, 1e-3), data=(2, 3, 56, 56))
    if kind == "lstm":
        return replace(known.lstm(2, 16, 6, 3), rate=20.0)  # so high that a wrong gate is seen
    if kind == "lenet":
        return replace(suite.by_name(["lenet"])[0], data=(4, 1, 28, 28), labels=(4,))
    return {n.name: n for n in known.small()}[kind]


def losses(module, name, spec, **options):
    """Of the first steps; then the column is asked everything that the benchmark asks."""
    found = module(name)
    peer = getattr(found, "OnGPU" if name.startswith("gpu_columns") else "MXLite")()
    peer.load(spec, **options)
    first = peer.losses(STEPS)
    assert peer.versions() and peer.run(1) > 0 and peer.memory() is not None and peer.plan() is not None
    return first


KINDS = ["bottlenecks", "cifar", "memonger", "lstm", "decoder", "mlp", "lenet"]
CHECKPOINTS = {"bottlenecks": [True, "segments"], "memonger": [True, "segments"], "decoder": [True]}


@pytest.mark.torch
@pytest.mark.parametrize("kind", KINDS)
def test_pytorchs_networks_have_our_losses(benchmarks, kind, tmp_path):
    pytest.importorskip("torch")
    spec = small(benchmarks, kind).prepare(tmp_path)
    ours = losses(benchmarks, "peers.mxlite_peer", spec)
    assert len(set(ours)) == STEPS
    for options in [{}, *({"checkpointed": c} for c in CHECKPOINTS.get(kind, []))]:
        found = losses(benchmarks, "gpu_columns.torch_gpu", spec, **options)
        np.testing.assert_allclose(found, ours, rtol=1e-4, err_msg=str(options))


@pytest.mark.parametrize("kind", KINDS)
def test_jaxs_networks_have_our_losses(benchmarks, kind, tmp_path):
    """Each option once: the CPU knows no TF32, and compiles slowly."""
    pytest.importorskip("jax")
    spec = small(benchmarks, kind).prepare(tmp_path)
    ours = losses(benchmarks, "peers.mxlite_peer", spec)
    columns = benchmarks("gpu_columns.columns")
    made = {c.name: c for c in columns.columns()}
    for name, rtol in (("jit-fp32", 1e-4), ("remat-tf32", 1e-4), ("jit-bf16", columns.TOLERANCE["bf16"])):
        found = losses(benchmarks, "gpu_columns.jax_gpu", spec, **made[name].options)
        np.testing.assert_allclose(found, ours, rtol=rtol, err_msg=name)


def test_jaxs_columns_say_why_they_are_absent(benchmarks, monkeypatch):
    columns, column = benchmarks("gpu_columns.columns"), benchmarks("peers.column")
    monkeypatch.setattr(column.importlib.util, "find_spec", lambda name: None)
    made = [c for c in columns.columns() if c.side == "jax"]
    assert [c.name for c in made] == [f"{n}-{p}" for p in columns.PRECISIONS for n in ("jit", "remat")]
    assert {c.missing() for c in made} == {"JAX is not installed"}
    assert {c.env["XLA_PYTHON_CLIENT_PREALLOCATE"] for c in made} == {"false"}


@pytest.mark.torch
def test_pytorch_without_a_gpu_is_no_column_of_a_gpu(benchmarks, monkeypatch):
    """Its time on the CPU would look as if ours were a hundred times as fast."""
    peer = benchmarks("gpu_columns.torch_gpu")
    monkeypatch.delenv("MXLITE_BENCHMARK_EMULATED")
    monkeypatch.setattr(peer, "DEVICE", "cpu")
    for ask in (lambda: peer.OnGPU().build({}), lambda: peer.OnGPU().largest({}, 8 * 10**9)):
        with pytest.raises(RuntimeError, match=r"PyTorch .* sees no GPU here"):
            ask()


def test_jax_without_a_gpu_is_no_column_of_a_gpu(benchmarks, monkeypatch):
    pytest.importorskip("jax")
    monkeypatch.delenv("MXLITE_BENCHMARK_EMULATED")
    with pytest.raises(RuntimeError, match="JAX has no GPU here"):
        benchmarks("gpu_columns.jax_gpu").OnGPU().build({})


def test_host_time_is_that_of_steps_for_which_there_is_room(benchmarks, monkeypatch):
    """Who pushes more than may be under way waits for the device."""
    columns = benchmarks("gpu_columns")
    now, done = [0.0], []
    monkeypatch.setattr(columns.time, "perf_counter", lambda: now[0])

    def push():
        done.append(now[0])
        now[0] += 1.0 if len(done) <= columns.HOST_STEPS else 100.0

    assert columns.pushed(push, 2) == 1.0 and len(done) == 2
    done.clear()
    assert columns.pushed(push, 3 * columns.HOST_STEPS) == 1.0 and len(done) == 3 * columns.HOST_STEPS
