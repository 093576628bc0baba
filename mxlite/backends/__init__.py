"""Backends: what runs a graph, from the passes that rewrite it to the kernels of a CPU and a GPU."""

from .base import (
    ALIGN as ALIGN,
    Backend as Backend,
    ChosenKernel as ChosenKernel,
    connected as connected,
    Kernel as Kernel,
    Request as Request,
    Row as Row,
)
from .call import bind_call as bind_call, Facts as Facts, flops_of as flops_of
from .checks import switch as switch
from .registry import backend_of as backend_of, planning_backend as planning_backend
from .remote import Remote as Remote
