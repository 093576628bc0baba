"""mxlite: deep learning inside a named byte budget.

    import mxlite as mx
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=10), name="softmax")
    print(net.memory_plan(mx.cpu(), memory_budget="64MiB", data=(32, 784)))

Programs written for MXNet's Symbol, NDArray and Module APIs run with `import mxlite as mx`.
"""

import importlib as _importlib
import sys as _sys
import typing as _typing

from .core.finder import FINDER as _FINDER
from .core.process.collection import grow_old as _grow_old, no_collection as _no_collection

# Modules and functions are many objects, and stay: to look for cycles among them took a fifth of the time.
with _no_collection():
    from . import core as core, engine as engine, ndarray as ndarray, symbol as symbol

    _grow_old()

from .core import (
    ArgumentError as ArgumentError,
    BindError as BindError,
    BudgetError as BudgetError,
    Context as Context,
    cpu as cpu,
    cpu_pinned as cpu_pinned,
    current_context as current_context,
    DeferredInitializationError as DeferredInitializationError,
    DefinitionError as DefinitionError,
    DerivativeError as DerivativeError,
    DeviceError as DeviceError,
    DTypeError as DTypeError,
    EngineError as EngineError,
    FileAccessError as FileAccessError,
    FileError as FileError,
    FolderError as FolderError,
    format_bytes as format_bytes,
    FormatError as FormatError,
    gpu as gpu,
    IndexingError as IndexingError,
    MemoryBudgetError as MemoryBudgetError,
    MissingFileError as MissingFileError,
    MissingMethodError as MissingMethodError,
    MXLiteError as MXLiteError,
    MXNetError as MXNetError,
    OpAttributeError as OpAttributeError,
    OperatorError as OperatorError,
    OutOfMemoryError as OutOfMemoryError,
    parse_bytes as parse_bytes,
    PlaceError as PlaceError,
    PlanError as PlanError,
    RangeError as RangeError,
    RewriteError as RewriteError,
    ScheduledRateError as ScheduledRateError,
    SearchLimitError as SearchLimitError,
    ShapeError as ShapeError,
    StateError as StateError,
    UnknownAttributeError as UnknownAttributeError,
    UnknownNameError as UnknownNameError,
)
from .core.compat import log_names as _log_names, util_names as _util_names
from .core.compat.util_names import (
    is_np_array as is_np_array,
    is_np_shape as is_np_shape,
    np_array as np_array,
    np_shape as np_shape,
    set_np_shape as set_np_shape,
    use_np as use_np,
    use_np_shape as use_np_shape,
)
from .ndarray import context as context, NDArray as NDArray, random as random
from .ndarray.context import (
    gpu_memory_info as gpu_memory_info,
    num_gpus as num_gpus,
    set_gpu_memory_limit as set_gpu_memory_limit,
)
from .ndarray.threads import get_num_threads as get_num_threads, set_num_threads as set_num_threads
from .symbol import (
    attribute as attribute,
    AttrScope as AttrScope,
    autograd as autograd,
    operator as operator,
    Symbol as Symbol,
    var as var,
    Variable as Variable,
)

# MXNet's short names, and the modules where its programs look for errors and devices.
base = core
nd = ndarray
sym = symbol
rnd = random
name = symbol.naming
util = _util_names
log = _log_names

# What is loaded when a program first uses it: `_LATER` says so to Python, this block to type checkers.
if _typing.TYPE_CHECKING:
    from . import (
        dist as dist,
        dynamic as dynamic,
        executor as executor,
        formats as formats,
        gluon as gluon,
        io as io,
        memplan as memplan,
        models as models,
        module as module,
        profiler as profiler,
        test_utils as test_utils,
        tools as tools,
    )
    from .backends import tune as tune
    from .executor import Executor as Executor
    from .formats import onnx as onnx, torch as torch
    from .formats.torch import from_torch as from_torch
    from .io import image as image, recordio as recordio
    from .module import (
        contrib as contrib,
        executor_manager as executor_manager,
        kvstore as kvstore,
        misc as misc,
        model as model,
        registry as registry,
        rnn as rnn,
    )
    from .module.initial import initializer as initializer
    from .module.metrics import metric as metric
    from .module.optim import lr_scheduler as lr_scheduler, optimizer as optimizer
    from .module.watch import callback as callback, monitor as monitor
    from .tools import draw as visualization, runtime as runtime

    mod = module
    init = initializer
    opt = optimizer
    kv = kvstore
    mon = monitor
    viz = visualization
    img = image

