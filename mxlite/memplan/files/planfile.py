"""Memory plans as JSON text, with a reader that trusts nothing in the file.

The reader checks that each field has the type its dataclass says (a bool is no int), each number its range,
each buffer the live range that the schedule gives it; the judge replays the plan; and writing the result must
reproduce what was read, digest included. So a file that was truncated or corrupted is refused, and
what is read can be bound safely. No number in the file leads to an allocation.

A new field of a dataclass is written and read without a change here, if its type is one of `_READERS`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from math import isfinite
from typing import Any, NoReturn, TYPE_CHECKING

from ...core.errors import FormatError, PlanError
from ..check import check
from ..placement.liveness import host_ranges, Liveness, LiveRange
from ..problem import ALIGN, CATEGORIES, HostLink, padded, Problem, Task, Value
from ..remat.schedule import FETCH, RUN, Schedule

if TYPE_CHECKING:
    from ..plan import MemoryPlan

VERSION = 9  # 1 had no host memory, 2 no cache, 3 nobody else in it, 4 no previews and no other steps, 5 no
# time of a call in a step beside those in and out of the cache, 6 no proof of what inference needs, 7 sums
# that were rounded as some versions of Python do, 8 other names of the operators that passes insert
MOST = 2**62  # bytes, and any other number: two of them still fit in 64 bits
_APART = ("schedule", "liveness", "offsets", "host_ranges", "steps", "forms", "whole")
"""Fields of a plan, its problem and its tasks that are written in a form of their own, or not at all."""
_SELDOM = {"threads": 0, "exchanges": 0, "phases": 2}
"""Fields that are written only where they differ from these defaults."""


def dumps(plan: MemoryPlan) -> str:
    """The whole plan as text, with the version of the format and a digest of all the rest."""
    return json.dumps(_encode(plan))


def loads(text: str, form: type[MemoryPlan]) -> MemoryPlan:
    """The plan that `dumps` wrote, passed by the judge; `form` is the class of plans.

    Raises FormatError, or PlanError if it is unsound.
    """
    try:
        data = json.loads(text, parse_constant=_no_number)
        if not isinstance(data, dict) or data.get("mxlite_memory_plan") != VERSION:
            found = data.get("mxlite_memory_plan") if isinstance(data, dict) else None
            raise FormatError(
                f"This is not a memory plan of version {VERSION}; its version is {str(found)[:40]!r}. "
                "Files of other versions are not read: plan again, and save that."
            )
        plan = _decode(data, form)
    except (FormatError, PlanError):
        raise
    except json.JSONDecodeError as error:
        raise FormatError(f"This is not the JSON of a memory plan, or it is cut short: {error}.") from None
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        kind, what = type(error).__name__, str(error)[:200]
        raise FormatError(f"The memory plan cannot be read: {kind}: {what}.") from None
    check(plan)
    _compare(json.loads(dumps(plan), parse_constant=_no_number), data)
    return plan


def _encode(plan: MemoryPlan) -> dict[str, Any]:
    problem, schedule = plan.problem, plan.schedule
    data: dict[str, Any] = {"mxlite_memory_plan": VERSION}
    data |= {f.name: getattr(plan, f.name) for f in fields(plan) if f.name not in _APART}
    data["bound_bytes"] = plan.lower_bound_bytes
    # These values follow from the rest; they are there for other programs that read the file.
    for name in ("peak_bytes", "arena_bytes", "lower_bound_bytes", "extra_time", "breakdown"):
        data[name] = getattr(plan, name)
    data["problem"] = _record(problem) | {
        "tasks": [_record(t) for t in problem.tasks],
        "values": [_record(v) for v in problem.values],
        "fixed_bytes": dict(problem.fixed_bytes),
        "host": None if problem.host is None else _record(problem.host),
    }
    data["schedule"] = _record(schedule, "problem")
    data["buffers"] = [
        [plan.offsets[b], r.nbytes, r.start, r.stop, r.members] for b, r in enumerate(plan.liveness.ranges)
    ]
    data["digest"] = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    return data


def _record(item: Any, *without: str) -> dict[str, Any]:
    found = {f.name: getattr(item, f.name) for f in fields(item) if f.name not in (*_APART, *without)}
    return {name: x for name, x in found.items() if name not in _SELDOM or x != _SELDOM[name]}


def _decode(data: Mapping[str, Any], form: type[MemoryPlan]) -> MemoryPlan:
    given = data["problem"]
    with _reading("tasks of the problem"):
        listed = _list(given["tasks"])
    tasks = tuple(Task(**_fields(Task, t, f"task {n}")) for n, t in enumerate(listed))
    with _reading("values of the problem"):
        listed = _list(given["values"])
    values = tuple(Value(**_fields(Value, v, f"value {n}")) for n, v in enumerate(listed))
    host = given["host"]
    if host is not None:
        host = HostLink(**_fields(HostLink, host, "the way to host memory"))
    problem = Problem(**_fields(Problem, given, "the problem"), tasks=tasks, values=values, host=host)
    _check_problem(problem)
    schedule = Schedule(problem=problem, **_fields(Schedule, data["schedule"], "the schedule"))
    _check_schedule(schedule)
    own = _fields(form, data, "the plan")
    _within((own["bound_bytes"],), 0, problem.lower_bound_bytes + 1, "the lower bound")
    with _reading("buffers of the plan"):
        listed = _list(data["buffers"])
    liveness, offsets = _buffers(schedule, listed, own["placed_bytes"])
    waiting = host_ranges(schedule)
    _check_host(waiting, own["host_offsets"], own["host_bytes"])
    return form(schedule=schedule, liveness=liveness, offsets=offsets, host_ranges=waiting, **own)


# -- fields by their types -------------------------------------------------------------------------


def _int(x: Any, least: int = 0) -> int:
    if type(x) is not int or not least <= x < MOST:
        raise FormatError(f"{str(x)[:40]!r} is no whole number of at least {least} and below 2**62")
    return x


def _seconds(x: Any) -> float:
    if type(x) not in (int, float) or not isfinite(x) or not 0 <= x < MOST:
        raise FormatError(f"{str(x)[:40]!r} is no number of at least 0")
    return x  # type: ignore[no-any-return]


def _of_kind(kind: type) -> Callable[[Any], Any]:
    def read(x: Any) -> Any:
        if type(x) is not kind:
            raise FormatError(f"{str(x)[:40]!r} is no {kind.__name__}")
        return x

    return read


def _list(x: Any) -> list[Any]:
    if type(x) is not list:
        raise FormatError(f"{str(x)[:40]!r} is no list")
    return x


def _numbers(x: Any) -> tuple[int, ...]:
    """Numbers of a list, in which -1 stands for an output that nothing reads."""
    return tuple(_int(n, -1) for n in _list(x))


def _rows(x: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(map(_numbers, _list(x)))


def _pairs(x: Any) -> tuple[tuple[int, ...], ...]:
    rows = _rows(x)
    if any(len(row) != 2 for row in rows):
        raise FormatError("a pair has two numbers")
    return rows


def _by_category(x: Any) -> dict[str, int]:
    if type(x) is not dict or any(c not in CATEGORIES for c in x):
        raise FormatError(f"{str(x)[:80]!r} are no bytes by category")
    return {c: _int(n) for c, n in x.items()}


_READERS: dict[str, Callable[[Any], Any]] = {
    "int": _int,
    "float": _seconds,
    "bool": _of_kind(bool),
    "str": _of_kind(str),
    "int | None": lambda x: None if x is None else _int(x),
    "tuple[int, ...]": _numbers,
    "tuple[tuple[int, ...], ...]": _rows,
    "tuple[tuple[int, int], ...]": _pairs,
    "Mapping[str, int]": _by_category,
}


def _fields(cls: type, data: Any, what: str) -> dict[str, Any]:
    """Arguments for dataclass `cls`, read by its field types from `_READERS`."""
    if type(data) is not dict:
        raise FormatError(f"The memory plan: {what} is {str(data)[:40]!r}.")
    result = {}
    for f in fields(cls):
        if (read := _READERS.get(str(f.type))) is None or f.name in _APART:
            continue
        if f.name not in data:
            if f.name in _SELDOM:
                continue
            raise FormatError(f"The memory plan: {what} has no {f.name}.")
        with _reading(f"{f.name} of {what}"):
            result[f.name] = read(data[f.name])
    return result


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Context that adds to errors of a reader what it was reading."""
    try:
        yield
    except FormatError as error:
        raise FormatError(f"The memory plan: {what}: {error}.") from None


