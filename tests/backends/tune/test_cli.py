"""`mxlite tune`: from a network to records that binding uses, and Ctrl-C on the way."""

import os
import signal
import subprocess
import sys
import time

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


def test_a_gpu_and_no_time_are_refused(capsys):
    assert main(["tune", "zoo:mlp", "--gpu"]) == 2
    assert main(["tune", "zoo:mlp", "--minutes", "0"]) == 2
    assert "--minutes must be above 0" in capsys.readouterr().err


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
