"""scripts/freeze.py records a small selection of this tree and compares records."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "freeze.py"


def freeze(*arguments):
    """The script's exit code and what it prints."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": "/nowhere", "PYTHONHASHSEED": "random"},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two records of the same selection, made by two processes."""
    folder = tmp_path_factory.mktemp("records")
    paths = [folder / "first.json", folder / "second.json"]
    for path in paths:
        code, said = freeze("record", path, "--match", "relu|mlp")
        assert code == 0, said
    return paths


def planted(recorded, tmp_path, change):
    """What comparing says, and its exit code, after `change` to the second record."""
    data = json.loads(recorded[1].read_text())
    change(data)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(data))
    return freeze("compare", recorded[0], path)


def test_two_records_of_one_tree_do_not_differ(recorded):
    code, said = freeze("compare", *recorded)
    assert code == 0, said
    assert said.count("no difference") == 4 and "warning" not in said
    data = json.loads(recorded[0].read_text())
    assert all(data[section] for section in ("kernels", "plans", "code", "results"))
    assert {key.split()[0] for key in data["code"]} == {"cuda", "llvm"}


def test_another_kernel_is_reported(recorded, tmp_path):
    def change(data):
        data["kernels"]["relu float32 forward gpu"]["kernel"] = "another kernel"

    code, said = planted(recorded, tmp_path, change)
    assert code == 1
    assert "differs: relu float32 forward gpu: kernel cuda elementwise -> another kernel" in said


def test_another_result_is_reported(recorded, tmp_path):
    def change(data):
        data["results"]["mlp trained none"]["parameters"] = "0" * 16

    code, said = planted(recorded, tmp_path, change)
    assert code == 1 and "differs: mlp trained none: parameters" in said


def test_another_schedule_is_reported(recorded, tmp_path):
    def change(data):
        data["plans"]["mlp none"]["schedule"] = "0" * 16

    code, said = planted(recorded, tmp_path, change)
    assert code == 1 and "differs: mlp none: schedule" in said


def test_another_text_is_reported_with_the_row_that_asked_for_it(recorded, tmp_path):
    def change(data):
        key = next(k for k in data["code"] if k.startswith("cuda elementwise"))
        data["code"]["cuda elementwise 0000"] = data["code"].pop(key)

    code, said = planted(recorded, tmp_path, change)
    assert code == 1 and "only after: cuda elementwise 0000 (met at relu float64)" in said
    assert "only before: cuda elementwise" in said


def test_a_renamed_word_is_no_difference(recorded, tmp_path):
    def change(data):
        data["kernels"] = {k.replace("relu", "rectifier"): v for k, v in data["kernels"].items()}
        data["results"] = {k.replace("relu", "rectifier"): v for k, v in data["results"].items()}

    code, said = planted(recorded, tmp_path, change)
    assert code == 1 and "only before: relu float32 forward cpu" in said
    code, said = freeze("compare", *(recorded[0], tmp_path / "changed.json"), "--renamed", "relu=rectifier")
    assert code == 0, said


def test_records_of_other_settings_or_selections_are_compared_with_a_warning(recorded, tmp_path):
    def change(data):
        data["header"]["numpy"] = "0.1"
        data["header"]["sections"].remove("results")
        del data["results"]

    code, said = planted(recorded, tmp_path, change)
    assert code == 0
    assert "warning: numpy was" in said and "warning: code is not compared" in said
