from .base_names import (
    integer_types as integer_types,
    mx_real_t as mx_real_t,
    numeric_types as numeric_types,
    py_str as py_str,
    string_types as string_types,
)
from .bytesize import format_bytes as format_bytes, parse_bytes as parse_bytes
from .device import (
    Context as Context,
    cpu as cpu,
    cpu_pinned as cpu_pinned,
    current_context as current_context,
    gpu as gpu,
    host_memory as host_memory,
    set_default_context as set_default_context,
)
from .dtype import (
    as_dtype as as_dtype,
    bfloat16 as bfloat16,
    flag_of as flag_of,
    FLAGS as FLAGS,
    is_floating as is_floating,
)
from .errors import (
    ArgumentError as ArgumentError,
    BindError as BindError,
    BudgetError as BudgetError,
    DefinitionError as DefinitionError,
    DerivativeError as DerivativeError,
    DeviceError as DeviceError,
    DTypeError as DTypeError,
    EngineError as EngineError,
    FormatError as FormatError,
    MemoryBudgetError as MemoryBudgetError,
    MXLiteError as MXLiteError,
    MXNetError as MXNetError,
    nearest as nearest,
    OpAttributeError as OpAttributeError,
    OperatorError as OperatorError,
    OutOfMemoryError as OutOfMemoryError,
    PlaceError as PlaceError,
    PlanError as PlanError,
    ScheduledRateError as ScheduledRateError,
    SearchLimitError as SearchLimitError,
    ShapeError as ShapeError,
    StateError as StateError,
    UnknownAttributeError as UnknownAttributeError,
    UnknownNameError as UnknownNameError,
)
from .files import read_at_most as read_at_most, replacing as replacing
