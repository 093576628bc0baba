"""LLVM through llvmlite, which not every platform has: the first call of any function opens its library.

That takes a part of a second and tens of MB of memory, so native.py calls it as little as it can.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple


class Target(NamedTuple):
    """The CPU that code is compiled for."""

    triple: str
    cpu: str
    features: frozenset[str]
    text: str  # the features as LLVM wants them
    llvm: str


class Engine:
    """LLVM's own loader: the code of an object file in memory, there for as long as this object is.

    `symbols`: addresses of the functions that the file declares.
    """

    def __init__(self, blob: bytes, at: Target, symbols: Mapping[str, int]) -> None:
        llvm = binding()
        for name, address in symbols.items():
            llvm.add_symbol(name, address)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(at))
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(blob))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Address of the function `name`, 0 if there is none."""
        return int(self._engine.get_function_address(name))


def compile(text: str, at: Target, passes: int = 0) -> bytes:
    """The object file of a module. Raises RuntimeError with LLVM's words where the text is wrong."""
    llvm, machine = binding(), _machine(at)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = at.triple, str(machine.target_data)
    module.verify()
    if passes:
        options = llvm.create_pipeline_tuning_options(speed_level=passes)
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


def host() -> Target:
    """The processor of this process, by all its features."""
    llvm = binding()
    features = llvm.get_host_cpu_features()
    return Target(
        llvm.Target.from_default_triple().triple,
        llvm.get_host_cpu_name(),
        frozenset(name for name, there in features.items() if there),
        features.flatten(),
        ".".join(map(str, llvm.llvm_version_info)),
    )


@functools.cache
def binding() -> Any:
    """llvmlite.binding, ready to compile. Raises ImportError if llvmlite is not installed."""
    from llvmlite import binding  # type: ignore[import-untyped,import-not-found,unused-ignore]

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.initialize_native_asmparser()  # for processor.py's instructions
    return binding


def _machine(at: Target) -> Any:
    """A target machine. Its user takes ownership of it, so that each use needs a new one."""
    target = binding().Target.from_triple(at.triple)
    return target.create_target_machine(cpu=at.cpu, features=at.text, opt=2, jit=True)
