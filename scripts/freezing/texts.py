"""The texts of generated kernels, recorded where they are passed to a compiler."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .digest import digest


class Texts:
    """The text of every kernel that is generated, by the kernel's name.

    `found[key][digest of the text]` is the digest of its machine code and where it was asked for first.
    LLVM's texts are seen where they enter llvmlite, which no refactoring moves.
    """

    def __init__(self) -> None:
        self.found: dict[str, dict[str, dict[str, str]]] = {}
        self.at = ""
        self._last: dict[str, str] = {}

    def note(self, key: str, text: str) -> dict[str, str]:
        return self.found.setdefault(key, {}).setdefault(digest(text), {"at": self.at})

    def watch_llvm(self) -> None:
        """Wrap the two functions of llvmlite through which all code passes."""
        try:
            import llvmlite.binding as llvm
        except ImportError:
            return
        parse, emit = llvm.parse_assembly, llvm.TargetMachine.emit_object

        def parse_assembly(text: str, *rest: Any) -> Any:
            if names := re.findall(r'^define [^@\n]*@"?([\w.$-]+)', text, re.MULTILINE):
                self._last = self.note("llvm " + " ".join(sorted(names)[:4]), text)
            return parse(text, *rest)

        def emit_object(machine: Any, module: Any) -> bytes:
            code = emit(machine, module)
            self._last["machine code"] = digest(code)
            return code

        llvm.parse_assembly, llvm.TargetMachine.emit_object = parse_assembly, emit_object


def text_device(emulated_device: Any, texts: Texts) -> Any:
    """A device of the GPU backend that records the CUDA text of kernels instead of launching them."""

    class TextDevice(emulated_device):
        def function(self, source: Any, name: str) -> Any:
            texts.note(f"cuda {name}", "\n".join((*source.options, source.text)))
            return name

        def launch(self, *_: Any) -> Callable[[], None]:
            return lambda: None

    return TextDevice()