# -- checks beyond types ---------------------------------------------------------------------------


def _within(numbers: Sequence[int], low: int, high: int, what: str) -> None:
    for n in numbers:
        if not low <= n < high:
            raise FormatError(f"The memory plan: {what} {n} is outside [{low}, {high}).")


def _check_problem(problem: Problem) -> None:
    tasks, values = problem.tasks, problem.values
    _within((problem.num_forward,), 0, len(tasks) + 1, "the number of forward tasks")
    _within([problem.least_bound], 0, problem.least_arena + 1, "the lower bound of inference,")
    made: set[int] = set()
    for task in tasks:
        _within(task.inputs, 0, len(values), "value")
        _within((*task.mutates, *task.always), 0, len(values), "value")
        _within([v for pair in task.in_place for v in pair], 0, len(values), "value")
        _within(task.outputs, -1, len(values), "value")
        for v in task.outputs:
            if v in made:
                raise FormatError(f"The memory plan: two tasks make value {v}.")
            if v >= 0:
                made.add(v)
    total = sum(v.nbytes for v in values) + sum(t.workspace for t in tasks) + problem.fixed_total
    if total >= MOST:
        raise FormatError(f"The memory plan's bytes, {total} together, do not fit in 62 bits.")


def _check_schedule(schedule: Schedule) -> None:
    tasks, steps = schedule.problem.tasks, len(schedule.task)
    instances, values = len(schedule.value_of), len(schedule.problem.values)
    if not steps == len(schedule.copy) == len(schedule.inputs) == len(schedule.outputs):
        raise FormatError("The memory plan's step lists have different lengths.")
    _within((schedule.num_forward,), 0, steps + 1, "the number of forward steps")
    _within(schedule.task, 0, len(tasks), "task")
    _within(schedule.copy, 0, MOST, "copy")
    _within(schedule.value_of, 0, values, "value")
    if schedule.value_of[:values] != tuple(range(values)):
        raise FormatError("The memory plan's first instances are not its values.")
    if schedule.kind and len(schedule.kind) != steps:
        raise FormatError("The memory plan's step lists have different lengths.")
    _within(schedule.kind, RUN, FETCH + 1, "kind of step")
    for s, (t, kind) in enumerate(zip(schedule.task, schedule.kinds)):
        copies = kind != RUN
        _within(schedule.inputs[s], 0, instances, "instance")
        _within(schedule.outputs[s], 0 if copies else -1, instances, "instance")
        if len(schedule.outputs[s]) != (1 if copies else len(tasks[t].outputs)):
            raise FormatError(f"The memory plan's step {s} has other outputs than its task.")
        if copies and len(schedule.inputs[s]) != 1:
            raise FormatError(f"The memory plan's step {s} copies more or less than one array.")


