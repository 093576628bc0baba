"""Schedules that are measured: what may be varied of a kernel call, its search, records of what was found.

    space    what may be varied of a task: candidates, threads, knobs of their code
    measure  worker processes that build and time schedules
    search   which are measured next, at random or by a cost model (`model`)
    records  an SQLite file, which binding reads: simple_bind(records=FILE), MXLITE_RECORDS

`python -m mxlite tune MODEL` tunes a network. Without records each kernel runs its default schedule.
"""

from .records import (
    export_lines as export_lines,
    import_lines as import_lines,
    merge as merge,
    Record as Record,
    Records as Records,
)
from .space import Schedule as Schedule
