"""oneDNN: which library is found, what becomes of a bad one, and that nothing it hands out is lost."""

import atexit
import ctypes
import functools
import gc
import glob
import importlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu import kernels, onednn
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.onednn import Primitive
from mxlite.backends.cpu.onednn.constants import CPU_ISA, RELU, TRAINING
from mxlite.core import config
from mxlite.core.dtype import float32
from mxlite.ops import find_op

module = importlib.import_module("mxlite.backends.cpu.onednn.library")  # the name is a function's, too
ROOT = Path(__file__).resolve().parents[3]
STEP = """
import warnings, sys
import numpy as np
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import mxlite as mx
    try:
        net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
        for _ in range(2):
            exe = net.simple_bind(mx.cpu(), data=(2, 5))
            for a in exe.arg_arrays:
                a[:] = 2
            out = exe.forward()[0].asnumpy()
            again = mx.nd.FullyConnected(*exe.arg_arrays, num_hidden=3).asnumpy()
        assert (out == 22).all() and (again == 22).all(), (out, again)
        print("kernel", exe.memory_plan.problem.tasks[0].kernel)
    except mx.MXLiteError as error:
        print("error", type(error).__name__, error)
for w in seen:
    print("warning", w.category.__name__, w.message)
"""


# Asks the same of one environment after the other, each in a process of its own that has only to be forked.
FORKS = """
import json, os, sys
import mxlite, mxlite.backends.cpu
step = sys.argv[1]
for line in sys.stdin:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(write, 1)
        os.dup2(write, 2)
        for name in [n for n in os.environ if n.startswith("MXLITE_")]:
            del os.environ[name]
        os.environ.update(json.loads(line))
        exec(step, {"__name__": "__main__"})
        sys.exit()
    os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text]), flush=True)
"""


@functools.cache
def _forks():
    """The process that forks, with which all tests of this file talk."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("MXLITE_")} | {"PYTHONPATH": str(ROOT)}
    command, pipe = [sys.executable, "-c", FORKS, STEP], subprocess.PIPE
    process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True, cwd=ROOT)
    atexit.register(process.communicate)
    return process


def run(**env):
    """What a fresh process prints that binds and calls a FullyConnected, as lines."""
    if not hasattr(os, "fork"):
        return run_alone(**env)
    process = _forks()
    process.stdin.write(json.dumps(env) + "\n")
    process.stdin.flush()
    code, text = json.loads(process.stdout.readline())
    assert "Traceback" not in text and code == 0, text
    return text.splitlines()


def run_alone(**env):
    """The same of a process in which nothing has been imported."""
    full = {k: v for k, v in os.environ.items() if not k.startswith("MXLITE_")}
    full |= {"PYTHONPATH": str(ROOT), **env}
    done = subprocess.run(
        [sys.executable, "-c", STEP], env=full, capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()


def works_on_numpy(lines, says):
    """One warning, and the reference kernel."""
    assert "kernel reference" in lines, lines
    found = [line for line in lines if line.startswith("warning")]
    assert len(found) == 1 and "warning RuntimeWarning oneDNN cannot be used" in found[0], lines
    assert says in found[0], found[0]


# -- libraries that will not do --------------------------------------------------------------------------


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    missing = str(tmp_path / "libdnnl.so.3")
    lines = run(MXLITE_DNNL_LIB=missing)
    assert len(lines) == 1 and lines[0].startswith("error MXLiteError MXLITE_DNNL_LIB names"), lines
    assert missing in lines[0]


def test_a_missing_file_does_not_matter_where_onednn_is_not_to_be_used(tmp_path):
    assert run(MXLITE_DNNL_LIB=str(tmp_path / "x"), MXLITE_KERNELS="reference") == ["kernel reference"]


def test_a_text_file_is_no_library(tmp_path):
    path = tmp_path / "libdnnl.so.3"
    path.write_text("This is text.\n" * 100)
    works_on_numpy(run(MXLITE_DNNL_LIB=str(path)), str(path))


def test_a_folder_is_no_library(tmp_path):
    """In a process of its own from the start: importing mxlite says nothing of it."""
    works_on_numpy(run_alone(MXLITE_DNNL_LIB=str(tmp_path)), str(tmp_path))


def test_a_library_of_another_kind_is_refused():
    mine = sorted(glob.glob(os.path.join(os.path.dirname(np.__file__) + ".libs", "*openblas*")))
    if not mine:
        pytest.skip("numpy brings no shared library of its own that could stand for another kind")
    works_on_numpy(run(MXLITE_DNNL_LIB=mine[0]), "dnnl_version")


FAKE = """
typedef struct { int major, minor, patch; const char *hash; unsigned cpu_runtime, gpu_runtime; } version_t;
const version_t *dnnl_version(void) { static const version_t v = {MAJOR, 2, 1, "0", RUNTIME, 0}; return &v; }
"""


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    """`fake(major, runtime)`: a library that says it is that oneDNN, and has nothing else."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform == "win32":
        pytest.skip("there is no C compiler to make a library with")

    def make(major, runtime):
        folder = tmp_path_factory.mktemp("fake")
        (folder / "fake.c").write_text(FAKE.replace("MAJOR", str(major)).replace("RUNTIME", str(runtime)))
        target = folder / "libdnnl.so.3"
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-o", target, folder / "fake.c"], check=True, timeout=60
        )
        return str(target)

    return make


