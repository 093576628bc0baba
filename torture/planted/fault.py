"""A fault to plant, and the test that has to catch it."""

from __future__ import annotations

from dataclasses import dataclass

from torture.copied_tree import CopiedTree


@dataclass(frozen=True)
class Fault:
    """One wrong change of one file: `old`, which stands there exactly once, becomes `new`.

    name: a sentence saying what is wrong then; file: relative to the tree; caught_by: the pytest address of
    the test that fails, ``tests/test_x.py::test_y``.
    """

    name: str
    file: str
    old: str
    new: str
    caught_by: str

    def plant(self, tree: CopiedTree) -> str:
        """Changes the file in `tree` and returns its text before. ValueError: `old` is not there once."""
        text = (tree.path / self.file).read_text()
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: {self.file} has {text.count(self.old)} times {self.old!r}, not once."
            )
        tree.write(self.file, text.replace(self.old, self.new))
        return text
