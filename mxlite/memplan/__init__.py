"""Memory planning: which results are kept, which are recomputed, and at which offset each lies."""

from .check import check as check
from .cost.device import Device as Device
from .cost.forms import leanest as leanest
from .cost.ranks import Ranks as Ranks
from .files.template import structure as structure, Template as Template
from .order.order import predecessors as predecessors
from .order.reorder import reorder as reorder, reorder_within as reorder_within
from .placement.arena import place as place, Placement as Placement
from .placement.liveness import (
    host_ranges as host_ranges,
    live_ranges as live_ranges,
    Liveness as Liveness,
    LiveRange as LiveRange,
)
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
from .remat.schedule import (
    FETCH as FETCH,
    make_schedule as make_schedule,
    OFFLOADED as OFFLOADED,
    RUN as RUN,
    Schedule as Schedule,
    STORE as STORE,
)
from .remat.search import plan_memory as plan_memory, Search as Search
from .remat.split import (
    by_bytes as by_bytes,
    cheap as cheap,
    Cuts as Cuts,
    find_cuts as find_cuts,
    nested as nested,
    partial as partial,
)
from .remat.steps import Steps as Steps