@pytest.mark.parametrize(
    ("major", "runtime", "says"),
    [
        (2, 2, "is oneDNN 2.2.1 with OpenMP threads; wanted is version 3"),
        (4, 2, "is oneDNN 4.2.1"),
        (3, 512, "with SYCL threads"),
        (3, 4, "with TBB threads"),
        (3, 77, "with 77 threads"),
        (3, 2, "dnnl_primitive_desc_query_md"),
    ],
)
def test_a_library_of_another_version_or_make_is_refused(fake, major, runtime, says):
    works_on_numpy(run(MXLITE_DNNL_LIB=fake(major, runtime)), says)


def test_no_library_is_no_reason_to_warn(monkeypatch):
    monkeypatch.setattr(module, "_candidates", lambda: iter(()))
    monkeypatch.setattr(module, "_recorded", lambda: [])
    monkeypatch.setattr(module, "_found", [])
    module.library.cache_clear()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert onednn.library() is None is onednn.loaded()
            x, w = mx.nd.ones((4, 7)), mx.nd.ones((6, 7))
            mx.set_num_threads(mx.get_num_threads())  # forgets which kernels were chosen
            assert (mx.nd.FullyConnected(x, w, num_hidden=6, no_bias=True).asnumpy() == 7).all()
            plan = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6).memory_plan(data=(4, 7))
            assert not any(t.kernel.startswith("onednn") for t in plan.problem.tasks)
    finally:
        module.library.cache_clear()
        mx.set_num_threads(mx.get_num_threads())


def test_the_second_is_taken_where_the_first_will_not_do(monkeypatch, tmp_path):
    real = onednn.library()
    if real is None:
        pytest.skip("oneDNN is not here")
    (tmp_path / "text").write_text("no library")
    monkeypatch.setattr(module, "_candidates", lambda: iter([str(tmp_path / "text"), real.path]))
    monkeypatch.setattr(module, "_found", [])
    found = module.find()
    assert found.library is not None and found.library.path == real.path
    assert len(found.troubles) == 1 and "text" in found.troubles[0]


def test_a_wheel_whose_file_is_gone_is_told(monkeypatch, tmp_path):
    gone = str(tmp_path / "lib" / "libdnnl.so.3")
    monkeypatch.setattr(module, "_candidates", lambda: iter(()))
    monkeypatch.setattr(module, "_recorded", lambda: [gone])
    monkeypatch.setattr(module, "_found", [])
    found = module.find()
    assert found.library is None and gone in found.troubles[0] and "--target" in found.troubles[0]


