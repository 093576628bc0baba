"""mxlite: deep learning inside a named byte budget.

    import mxlite as mx
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=10), name="softmax")
    print(net.memory_plan(mx.cpu(), memory_budget="64MiB", data=(32, 784)))

Programs written for MXNet's Symbol, NDArray and Module APIs run with `import mxlite as mx`.
"""

import sys as _sys

from .core.process.collection import grow_old as _grow_old, no_collection as _no_collection

# Modules and functions are many objects, and stay: to look for cycles among them took a fifth of the time.
with _no_collection():
    from . import (
        core as core,
        engine as engine,
        formats as formats,
        io as io,
        memplan as memplan,
        models as models,
        module as module,
        ndarray as ndarray,
        profiler as profiler,
        symbol as symbol,
        test_utils as test_utils,
        tools as tools,
    )

    _grow_old()

from .core import (
    ArgumentError as ArgumentError,
    BindError as BindError,
    BudgetError as BudgetError,
    Context as Context,
    cpu as cpu,
    cpu_pinned as cpu_pinned,
    current_context as current_context,
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
from .core.compat import util_names as util
from .core.compat.util_names import (
    is_np_array as is_np_array,
    is_np_shape as is_np_shape,
    np_array as np_array,
    np_shape as np_shape,
    set_np_shape as set_np_shape,
    use_np as use_np,
    use_np_shape as use_np_shape,
)
from .executor import Executor as Executor
from .io import image as image, recordio as recordio
from .module import (
    contrib as contrib,
    executor_manager as executor_manager,
    kvstore as kvstore,
    misc as misc,
    model as model,
    rnn as rnn,
)
from .module.initial import initializer as initializer
from .module.metrics import metric as metric
from .module.optim import lr_scheduler as lr_scheduler, optimizer as optimizer
from .module.watch import callback as callback, monitor as monitor
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
from .tools import draw as visualization, runtime as runtime

# MXNet's short names, and the modules where its programs look for errors and devices.
base = core
nd = ndarray
sym = symbol
mod = module
init = initializer
opt = optimizer
kv = kvstore
mon = monitor
rnd = random
viz = visualization
name = symbol.naming
img = image
# MXNet's has this name, and tests of its users get it by `from mxnet.test_utils import *`.
test_utils.mx = _sys.modules[__name__]  # type: ignore[attr-defined]

# Modules that lie deeper here than in MXNet: `from mxlite.recordio import pack` finds them all the same.
for _module in (
    attribute,
    autograd,
    callback,
    context,
    contrib,
    executor_manager,
    image,
    initializer,
    kvstore,
    lr_scheduler,
    metric,
    misc,
    model,
    monitor,
    operator,
    optimizer,
    random,
    recordio,
    rnn,
    runtime,
    visualization,
):
    _name = "visualization" if _module is visualization else _module.__name__.rpartition(".")[2]
    _sys.modules.setdefault(f"{__name__}.{_name}", _module)
for _module in (contrib.text, contrib.text.embedding, contrib.text.utils, contrib.text.vocab):
    _name = _module.__name__.rpartition("io.")[2]
    _sys.modules.setdefault(f"{__name__}.contrib.{_name}", _module)

for _name, _found in {
    "base": base,
    "contrib.autograd": contrib.autograd,
    "contrib.onnx": contrib.onnx,
    "image.detection": image,
    "image.image": image,
    "io.io": io,
    "name": name,
    "ndarray._internal": ndarray._internal,
    "ndarray.op": ndarray.op,
    "optimizer.optimizer": optimizer,
    "rnn.rnn_cell": rnn,
    "symbol._internal": symbol._internal,
    "symbol.op": symbol.op,
    "util": util,
}.items():
    _sys.modules.setdefault(f"{__name__}.{_name}", _found)  # type: ignore[arg-type]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    from .core.compat.absent import absent

    raise UnknownAttributeError(absent("mx", name), name, lambda: sorted(globals()))
