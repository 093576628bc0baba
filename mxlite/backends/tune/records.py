"""Records of measured schedules: an SQLite file that several processes may write, and what binding reads.

A row is one schedule of one task on one device: its seconds, those of the default schedule measured in turns
with it, a digest of its machine code and the versions of what made it. Binding takes a schedule only where it
was confirmed, alone on its cores, to be more than `GAIN` faster than the default one.

Binding never writes, measures or raises: it reads the file as bytes, by descriptor, if nobody but this user
can have written it (see core/disk/kept.py), and opens a copy of these in memory. Whatever is wrong with a
file costs speed and one message. Rows not yet moved from the write-ahead log are read once the last writer
has closed the file.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, TYPE_CHECKING

from ...core.disk import kept
from ...core.disk.files import opened, replacing
from ...core.errors import FormatError
from ...core.process import forks
from .space import Schedule
from .task import versions

if TYPE_CHECKING:
    import sqlite3  # loaded where there is a file: binding without one needs none

GAIN = 0.05
"""The part of the default schedule's time by which another must be faster: the noise floor is 3 to 5 %."""
APPLICATION, FORMAT = 0x6D786C74, 1  # SQLite's application_id, and the version of the table
MOST_BYTES = 256 * 2**20  # of a file
MOST_ROWS = 2_000_000
MOST_LINE = 4096  # bytes of one exported record
LONGEST_S = 1e6
_STEPS = 1_000_000  # of SQLite's machine between two looks at the clock
_READ_S = 20.0  # a file made to be slow is given up

_KINDS = ("application_id", "user_version")
_WANTED = "Records need a file of mxlite tune, or a new one"
_COLUMNS = "task device schedule operator seconds cold default_s confirmed digest versions at".split()
_TABLE = """CREATE TABLE IF NOT EXISTS records (task TEXT, device TEXT, schedule TEXT, operator TEXT,
    seconds REAL, cold REAL, default_s REAL, confirmed INTEGER, digest TEXT, versions TEXT, at INTEGER,
    PRIMARY KEY (task, device, schedule, versions)) WITHOUT ROWID"""
_PUT = (
    f"INSERT INTO records VALUES ({', '.join('?' * len(_COLUMNS))}) ON CONFLICT DO UPDATE SET "
    + ", ".join(f"{c} = excluded.{c}" for c in _COLUMNS[3:])
)
_NEWER = f"{_PUT} WHERE excluded.at > records.at"


@dataclass(frozen=True)
class Record:
    """One row. `seconds` in the cache and `cold` out of it are those of a call; `default_s` those of the
    default schedule in the same turns; `at` is when it was measured, in seconds of the epoch.
    """

    task: str
    device: str
    schedule: Schedule
    operator: str
    seconds: float
    cold: float
    default_s: float
    confirmed: bool
    digest: str
    versions: str
    at: int

    @property
    def ratio(self) -> float:
        """Its time as a part of the default schedule's."""
        return self.seconds / self.default_s

    def row(self) -> tuple[Any, ...]:
        """As the table has it."""
        found = asdict(self) | {"schedule": json.dumps(self.schedule.row()), "confirmed": int(self.confirmed)}
        return tuple(found[c] for c in _COLUMNS)

    @classmethod
    def of(cls, row: Sequence[Any]) -> Record | None:
        """From a row of any file; None if it is not plausible."""
        if len(row) != len(_COLUMNS):
            return None
        task, device, text, operator, seconds, cold, default_s, confirmed, digest, made, at = row
        words = task, device, text, operator, digest, made
        if not all(isinstance(w, str) and len(w) <= MOST_LINE for w in words):
            return None
        if not all(
            type(s) is float and isfinite(s) and 0 < s < LONGEST_S for s in (seconds, cold, default_s)
        ):
            return None
        if confirmed not in (0, 1) or type(at) is not int:
            return None
        try:
            schedule = Schedule.of(json.loads(text))
        except (ValueError, RecursionError):
            return None
        if schedule is None:
            return None
        return cls(
            task, device, schedule, operator, seconds, cold, default_s, bool(confirmed), digest, made, at
        )


class Records:
    """The content of a file when it was read: the fastest confirmed schedule of each task and device."""

    def __init__(self, rows: Iterable[Record] = ()) -> None:
        self._best: dict[tuple[str, str], Record] = {}
        self._usual: dict[tuple[str, str], Record] = {}
        for row in rows:
            at = row.task, row.device
            if row.versions != versions():
                continue
            if row.ratio == 1:
                self._usual[at] = row
            is_faster = row.confirmed and row.ratio < 1 - GAIN
            if is_faster and (at not in self._best or _rank(row) < _rank(self._best[at])):
                self._best[at] = row

    def best(self, task: str, device: str) -> Record | None:
        """The record of the schedule to be run; None: the default one."""
        return self._best.get((task, device))

    def times(self, task: str, device: str) -> tuple[float, float] | None:
        """Seconds out of the cache and in it of the schedule that `best` says, or of the default one."""
        found = self._best.get((task, device)) or self._usual.get((task, device))
        return None if found is None else (max(found.cold, found.seconds), found.seconds)

    def __len__(self) -> int:
        return len(self._best.keys() | self._usual.keys())

    @classmethod
    def read(cls, path: str) -> Records:
        """Those of a file, read once for as long as it stays as it is. Raises nothing; may warn, once."""
        path = os.path.abspath(os.path.expanduser(path))
        try:
            status = os.stat(path)
        except OSError as error:
            _tell(path, error.strerror or str(error))
            return cls()
        at = path, status.st_mtime_ns, status.st_size
        with _lock:
            if at not in _read:
                try:
                    _read[at] = cls(_rows(_loaded(path)))
                except FormatError as error:
                    _tell(path, str(error))
                    _read[at] = cls()
            return _read[at]