_LATER = {
    "callback": "module.watch.callback",
    "contrib": "module.contrib",
    "dist": "dist",
    "dynamic": "dynamic",
    "executor": "executor",
    "Executor": "executor:Executor",
    "executor_manager": "module.executor_manager",
    "formats": "formats",
    "from_torch": "formats.torch:from_torch",
    "gluon": "gluon",
    "image": "io.image",
    "img": "io.image",
    "init": "module.initial.initializer",
    "initializer": "module.initial.initializer",
    "io": "io",
    "kv": "module.kvstore",
    "kvstore": "module.kvstore",
    "lr_scheduler": "module.optim.lr_scheduler",
    "memplan": "memplan",
    "metric": "module.metrics.metric",
    "misc": "module.misc",
    "mod": "module",
    "model": "module.model",
    "models": "models",
    "module": "module",
    "mon": "module.watch.monitor",
    "monitor": "module.watch.monitor",
    "onnx": "formats.onnx",
    "opt": "module.optim.optimizer",
    "optimizer": "module.optim.optimizer",
    "profiler": "profiler",
    "recordio": "io.recordio",
    "registry": "module.registry",
    "rnn": "module.rnn",
    "runtime": "tools.runtime",
    "test_utils": "test_utils",
    "tools": "tools",
    "torch": "formats.torch",
    "tune": "backends.tune",
    "visualization": "tools.draw",
    "viz": "tools.draw",
}
"""Name of this package -> the module that it is, or module:name in it."""

# Modules that lie deeper here than in MXNet: `from mxlite.recordio import pack` finds them all the same.
_FINDER.add(
    {
        f"{__name__}.{name}": f"{__name__}.{place}"
        for name, place in {
            **{n: p for n, p in _LATER.items() if n != p and ":" not in p},
            "attribute": "symbol.attribute",
            "autograd": "symbol.autograd",
            "base": "core",
            "context": "ndarray.context",
            "contrib.amp": "module.amp_names",
            "contrib.amp.amp": "module.amp_names",
            "contrib.autograd": "ndarray.gradients.old_autograd",
            "contrib.io": "io.loader_iter",
            "contrib.onnx": "formats.onnx",
            "contrib.text": "io.text",
            "gluon.block": "gluon.block_names",
            "gluon.contrib.nn.basic_layers": "gluon.contrib.nn",
            "gluon.data.dataloader": "gluon.data.loader",
            "gluon.nn.activations": "gluon.nn",
            "gluon.nn.basic_layers": "gluon.nn",
            "gluon.nn.conv_layers": "gluon.nn",
            "gluon.parameter": "gluon.block_names",
            "gluon.rnn.rnn_cell": "gluon.rnn",
            "gluon.rnn.rnn_layer": "gluon.rnn",
            "gluon.utils": "gluon.util_names",
            "image.detection": "io.image",
            "image.image": "io.image",
            "io.io": "io",
            "log": "core.compat.log_names",
            "kvstore.kvstore": "module.kvstore",
            "name": "symbol.naming",
            "operator": "symbol.operator",
            "optimizer.optimizer": "module.optim.optimizer",
            "random": "ndarray.random",
            "rnn.rnn": "module.rnn",
            "rnn.rnn_cell": "module.rnn",
            "symbol._internal": "symbol",
            "symbol.op": "symbol",
            "util": "core.compat.util_names",
        }.items()
    }
)
for _name in ("_internal", "op"):  # these are no modules
    _sys.modules.setdefault(f"{ndarray.__name__}.{_name}", getattr(ndarray, _name))

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name in _LATER:
        module, _, inside = _LATER[name].partition(":")
        with _no_collection():
            found: object = _importlib.import_module(f"{__name__}.{module}")
        globals()[name] = found = getattr(found, inside) if inside else found
        return found

    from .core.compat.absent import absent

    raise UnknownAttributeError(absent("mx", name), name, __dir__)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


__all__ = [name for name in __dir__() if not name.startswith("_")]  # `import *` gives what loads later, too
