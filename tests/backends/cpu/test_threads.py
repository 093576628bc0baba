"""Threads inside a kernel: how many, who says so, and that a bound program keeps its number."""

import threading
from itertools import pairwise

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends import Backend
from mxlite.backends.control_flow import control
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.onednn import library, loaded
from mxlite.backends.cpu.runtime import cores, threads
from mxlite.core import config
from mxlite.core.process import cores as machine
from mxlite.executor.measure import calibration

sym = mx.sym


@pytest.fixture(autouse=True)
def number(monkeypatch):
    """As if nobody had set a number; afterwards what was."""
    for name in ("MXLITE_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_threads", None)


needs_onednn = pytest.mark.skipif(
    "onednn" not in config.kernel_kinds() or library() is None,
    reason="oneDNN is not here: there are no kernels with threads of their own",
)


# -- the number ------------------------------------------------------------------------------------------


def test_the_default_is_the_cores_of_the_process():
    assert mx.get_num_threads() == machine.available_cores() >= 1


def test_set_gives_the_number_before():
    before = mx.get_num_threads()
    assert mx.set_num_threads(3) == before
    assert mx.get_num_threads() == 3
    assert mx.set_num_threads(np.int64(1)) == 3
    assert mx.get_num_threads() == 1


@pytest.mark.parametrize("wrong", [0, -1, 1025, 100000, True, 2.0, "2", None])
def test_a_wrong_number_is_refused_and_changes_nothing(wrong):
    mx.set_num_threads(2)
    with pytest.raises(mx.MXLiteError, match=r"from 1 to 1024, got"):
        mx.set_num_threads(wrong)
    assert mx.get_num_threads() == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [("0", "at least 1"), ("-1", "at least 1"), ("abc", "whole number"), ("1.5", "whole number"),
     ("100000", "at most 1024"), ("9" * 5000, "whole number|at most")],
)  # fmt: skip
def test_a_wrong_variable_is_an_error_that_names_it(monkeypatch, text, says):
    monkeypatch.setenv("MXLITE_NUM_THREADS", text)
    with pytest.raises(mx.MXLiteError, match=rf"MXLITE_NUM_THREADS must be .*({says})"):
        mx.get_num_threads()


def test_the_variable_comes_before_openmps(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3,1")
    assert mx.get_num_threads() == 3
    monkeypatch.setenv("MXLITE_NUM_THREADS", "5")
    assert mx.get_num_threads() == 5
    mx.set_num_threads(2)
    assert mx.get_num_threads() == 2


@pytest.mark.parametrize("text", ["", "many", "0", ",2"])
def test_what_openmp_ignores_is_ignored(monkeypatch, text):
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert mx.get_num_threads() == machine.available_cores()


# -- cores and quotas ------------------------------------------------------------------------------------


def system(root, groups, files):
    """A tree that looks like the files of Linux that tell of quotas."""
    for path, text in {"proc/self/cgroup": groups, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


TWO = {
    "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
    "sys/fs/cgroup/a/cpu.max": "250000 100000\n",
}
ONE = {
    "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "150000\n",
    "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
}


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/a/b\n", TWO, 2.5),
        ("0::/somewhere/else\n", {"sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5),
        ("9:memory:/x\n4:cpu,cpuacct:/job\n0::/\n", ONE, 1.5),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "nonsense\n"}, None),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "100 0\n"}, None),
        ("0::/\n", {}, None),
        ("garbage", {}, None),
    ],
)
def test_quotas_of_both_kinds_of_cgroups(tmp_path, groups, files, cores):
    assert machine._quota(system(tmp_path, groups, files)) == cores


def test_a_quota_leaves_fewer_cores_and_at_least_one(tmp_path, monkeypatch):
    tree = system(tmp_path, "0::/\n", {"sys/fs/cgroup/cpu.max": "120000 100000\n"})
    monkeypatch.setattr(machine, "SYSTEM", tree)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert machine.available_cores() == 2 == mx.get_num_threads()
    monkeypatch.setattr(machine, "SYSTEM", tmp_path / "no such system")
    assert machine.available_cores() == 8


# -- what is bound keeps its number ----------------------------------------------------------------------


def net():
    hidden = sym.Activation(
        sym.FullyConnected(sym.Variable("data"), num_hidden=70, name="a"), act_type="relu"
    )
    return sym.FullyConnected(hidden, num_hidden=50, name="b")


def bound(count):
    """The net, bound with so many threads, and filled."""
    mx.set_num_threads(count)
    exe = net().simple_bind(mx.cpu(), grad_req="write", data=(33, 65))
    rng = np.random.default_rng(0)
    for a in exe.arg_arrays:
        a[:] = rng.standard_normal(a.shape).astype("float32")
    return exe


def step(exe):
    out = exe.forward(is_train=True)[0]
    exe.backward(mx.nd.ones(out.shape))
    return [out.asnumpy(), *(g.asnumpy() for g in exe.grad_arrays)]


