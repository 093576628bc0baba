"""Modules of PyTorch on the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mxlite as mx
from mxlite.cli import main

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="PyTorch makes the modules of these tests")

MODELS = """
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

def frozen():
    made = net()
    made[0].requires_grad_(False)
    return made

class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.score = nn.Embedding(50, 32), nn.Linear(32, 50)

    def forward(self, tokens, target):
        return nn.functional.cross_entropy(self.score(self.embed(tokens)).flatten(0, 1), target.flatten())

def language():
    return Language()

def broken():
    raise ValueError("no weights")

def other():
    return 3
"""


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: Any, capsys: Any) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in a folder with the module `cli_models`: exit code, output, errors."""
    (tmp_path / "cli_models.py").write_text(MODELS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cli_models", raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        return code, *capsys.readouterr()

    return run


def test_a_plan_is_that_of_the_module(ask):
    code, out, _ = ask("plan", "torch:cli_models:net", "--input", "32,64")
    import cli_models

    assert code == 0
    assert mx.torch.plan(cli_models.net(), torch.zeros(32, 64)).mxlite.summary() in out


def test_the_batch_is_where_it_is_written(ask):
    code, out, _ = ask("plan", "torch:cli_models:language", "--input", "int64:N,8", "--input", "int64:N,8")
    assert code == 0 and "batch 32" in out
    several = ("--input", "int64:N,8", "--input", "int64:N,8", "--budget", "1MiB")
    code, out, _ = ask("fit-batch", "torch:cli_models:language", *several, "--optimizer", "adam")
    assert code == 0 and "fits 1.00 MiB" in out


def test_what_does_not_train_has_no_gradient(ask):
    all_of, some = (
        ask("plan", f"torch:cli_models:{name}", "--input", "32,64")[1] for name in ("net", "frozen")
    )
    gradients = [
        next(line.split()[1] for line in out.splitlines() if line.split()[:1] == ["gradients"])
        for out in (all_of, some)
    ]
    assert float(gradients[1]) < float(gradients[0])


@pytest.mark.parametrize(
    "words, said",
    [
        (["torch:cli_models:broken", "--input", "3"], "broken() raised ValueError: no weights"),
        (["torch:cli_models:none", "--input", "3"], "has no attribute 'none'"),
        (["torch:no_such_module:net", "--input", "3"], "No module named 'no_such_module'"),
        (["torch:cli_models", "--input", "3"], "torch:PACKAGE.MODULE:FUNCTION"),
        (["torch:cli_models:other", "--input", "3"], "takes a torch.nn.Module, got int"),
        (["torch:cli_models:net"], "--input N,3,224,224"),
        (["torch:cli_models:net", "--shape", "x:3,64"], "not --shape"),
        (["torch:cli_models:net", "--input", "0,64"], "at least 1"),
        (["torch:cli_models:net", "--input", "float8:3,64"], "'float8'"),
        (["torch:cli_models:net", "--input", "3,65"], "cannot trace"),
        (["zoo:lenet", "--input", "3"], "--shape NAME:DIMS"),
    ],
)
def test_bad_usage_is_one_line_and_2(ask, words, said):
    code, out, error = ask("plan", *words)
    assert (code, out) == (2, "") and said in error and error.count("mxlite: error:") == 1
