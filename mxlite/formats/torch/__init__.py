"""`mx.torch`: modules of PyTorch. Needs the package torch, which mxlite never imports by itself."""

from .checkpoints import (
    Applied as Applied,
    apply as apply,
    plan as plan,
    StepPlan as StepPlan,
)
from .errors import UnsupportedModuleError as UnsupportedModuleError
from .importer import from_torch as from_torch
from .node import TorchNode as TorchNode
from .table import register as register
from .weights import load_into as load_into
