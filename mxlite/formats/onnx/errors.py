"""The error for a sound model that leaves shapes open."""

from __future__ import annotations

from collections.abc import Mapping

from ...core import FormatError

Declared = tuple[int | str, ...] | None
"""Lengths of an input as a model has them: an open one by its name or as "?". None: of any number of axes."""


class OpenShapeError(FormatError):
    """A model leaves the shapes of `inputs` open: name -> its declared lengths."""

    def __init__(self, inputs: Mapping[str, Declared]) -> None:
        self.inputs = dict(inputs)
        super().__init__(f"{self.wanted}, as in import_model(path, shapes={self.example(1)}).")

    @property
    def wanted(self) -> str:
        """A sentence that names the open inputs and asks for their shapes."""
        said = [f"input {name!r} is {_shown(dims)}" for name, dims in self.inputs.items()]
        return f"{', '.join(said)}: give {'its shape' if len(said) == 1 else 'their shapes'}"

    def example(self, batch: int | str) -> dict[str, tuple[int | str, ...]]:
        """An example shape for each: `batch` for a length of that name, else in front, and usual lengths."""
        return {name: _usual(dims, batch) for name, dims in self.inputs.items()}


def _usual(declared: Declared, batch: int | str) -> tuple[int | str, ...]:
    if declared is None:
        return batch, 3, 224, 224
    usual = 224 if len(declared) == 4 else 128  # of pictures, of sequences
    called = (axis for axis, d in enumerate(declared) if isinstance(d, str) and "batch" in d.lower())
    at = next(called, 0)
    return tuple(
        d if isinstance(d, int) else batch if axis == at else usual for axis, d in enumerate(declared)
    )


def _shown(declared: Declared) -> str:
    return "of any shape" if declared is None else f"({', '.join(map(str, declared))})"
