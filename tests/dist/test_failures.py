"""A rank that fails ends its job, within seconds, and the job says which and where."""

from __future__ import annotations

import os
import signal
import time

import pytest

from mxlite.module.saved import resume

from .ranks import Job, needs_mpi

pytestmark = needs_mpi

LIMIT_S = 60.0
"""Seconds from a failure to the end of the job, on a machine where ten processes wait for each core. It takes
4 at most where none does."""

FAILURES = {
    "raise": (1, "mxlite: rank 1 failed in step 5. The job ends.", "RuntimeError: as planned"),
    "exit": (3, "mxlite: rank 1 ended by sys.exit(3) in step 5. The job ends.", ""),
    "stop": (1, "mxlite: rank 1 is stopped or dead", "; the last it told was that it is in step "),
    "fewer": (1, "mxlite: rank 0 failed in step ", "rank 1 has ended after step 7, but rank 0 still waits"),
    "alone": (1, "mxlite: rank 0 failed in step 5. The job ends.", "rank 1 has gone on without it while rank 0"),
    "disk": (1, "mxlite: rank 0 failed in step 5. The job ends.", "FileError: [Errno 27] File too large: "),
    "kill": (9, "EXIT CODE: 9", "mxlite: the first to be lost was "),  # MPI's launcher is faster
    "checkpoint": (9, "EXIT CODE: 9", "Killed (signal 9)"),  # while it is written; the one before stays
    "interrupt": (None, "", ""),
}


@pytest.mark.parametrize("what", FAILURES)
def test_a_failure_ends_the_job(what, tmp_path):
    status, said, more = FAILURES[what]
    stamp = tmp_path / "stamp"
    job = Job("failing.py", 2, what, str(stamp))
    if what == "interrupt":
        until = time.monotonic() + 120
        while not stamp.exists() and time.monotonic() < until:
            time.sleep(0.05)
        os.killpg(job.pid, signal.SIGINT)
    ended = job.end()
    took = time.time() - float(stamp.read_text())
    assert ended.status == status if status is not None else ended.status, ended.err
    told = ended.out + ended.err
    assert said in told and more in told, told
    if what == "kill":
        assert "rank 1 in step 5" in told, told
    assert ended.left == 0, "processes were left behind"
    assert took < LIMIT_S, f"{took:.1f} s from the failure to the end of the job"
    if what == "checkpoint":
        for rank in range(2):
            found = resume.load(str(stamp), rank, 2)
            assert found is not None and (found.epoch, found.nbatch) == (1, 3)


def test_ranks_that_differ_are_refused_before_the_first_step(tmp_path):
    ended = Job("failing.py", 2, "refuse", str(tmp_path / "stamp")).end()
    assert ended.status == 0, ended.err
    for said in (
        "Rank 1: data (4, 12); softmax_label (4,); ",
        "Rank 1: parameters of 293 elements",
        "Rank 1: lr 0.2. Rank 0: lr 0.1.",
        "Rank 1: memory_budget 1048576. Rank 0: memory_budget None.",
    ):
        lines = [x for x in ended.out.splitlines() if said in x]
        assert {x[:7] for x in lines} == {"rank 0:", "rank 1:"}, ended.out


@pytest.mark.parametrize("what", ["early", "busy"])
def test_a_healthy_job_is_left_alone(what, tmp_path):
    """One rank is done long before the other; or holds Python's lock for long; and made other
    networks before."""
    ended = Job("failing.py", 2, what, str(tmp_path / "stamp")).end()
    assert ended.status == 0 and not ended.left, ended.err
    assert sorted(ended.out.splitlines()) == ["rank 0 is done", "rank 1 is done"]
