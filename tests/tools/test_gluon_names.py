"""scripts/gluon_names.py: which signatures agree, and the list of mxlite's own names."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("gluon_names")


def test_a_signature_agrees_if_the_wheels_comes_first(script):
    wheel = [["units", None], ["use_bias", "True"]]
    assert script.agrees(wheel, wheel)
    assert script.agrees(wheel, [*wheel, ["more", "1"]])
    assert script.agrees(None, None)
    assert not script.agrees(wheel, wheel[:1])
    assert not script.agrees(wheel, wheel[::-1])
    assert not script.agrees(wheel, [["units", None], ["use_bias", "False"]])


def test_the_rest_may_fall_into_any_number_of_arguments(script):
    assert script.agrees([["F", None], ["x", None]], [["F", None], ["*", None]])
    assert not script.agrees([["F", None], ["x", None]], [["x", None], ["*", None]])


def test_none_stands_for_an_object_and_for_nothing_else(script):
    assert script.agrees([["ctx", "cpu(0)"]], [["ctx", "None"]])
    assert script.agrees([["init", "<mxnet.initializer.Uniform object>"]], [["init", "None"]])
    assert not script.agrees([["axis", "-1"]], [["axis", "None"]])


def test_mxlite_is_listed_under_mxnets_name(script, tmp_path):
    subprocess.run([sys.executable, "-m", "mxlite", "alias", "--into", tmp_path], check=True, cwd=ROOT)
    found = script.listed(sys.executable, [tmp_path, ROOT], "own")
    assert found["gluon.nn.Dense"][:2] == [["units", None], ["activation", "None"]]
    assert found["gluon.HybridBlock.hybridize"][0] == ["active", "True"]
    assert "gluon.nn.Dense.hybridize" not in found
    assert "gluon.nn.Dense.hybridize" in script.listed(sys.executable, [tmp_path, ROOT], "all")
