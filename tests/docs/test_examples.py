"""Each example runs, at a small size, as a user would run it."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dist.ranks import Job, needs_mpi

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sklearn") is None, reason="the digits come with scikit-learn (mxlite[examples])"
)


def command(name, *arguments):
    return [sys.executable, os.path.join(ROOT, "examples", f"{name}.py"), *map(str, arguments)]


EXAMPLES = (
    "train_resnet",
    "gluon_digits",
    "train_distributed",
    "train_gpt",
    "mixed_loop",
    "train_lstm",
    "train_bucketing_lstm",
    "train_transformer",
    "train_syntax_trees",
)
ENVIRONMENT = {**os.environ, "PYTHONPATH": ROOT}


def run(folder, name, *arguments, code=0):
    done = subprocess.run(
        command(name, *arguments), cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_every_example_has_a_test():
    names = {f[:-3] for f in os.listdir(os.path.join(ROOT, "examples")) if f.endswith(".py")}
    assert names == set(EXAMPLES)


def test_a_resnet_trains_inside_its_budget(tmp_path):
    out = run(
        tmp_path, "train_resnet", "--depth", 47, "--budget", "4MiB", "--epochs", 3, "--save-plan", "p.html"
    )
    assert "predicted extra time" in out
    planned, measured, budget = (
        int(line.split(":")[1].split()[0].replace(",", ""))
        for line in out.splitlines()
        if line.startswith(("Planned peak", "Measured peak", "Budget"))
    )
    assert planned == measured <= budget == 4 << 20
    accuracy = float(out.split("Held-out accuracy:")[1].split()[0])
    assert accuracy > 80
    assert (tmp_path / "checkpoints" / "resnet-0003.params").exists()
    assert (tmp_path / "p.html").read_text().startswith("<!doctype html>")


def test_a_stopped_example_resumes(tmp_path):
    arguments = ("--depth", 11, "--budget", "none", "--epochs", 2, "--prefix", "r")
    child = subprocess.Popen(
        command("train_resnet", *arguments), cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    for line in child.stderr:  # tqdm ends its lines with \r: universal newlines make them lines
        if "batch/s" in line or "s/batch" in line:
            child.send_signal(signal.SIGINT)
            break
    child.communicate(timeout=120)
    assert child.returncode == 130
    assert (tmp_path / "r.resume").exists()
    out = run(tmp_path, "train_resnet", *arguments, "--resume")
    assert "Held-out accuracy" in out
    whole = tmp_path / "whole"
    whole.mkdir()
    run(whole, "train_resnet", *arguments)
    assert (whole / "r-0002.params").read_bytes() == (tmp_path / "r-0002.params").read_bytes()


def run_here(monkeypatch, capsys, folder, name, *arguments):
    """Exit status and all that is printed, in this process: starting one would be nearly all of the time."""
    monkeypatch.chdir(folder)
    _, program, *arguments = command(name, *arguments)
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    try:
        runpy.run_path(program, run_name="__main__")
        ended = 0
    except SystemExit as end:
        ended = end.code
    except Exception as error:
        ended = str(error)
    said = ended if isinstance(ended, str) else ""  # Python prints that, and ends with 1
    printed = capsys.readouterr()
    return 1 if said else ended, printed.out + printed.err + said


@pytest.mark.parametrize(
    "arguments, code, text",
    [
        (("--depth", 10), 1, "11"),
        (("--depth", 20, "--budget", "a lot"), 2, "64MiB"),
        (("--depth", 20, "--budget", "-3"), 2, "budget"),
        (("--depth", 20, "--budget", "100kB"), 3, "does work"),
        (("--dataset", "fashion-mnist", "--data-path", "nowhere"), 1, "dataset-fashion-mnist"),
        (("--dataset", "cifar"), 2, "invalid choice"),
    ],
)
def test_bad_arguments_are_explained(tmp_path, monkeypatch, capsys, quick_refusals, arguments, code, text):
    """Nothing is trained, nothing written."""
    ended, printed = run_here(monkeypatch, capsys, tmp_path, "train_resnet", *arguments)
    assert ended == code
    assert text in printed
    assert os.listdir(tmp_path) == []


def test_the_mixed_loop_equals_the_fused_step(tmp_path):
    assert "bitwise equal: True" in run(tmp_path, "mixed_loop", "--epochs", 1)


def test_a_gluon_network_ends_in_equal_weights_inside_a_budget(tmp_path):
    out = run(tmp_path, "gluon_digits", "--epochs", 1, "--blocks", 6, "--budget", "1MiB")
    without, within = (int(line.split()[2].replace(",", "")) for line in out.splitlines()[:2])
    assert within <= 1 << 20 < without and "bitwise equal: True" in out


def test_an_lstm_learns_inside_its_budget(tmp_path):
    """Its cuts are borders of time steps, crossed by two states a layer; keeping all takes 1.67 MiB."""
    small = ("--characters", 9000, "--steps", 32, "--hidden", 32, "--batch-size", 16, "--epochs", 2)
    out = run(tmp_path, "train_lstm", *small, "--budget", "1MB")
    perplexities = [float(line.split()[3]) for line in out.splitlines() if line.startswith("epoch")]
    assert perplexities[1] < perplexities[0]


def test_layers_of_an_lstm_learn_on_two_devices(tmp_path, monkeypatch, capsys):
    small = ("--characters", 2000, "--steps", 8, "--hidden", 16, "--batch-size", 8, "--epochs", 2)
    ended, out = run_here(
        monkeypatch, capsys, tmp_path, "train_lstm", *small, "--devices", 2, "--budget", "1MB"
    )
    perplexities = [float(line.split()[3]) for line in out.splitlines() if line.startswith("epoch")]
    assert ended == 0 and perplexities[1] < perplexities[0], out
    assert [line[:6] for line in out.splitlines() if "planned peak" in line] == ["cpu(0)", "cpu(1)"]


@needs_mpi
def test_two_ranks_train_inside_a_budget():
    arguments = "--epochs", "2", "--budget", "1.2MiB"
    ended = Job(Path(ROOT, "examples", "train_distributed.py"), 2, *arguments).end()
    assert ended.status == 0, ended.err
    planned, measured = (int(n.replace(",", "")) for n in re.findall(r"bytes of .*: ([\d,]+)", ended.out))
    assert planned == measured <= 1.2 * 2**20 and ended.out.startswith("Ranks: 2; ")
    assert "Parameters of all ranks are bitwise equal: True" in ended.out


@needs_mpi
def test_two_ranks_train_a_language_model_that_one_cannot(tmp_path):
    said = run(tmp_path, "train_gpt", "--characters", 1500, code=3)
    assert "No plan fits 10.00 MiB" in said and "  - 2 ranks that share the optimizer's states" in said
    ended = Job(Path(ROOT, "examples", "train_gpt.py"), 2, "--characters", "1500").end()
    assert ended.status == 0, ended.err
    planned, measured = (int(n.replace(",", "")) for n in re.findall(r"bytes of .*: ([\d,]+)", ended.out))
    assert planned == measured <= 10 * 2**20 and "epoch 1: perplexity" in ended.out


@pytest.mark.parametrize("name", EXAMPLES)
def test_bad_arguments_are_one_line(tmp_path, monkeypatch, capsys, name):
    ended, said = run_here(monkeypatch, capsys, tmp_path, name, "--epochs", 0)
    assert ended == 2
    assert said.splitlines()[-1].endswith("--epochs must be at least 1, got 0")
    if name != "mixed_loop":
        ended, said = run_here(monkeypatch, capsys, tmp_path, name, "--budget", "lots")
        assert ended == 2
        assert "Cannot read the memory budget 'lots'" in said.splitlines()[-1]


def test_an_unrolled_lstm_fits_its_default_budget(tmp_path):
    assert "epoch 1" in run(tmp_path, "train_lstm", "--characters", 2100, "--epochs", 1)


def test_a_language_model_learns_in_buckets_inside_its_budget(tmp_path):
    small = ("--sentences", 600, "--hidden", 16, "--layers", 1, "--batch-size", 8, "--buckets", 6, 12)
    out = run(tmp_path, "train_bucketing_lstm", *small, "--epochs", 2, "--budget", "130kB")
    perplexities = [float(line.split()[3]) for line in out.splitlines() if line.startswith("epoch")]
    assert perplexities[1] < perplexities[0] / 1.5
    line = next(x for x in out.splitlines() if x.startswith("Planned"))
    planned, measured = (int(word.replace(",", "")) for word in line.split() if word[0].isdigit())
    assert planned == measured <= 130_000


def test_a_transformer_learns_inside_its_budget(tmp_path):
    out = run(tmp_path, "train_transformer", "--width", 32, "--layers", 2, "--epochs", 5, "--budget", "2MiB")
    assert float(out.split("Held-out accuracy:")[1].split()[0]) > 80
    planned, measured = (
        int(line.split(":")[1].split()[0].replace(",", ""))
        for line in out.splitlines()
        if line.startswith(("Planned peak", "Measured peak"))
    )
    assert planned == measured <= 2 << 20


def test_syntax_trees_of_functions_tell_their_package(tmp_path):
    small = ("--functions", 1500, "--nodes", 40, "--width", 32, "--epochs", 6, "--budget", "8MiB")
    out = run(tmp_path, "train_syntax_trees", *small)
    planned, allocated = (
        int(part.split()[1].replace(",", "")) for part in out.split("Planned", 1)[1].split("\n")[0].split(";")
    )
    assert planned == allocated <= 8 << 20
    accuracy, common = (
        float(x) for x in re.findall(r"(?:accuracy|package): ([0-9.]+)", out.splitlines()[-1])
    )
    assert accuracy > common + 0.08
    refused = run(tmp_path, "train_syntax_trees", *small[:-1], "100KiB", code=2)
    assert "nodes" in refused or "budget" in refused