def test_a_program_runs_on_the_threads_it_was_bound_with(monkeypatch):
    seen = []
    running = CPU.running

    def spy(count):
        seen.append(count)
        return running(count)

    wanted = step(bound(1))
    exe = bound(2)
    monkeypatch.setitem(vars(CPU), "running", spy)
    mx.set_num_threads(1)
    got = step(exe)
    mx.set_num_threads(3)
    again = step(exe)
    for a, b, c in zip(wanted, got, again):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(b, c)
    assert set(seen) <= {2}
    assert bool(seen) == exe._planned.train.tuned or library() is not None


@needs_onednn
def test_a_kernel_meets_openmp_with_its_own_number_whatever_was_set_meanwhile(monkeypatch):
    lib = loaded()
    if lib is None or lib._openmp is None:
        pytest.skip("this library has no OpenMP")
    seen = []

    def look(segment):
        segment.calls.insert(
            0, lambda: seen.append((lib._openmp.omp_get_max_threads(), threads.num_threads()))
        )
        segment.names.insert(0, "look")

    here = lib._openmp.omp_get_max_threads()
    exe = bound(here + 1)
    assert lib._openmp.omp_get_max_threads() == here
    exe.forward(is_train=True)
    mx.nd.waitall()
    look(exe._train.segments[0])
    mx.set_num_threads(here)
    exe.forward(is_train=True)
    mx.nd.waitall()
    with mx.engine.use_engine("naive"):
        exe.forward(is_train=True)
    assert seen == [(here + 1, here + 1)] * 2
    assert lib._openmp.omp_get_max_threads() == here, "this thread's number is its own again"


@needs_onednn
def test_operations_on_arrays_take_the_new_number(monkeypatch):
    """Their kernels are kept by shape; one made for another number must not be used."""
    running, seen = CPU.running, []
    monkeypatch.setitem(vars(CPU), "running", lambda count: seen.append(count) or running(count))
    x, w = mx.nd.ones((90, 310)), mx.nd.ones((170, 310))
    for count in (1, 2, 1):
        mx.set_num_threads(count)
        seen.clear()
        for _ in range(2):
            assert (mx.nd.FullyConnected(x, w, num_hidden=170, no_bias=True).asnumpy() == 310).all()
        assert seen == [count] * 2


def test_another_threads_kernels_have_nothing_to_do_with_it():
    """`running` is about this thread alone."""
    mx.set_num_threads(2)
    found = []
    with cores.running(7):
        assert threads.num_threads() == 7
        with cores.running(4):
            assert threads.num_threads() == 4
        assert threads.num_threads() == 7
        other = threading.Thread(target=lambda: found.append(threads.num_threads()))
        other.start()
        other.join()
    assert found == [2] and threads.num_threads() == 2


def test_a_loops_body_is_planned_for_each_number():
    """Kernels of a body are kept with it; they too have their number of threads."""
    data, start = sym.Variable("data"), sym.Variable("start")
    weight = sym.Variable("w")

    def body(row, state):
        new = sym.FullyConnected(row, weight, num_hidden=6, no_bias=True) + state
        return new, new

    outs, _ = sym.contrib.foreach(body, data, start)
    results, made = [], []
    for count in (1, 2, 1):
        mx.set_num_threads(count)
        made.append(control._kernel.cache_info().misses)
        exe = outs.simple_bind(mx.cpu(), grad_req="null", data=(5, 3, 4), start=(3, 6), w=(6, 4))
        for i, a in enumerate(exe.arg_arrays):
            a[:] = i + 1
        results.append(exe.forward()[0].asnumpy())
    made.append(control._kernel.cache_info().misses)
    assert made[0] < made[1] < made[2] == made[3], "each number has kernels of its own, made once"
    assert (results[0] == results[1]).all() and (results[0] == results[2]).all()


# -- OpenBLAS --------------------------------------------------------------------------------------------

needs_openblas = pytest.mark.skipif(cores.blas_threads() is None, reason="numpy has another BLAS")


@needs_openblas
def test_openblas_has_one_thread_while_tuned_kernels_run_and_its_own_number_after():
    before = cores.blas_threads()
    try:
        cores.set_blas_threads(2)
        with cores.running(1):
            assert cores.blas_threads() == 1
            with cores.running(2):
                assert cores.blas_threads() == 1
            assert cores.blas_threads() == 1
            cores.set_blas_threads(3)  # takes effect when it may
            assert cores.blas_threads() == 1
        assert cores.blas_threads() == 3
    finally:
        cores.set_blas_threads(before)