def test_the_order_of_the_search(monkeypatch, tmp_path):
    """The environment's folder, the system Python's, the user's, the system's; each once."""
    if sys.platform == "win32":
        pytest.skip("other names on Windows")
    places = [tmp_path / n for n in ("env", "data", "user")]
    for place in places:
        (place / "lib").mkdir(parents=True)
        (place / "lib" / "libdnnl.so.3").touch()
    monkeypatch.delenv("MXLITE_DNNL_LIB", raising=False)
    monkeypatch.setattr(sys, "prefix", str(places[0]))
    monkeypatch.setattr(module.sysconfig, "get_path", lambda name: str(places[1]))
    monkeypatch.setattr(module.site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(module.site, "getuserbase", lambda: str(places[2]))
    monkeypatch.setattr(module.ctypes.util, "find_library", lambda name: "libsystem.so")
    assert list(module._candidates()) == [*(str(p / "lib" / "libdnnl.so.3") for p in places), "libsystem.so"]
    monkeypatch.setattr(module.site, "ENABLE_USER_SITE", False)
    assert list(module._candidates())[2:] == ["libsystem.so"]
    monkeypatch.setenv("MXLITE_DNNL_LIB", str(places[2] / "lib" / "libdnnl.so.3"))
    assert list(module._candidates()) == [str(places[2] / "lib" / "libdnnl.so.3")]


# -- switches --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["nonsense", "onednm", "reference,onednnn", "on", "ONEDNN"])
def test_nonsense_in_the_list_of_kernels_is_an_error(monkeypatch, text):
    monkeypatch.setenv("MXLITE_KERNELS", text)
    with pytest.raises(mx.MXLiteError, match="MXLITE_KERNELS must list some of"):
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2).memory_plan(data=(2, 3))


@pytest.mark.parametrize(
    ("text", "kinds"),
    [("", {"onednn", "compiled"}), ("reference", set()), ("onednn", {"onednn"}),
     (" compiled , ", {"compiled"}), ("onednn,compiled", {"onednn", "compiled"}),
     ("reference,onednn", {"onednn"})],
)  # fmt: skip
def test_the_list_of_kernels(monkeypatch, text, kinds):
    monkeypatch.setenv("MXLITE_KERNELS", text)
    assert config.kernel_kinds() == kinds


@pytest.mark.parametrize("text", ["0", "-1", "abc", "100000"])
def test_a_wrong_number_of_threads_is_an_error_at_bind(text):
    if onednn.library() is None:
        pytest.skip("oneDNN is not here: nobody asks for the number")
    lines = run(MXLITE_NUM_THREADS=text)
    assert len(lines) == 1 and lines[0].startswith("error MXLiteError MXLITE_NUM_THREADS must be"), lines


# -- the library itself ----------------------------------------------------------------------------------

here = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not here")


@here
@pytest.mark.parametrize(
    ("bits", "says"),
    [
        (0x7, "nothing"),
        (0x27, "nothing"),
        (0xE7, "AVX-512"),
        (0x1EF, "AVX-512"),
        (0xFEF, "AMX"),
        (0x1FEF, "AMX"),
    ],
)
def test_what_multiplies_bfloat16_is_told(monkeypatch, bits, says):
    lib = onednn.library()
    monkeypatch.setitem(vars(lib), "isa", bits)
    assert says in lib.bf16_by and lib.has_bf16 == (says != "nothing")


@here
def test_the_instructions_in_use_are_told_in_words(monkeypatch):
    lib = onednn.library()
    assert lib.isa and lib.instructions.endswith(f"({lib.isa:#x})")
    for bits, name in CPU_ISA.items():
        monkeypatch.setitem(vars(lib), "isa", bits)
        assert lib.instructions == f"{name} ({bits:#x})"
    monkeypatch.setitem(vars(lib), "isa", 0x67 | 0x100000)
    assert lib.instructions.startswith(CPU_ISA[0x67]), "an unknown bit more is no reason to know nothing"


