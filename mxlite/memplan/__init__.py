from .arena import place as place, Placement as Placement
from .check import check as check
from .device import Device as Device
from .liveness import (
    host_ranges as host_ranges,
    live_ranges as live_ranges,
    Liveness as Liveness,
    LiveRange as LiveRange,
)
from .order import predecessors as predecessors
from .plan import make_plan as make_plan, MemoryPlan as MemoryPlan, STRATEGIES as STRATEGIES
from .problem import (
    ALIGN as ALIGN,
    CATEGORIES as CATEGORIES,
    HostLink as HostLink,
    padded as padded,
    Problem as Problem,
    Task as Task,
    Value as Value,
)
from .reorder import reorder as reorder, reorder_within as reorder_within
from .schedule import (
    FETCH as FETCH,
    make_schedule as make_schedule,
    OFFLOADED as OFFLOADED,
    RUN as RUN,
    Schedule as Schedule,
    STORE as STORE,
)
from .search import plan_memory as plan_memory
from .split import (
    by_bytes as by_bytes,
    cheap as cheap,
    Cuts as Cuts,
    find_cuts as find_cuts,
    nested as nested,
    partial as partial,
)
from .steps import Steps as Steps
from .teams import leanest as leanest
from .template import structure as structure, Template as Template
