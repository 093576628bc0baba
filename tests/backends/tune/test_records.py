"""Records: what is believed of a file, whoever wrote it."""

import json
import os
import sqlite3
import subprocess
import sys
import warnings

import pytest

import mxlite as mx
from mxlite.backends.tune import export_lines, import_lines, Records, Schedule
from mxlite.backends.tune.records import RecordFile
from mxlite.core.errors import FormatError
from tests.backends.tune.tasks import record_of, task_of

TASK = task_of("softmax", (5, 70))
FAST, FASTER = Schedule("a", 1, (2,)), Schedule("a", 1, (4,))


@pytest.fixture
def path(tmp_path):
    os.chmod(tmp_path, 0o700)
    return str(tmp_path / "records.sqlite")


def written(path, *records):
    with RecordFile(path) as file:
        file.put(records)
    return path


def best(path):
    found = Records.read(path).best(TASK.key, record_of(TASK, FAST).device)
    return found and found.schedule


def test_the_fastest_confirmed_schedule_of_this_version_is_the_best(path):
    rows = [
        record_of(TASK, FAST),
        record_of(TASK, FASTER, 0.9e-3),
        record_of(TASK, Schedule("a", 1, (8,)), 0.1e-3, confirmed=False),
        record_of(TASK, Schedule("a", 1, (16,)), 0.1e-3, versions="mxlite 0"),
        record_of(TASK, Schedule("a", 1, (32,)), 0.1e-3, device="another machine"),
    ]
    assert best(written(path, *rows)) == FASTER
    assert Records.read(path).times(TASK.key, rows[0].device) == (1.8e-3, 0.9e-3)


def test_a_choice_changes_only_for_more_than_a_twentieth(path):
    assert best(written(path, record_of(TASK, FAST, 1.91e-3))) is None
    assert best(written(path, record_of(TASK, FAST, 1.89e-3))) == FAST


def test_rows_that_are_not_plausible_are_left_out(path):
    written(path, record_of(TASK, FAST))
    with sqlite3.connect(path) as file:
        row = list(file.execute("SELECT * FROM records").fetchone())
        for column, wrong in (
            (2, '["a", 1, [-1]]'),
            (2, "[" * 4000),
            (4, -1.0),
            (4, "fast"),
            (6, 0.0),
            (2, "{}"),
        ):
            other = [*row]
            other[column] = wrong
            other[3] = f"{column} {wrong}"[:20]
            other[1] = f"{row[1]}{len(other[3])}{column}"
            file.execute(f"INSERT OR REPLACE INTO records VALUES ({', '.join('?' * len(row))})", other)
    file.close()
    with RecordFile(path) as again:
        assert [r.schedule for r in again.rows()] == [FAST]
    assert best(path) == FAST


def test_what_is_wrong_with_a_file_costs_one_message(path, tmp_path):
    def said(name, data=None, mode=0o600):
        at = str(tmp_path / name)
        if data is not None:
            with open(at, "wb") as file:
                file.write(data)
            os.chmod(at, mode)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = [Records.read(at) for _ in range(2)]
        assert all(len(r) == 0 for r in found)
        (message,) = [str(w.message) for w in told]
        assert at in message and "default schedule" in message
        return message

    with open(written(path, record_of(TASK, FAST)), "rb") as file:
        good = file.read()
    assert best(path) == FAST
    assert "No such file" in said("missing")
    assert "no SQLite file" in said("text", b"records, they said" * 50)
    assert "broken" in said("cut", good[:5000])
    said("damaged", good[:4096] + bytes(255 for _ in range(4096)) + good[8192:])
    assert "others may write" in said("foreign", good, 0o666)
    os.symlink(path, tmp_path / "link")
    assert "others may write" in said("link")
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE records (task TEXT)")
    other.commit()
    other.close()
    assert "something else" in said("other")
    later = sqlite3.connect(path)
    later.execute("PRAGMA user_version = 99")
    later.close()
    assert "format 99" in said("records.sqlite")


def test_a_file_of_another_program_is_not_written_to(path):
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine (x)")
    other.commit()
    other.close()
    with pytest.raises(FormatError, match="another program"):
        RecordFile(path)
    with open(path, "wb") as file:
        file.write(b"no database" * 100)
    with pytest.raises(FormatError, match="no file of records"):
        RecordFile(path)


WRITER = """
import sys
from mxlite.backends.tune import Schedule
from mxlite.backends.tune.records import RecordFile
from tests.backends.tune.tasks import record_of, task_of
task = task_of("softmax", (5, 70))
with RecordFile(sys.argv[1]) as file:
    for k in range(40):
        file.put([record_of(task, Schedule("k", int(sys.argv[2]), (k,)))])
"""


def test_several_processes_write_at_once(path):
    started = [subprocess.Popen([sys.executable, "-c", WRITER, path, str(n)]) for n in (1, 2, 3)]
    assert [p.wait(120) for p in started] == [0, 0, 0]
    with RecordFile(path) as file:
        assert len(file.rows()) == 120
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_files_are_merged_and_travel_as_lines(path, tmp_path):
    one = written(str(tmp_path / "one"), record_of(TASK, FAST, at=5))
    two = written(str(tmp_path / "two"), record_of(TASK, FAST, 1.5e-3, at=9), record_of(TASK, FASTER, at=1))
    assert mx.tune.merge([two, one], path) == 3
    with RecordFile(path) as file:
        rows = file.rows()
    assert {(r.schedule, r.seconds) for r in rows} == {(FAST, 1.5e-3), (FASTER, 1e-3)}  # the latest stays
    lines = str(tmp_path / "lines")
    assert export_lines(path, lines) == 2
    assert import_lines(lines, str(tmp_path / "three")) == 2
    with RecordFile(str(tmp_path / "three")) as file:
        assert file.rows() == rows
    with open(lines, "a") as out:
        out.write(json.dumps({"task": 1}) + "\n")
    with pytest.raises(FormatError, match="line 3 is no record"):
        import_lines(lines, str(tmp_path / "four"))
    assert not os.path.exists(tmp_path / "four")
