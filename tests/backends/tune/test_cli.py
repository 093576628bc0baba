"""`mxlite tune`: from a network to records that binding uses, and Ctrl-C on the way."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from mxlite.backends.tune.records import RecordFile
from mxlite.cli.main import main


def test_a_network_is_tuned_into_a_file(tmp_path, capsys):
    path = str(tmp_path / "records.sqlite")
    words = [
        "tune",
        "zoo:mlp",
        "--batch",
        "256",
        "--infer",
        "--records",
        path,
        "--serial",
        "--minutes",
        "0.05",
    ]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert (
        "distinct ones that can be tuned" in said and "FullyConnected fc1" in said and f"Made {path}" in said
    )
    with RecordFile(path) as file:
        rows = file.rows()
    assert {r.operator for r in rows} >= {"FullyConnected"}
    assert all(r.seconds > 0 and r.versions for r in rows)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["zoo:mlp", "--gpu"], "not tuned yet"),
        (["zoo:mlp", "--minutes", "0"], "--minutes must be above 0 and at most 10000, got 0."),
        (["zoo:mlp", "--minutes", "-1"], "got -1."),
        (["zoo:mlp", "--minutes", "nan"], "got nan."),
        (["zoo:mlp", "--minutes", "1e9"], "got 1e+09."),
        (["nothing.json"], "nothing.json: No such file or directory"),
        (["zoo:mlp", "--records", "folder"], "cannot be written"),
        (["zoo:mlp", "--records", "nowhere/file"], "cannot be written"),
        (["zoo:mlp", "--records", "text"], "text is no file of records"),
        (["zoo:mlp", "--records", "other"], "SQLite file of another program"),
        (["zoo:mlp", "--records", "later"], "of format 1, but"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_bytes(b"no database" * 100)
    RecordFile("later").close()
    for name, line in (("other", "CREATE TABLE mine (x)"), ("later", "PRAGMA user_version = 7")):
        with closing(sqlite3.connect(name)) as file:
            file.execute(line)
    before = {name: (tmp_path / name).read_bytes() for name in ("text", "other", "later")}
    assert main(["tune", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.splitlines()) == 1
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_ctrl_c_keeps_what_was_found(tmp_path):
    path = str(tmp_path / "records.sqlite")
    words = [sys.executable, "-m", "mxlite", "tune", "zoo:lenet", "--records", path, "--serial", "--random"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while time.monotonic() < end and not (
        os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal") > 20_000
    ):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Stopped: what was found until then is kept." in out
    with RecordFile(path) as file:
        assert file.rows()
    assert not os.path.exists(f"{path}-wal")  # all of it is in the file
