"""PyTorch's and JAX's columns of benchmarks/gpu.py compute what mxlite's networks do; all on the CPU."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import mxlite as mx

ROOT = Path(__file__).resolve().parent.parent
STEPS = 3


@pytest.fixture
def benchmarks(monkeypatch):
    """The benchmarks' packages can be imported; the tests have a module of the name of one of them."""
    for name in [n for n in sys.modules if n.split(".")[0] == "networks"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("MXLITE_BENCHMARK_EMULATED", "1")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    yield importlib.import_module
    for name in [n for n in sys.modules if n.split(".")[0] == "networks"]:
        del sys.modules[name]


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


COLUMN = """
import json, os, subprocess, sys, time
how = os.environ["HOW"]
found = {"load": 0.1, "losses": [3.0, 2.0, 1.0], "run": 0.01, "memory": {"host_s": 1e-5}, "versions": {}}
for line in sys.stdin:
    request = json.loads(line)
    do = request["do"]
    if how == do + " fails":
        raise ValueError("there is no compiler here")
    if how == do + " hangs":  # and so does what it has started, which holds the output
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"])
        time.sleep(20)
    if how == do + " crashes":
        os.abort()
    print("reply: " + json.dumps(found.get(do, {})), flush=True)
"""


def test_output_that_another_process_holds_is_closed_in_the_end(benchmarks, tmp_path):
    program = tmp_path / "holds.py"
    held = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3)'])"
    program.write_text(f"import subprocess, sys, time\n{held}\ntime.sleep(9)\n")
    worker = benchmarks("harness").Worker(sys.executable, str(program))
    with pytest.raises(RuntimeError, match="longer than"), worker:
        worker.ask(limit=0.2)
    worker._reader.join(30)
    assert worker.process.stdout.closed


def test_a_column_that_fails_or_hangs_is_a_note_in_a_whole_table(benchmarks, tmp_path, capsys):
    """Whenever it does, and whoever it is; also where the network itself cannot be prepared."""
    gpu, column, contest = (benchmarks(n) for n in ("gpu", "peers.column", "gpu_columns.contest"))
    nets = {n.name: n for n in benchmarks("gpu_columns.nets").small()}
    program = tmp_path / "column.py"
    program.write_text(COLUMN)
    hows = [
        "works",
        "load fails",
        "losses crashes",
        "run fails",
        "run hangs",
        "memory fails",
        "versions crashes",
    ]
    columns = [
        column.Column(f"{how}-fp32", how, ["torch", "ours", "jax"][i % 3], str(program), env={"HOW": how})
        for i, how in enumerate(hows)
    ]
    columns = [replace(c, side="ours") if c.missing() else c for c in columns]
    columns.append(replace(columns[0], name="absent-fp32", title="absent", script=str(tmp_path / "none.py")))
    broken = replace(nets["mlp"], title="broken", symbol=lambda: 1 / 0)
    terms = benchmarks("peers.contest").Terms(2, 0.001, 1, 1.0, 0)
    assert gpu.run([nets["mlp"], broken], [], columns, terms, contest.Clock.of(60), tmp_path / "out")
    (written,) = (tmp_path / "out").glob("*-gpu.md")
    text = written.read_text()
    assert text.strip() == capsys.readouterr().out.strip()
    for how, said in {
        "load fails": "ValueError: there is no compiler here",
        "losses crashes": "ended",
        "run fails": "ValueError: there is no compiler here",
        "run hangs": "It took longer than 1 s.",
        "memory fails": "ValueError: there is no compiler here",
        "absent": "No such file",
    }.items():
        assert any(how in x and said in x for x in text.splitlines() if x.startswith("| MLP")), (how, text)
    assert text.count("ZeroDivisionError") >= len(columns)
    times = text[text.index("## float32") :].splitlines()
    assert any(x.startswith("| MLP") and "10" in x for x in times)