def _rank(row: Record) -> tuple[float, Schedule]:
    return row.ratio, row.schedule


_lock = forks.lock()
_read: dict[tuple[str, int, int], Records] = {}
_told: set[str] = set()


def _tell(path: str, why: str) -> None:
    if path not in _told:
        _told.add(path)
        warnings.warn(
            f"Records of schedules in {path!r} are not used ({why}): every kernel runs its default schedule. "
            f"`mxlite tune MODEL --records FILE` makes records; name that file.",
            RuntimeWarning,
            stacklevel=2,
        )


def _loaded(path: str) -> sqlite3.Connection:
    """A copy of the file in memory. Raises FormatError if it is missing, too large, or perhaps another's."""
    data = kept.content(path, MOST_BYTES)
    if data is None:
        raise FormatError(
            f"it is missing, larger than {MOST_BYTES} bytes, or others may write it or its folder"
        )
    if data[:16] != b"SQLite format 3\0" or len(data) < 100:
        raise FormatError("it is no SQLite file")
    # A file in WAL mode cannot be opened in memory: as a copy it is one of the older kind.
    data = data[:18] + b"\1\1" + data[20:]
    import sqlite3

    found = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        found.deserialize(data)
    except sqlite3.Error as error:
        raise FormatError(str(error)) from None
    return found


def _rows(found: sqlite3.Connection) -> list[Record]:
    """The plausible rows of an open file. Raises FormatError for another kind of file, or a broken one."""
    import sqlite3

    end = time.monotonic() + _READ_S
    found.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
    with closing(found):
        try:
            kinds = [found.execute(f"PRAGMA {what}").fetchone()[0] for what in _KINDS]
            if kinds[0] != APPLICATION:
                raise FormatError("it holds something else")
            if kinds[1] != FORMAT:
                raise FormatError(f"it has format {kinds[1]}, and this version of mxlite reads {FORMAT}")
            if (fault := found.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise FormatError(f"it is broken: {fault}")
            rows = found.execute(f"SELECT {', '.join(_COLUMNS)} FROM records").fetchmany(MOST_ROWS)
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            raise FormatError(f"it is broken: {error}") from None
    return [r for r in map(Record.of, rows) if r is not None]


class RecordFile:
    """A file of records that is written. Raises FormatError if that cannot be, or for one of another kind."""

    def __init__(self, path: str) -> None:
        import sqlite3

        self.path = os.path.abspath(os.path.expanduser(path))
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self._file = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            is_new = not self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            kind, made = (self._file.execute(f"PRAGMA {what}").fetchone()[0] for what in _KINDS)
            if not is_new and kind != APPLICATION:
                raise FormatError(f"{_WANTED}, but {self.path} is an SQLite file of another program.")
            if not is_new and made != FORMAT:
                raise FormatError(f"{_WANTED}, of format {FORMAT}, but {self.path} has format {made}.")
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute(f"PRAGMA application_id = {APPLICATION}")
            self._file.execute(f"PRAGMA user_version = {FORMAT}")
            self._file.execute(_TABLE)
        except OSError as error:
            raise FormatError(
                f"{_WANTED}, but {self.path} cannot be written: {error.strerror or error}."
            ) from None
        except sqlite3.DatabaseError as error:
            raise FormatError(f"{_WANTED}, but {self.path} is no file of records: {error}.") from None

    def put(self, records: Iterable[Record], newer: bool = False) -> None:
        """Write these; `newer`: where a row is there, only if it is older."""
        self._file.execute("BEGIN IMMEDIATE")
        try:
            self._file.executemany(_NEWER if newer else _PUT, [r.row() for r in records])
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")

    def rows(self) -> list[Record]:
        """All of them, as far as they are plausible."""
        rows = self._file.execute(f"SELECT {', '.join(_COLUMNS)} FROM records ORDER BY 1, 2, 3").fetchall()
        return [r for r in map(Record.of, rows) if r is not None]

    def close(self) -> None:
        """Move all to the file itself, where readers see it."""
        self._file.close()

    def __enter__(self) -> RecordFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def merge(files: Iterable[str], into: str) -> int:
    """Add the records of `files` to that of `into`: the latest of equal ones stays. Returns how many it read.

    Raises FormatError for a file that is none of records, or that another user may have written.
    """
    read = 0
    with RecordFile(into) as target:
        for path in files:
            rows = _rows(_loaded(os.path.abspath(os.path.expanduser(path))))
            target.put(rows, newer=True)
            read += len(rows)
    return read


def export_lines(path: str, lines: str) -> int:
    """Write the records of the file `path` as lines of JSON. Returns their number."""
    rows = _rows(_loaded(os.path.abspath(os.path.expanduser(path))))
    with replacing(lines, "w") as out:
        for r in rows:
            out.write(json.dumps(dict(zip(_COLUMNS, r.row()))) + "\n")
    return len(rows)


def import_lines(lines: str, into: str) -> int:
    """Add lines as `export_lines` writes them to a file of records. Returns their number.

    Raises FormatError with the number of the first line that is none, and then adds nothing.
    """
    with opened(lines, "r", encoding="utf-8") as file:
        rows = list(_of_lines(file, lines))
    with RecordFile(into) as target:
        target.put(rows, newer=True)
    return len(rows)


def _of_lines(file: Any, name: str) -> Iterator[Record]:
    number = 0
    while text := file.readline(MOST_LINE):
        number += 1
        try:
            told = json.loads(text)
            found = Record.of([told.get(c) for c in _COLUMNS]) if isinstance(told, dict) else None
        except (ValueError, RecursionError):
            found = None
        if found is None:
            raise FormatError(f"{name}: line {number} is no record of a schedule.")
        yield found
