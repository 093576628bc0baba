"""Generated code: loops as LLVM IR text, compiled by core.machine_code.native, run on oneDNN's threads."""

from .calls.team import (
    call as call,
    load as load,
    parts_for as parts_for,
    threads_for as threads_for,
    usable as usable,
)
from .codegen.emitter import Function as Function, Module as Module, storable as storable, width as width
