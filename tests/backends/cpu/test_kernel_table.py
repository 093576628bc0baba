"""The CPU's table of kernels finds every row, and imports no more modules than it is asked for."""

from __future__ import annotations

import importlib
import pkgutil
import py_compile
import subprocess
import sys

import pytest

import mxlite as mx
from mxlite.backends.cpu import kernels
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.kernel_row import GENERATED, KernelRow, KernelTable
from mxlite.ops import find_op

WITH_ROWS = {
    m.name: module
    for m in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}.")
    if hasattr(module := importlib.import_module(m.name), "ROWS")
}


def test_the_table_has_the_rows_of_all_modules():
    every: dict[type, list[KernelRow]] = {}
    for module in WITH_ROWS.values():
        for op, rows in module.ROWS.items():
            every.setdefault(op, []).extend(rows)
    table = KernelTable(kernels.__name__, kernels.__path__)
    for op, rows in every.items():  # each by itself, before somebody walks over the table
        found = table.get(op, ())
        assert set(map(id, found)) == set(map(id, rows)), f"{op.__module__} is not in SERVES of each: {rows}"
        assert [r.priority for r in found] == sorted(r.priority for r in rows)
    assert set(table) == set(every)
    assert len(table) == len(every)


@pytest.mark.parametrize("module", WITH_ROWS.values(), ids=lambda m: m.__name__.rpartition(".")[2])
def test_a_module_serves_what_it_says(module):
    declared = {op.__module__ for op in module.ROWS}
    for name in module.SERVES:
        of = f"mxlite.{name}"
        assert any(d == of or d.startswith(f"{of}.") for d in declared), f"no row for an operator of {name}"


def test_a_dense_network_needs_no_convolutions():
    program = """
import sys
import mxlite as mx
mx.models.get("mlp").simple_bind(mx.cpu(), data=(8, 784))
print(*(m.removeprefix("mxlite.backends.cpu.") for m in sys.modules if m.startswith("mxlite.backends.cpu.")))
"""
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = made.stdout.split()
    assert "kernels.products.dense" in loaded
    rooms = ("convolution", "winograd", "kernels.convolutions.", "compiled.norm", "compiled.rnn")
    assert [m for m in loaded if m.startswith(rooms)] == []


def test_rows_tell_their_kind():
    from mxlite.backends.cpu.kernels.generated import compiled_norm
    from mxlite.backends.cpu.kernels.onednn import onednn_pool
    from mxlite.backends.cpu.kernels.products import dense

    def kinds(module):
        return {row.kinds for rows in module.ROWS.values() for row in rows}

    assert kinds(onednn_pool) == {frozenset({"onednn"})}
    assert kinds(dense) == {frozenset({"onednn", "compiled"})}  # 16-bit products and sums of columns
    assert kinds(compiled_norm) == {frozenset({"compiled"})}
    for rows in CPU.kernels.values():
        for row in rows:
            assert row.kinds and row.kinds <= {"onednn", "compiled"}


def test_rows_are_asked_by_priority_and_not_by_the_names_of_files():
    for rows in CPU.kernels.values():
        assert [row.priority for row in rows] == sorted({row.priority for row in rows})
    generated, library = CPU.kernels[find_op("transpose")]
    assert (generated.kinds, library.kinds) == (frozenset({"compiled"}), frozenset({"onednn"}))
    own, other = CPU.kernels[find_op("scaled_dot_product_attention")]
    assert "attention" in own.choose.__module__ and "random" in other.choose.__module__


def test_two_rows_of_one_priority_are_refused(monkeypatch):
    """Else the order in which files are found would decide between them."""
    from mxlite.backends.cpu.kernels.generated import compiled_lrn

    op = find_op("LRN")
    (row,) = compiled_lrn.ROWS[op]
    monkeypatch.setitem(compiled_lrn.ROWS, op, [row, row])
    with pytest.raises(AssertionError, match="Two rows of LRN have one priority"):
        KernelTable(kernels.__name__, kernels.__path__)[op]


ROWS_OF_RELU = """
from mxlite.backends.cpu.kernel_row import GENERATED, kernel_rows
from mxlite.ops import find_op
{serves}
ROWS = kernel_rows(GENERATED, {{find_op("relu"): lambda request: None}})
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of modules with rows, by their texts."""

    def make(**texts):
        (tmp_path / "rows_of_test").mkdir()
        for name, text in {"__init__": "", **texts}.items():
            (tmp_path / "rows_of_test" / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        for name in ("rows_of_test", *(f"rows_of_test.{n}" for n in texts)):
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        return tmp_path / "rows_of_test"

    return make


def test_a_module_is_imported_when_one_of_its_operators_is_asked_for(package):
    serves = 'SERVES = (\n    "mxlite.ops.elementwise.activation",\n    "mxlite.ops.loss",\n)'
    path = package(one=ROWS_OF_RELU.format(serves=serves))
    table = KernelTable("rows_of_test", [str(path)])
    assert find_op("FullyConnected") not in table and "rows_of_test.one" not in sys.modules
    (row,) = table[find_op("relu")]
    assert row.kinds == GENERATED
    assert find_op("softmax") not in table


@pytest.mark.parametrize("sourceless", [False, True])
def test_a_module_that_does_not_say_what_it_serves_is_always_asked(package, sourceless):
    serves = 'SERVES = ("mxlite.ops.loss",)' if sourceless else ""
    path = package(one=ROWS_OF_RELU.format(serves=serves))
    if sourceless:
        py_compile.compile(str(path / "one.py"), cfile=str(path / "one.pyc"))
        (path / "one.py").unlink()
    assert find_op("relu") in KernelTable("rows_of_test", [str(path)])


def test_networks_find_kernels_of_operators_that_passes_insert():
    net = mx.sym.FullyConnected(mx.sym.tanh(mx.sym.Variable("data") + 1), num_hidden=4)
    chosen = net.simple_bind(mx.cpu(), data=(64, 512)).debug_str()
    assert "_fused_computation" in chosen and "[compiled" in chosen