def _buffers(schedule: Schedule, rows: list[Any], placed: int) -> tuple[Liveness, tuple[int, ...]]:
    """Buffers and offsets of the file, checked against the live ranges that the schedule implies."""
    problem, value_of = schedule.problem, schedule.value_of
    written: dict[int, int] = {}
    last_use: dict[int, int] = {}
    for s, (ins, outs) in enumerate(zip(schedule.inputs, schedule.outputs)):
        for i in outs:
            if i >= 0:
                written[i] = last_use[i] = s
        for i in ins:
            last_use[i] = s
    hosted = schedule.hosted
    range_of = [-1] * len(value_of)
    workspace_of: dict[int, int] = {}
    ranges, offsets = [], []
    for b, row in enumerate(rows):
        with _reading(f"buffer {b}"):
            offset, nbytes, start, stop, listed = _list(row)
            _numbers([offset, nbytes, start, stop])
        with _reading(f"members of buffer {b}"):
            members = _numbers(listed)
        _within(members, 0, len(value_of), "instance")
        if not 0 <= start < stop <= len(schedule.task):
            raise FormatError(
                f"The memory plan's buffer {b} lives during [{start}, {stop}) of {len(schedule.task)} steps."
            )
        if members:
            if any(
                i not in written or i in hosted or range_of[i] >= 0 or problem.values[value_of[i]].fixed
                for i in members
            ):
                raise FormatError(f"The memory plan's buffer {b} has members that are not its own.")
            life = min(written[i] for i in members), max(last_use[i] for i in members) + 1
            needs = {problem.values[value_of[i]].nbytes for i in members}
        else:
            life, needs = (start, start + 1), {problem.tasks[schedule.task[start]].workspace}
            if start in workspace_of:
                raise FormatError(f"The memory plan has two workspaces for step {start}.")
            workspace_of[start] = b
        if life != (start, stop) or needs != {nbytes}:
            raise FormatError(
                f"The memory plan's buffer {b} has {nbytes} bytes during [{start}, {stop}), but its members "
                f"need {max(needs)} bytes during [{life[0]}, {life[1]})."
            )
        if offset < 0 or offset % ALIGN or offset + nbytes > placed:
            raise FormatError(
                f"The memory plan's buffer {b}, {nbytes} bytes at {offset}, is not within its {placed} bytes."
            )
        for i in members:
            range_of[i] = b
        ranges.append(LiveRange(members, start, stop, nbytes))
        offsets.append(offset)
    return Liveness(tuple(ranges), tuple(range_of), workspace_of), tuple(offsets)


def _check_host(waiting: Sequence[LiveRange], offsets: Sequence[int], nbytes: int) -> None:
    if len(offsets) != len(waiting):
        raise FormatError(
            f"The memory plan places {len(offsets)} arrays in host memory, but copies {len(waiting)} there."
        )
    for r, offset in zip(waiting, offsets):
        if offset < 0 or offset % ALIGN or offset + padded(r.nbytes) > nbytes:
            raise FormatError(
                f"The memory plan's copy of {r.nbytes} bytes at {offset} is not within its {nbytes} bytes "
                f"of host memory."
            )


def _compare(again: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Raise FormatError unless the file's derived values are those that the plan computes."""
    for key in sorted({*again, *data}):
        ours, theirs = (json.dumps(d.get(key), sort_keys=True) for d in (again, data))
        if ours != theirs and key != "digest":
            raise FormatError(
                f"The memory plan's {key[:40]} does not follow from the rest: {theirs[:40]}, not {ours[:40]}."
            )
    if again["digest"] != data.get("digest"):
        raise FormatError("The memory plan's digest is not that of its content: the file was changed.")


def _no_number(text: str) -> NoReturn:
    raise FormatError(f"The memory plan has {text} where a number should be.")