@needs_openblas
def test_a_program_of_reference_kernels_alone_leaves_openblas_its_threads(monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "reference")
    before = cores.blas_threads()
    exe = bound(2)
    assert not exe._planned.train.tuned
    exe.forward(is_train=True)
    mx.nd.waitall()
    seen = []
    exe._train.segments[0].calls.insert(0, lambda: seen.append(cores.blas_threads()))
    exe._train.segments[0].names.insert(0, "look")
    try:
        cores.set_blas_threads(2)
        exe.forward(is_train=True)
        mx.nd.waitall()
        assert seen == [2]
    finally:
        cores.set_blas_threads(before)


# -- one at a time ---------------------------------------------------------------------------------------


def test_segments_run_in_turn_only_where_tuned_kernels_have_all_cores(monkeypatch):
    monkeypatch.setenv("MXLITE_BULK_SIZE", "1")
    x = sym.Variable("x")
    apart = sym.Group([sym.exp(x), sym.FullyConnected(x, num_hidden=3, name="f"), sym.tanh(x)])

    def chain(count):
        mx.set_num_threads(count)
        exe = apart.simple_bind(mx.cpu(), grad_req="null", x=(4, 5))
        exe.forward()
        mx.nd.waitall()
        segments = exe._infer.segments
        in_turn = all({*b.held[0]} - {*b.reads} == {a.done} for a, b in pairwise(segments))
        return exe._planned.infer.tuned, in_turn

    assert chain(1)[1] is False
    tuned, in_turn = chain(2)
    assert in_turn is tuned


def test_data_and_updates_go_on_beside_a_program_whose_segments_run_in_turn():
    """It takes one worker; reading data has workers of its own, and other arrays are updated by the next."""
    with mx.engine.use_engine("threaded") as engine:
        exe = bound(2)
        exe.forward(is_train=True)
        mx.nd.waitall()
        gates = {kind: threading.Event() for kind in ("io", "compute")}
        passed = []
        segment = exe._train.segments[0]
        for gate in gates.values():
            segment.calls.insert(0, lambda gate=gate: passed.append(gate.wait(10)))
            segment.names.insert(0, "wait")
        other = mx.nd.ones((4,))
        exe.forward(is_train=True)
        engine.push(gates["io"].set, kind="io", name="read")
        other += 1
        engine.push(gates["compute"].set, reads=[other.var], name="updated")
        exe.outputs[0].wait_to_read()
    assert passed == [True, True], "both were over while the segment ran"


@needs_onednn
def test_one_worker_runs_all_kernels_with_threads_of_their_own():
    """OpenMP makes a team for each thread that calls, and those of two workers fight for the cores."""
    seen, gates, turns = [], {}, threading.Barrier(3)

    def hold():
        gate = gates[threading.get_ident()] = threading.Event()
        turns.wait(10)
        gate.wait(10)

    with mx.engine.use_engine(mx.engine.ThreadedEngine(workers=2)) as engine:
        exe = bound(2)
        step(exe)
        for segment in exe._train.segments:
            segment.calls.insert(0, lambda: seen.append(threading.get_ident()))
            segment.names.insert(0, "look")
        for free in (0, 1):  # of the two other workers each is the only one that could help
            engine.push(hold)
            engine.push(hold)
            turns.wait(10)
            gates[sorted(gates)[free]].set()
            step(exe)
            gates[sorted(gates)[1 - free]].set()
            mx.nd.waitall()
        engine.stop()
    assert len(seen) == 2 * len(exe._train.segments)
    assert len(set(seen)) == 1


def test_a_backend_without_threads_of_its_own_needs_say_nothing():
    plain = Backend("plain", np)
    assert plain.threads() == 1 and not plain.in_turn(1)
    with plain.running(1):
        pass


@needs_onednn
def test_what_is_timed_and_operations_on_arrays_run_on_that_worker_too(monkeypatch, tmp_path):
    """A second thread that runs them, be it the user's, would keep a second team for good."""
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path))
    mx.set_num_threads(2)
    running, seen = CPU.running, []

    def watched(count):
        seen.append((count, threading.get_ident()))
        return running(count)

    with mx.engine.use_engine(mx.engine.ThreadedEngine(workers=2)) as engine:
        exe = bound(2)
        step(exe)
        exe._train.segments[0].calls.insert(0, lambda: seen.append((2, threading.get_ident())))
        exe._train.segments[0].names.insert(0, "look")
        step(exe)
        mx.nd.waitall()
        team = seen[-1]
        seen.clear()
        lowered = exe._planned.train
        monkeypatch.setitem(vars(CPU), "running", watched)
        calibration.with_measured_costs(lowered, again=True)
        assert len(seen) > calibration.ROUNDS and set(seen) == {team}  # calls alone, and then steps
        seen.clear()
        for _ in range(3):
            x, w = mx.nd.ones((90, 310)), mx.nd.ones((170, 310))
            mx.nd.FullyConnected(x, w, num_hidden=170, no_bias=True).wait_to_read()
        assert set(seen) == {team}
        engine.stop()
