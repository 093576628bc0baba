"""mx.profiler: what it records, the table, the trace, and that it costs nothing when it is off."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

import mxlite as mx
from mxlite.engine import get_engine
from mxlite.engine.watched import WatchedEngine
from mxlite.profiler import peak, session
from mxlite.profiler.session import SESSION
from tests.networks.small_networks import fill

sym, profiler = mx.sym, mx.profiler
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """A profiler as it is at the start, that writes into an empty folder and measures no machine.

    Kernels are numpy's unless a test wants others: then steps are the operators of the network.
    """
    monkeypatch.setenv("MXLITE_KERNELS", "reference")
    mx.nd.waitall()
    profiler.set_state("stop")
    monkeypatch.setattr(SESSION, "config", type(SESSION.config)(filename=str(tmp_path / "profile.json")))
    monkeypatch.setattr(SESSION, "paused", False)
    monkeypatch.setattr(SESSION, "named", "")
    SESSION.recorder.clear()
    monkeypatch.setattr(peak, "flops_per_s", lambda dtype, threads: 1e11)
    monkeypatch.setattr(peak, "bytes_per_s", lambda threads: 1e10)
    yield
    profiler.set_state("stop")
    mx.nd.waitall()


@pytest.fixture(params=["naive", "threaded"])
def engine(request):
    with mx.engine.use_engine(request.param) as used:
        yield used


def net():
    x = sym.Convolution(sym.Variable("data"), kernel=(3, 3), num_filter=4, name="conv")
    x = sym.Activation(x, act_type="relu", name="relu")
    return sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=3, name="fc"), name="softmax")


def bound(**given):
    exe = net().simple_bind(mx.cpu(), data=(2, 1, 6, 6), **given)
    fill(exe)
    return exe


def rows():
    """(operator, calls) of what was recorded."""
    return {r["Operator"]: r for r in json.loads(profiler.dumps(format="json"))["Kernels"]}


def trace():
    profiler.dump()
    with open(SESSION.config.filename) as file:
        return json.load(file)


# -- what is recorded ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", ["reference", "onednn", "onednn,compiled"])
def test_every_kernel_of_a_bound_program_is_recorded(engine, kernels, monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    exe = bound()
    exe.forward(is_train=True)
    exe.backward()
    profiler.start()
    for _ in range(3):
        exe.forward(is_train=True)
        exe.backward()
    exe.forward()
    profiler.stop()
    exe.forward()
    found, wanted = Counter(), Counter()
    for row in json.loads(profiler.dumps(format="json"))["Kernels"]:
        found[row["Operator"]] += row["Count"]
        assert row["Kind"] == "program"
    for plan, runs in ((exe._planned.train_plan, 3), (exe._planned.infer_plan, 1)):
        for t in plan.schedule.task:
            wanted[plan.problem.tasks[t].op] += runs
    assert found == wanted


def test_operations_on_arrays_and_everything_else(engine):
    a = mx.nd.ones((8, 4))
    a.wait_to_read()
    profiler.start()
    b = a + 1
    b *= 2
    mx.nd.dot(b, a, transpose_b=True)
    b[1:3] = 7
    a.attach_grad()
    with mx.autograd.record():
        y = (a * a).sum()
    y.backward()
    engine.push  # noqa: B018  (whoever has the engine already pushes unseen)
    get_engine().push(lambda: None, name="mine", kind="io")
    found = rows()
    assert found["_plus_scalar"]["Kind"] == found["dot"]["Kind"] == "operator"
    assert found["dot"]["Flops"] == 2 * 8 * 8 * 4 and found["dot"]["Bytes"] == 4 * (8 * 4 * 2 + 64)
    assert found["assign"]["Kind"] == found["mine"]["Kind"] == "engine" and found["mine"]["Kernel"] == "io"
    assert any(name.startswith("_backward") for name in found)


@mx.operator.register("profiled_twice")
class Twice(mx.operator.CustomOpProp):
    """An operator with two calls on arrays in forward, one of them another operator of the user's."""

    def create_operator(self, ctx, in_shapes, in_dtypes):
        class Inside(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                half = mx.nd.Custom(in_data[0], op_type="profiled_half")
                self.assign(out_data[0], req[0], half * 4)

            def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
                time.sleep(0.02)
                self.assign(in_grad[0], req[0], 2 * out_grad[0])

        return Inside()


@mx.operator.register("profiled_half")
class Half(mx.operator.CustomOpProp):
    def create_operator(self, ctx, in_shapes, in_dtypes):
        class Inside(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                out_data[0][:] = in_data[0].asnumpy() / 2

        return Inside()


def test_an_operator_of_ones_own_is_recorded_in_parts(engine):
    data = sym.Variable("data")
    exe = sym.Custom(data, op_type="profiled_twice", name="mine").simple_bind(mx.cpu(), data=(3,))
    a = mx.nd.ones(3)
    a.attach_grad()
    profiler.start()
    exe.forward(is_train=True, data=a)
    exe.backward(mx.nd.ones(3))
    with mx.autograd.record():
        b = mx.nd.Custom(a, op_type="profiled_twice")
    b.backward()
    found = json.loads(profiler.dumps(format="json"))["Time"]["Custom Operator"]
    assert found["profiled_twice::_mul_scalar"]["Count"] == found["profiled_twice::Custom"]["Count"] == 2
    assert found["_backward_profiled_twice::_mul_scalar"]["Count"] == 2
    assert found["profiled_half::pure_python"]["Count"] == 4  # around one assignment
    # Time in calls is not time in Python.
    assert found["_backward_profiled_twice::pure_python"]["Total"] >= 40
    assert found["_backward_profiled_twice::_mul_scalar"]["Max"] < 20
    assert "Inside operators of your own" in profiler.dumps()
    check_trace(trace())
    assert b.asnumpy().tolist() == exe.outputs[0].asnumpy().tolist() == [2, 2, 2]


def test_only_what_was_asked_for_is_recorded(engine):
    exe = bound()
    for config, kinds in (
        (dict(profile_symbolic=True), {"program"}),
        (dict(profile_imperative=True), {"operator", "engine"}),
        (dict(profile_all=True), {"program", "operator", "engine"}),
        (dict(), {"program", "operator", "engine"}),
    ):
        SESSION.config = type(SESSION.config)(filename=SESSION.config.filename)
        profiler.set_config(**config)
        profiler.start()
        exe.forward()
        (mx.nd.ones((2,)) + 1).wait_to_read()
        assert {r["Kind"] for r in rows().values()} == kinds
        profiler.stop()


def test_pause_leaves_a_gap_and_run_starts_anew(engine):
    a = mx.nd.ones((2,))
    a.wait_to_read()
    profiler.set_state("run")
    b = a + 1
    profiler.pause()
    b = a * 3
    profiler.resume()
    b = a - 1
    assert {n for n, r in rows().items() if r["Kind"] == "operator"} == {"_plus_scalar", "_minus_scalar"}
    profiler.set_state("stop")
    b = a / 2
    b.wait_to_read()
    assert len(rows()) == 2, "what there was is still there"
    profiler.set_state("run")
    assert rows() == {}
    mx.nd.waitall()


def test_what_is_pushed_before_the_stop_is_waited_for():
    gate = threading.Event()
    with mx.engine.use_engine("threaded"):
        a = mx.nd.ones((2,))
        mx.nd.waitall()
        profiler.start()
        get_engine().push(lambda: gate.wait(10), writes=[a.var], name="slow")
        a + 1
        profiler.stop()
        threading.Timer(0.05, gate.set).start()
        assert set(rows()) == {"slow", "_plus_scalar"}


def test_a_failure_is_recorded_and_stays_the_users():
    """`dumps` waits, but raises nothing that a wait of the user's has to raise."""
    with mx.engine.use_engine("threaded"):
        exe = bound()
        exe.forward()
        mx.nd.waitall()
        segment = exe._infer.segments[0]
        segment.calls[1] = lambda: 1 / 0
        profiler.start()
        exe.forward()
        found = rows()
        assert found["Convolution"]["Count"] == 1 and "FullyConnected" not in found
        with pytest.raises(mx.OperatorError, match="'relu' failed with ZeroDivisionError"):
            exe.outputs[0].asnumpy()
        mx.nd.waitall()


def test_results_are_the_same_while_it_runs(engine):
    def run():
        exe = bound(optimizer=mx.optimizer.SGD(momentum=0.9))
        for _ in range(3):
            exe.step(np.tile([0.1, 0], (len(exe.updated), 1)))
        return [a.asnumpy() for a in (*exe.arg_arrays, *exe.outputs)]

    wanted = run()
    profiler.start()
    for a, b in zip(wanted, run()):
        np.testing.assert_array_equal(a, b)


# -- off -------------------------------------------------------------------------------------------------


def test_off_is_as_if_it_were_not_there(engine):
    """The engine that pushes is the very one, and a segment's call is the plain one."""
    exe = bound()
    pushed = []
    profiler.start()
    assert isinstance(get_engine(), WatchedEngine) and get_engine().inner is engine
    profiler.stop()
    assert get_engine() is engine
    profiler.start()
    profiler.pause()
    assert get_engine() is engine
    profiler.resume()
    profiler.stop()
    real = engine.push
    engine.push = lambda fn, *a, **k: (pushed.append(fn), real(fn, *a, **k))
    exe.forward()
    assert pushed == exe._infer.segments
    del engine.push


def test_an_engine_that_comes_and_goes_is_watched_too():
    profiler.start()
    with mx.engine.use_engine("naive") as inner:
        assert get_engine() is not inner and get_engine().inner is inner
        (mx.nd.ones((2,)) * 2).wait_to_read()
        with mx.engine.bulk(10):
            mx.nd.ones((2,)) - 1
    assert isinstance(get_engine(), WatchedEngine)
    assert {"_mul_scalar", "_minus_scalar"} <= set(rows())
    with pytest.raises(mx.OperatorError):
        get_engine().push(lambda: 1 / 0, writes=[(v := mx.engine.Var("v"))], name="bad")
        get_engine().wait_for(v)
    stats = get_engine().stats()
    assert stats["failed"] >= 1


# -- the table -------------------------------------------------------------------------------------------


def test_the_table_adds_up(engine):
    exe = bound()
    profiler.start()
    for _ in range(4):
        exe.forward(is_train=True)
        exe.backward()
    text = profiler.dumps()
    assert "Kernels of bound programs" in text and "Peak of this machine" in text
    table = text.split("Everything else")[0].split("Operations on")[0]
    lines = [line.split() for line in table.splitlines() if "%" in line]
    data = [r for r in json.loads(profiler.dumps(format="json"))["Kernels"] if r["Kind"] == "program"]
    assert len(lines) == len(data)
    shares = [float(line[line.index("%") - 1]) for line in lines]
    assert sum(shares) == pytest.approx(100, abs=0.1 * len(shares))
    assert shares == sorted(shares, reverse=True)
    for r in data:
        assert r["Min"] <= r["Median"] <= r["Max"] and r["Min"] * r["Count"] <= r["Total"] * 1.0001
        assert r["Avg"] == pytest.approx(r["Total"] / r["Count"])


def test_rates_and_share_of_the_peak(monkeypatch):
    """By hand: 2 GFLOP and 1 GB in half a second, on a machine of 100 GFLOP/s and 10 GB/s."""
    from mxlite.backends import Facts
    from mxlite.profiler.recorder import RecordedCall
    from mxlite.profiler.table import data_of, rows_of, table_of

    facts = Facts("n", "op", "onednn jit", "float32", 2e9, 10**9)
    calls = [RecordedCall(1, 0, 500_000_000, "program", facts)]
    found = rows_of(calls, lambda dtype, flops, nbytes: max(flops / 100e9, nbytes / 10e9))
    assert data_of(found, "total", False)[0]["OfPeak"] == pytest.approx(0.2)
    line = table_of(found, "total", False).splitlines()[-1].split()
    assert line == [
        "op",
        "onednn",
        "jit",
        "1",
        "500.000",
        "100.0",
        "%",
        *["500000.0"] * 3,
        "4.00",
        "2.00",
        "20",
        "%",
    ]


@pytest.mark.parametrize("sort_by", ["total", "avg", "min", "max", "count"])
def test_sorting(sort_by):
    a = mx.nd.ones((64, 64))
    profiler.start()
    for _ in range(3):
        a + 1
    mx.nd.dot(a, a)
    key = {"total": "Total", "avg": "Avg", "min": "Min", "max": "Max", "count": "Count"}[sort_by]
    for ascending in (False, True):
        found = json.loads(profiler.dumps(format="json", sort_by=sort_by, ascending=ascending))["Kernels"]
        values = [r[key] for r in found]
        assert values == sorted(values, reverse=not ascending) and len(values) >= 2


def test_reset_forgets():
    profiler.start()
    mx.nd.ones((2,)) + 1
    assert "_plus_scalar" in profiler.dumps(reset=True)
    assert profiler.dumps() == "Nothing was recorded."
    assert json.loads(profiler.dumps(format="json"))["Kernels"] == []


def test_measuring_the_machine_is_no_part_of_the_record(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(peak, "SIDE", 64)
    monkeypatch.setattr(peak, "COPIED", 2**16)
    peak.flops_per_s.cache_clear()
    peak.bytes_per_s.cache_clear()
    a = mx.nd.ones((8, 8))
    mx.nd.waitall()
    profiler.start()
    mx.nd.dot(a, a)
    first = json.loads(profiler.dumps(format="json"))
    assert [r["Operator"] for r in first["Kernels"]] == ["dot"]
    assert first["Peak"]["flops_per_s"]["float32"] > 0 and first["Peak"]["bytes_per_s"] > 0
    second = json.loads(profiler.dumps(format="json"))
    assert second["Peak"] == first["Peak"], "once in a process"
    assert [r["Operator"] for r in second["Kernels"]] == ["dot"]
    peak.flops_per_s.cache_clear()
    peak.bytes_per_s.cache_clear()


# -- the trace -------------------------------------------------------------------------------------------

PHASES = {
    "M": {"name", "ph", "pid", "tid", "args"},
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "C": {"name", "ph", "ts", "pid", "tid", "args"},
    "i": {"name", "cat", "ph", "ts", "pid", "tid", "s"},
    "b": {"name", "cat", "ph", "ts", "id", "pid", "tid"},
    "e": {"name", "cat", "ph", "ts", "id", "pid", "tid"},
}
"""What the format demands of each phase we use, and no more."""


def check_trace(data):
    """Raise AssertionError unless `data` follows the Trace Event Format as far as we use it."""
    assert set(data) <= {"traceEvents", "displayTimeUnit", "otherData"} and data["displayTimeUnit"] in (
        "ms",
        "ns",
    )
    names, rows, open_spans, last = set(), defaultdict(list), {}, float("-inf")
    for e in data["traceEvents"]:
        assert set(e) == PHASES[e["ph"]], e
        assert (
            isinstance(e["name"], str)
            and e["name"]
            and isinstance(e["pid"], int)
            and isinstance(e["tid"], int)
        )
        if e["ph"] == "M":
            assert e["name"] in ("process_name", "thread_name", "thread_sort_index")
            assert set(e["args"]) <= {"name", "sort_index"}
            if e["name"] == "thread_name":
                assert e["args"]["name"]
                names.add(e["tid"])
            continue
        assert isinstance(e["ts"], float | int) and e["ts"] >= last
        last = e["ts"]
        if e["ph"] == "X":
            assert e["dur"] >= 0
            rows[e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
        elif e["ph"] == "C":
            assert e["args"] and all(isinstance(v, int | float) for v in e["args"].values())
        elif e["ph"] == "i":
            assert e["s"] in ("g", "p", "t")
        elif e["ph"] == "b":
            assert (e["cat"], e["id"]) not in open_spans
            open_spans[e["cat"], e["id"]] = e["name"]
        elif e["ph"] == "e":
            assert open_spans.pop((e["cat"], e["id"])) == e["name"]
        if e["ph"] != "C":
            assert e["tid"] in names, "a row without a name"
    assert not open_spans
    for spans in rows.values():  # complete events of a row must lie inside each other or apart
        inside = []
        for start, stop in spans:
            while inside and inside[-1] <= start + 1e-3:
                inside.pop()
            assert not inside or stop <= inside[-1] + 1e-3
            inside.append(stop)
    return rows


def test_the_trace_follows_the_format(engine):
    domain = profiler.Domain("mine")
    exe = bound()
    profiler.start()
    task, other = domain.new_task("a task"), profiler.Task(domain, "b task")
    task.start()
    other.start()
    for _ in range(2):
        exe.forward(is_train=True)
        exe.backward()
    task.stop()
    with profiler.scope("here:"), domain.new_frame("a frame"), profiler.Event("an event"):
        (mx.nd.ones((4, 4)) + 1).wait_to_read()
    other.stop()
    counter = domain.new_counter("waiting", 3)
    counter += 2
    counter -= 1
    counter.set_value(0.5)
    counter.decrement()
    for scope in ("global", "process", "thread", "task", "marker"):
        domain.new_marker("now").mark(scope)
    data = trace()
    check_trace(data)
    assert SESSION.state == "stop"
    events = data["traceEvents"]
    assert {e["name"] for e in events if e["ph"] == "b"} == {
        "a task",
        "b task",
        "here:",
        "a frame",
        "an event",
    }
    assert [e["s"] for e in events if e["ph"] == "i"] == ["g", "p", "t", "t", "t"]
    values = [e["args"]["waiting"] for e in events if e["ph"] == "C" and e["name"] == "mine: waiting"]
    assert values == [3, 5, 4, 0.5, -0.5]
    kernels = [e for e in events if e["ph"] == "X" and e["cat"] == "program"]
    assert [e["name"] for e in kernels[:3]] == ["conv", "relu", "fc"]
    assert kernels[0]["args"]["operator"] == "Convolution" and kernels[0]["args"]["bytes"] > 0
    assert [r["Operator"] for r in data["otherData"]["kernels"]]
    threads = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    if type(engine).__name__ == "ThreadedEngine":
        assert any(name.startswith("mxlite cpu compute") for name in threads)


def test_counters_show_the_plans_bytes_and_the_measured_ones(engine):
    full = bound().memory_plan
    forced = mx.AttrScope(force_mirroring="True")
    with forced:
        exe = net().simple_bind(mx.cpu(), memory_budget=2 * full.peak_bytes, data=(2, 1, 6, 6))
    fill(exe)
    profiler.start()
    exe.forward(is_train=True)
    exe.backward()
    events = trace()["traceEvents"]
    live = [e["args"]["planned live bytes"] for e in events if e["name"] == "arena: planned live bytes"]
    assert live == exe.memory_plan.live_bytes()
    allocated = {
        e["args"]["allocated by the program"]
        for e in events
        if e["name"] == "memory: allocated by the program"
    }
    assert allocated == {exe.measured_bytes} == {exe.memory_plan.peak_bytes}
    for what, nbytes in (("planned", exe.memory_plan.peak_bytes), ("budget", 2 * full.peak_bytes)):
        shown = [e["args"] for e in events if e["name"].startswith(f"memory: {what}")]
        assert shown and all(list(args.values()) == [nbytes] for args in shown)
    again = sum(e.get("cat") == "program,recomputed" for e in events)
    assert again == exe.memory_plan.recomputed > 0


def test_a_long_record_is_a_valid_trace_on_many_threads():
    with mx.engine.use_engine("threaded"):
        arrays = [mx.nd.ones((100,)) for _ in range(8)]
        profiler.start()
        for _ in range(50):
            for a in arrays:
                a += 1
        rows = check_trace(trace())
    assert sum(map(len, rows.values())) >= 400


def test_dump_keeps_running_if_it_is_told_to():
    profiler.start()
    profiler.dump(finished=False)
    assert SESSION.active
    mx.nd.ones((2,)) + 1
    assert "_plus_scalar" in profiler.dumps()


# -- MXNet's words ---------------------------------------------------------------------------------------


def test_mxnets_parameters_are_taken_and_others_refused():
    profiler.set_config(
        profile_all=True, profile_symbolic=True, profile_imperative=True, profile_memory=True,
        profile_api=True, filename="x.json", continuous_dump=True, dump_period=2, aggregate_stats=True,
        profile_process="worker",
    )  # fmt: skip
    named = os.path.abspath("x.json")
    assert SESSION.config.filename == named, "wherever the program is when it is written"
    profiler.set_config(profile_api=False)
    assert SESSION.config.filename == named, "what is not named stays"
    with pytest.raises(mx.MXLiteError, match=r"no parameter 'filname'. Did you mean 'filename'"):
        profiler.set_config(filname="y")
    with pytest.raises(mx.MXLiteError, match="'run' or 'stop', got 'rum'"):
        profiler.set_state("rum")
    with pytest.raises(mx.MXLiteError, match="sort_by must be one of"):
        profiler.dumps(sort_by="size")
    with pytest.raises(mx.MXLiteError, match="format must be one of"):
        profiler.dumps(format="xml")
    with pytest.raises(mx.MXLiteError, match="scope must be one of"):
        profiler.Marker(profiler.Domain("d"), "m").mark("proces")


def test_mxnets_older_names_warn_and_work():
    with pytest.warns(DeprecationWarning):
        profiler.profiler_set_config(mode="all", filename=SESSION.config.filename)
    with pytest.warns(DeprecationWarning):
        profiler.profiler_set_state("run")
    mx.nd.ones((2,)) + 1
    with pytest.warns(DeprecationWarning):
        profiler.dump_profile()
    with open(SESSION.config.filename) as file:
        check_trace(json.load(file))


def test_a_named_file_is_written_at_the_end_of_a_program_without_dump(tmp_path):
    """As MXNet does; the programs of its first years have no other way."""
    program = """
import mxlite as mx
mx.profiler.profiler_set_config(mode="symbolic", filename="trace.json")
mx.profiler.profiler_set_state("run")
exe = (mx.sym.Variable("x") * 2).bind(mx.cpu(), {"x": mx.nd.ones((3,))})
exe.forward()[0].wait_to_read()
mx.profiler.profiler_set_state("stop")
import os; os.mkdir("elsewhere"); os.chdir("elsewhere")
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=tmp_path, check=True, env=ENVIRONMENT)
    check_trace(json.loads((tmp_path / "trace.json").read_text()))


def test_only_a_named_file_that_is_not_written_yet_is_written_at_the_end(tmp_path):
    file = tmp_path / "named.json"

    def at_the_end():
        session._at_exit()
        return file.exists() or (tmp_path / "profile.json").exists()

    profiler.set_state("run")
    assert not at_the_end()  # no file was named
    profiler.set_config(filename=str(file))
    assert at_the_end()
    file.unlink()
    assert not at_the_end()  # written already
    profiler.set_state("run")
    profiler.dump()
    file.unlink()
    assert not at_the_end()


def test_objects_while_it_is_off_record_nothing():
    domain = profiler.Domain("d")
    task = domain.new_task("t")
    task.stop()
    with task:
        domain.new_marker("m").mark()
    counter = domain.new_counter("c")
    counter += 1
    assert (str(domain), str(task), str(counter)) == ("d", "t", "c")
    assert not SESSION.recorder.spans and not SESSION.recorder.counts and not SESSION.recorder.instants
