"""A small part of the torture, part by part; and faults to plant that still have a place and a catcher."""

import ast
import importlib
from pathlib import Path

import pytest

from torture.__main__ import main, names
from torture.allowance import Allowance, Outcome
from torture.parts import planted, readers
from torture.readers import total

TREE = Path(__file__).parents[2]


@pytest.mark.parametrize("name", [name for name in names() if name != "planted"])
def test_part_finds_nothing_in_its_first_cases(name):
    part = importlib.import_module(f"torture.parts.{name}")
    outcome = part.run(Allowance(cases=part.SMALL, seconds=5))
    assert outcome.cases > 0
    assert outcome.failures == []


@pytest.mark.parametrize("fault", planted.faults(), ids=lambda fault: fault.name)
def test_planted_fault_still_has_its_place_and_its_catcher(fault):
    assert (TREE / fault.file).read_text().count(fault.old) == 1
    assert fault.old != fault.new
    path, _, name = fault.caught_by.partition("::")
    name = name.split("[")[0].split("::")[-1]
    functions = {
        node.name
        for node in ast.walk(ast.parse((TREE / path).read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    assert name in functions


def test_faults_have_names_of_their_own():
    found = [fault.name for fault in planted.faults()]
    assert len(set(found)) == len(found)


def test_readers_leave_no_file_behind_even_if_their_process_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    worker = readers.Worker()
    try:
        assert worker.judge("csv", 1)["verdict"] in ("", "refused")
        worker._process.terminate()
        worker._process.wait()
        assert "ended the process" in worker.judge("csv", 2)["verdict"]
        assert worker.judge("csv", 3)["verdict"] in ("", "refused")
        assert list(tmp_path.rglob("*"))
    finally:
        worker.close()
    assert not list(tmp_path.iterdir())


def test_allowance_ends_by_cases_and_by_time():
    assert list(Allowance(seed=7, cases=3)) == [7, 8, 9]
    assert list(Allowance(cases=3, seconds=0)) == []


def test_failures_are_printed_and_make_the_exit_status(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(planted, "run", lambda allowance: Outcome(2, ["a wrong number (seed 1)"], "two"))
    assert main(["planted", "--out", str(tmp_path / "table.md")]) == 1
    printed = capsys.readouterr().out
    assert "- planted: a wrong number (seed 1)" in printed
    assert (tmp_path / "table.md").read_text() == printed


def test_tables_of_the_readers_are_added_up():
    first = "| readers | … | symbol 16400 (3776 read, 23 s), csv 7 (0 read, 1 s); slowest 0.4 s |"
    found = total.totals([first, first, "symbol 1 (1 read, 2 s)"])
    assert found["symbol"] == {"files": 32801, "read": 7553, "seconds": 48}
    assert total.table({"csv": found["csv"]}).splitlines()[-1] == "| csv | 14 | 0 | 2 |"
