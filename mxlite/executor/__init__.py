"""Bound programs: what is asked for, planned, run and measured."""

from .bind import (
    bind as bind,
    calibrate as calibrate,
    expect as expect,
    GroupPlace as GroupPlace,
    memory_plan as memory_plan,
    memory_plans as memory_plans,
    simple_bind as simple_bind,
)
from .executor import Executor as Executor
from .group import ExecutorGroup as ExecutorGroup
from .measure.calibration import Calibration as Calibration
from .request.amp import amp_types as amp_types
from .request.bind_request import BindRequest as BindRequest
from .request.hold import hold as hold
from .run.arena import Arena as Arena
from .run.program import Program as Program, step_order as step_order
from .share import DeviceMemory as DeviceMemory
