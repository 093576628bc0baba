"""Mutation tests: small changes of files, each run against tests, to find those that no test detects.

    python -m torture.mutation mxlite/memplan/check.py tests/memplan/test_judge.py … --sample 60 --seed 0

Each mutant changes one place: a comparison negated or made strict, a number changed by one, a condition
dropped or negated, `and` for `or`, two operands swapped, min for max, plus for minus. The tests run in a
copy, with `-x`, and only those that execute the mutant's statement, fastest first; a mutant that passes them
survives and is printed with its line. A person must judge whether it is wrong: some are equivalent, some only
slower.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from torture.copied_tree import CopiedTree

_COMPARED = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
}
_OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.BitAnd: "|", ast.BitOr: "&"}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """`text` is the whole file; line `line`, counted from 1, has `old` changed into `new`."""

    line: int
    old: str
    new: str
    text: str


def mutants(source: str) -> list[Mutant]:
    """All mutants of a file, in the order of its lines."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = source.encode()

    def span(node: ast.AST) -> tuple[int, int]:
        low = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return low, starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    found = []
    for node in _told(ast.parse(source)):
        for low, high, new in _changes(node, span, data):
            text = (data[:low] + new.encode() + data[high:]).decode()
            line = data[:low].count(b"\n") + 1
            found.append(Mutant(line, data[low:high].decode(), new, text))
    return sorted(found, key=lambda m: (m.line, m.old, m.new))


def _told(tree: ast.AST) -> Iterator[ast.AST]:
    """Descendant nodes except types and raised errors, whose wording is checked by reading."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns"):
                continue
            children = value if isinstance(value, list) else [value]
            stack.extend(c for c in children if isinstance(c, ast.AST) and not isinstance(c, ast.Raise))


def _changes(node: ast.AST, span, data: bytes) -> Iterator[tuple[int, int, str]]:
    """(begin, end, new text) of each change of one node."""

    def text(of: ast.AST) -> str:
        low, high = span(of)
        return data[low:high].decode()

    if isinstance(node, ast.Compare):
        before = node.left
        for op, after in zip(node.ops, node.comparators):
            for new in _COMPARED.get(type(op), ()):
                yield span(before)[1], span(after)[0], f" {new} "
            before = after
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        yield span(node.left)[1], span(node.right)[0], f" {_OPERATORS[type(node.op)]} "
        if isinstance(node.op, ast.Sub):
            yield *span(node), f"({text(node.right)} - {text(node.left)})"
    elif isinstance(node, ast.BoolOp):
        for a, b in zip(node.values, node.values[1:]):
            word = "or" if isinstance(node.op, ast.And) else "and"
            yield span(a)[1], span(b)[0], f" {word} "
        for value in node.values:
            yield *span(value), "True" if isinstance(node.op, ast.And) else "False"
    elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield *span(node.test), f"(not ({text(node.test)}))"
        yield *span(node.test), "False"
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield *span(node), str(node.value + 1)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLED:
        yield *span(node.func), _CALLED[node.func.id]
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield *span(test), "True"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield *span(node), "pass"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield *span(node), f"({text(node.operand)})"


@dataclass
class Reach:
    """Coverage: the tests that run each line.

    lines: file -> line -> tests, with "" for lines run while modules are imported; seconds: of each test.
    """

    lines: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]

    def tests(self, file: str, lines: range) -> list[str]:
        """Tests that run one of these lines, fastest first; all if an import does."""
        found = {test for line in lines for test in self.lines[file].get(line, ())}
        return sorted(self.seconds if "" in found else found, key=lambda t: self.seconds[t])


def reach(tree: CopiedTree, files: list[str], tests: list[str], seconds: float) -> Reach:
    """Run the tests, which must pass, and trace their lines."""
    out = tree.path / "reached.json"
    traced = [f"--lines-of={file}" for file in files]
    asked = ["-p", "torture.traced_lines", *traced, f"--lines-to={out}", *tests]
    status, said = tree.run(asked, seconds, sound=True)
    if status != 0:
        raise SystemExit(f"The tests do not pass as it is:\n{said}")
    found = json.loads(out.read_text())
    lines = {file: {int(n): tests for n, tests in seen.items()} for file, seen in found["lines"].items()}
    return Reach(lines, found["seconds"])


def statements(source: str) -> dict[int, range]:
    """Line -> the lines of its innermost statement, without the statements nested in that."""
    found = {}
    for node in ast.walk(ast.parse(source)):  # outer ones first
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            ends = max(body[0].lineno, node.lineno + 1) if body else (node.end_lineno or node.lineno) + 1
            found.update(dict.fromkeys(range(node.lineno, ends), range(node.lineno, ends)))
    return found


def survives(tree: CopiedTree, tests: list[str], seconds: float) -> bool:
    """True if the tests in the copy all pass. A test that hangs counts as failed."""
    asked = tree.path / "asked.txt"
    asked.write_text("\n".join(tests))
    return tree.run([f"@{asked}"], seconds)[0] == 0


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    asked.add_argument("paths", nargs="+", help="files to change, and those below tests/ to run")
    asked.add_argument("--sample", type=int, default=40, help="of all files together")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument(
        "--seconds", type=float, default=180.0, help="of one run, and 3 times that of the first"
    )
    asked.add_argument("--minutes", type=float, default=60.0, help="for all; it ends between two mutants")
    given = asked.parse_args()
    ends = time.monotonic() + 60 * given.minutes
    tests = [path for path in given.paths if path.startswith("tests/")]
    files = [path for path in given.paths if path not in tests]
    with CopiedTree() as tree:
        sources = {file: (tree.path / file).read_text() for file in files}
        listed = [(file, mutant) for file in files for mutant in mutants(sources[file])]
        chosen = random.Random(given.seed).sample(listed, min(given.sample, len(listed)))
        reached = reach(tree, files, tests, 3 * given.seconds)
        survivors = done = 0
        for file, mutant in chosen:
            if time.monotonic() > ends:
                break
            done += 1
            near = reached.tests(file, statements(sources[file])[mutant.line])
            if near:
                tree.write(file, mutant.text)
                alive = survives(tree, near, given.seconds)
                tree.write(file, sources[file])
                if not alive:
                    continue
            survivors += 1
            whole = sources[file].splitlines()[mutant.line - 1].strip()
            seen = f"passes {len(near)} tests" if near else "no test runs it here"
            print(
                f"{file}:{mutant.line}: {mutant.old!r} -> {mutant.new!r}   in: {whole}   ({seen})", flush=True
            )
        print(f"{' '.join(files)}: {survivors} of {done} survive, of {len(listed)}", flush=True)


if __name__ == "__main__":
    main()
