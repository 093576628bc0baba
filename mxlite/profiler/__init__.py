"""mx.profiler: the time of each kernel, its share of the machine's peak, and the memory in use.

mx.profiler.set_state("run")
...
print(mx.profiler.dumps())      # a row for each kernel
mx.profiler.dump()              # profile.json, for ui.perfetto.dev
"""

from .objects import (
    Counter as Counter,
    Domain as Domain,
    Event as Event,
    Frame as Frame,
    Marker as Marker,
    scope as scope,
    Task as Task,
)
from .session import (
    dump as dump,
    dump_profile as dump_profile,
    dumps as dumps,
    pause as pause,
    profiler_set_config as profiler_set_config,
    profiler_set_state as profiler_set_state,
    resume as resume,
    set_config as set_config,
    set_state as set_state,
    start as start,
    stop as stop,
)