def test_the_largest_batches_keep_to_the_time_and_are_told_one_by_one(benchmarks, tmp_path):
    column, contest = benchmarks("peers.column"), benchmarks("gpu_columns.contest")
    (net, _) = benchmarks("gpu_columns.nets").small()
    program = tmp_path / "column.py"
    program.write_text(COLUMN.replace('"memory":', '"largest": 7, "memory":'))
    columns = [
        column.Column(how, how, "ours", str(program), env={"HOW": how})
        for how in ("works", "largest hangs", "largest fails")
    ]
    terms = benchmarks("peers.contest").Terms(1, 0.001, 1, 60.0, 0)

    class Clock:
        """Says before each column, and when it is asked, how much is left."""

        def __init__(self, *said):
            self.said = iter(said)

        left = property(lambda self: next(self.said))

    def asked(*said):
        return list(contest.largest_batches(net, 1, 0.1, terms, tmp_path, columns, Clock(*said)))

    works, hangs, fails = asked(90, 90, 90, 0.2, 90, 90)
    assert works["batch"] == 7 and hangs["note"] == "It took longer than 0.2 s."
    assert "no compiler" in fails["note"]
    assert {row["note"] for row in asked(1, 1, 1)} == {f"TimeoutError: {contest.NO_TIME}"}


def test_budgets_are_held_against_the_fastest_of_our_own(benchmarks):
    """Which need not be the step without a budget; and a budget that failed is no number."""
    columns, report = benchmarks("gpu_columns.columns"), benchmarks("gpu_columns.report")
    entry, spread = benchmarks("peers.contest").Entry, benchmarks("harness").Spread
    gpu = benchmarks("gpu")
    deep = {c.name: entry(c) for c in columns.within(gpu.BUDGETS)}
    for name, seconds in (("mxlite", 0.074), ("kept", 0.070), ("7 GiB", 0.0838), ("eager", 0.01)):
        deep[name].seconds = spread((seconds,))

    def reached():
        lines = [x.split("|") for x in report.targets([], deep, []).splitlines() if "ResNet-1001" in x]
        return [x[3].strip() for x in lines], [x[4].strip() for x in lines]

    assert reached() == (["1.20", "-"], ["yes", "-"])
    deep["7 GiB"].seconds = spread((0.0847,))
    assert reached() == (["1.21", "-"], ["NO", "-"])
    del deep["kept"]
    assert reached() == (["1.14", "-"], ["yes", "-"])


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


def test_networks_come_in_the_order_in_which_they_are_asked_for(benchmarks, monkeypatch):
    """The quick ones first where little time is given: what takes long may take all of it."""
    gpu, nets = (benchmarks(n) for n in ("gpu", "gpu_columns.nets"))
    seen = []

    def run(networks, extra, *rest):
        seen.append([n.name for n in networks])
        return False

    monkeypatch.setattr(gpu, "run", run)
    for arguments in (["--quick"], ["--nets", "lenet,resnet50,deep,mlp"]):
        monkeypatch.setattr(sys, "argv", ["gpu.py", *arguments])
        assert gpu.main() == 0
    assert seen == [list(nets.QUICK), ["lenet", "resnet50", "mlp"]] and nets.QUICK[0] in nets.LAUNCH_BOUND


def test_the_time_for_measuring_kernels_reaches_our_columns_and_the_page(benchmarks, monkeypatch, tmp_path):
    gpu = benchmarks("gpu")
    told = []
    monkeypatch.setenv(gpu.TUNING, "1")

    def run(*rest):
        told.append(os.environ[gpu.TUNING])
        return False

    monkeypatch.setattr(gpu, "run", run)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--tuning", "7"])
    assert gpu.main() == 0 and told == ["7"]
    terms = gpu.Terms(rounds=1, seconds=1.0, threads=1, limit=1.0)
    assert "had 7 s to measure kernels" in gpu.body([], None, [], terms, 0.0)
