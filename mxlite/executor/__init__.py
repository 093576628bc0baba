from .amp import amp_types as amp_types
from .arena import Arena as Arena
from .bind import (
    bind as bind,
    calibrate as calibrate,
    expect as expect,
    memory_plan as memory_plan,
    Place as Place,
    simple_bind as simple_bind,
)
from .calibration import Calibration as Calibration
from .executor import Executor as Executor
from .group import ExecutorGroup as ExecutorGroup
from .hold import hold as hold
from .program import Program as Program, step_order as step_order
from .bind_request import BindRequest as BindRequest
