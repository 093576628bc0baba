"""`mx.profiler`: its settings, its state, and its output."""

from __future__ import annotations

import atexit
import json
import os
import warnings
from dataclasses import asdict, dataclass
from typing import Any

from ..backends.cpu.runtime.threads import num_threads
from ..core import MXLiteError, nearest, replacing
from ..core.log import Log
from ..core.wanted import wanted_path
from ..engine import get_engine, watch
from . import peak
from .recorder import Recorder, Wanted
from .table import data_of, rows_of, SORTS, summary_of, table_of
from .trace import trace_of

_log = Log(__name__)


@dataclass
class Config:
    """The settings of `set_config`. Names and defaults are MXNet's; those not used here are accepted."""

    filename: str = "profile.json"
    profile_all: bool = False
    profile_symbolic: bool = False
    profile_imperative: bool = False
    profile_memory: bool = False
    profile_api: bool = False
    continuous_dump: bool = False
    dump_period: float = 1.0
    aggregate_stats: bool = False
    profile_process: str = "worker"
    gpu_memory_profile_filename_prefix: str = ""

    def wanted(self) -> Wanted:
        """The kinds of calls to record; all of them, if none was named."""
        named = self.profile_symbolic or self.profile_imperative or self.profile_memory
        if self.profile_all or not named:
            return Wanted()
        return Wanted(self.profile_symbolic, self.profile_imperative, self.profile_memory)


class Session:
    """The one profiler of a process: "stop", "run", or paused."""

    def __init__(self) -> None:
        self.config = Config()
        self.state = "stop"
        self.paused = False
        self.recorder = Recorder(Wanted())
        self.named = ""
        """The file that the program has named, relative to the folder it was in then."""
        self.unwritten = False
        """True if a record has begun that is in no file yet."""

    @property
    def active(self) -> bool:
        """True while calls are recorded."""
        return self.state == "run" and not self.paused

    def watch(self) -> None:
        """Install or remove the engine's watcher, as the state wants."""
        watch(self.recorder if self.active else None)


SESSION = Session()


def set_config(**kwargs: Any) -> None:
    """Set what to record and where to write it; before `set_state("run")`.

    filename: the trace that `dump` writes ("profile.json"); named here, it is also written when the program
    ends without a dump.  profile_all, profile_symbolic (bound programs), profile_imperative (operations on
    arrays), profile_memory (byte counters): what to record, everything if none is named.
    aggregate_stats and the rest of MXNet's parameters are accepted: `dumps` always works, nothing is dumped
    periodically, and there are no other processes.
    """
    names = list(asdict(Config()))
    for name in kwargs:
        if name not in names:
            raise MXLiteError(f"set_config has no parameter {name!r}.{nearest(name, names)}")
    if "filename" in kwargs:  # absolute, as the program may change its folder
        kwargs["filename"] = os.path.abspath(wanted_path("set_config: filename", kwargs["filename"]))
    SESSION.config = Config(**(asdict(SESSION.config) | kwargs))
    if "filename" in kwargs:
        SESSION.named = os.path.abspath(SESSION.config.filename)
    SESSION.recorder.wanted = SESSION.config.wanted()


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """Record from now on ("run"), or no longer ("stop"). A call is recorded if it is pushed while "run".

    "run" after "stop" starts a new record.
    """
    if state not in ("run", "stop"):
        raise MXLiteError(
            f"set_state wants 'run' or 'stop', got {state!r}.{nearest(str(state), ('run', 'stop'))}"
        )
    if state == "run" and SESSION.state == "stop":
        SESSION.recorder = Recorder(SESSION.config.wanted())
        SESSION.paused = False
        SESSION.unwritten = True
    SESSION.state = state
    SESSION.watch()


def start() -> None:
    """`set_state("run")`."""
    set_state("run")


def stop() -> None:
    """`set_state("stop")`."""
    set_state("stop")


def pause(profile_process: str = "worker") -> None:
    """Record nothing until `resume`; the record so far stays."""
    SESSION.paused = True
    SESSION.watch()


