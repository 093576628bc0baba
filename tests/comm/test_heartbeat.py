"""The heartbeat of the rank before, by a clock that the test turns."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mxlite.comm import heartbeat as heartbeats
from mxlite.comm.heartbeat import BEAT_S, Heartbeat


class Aborted(Exception):
    """The job was ended."""


class Ring:
    """A ring that hears what the script of a job says, and forgets what is sent."""

    before, hosts = 1, ["here", "here"]

    def __init__(self, script, process):
        self._script, self.processes = iter(script), [os.getpid(), process]
        self.now, self._message = 0.0, None

    def send(self, *numbers):
        pass

    def received(self):
        message, self._message = self._message, None
        return message

    def wait(self, seconds):
        """The next beat: its length in seconds, and what was heard in it. True at the end of the script."""
        length, self._message = next(self._script, (None, None))
        self.now += length or 0.0
        return length is None


class Communicator:
    """As much of a communicator as a heartbeat asks for."""

    rank, size, step, begun, missing, heard, devices = 0, 2, 7, 40, "", (0, 0), ()

    def __init__(self, ring):
        self.ring = lambda: ring

    def abort(self, status):
        raise Aborted(status)


def watched(monkeypatch, script, process=None, devices=()):
    """The communicator of a rank whose heartbeat has heard the whole script; Aborted if that ends the job."""
    ring = Ring(script, os.getpid() if process is None else process)
    comm = Communicator(ring)
    comm.devices = devices
    monkeypatch.setattr(heartbeats.time, "monotonic", lambda: ring.now)
    heartbeat = Heartbeat(comm)
    monkeypatch.setattr(heartbeat, "_rest", lambda: not ring.wait(BEAT_S))
    heartbeat._run()
    return comm


def beats(seconds, message=None):
    return [(BEAT_S, message)] * int(seconds / BEAT_S)


def gone():
    """The number of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


alive = [0, 4, 33]


def test_a_silent_rank_ends_the_job(monkeypatch, capsys):
    watched(monkeypatch, [(BEAT_S, alive), *beats(59)])
    with pytest.raises(Aborted):
        watched(monkeypatch, [(BEAT_S, alive), *beats(62)])
    said = capsys.readouterr().err
    assert "rank 1 has been silent for 60 s; the last it told was that it is in step 4." in said
    assert "Rank 0 is in step 7." in said


def test_a_dead_rank_of_this_machine_ends_it_within_seconds(monkeypatch, capsys):
    with pytest.raises(Aborted):
        watched(monkeypatch, beats(4), gone())  # which it has never heard of
    assert "rank 1 is stopped or dead" in capsys.readouterr().err


def test_a_rank_that_ended_too_early_for_a_gpu_ends_the_job(monkeypatch, capsys):
    """Nobody polls for a GPU. One that has ended after as many steps as this rank has begun is left alone."""
    watched(monkeypatch, [(BEAT_S, [1, 7, 50]), *beats(300)], devices=(print,))
    watched(monkeypatch, [(BEAT_S, [1, 6, 50]), *beats(300)])
    with pytest.raises(Aborted):
        watched(monkeypatch, [(BEAT_S, [1, 6, 50]), *beats(2)], devices=(print,))
    said = capsys.readouterr().err
    assert "rank 1 has ended after step 6, but rank 0 is in step 7, and its GPU waits for it" in said


def test_a_healthy_rank_is_left_alone(monkeypatch):
    """It beats; this process could not listen for two minutes; it has ended; silence has no limit."""
    watched(monkeypatch, beats(300, alive))
    watched(monkeypatch, [(BEAT_S, alive), (120.0, None), *beats(30)])
    comm = watched(monkeypatch, [(BEAT_S, alive), (BEAT_S, [1, 9, 50]), *beats(300)])
    assert comm.missing == "rank 1 has ended after step 9"
    assert comm.heard == (1, 33)  # its messages, by which `meet` knows that it has gone on
    monkeypatch.setenv("MXLITE_RANK_SILENCE_S", "0")
    watched(monkeypatch, [(BEAT_S, alive), *beats(300)])
