"""Read/write order on threads: push closures with the Vars they touch, wait for the Vars you need.

Start reading at `engine.py`.
"""

from .current import (
    bulk as bulk,
    get_engine as get_engine,
    inline_engine as inline_engine,
    set_bulk_size as set_bulk_size,
    set_engine as set_engine,
    unwatched as unwatched,
    use_engine as use_engine,
    watch as watch,
)
from .engine import Engine as Engine
from .naive import NaiveEngine as NaiveEngine
from .operation import Vars as Vars
from .switching import SWITCHING as SWITCHING
from .threaded import ThreadedEngine as ThreadedEngine
from .var import Var as Var
from .watched import Watcher as Watcher