def resume(profile_process: str = "worker") -> None:
    """Go on recording."""
    SESSION.paused = False
    SESSION.watch()


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Write the trace to the file of `set_config`, for chrome://tracing or ui.perfetto.dev.

    Waits for all pushed work. `finished`: stop recording.
    """
    get_engine().rest()
    if finished:
        set_state("stop")
    about = {"kernels": data_of(rows_of(SESSION.recorder.calls()), "total", False)}
    with replacing(SESSION.config.filename) as file:
        file.write(json.dumps(trace_of(SESSION.recorder, about)).encode())
    SESSION.unwritten = False


def _at_exit() -> None:
    """Write an unwritten record into the file that the program has named.

    MXNet does so, and its older programs have no `dump`.
    """
    if SESSION.unwritten and SESSION.named:
        SESSION.config.filename = SESSION.named
        try:
            dump()
        except (OSError, MXLiteError) as error:
            _log.warning("The profile was not written to %s: %s", SESSION.config.filename, error)


# Registered after the engine's handler, so it runs before it: the engine still exists.
atexit.register(_at_exit)


def dumps(reset: bool = False, format: str = "table", sort_by: str = "total", ascending: bool = False) -> str:
    """The record, a row for each kernel of each operator, as a table or as JSON.

    Waits for all pushed work. The first call also measures the machine's peak (a tenth of a second), to
    report the share that each kernel reaches. `sort_by`: one of total, avg, min, max, count. `reset` clears
    the record.
    """
    for what, value, known in (("format", format, ("table", "json")), ("sort_by", sort_by, SORTS)):
        if value not in known:
            raise MXLiteError(
                f"dumps: {what} must be one of {known}, got {value!r}.{nearest(str(value), known)}"
            )
    get_engine().rest()
    watched, SESSION.paused = SESSION.paused, True  # measuring is no part of the record
    SESSION.watch()
    try:
        text = _dumps(format, sort_by, ascending)
    finally:
        SESSION.paused = watched
        SESSION.watch()
    if reset:
        SESSION.recorder.clear()
    return text


def _dumps(format: str, sort_by: str, ascending: bool) -> str:
    threads = num_threads()
    calls = list(SESSION.recorder.calls())
    types = {c.facts.dtype for c in calls if c.facts.flops}
    if not calls:
        return (
            "Nothing was recorded."
            if format == "table"
            else json.dumps({**summary_of([], sort_by, ascending), "Kernels": []})
        )
    copied = peak.bytes_per_s(threads)
    reached = {t: peak.flops_per_s(t, threads) for t in sorted(types) if t in _MEASURED}
    most = reached.get("float32") or max(reached.values(), default=peak.flops_per_s("float32", threads))

    def ideal(dtype: str, flops: float, nbytes: int) -> float:
        return max(flops / reached.get(dtype, most), nbytes / copied)

    rows = rows_of(calls, ideal)
    if format == "json":
        peaks = {"threads": threads, "bytes_per_s": copied, "flops_per_s": reached}
        summary = {**summary_of(rows, sort_by, ascending), "Kernels": data_of(rows, sort_by, ascending)}
        return json.dumps({**summary, "Peak": peaks}, indent=4)
    rates = ", ".join(f"{v / 1e9:.1f} GFLOP/s ({t})" for t, v in reached.items())
    note = (
        f"\n\nPeak of this machine with {threads} threads, measured: {rates + ', ' if rates else ''}"
        f"{copied / 1e9:.1f} GB/s copied.\nGFLOP/s count the operator's own arithmetic, GB/s its inputs and "
        f"outputs read and written once; from a cache that can be more than a copy reaches."
    )
    return table_of(rows, sort_by, ascending) + note


_MEASURED = ("float32", "float64", "float16", "bfloat16")


# -- MXNet's older names ---------------------------------------------------------------------------------


def profiler_set_config(mode: str = "symbolic", filename: str = "profile.json") -> None:
    """`set_config` with `mode` "symbolic", "imperative" or "all". Deprecated."""
    warnings.warn("profiler_set_config is deprecated: call set_config.", DeprecationWarning, stacklevel=2)
    set_config(filename=filename, **{f"profile_{mode}": True})


def profiler_set_state(state: str = "stop") -> None:
    """`set_state`. Deprecated."""
    warnings.warn("profiler_set_state is deprecated: call set_state.", DeprecationWarning, stacklevel=2)
    set_state(state)


def dump_profile() -> None:
    """`dump`. Deprecated."""
    warnings.warn("dump_profile is deprecated: call dump.", DeprecationWarning, stacklevel=2)
    dump(True)