class Counting:
    """The library's functions; handles made and destroyed are counted. Collect garbage before it begins."""

    def __init__(self, handle):
        self._handle = handle
        self.alive = Counter()

    def __getattr__(self, name):
        return self._counted(name, getattr(self._handle, name))

    def __getitem__(self, name):
        return self._counted(name, self._handle[name])

    def _counted(self, name, function):
        kind, _, what = name.removeprefix("dnnl_").rpartition("_")
        if what == "destroy":
            step = -1
        elif what == "create" or "_create_with_" in name:
            step, kind = 1, kind.split("_create_with")[0]
        else:
            return function
        if kind.endswith("primitive_desc") and kind != "primitive_desc":
            kind = "primitive_desc"

        def call(*args):
            status = function(*args)
            if not status:
                self.alive[kind] += step
            return status

        return call


@here
def test_a_thousand_calls_leave_nothing_behind(monkeypatch):
    """Primitives are kept for the next call of their shape; the handles of a call go with it."""
    lib = onednn.library()
    counting = Counting(lib.handle)
    x, w = mx.nd.ones((3, 11)), mx.nd.ones((5, 11))
    with mx.engine.use_engine("naive"):

        def call():
            return mx.nd.FullyConnected(x, w, num_hidden=5, no_bias=True)

        call()
        gc.collect()
        monkeypatch.setattr(lib, "handle", counting)
        for _ in range(1000):
            call()
        gc.collect()
        assert {k: n for k, n in counting.alive.items() if n} == {}
        resident = statm()
        for _ in range(1000):
            call()
        assert resident is None or statm() - resident < 4 * 2**20


def statm():
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


@here
def test_a_bound_program_gives_its_handles_back(monkeypatch):
    lib = onednn.library()
    counting = Counting(lib.handle)
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=5, name="fc")

    def use():
        exe = net.simple_bind(mx.cpu(), data=(3, 11))
        exe.forward(is_train=True)
        exe.backward(mx.nd.ones((3, 5)))
        exe.forward()
        mx.nd.waitall()

    use()
    gc.collect()
    monkeypatch.setattr(lib, "handle", counting)
    for _ in range(5):
        use()
    gc.collect()
    assert {k: n for k, n in counting.alive.items() if n} == {}


@here
def test_a_primitive_gives_everything_back(monkeypatch):
    lib = onednn.library()
    counting = Counting(lib.handle)
    monkeypatch.setattr(lib, "handle", counting)

    def make(alg):
        layout = onednn.memory.__wrapped__((8,), float32)
        attr = onednn.Attr().eltwise(RELU)
        given = (
            ctypes.c_int(TRAINING),
            ctypes.c_int(alg),
            layout,
            layout,
            ctypes.c_float(0),
            ctypes.c_float(0),
        )
        return Primitive("eltwise_forward", *given, attr=attr)

    made = make(RELU)
    assert all(counting.alive[k] == 1 for k in ("memory_desc", "primitive_attr", "post_ops", "primitive"))
    del made
    with pytest.raises(onednn.OneDNNError):
        make(12345)
    gc.collect()
    assert {k: n for k, n in counting.alive.items() if n} == {}


def test_no_words_at_the_end_of_the_process():
    """Handles are destroyed while the interpreter ends, when half of everything is gone."""
    code = textwrap.dedent("""
        import mxlite as mx
        x = mx.nd.ones((4, 4))
        keep = mx.nd.FullyConnected(x, x, num_hidden=4, no_bias=True)
        exe = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3).simple_bind(mx.cpu(), data=(2, 5))
        exe.forward()
    """)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


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
        kernels.table.__wrapped__()
