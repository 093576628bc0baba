"""A run of benchmarks/gpu.py: what it measures, in which order, within its time, whatever fails."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mxlite.backends.gpu import num_gpus
from tests.emulators.emulated_device import compiler

ROOT = Path(__file__).resolve().parents[2]

COLUMN = """
import json, os, subprocess, sys, time
how = os.environ["HOW"]
found = {"load": 0.1, "losses": [3.0, 2.0, 1.0], "run": 0.01, "host": 1e-5, "largest": 7}
for line in sys.stdin:
    request = json.loads(line)
    do = request["do"]
    if how == do + " fails":
        raise ValueError("there is no compiler here")
    if how == do + " hangs":  # and so does what it has started, which holds the output
        print("waiting for the driver", file=sys.stderr, flush=True)
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"])
        time.sleep(20)
    if how == do + " crashes":
        os.abort()
    print("reply: " + json.dumps(found.get(do, {})), flush=True)
"""


@pytest.fixture
def column(benchmarks, tmp_path):
    """A column whose process fails as it is told."""
    program = tmp_path / "column.py"
    program.write_text(COLUMN)
    of = benchmarks("peers.column").Column

    def made(how, side="ours", name=""):
        return of(name or f"{how}-fp32", how, side, str(program), env={"HOW": how})

    return made


@pytest.fixture
def mlp(benchmarks):
    return next(n for n in benchmarks("gpu_columns.nets").small() if n.name == "mlp")


@pytest.fixture
def terms(benchmarks):
    return benchmarks("peers.contest").Terms(2, 0.001, 1, 1.0, 0)


@pytest.fixture
def clock(benchmarks):
    """That has so many seconds left."""
    return lambda seconds: benchmarks("gpu_columns.contest").Clock(time.monotonic() + seconds)


@pytest.fixture
def chosen(benchmarks, monkeypatch):
    """What a command line measures: kinds or names, each with its columns."""
    gpu, measure = benchmarks("gpu"), benchmarks("gpu_columns.measure")

    def of(*arguments):
        seen = []

        def run(wanted, *rest):
            seen.extend(wanted)
            return False

        monkeypatch.setattr(measure, "run", run)
        monkeypatch.setattr(sys, "argv", ["gpu.py", *arguments])
        assert gpu.main() == 0
        return {w.net.name if w.kind == "net" else w.kind: [c.name for c in w.columns] for w in seen}

    return of


def test_output_that_another_process_holds_is_closed_in_the_end(benchmarks, tmp_path):
    program = tmp_path / "holds.py"
    held = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3)'])"
    program.write_text(f"import subprocess, sys, time\n{held}\ntime.sleep(9)\n")
    worker = benchmarks("harness").Worker(sys.executable, str(program))
    with pytest.raises(RuntimeError, match="longer than"), worker:
        worker.ask(limit=0.2)
    worker._reader.join(30)
    assert worker.process.stdout.closed


def test_a_column_that_fails_or_hangs_is_a_note_in_a_whole_table(
    benchmarks, column, mlp, terms, clock, tmp_path, capsys
):
    """Whenever it does, and whoever it is; also where the network itself cannot be prepared. What its process
    said last is not lost."""
    measure, wanted = benchmarks("gpu_columns.measure"), benchmarks("gpu_columns.choice").Wanted
    hows = [
        "works",
        "load fails",
        "losses crashes",
        "run fails",
        "run hangs",
        "memory fails",
        "versions crashes",
    ]
    columns = [column(how, ["torch", "ours", "jax"][i % 3]) for i, how in enumerate(hows)]
    columns = [replace(c, side="ours") if c.missing() else c for c in columns]
    columns.append(replace(columns[0], name="absent-fp32", title="absent", script=str(tmp_path / "none.py")))
    broken = replace(mlp, title="broken", symbol=lambda: 1 / 0)
    items = [wanted("net", mlp, tuple(columns)), wanted("net", broken, tuple(columns))]
    assert measure.run(items, terms, clock(60), tmp_path / "out")
    (written,) = (tmp_path / "out").glob("*-gpu.md")
    text, (out, said) = written.read_text(), capsys.readouterr()
    assert text.strip() == out.strip()
    for how, why in {
        "load fails": "ValueError: there is no compiler here",
        "losses crashes": "ended",
        "run fails": "ValueError: there is no compiler here",
        "run hangs": "It took longer than 1 s.",
        "memory fails": "ValueError: there is no compiler here",
        "absent": "No such file",
    }.items():
        assert any(how in x and why in x for x in text.splitlines() if x.startswith("| MLP")), (how, text)
    assert text.count("ZeroDivisionError") >= len(columns)
    times = text[text.index("## float32") :].splitlines()
    assert any(x.startswith("| MLP") and "10" in x for x in times)
    assert said.count('raise ValueError("there is no compiler here")') == 3
    assert "waiting for the driver" in said and "symbol=lambda: 1 / 0" in said


def test_notes_of_the_deep_network_are_on_the_page(benchmarks, column, mlp, terms, clock):
    page, contest = benchmarks("gpu_columns.page"), benchmarks("peers.contest")
    entries = {"fails": contest.Entry(column("fails"), note="ValueError: too deep")}
    text = page.Page(None, terms, deep_net=mlp, deep=entries).body()
    assert "ValueError: too deep" in text[text.index("## Left out") :]


def test_the_hosts_time_is_taken_in_each_round(benchmarks, column, mlp, terms):
    """And not once, by chance."""
    contest = benchmarks("gpu_columns.contest")
    hosts = iter([1e-5, 9e-5, 3e-5])

    class Worker:
        def ask(self, limit=None, do="", **request):
            return next(hosts) if do == "host" else 0.01 if do == "run" else {}

    entry = benchmarks("peers.contest").Entry(column("works"))
    contest.measure(entry, Worker(), replace(terms, rounds=3))
    assert entry.host.values == (1e-5, 9e-5, 3e-5)
    assert "| 30.0 (10.0-90.0) |" in benchmarks("gpu_columns.report").host([(mlp, {"works": entry})])


@pytest.mark.parametrize("name", ["mxlite_gpu", "torch_gpu", "jax_gpu"])
def test_each_framework_says_the_hosts_time_of_its_last_run(benchmarks, name):
    pytest.importorskip({"torch_gpu": "torch", "jax_gpu": "jax"}.get(name, "mxlite"))
    peer = benchmarks(f"gpu_columns.{name}").OnGPU
    one = peer.__new__(peer)
    one.host_s = 7e-6
    assert one.answer("host") == 7e-6


def test_all_ends_in_one_short_time_behind_the_end(benchmarks, monkeypatch):
    """However much is asked then."""
    contest = benchmarks("gpu_columns.contest")
    now, limits = [100.0], []
    monkeypatch.setattr(contest.time, "monotonic", lambda: now[0])

    class Slow:
        """Takes all the time that it is given."""

        def ask(self, limit, **request):
            limits.append(limit)
            now[0] += limit
            raise RuntimeError("It took longer.")

    worker = contest.Limited(Slow(), 50.0, contest.Clock(110.0))
    for _ in range(9):
        with pytest.raises(RuntimeError):
            worker.ask(20.0, do="run")
    assert len(limits) == 1 and now[0] <= 110.0 + contest.OVER - contest.ENDING
    workers = benchmarks("harness.worker")
    assert contest.ENDING > workers.ENDING_S + workers.LOOK_S and contest.OVER <= 15


def test_without_time_a_network_is_not_even_prepared(benchmarks, column, mlp, terms, clock, tmp_path):
    contest = benchmarks("gpu_columns.contest")
    net = replace(mlp, symbol=lambda: 1 / 0)
    entries = contest.hold(net, [column("works")], terms, tmp_path, clock(contest.OVER - 1))
    assert [e.note for e in entries.values()] == [contest.NO_TIME]


class Left:
    """A clock that says one after the other how much is left."""

    def __init__(self, *said):
        self.said = iter(said)

    left = property(lambda self: next(self.said))


def test_the_largest_batches_keep_to_the_time_and_are_told_one_by_one(
    benchmarks, column, mlp, terms, tmp_path, capsys
):
    batches, contest = benchmarks("gpu_columns.batches"), benchmarks("gpu_columns.contest")
    columns = [column(how, "ours") for how in ("works", "largest hangs", "largest fails")]
    columns = [replace(c, side="") for c in columns]  # of nobody, so that none is left out or run
    over = contest.OVER - contest.ENDING

    def found(*left):
        search = batches.Search(mlp, 1, 0.1, replace(terms, limit=60.0), tmp_path, Left(*left))
        return list(search.largest(columns))

    works, hangs, fails = found(90, 90, 90, 90, 90, 0.2 - over, 90, 90, 90)
    assert works.batch == 7 and hangs.note == "It took longer than 0.2 s." and "no compiler" in fails.note
    assert str(works) == "7" and str(fails) == "none: ValueError: there is no compiler here"
    assert 'raise ValueError("there is no compiler here")' in capsys.readouterr().err
    assert {row.note for row in found(1, 1, 1)} == {contest.NO_TIME}


TRIED = """
import json, os, sys
plenty, slow = int(os.environ["PLENTY"]), int(os.environ["SLOW"])
for line in sys.stdin:
    request = json.loads(line)
    do, found = request["do"], {}
    if do == "largest":
        found = request["first"] or 16
    elif do == "load":
        batch, budget = request["spec"]["rows"], request["memory_budget"]
    elif do == "losses":
        found = [3.0, 2.0, 1.0]
    elif do == "host":
        found = 1e-5
    elif do == "run":
        found = 0.01 if budget == plenty else 0.013 if batch >= slow else 0.011
    elif do == "memory":
        found = {"gone": budget + 100}
    print("reply: " + json.dumps(found), flush=True)
"""


@pytest.mark.parametrize("slow, batch", [(15, 14), (99, 16), (0, 0)])
def test_our_largest_batch_is_one_that_was_run_within_bytes_and_time(
    benchmarks, mlp, terms, clock, tmp_path, slow, batch
):
    """What is beside the plan is taken from its budget, then batches become smaller, a few times."""
    batches, known = benchmarks("gpu_columns.batches"), benchmarks("gpu_columns.columns")
    program = tmp_path / "tried.py"
    program.write_text(TRIED)
    env = {"PLENTY": str(known.PLENTY), "SLOW": str(slow)}
    column = replace(known.ours("fp32", "", "mxlite"), script=str(program), env=env)
    search = batches.Search(mlp, 10_000, 0.15, replace(terms, limit=60.0), tmp_path, clock(90))
    (found,) = search.largest([column])
    assert (found.batch, found.ran and found.ran.batch) == (batch, batch or None)
    assert (found.tried[0].gone, found.tried[0].extra) == (10_100, None)
    assert all(t.gone == 10_000 for t in found.tried[1:])
    assert [t.batch for t in found.tried[1:]] == {14: [16, 15, 14], 16: [16], 0: [16, 15, 14]}[batch]
    if batch:
        assert found.ran.extra == pytest.approx(0.1) and not found.is_planned_only
        assert str(found).startswith(f"{batch} with 0.000 GB gone from the device, +10.0 % over 10.0 ms")
        assert "before that 16 with" in str(found)
    else:
        assert str(found).startswith(
            "none: none that was run keeps to the bytes and the time; before that 16"
        )


@pytest.mark.skipif(num_gpus() > 0, reason="there is a GPU")
def test_without_a_device_the_largest_batch_is_planned_only(
    benchmarks, mlp, terms, clock, tmp_path, monkeypatch
):
    monkeypatch.delenv("MXLITE_BENCHMARK_EMULATED")
    batches, known = benchmarks("gpu_columns.batches"), benchmarks("gpu_columns.columns")
    search = batches.Search(mlp, 50_000, 0.15, replace(terms, limit=90.0), tmp_path, clock(90))
    (found,) = search.largest([known.ours("fp32", "", "mxlite")])
    assert found.batch > 1 and found.is_planned_only and "DeviceError" in found.note
    assert f"{found.batch}, planned only: " in str(found)


@pytest.mark.skipif(compiler is None, reason="g++ is not installed")
def test_the_largest_batch_is_run_on_the_emulated_gpu(benchmarks, mlp, terms, clock, tmp_path):
    batches, known = benchmarks("gpu_columns.batches"), benchmarks("gpu_columns.columns")
    column, room = known.emulated(known.ours("bf16", "", "mxlite")), 5 * 2**20
    search = batches.Search(mlp, room, 1e9, replace(terms, limit=90.0), tmp_path, clock(120), most=16)
    (found,) = search.largest([column])
    assert found.ran is not None and found.ran.batch == found.batch == 16, found
    assert 0 < found.ran.gone <= room


def test_networks_and_columns_come_in_the_order_in_which_they_are_asked_for(benchmarks, chosen):
    """The quick ones first where little time is given: what takes long may take all of it."""
    nets = benchmarks("gpu_columns.nets")
    assert [*chosen("--quick")] == [*nets.QUICK] and nets.QUICK[0] in nets.LAUNCH_BOUND
    names = ["lenet", "batch", "resnet50", "deep", "mlp"]
    assert [*chosen("--nets", ",".join(names))] == names
    assert [*chosen()] == [n.name for n in nets.nets()] + ["deep", "batch"]
    found = chosen("--nets", "batch,deep,mlp", "--columns", "last-*,mxlite-bf16*,mxlite-tf32")
    assert found == {
        "batch": ["last-tf32", "mxlite-tf32"],
        "deep": ["last-bf16", "mxlite-bf16", "mxlite-bf16-whole", "mxlite-bf16-7GB", "mxlite-bf16-4GB"],
        "mlp": ["last-fp32", "last-tf32", "last-bf16", "mxlite-bf16", "mxlite-bf16-whole", "mxlite-tf32"],
    }


def test_commands_of_the_page_measure_what_it_says(chosen, tmp_path):
    """Nets that are bound by launches also against the CUDA graphs of torch.compile."""
    text = (ROOT / "docs" / "gpu.md").read_text().replace("\\\n", "")
    lines = [x.strip() for x in text.splitlines() if x.startswith("    python3 benchmarks/gpu.py")]
    launches, memory, _ = [chosen(*shlex.split(x)[2:]) for x in lines]
    assert [*launches] == ["mlp", "lenet", "decoder"] and [*memory][:2] == ["batch", "deep"]
    for precision in ("bf16", "tf32"):
        wanted = {f"{n}-{precision}" for n in ("mxlite", "eager", "compile")} | {f"mxlite-{precision}-whole"}
        assert all(wanted <= {*names} for names in launches.values())
    assert {"mxlite-tf32", "last-tf32", "again-tf32", "segments-tf32"} <= {*memory["batch"]}
    assert {f"mxlite-bf16{n}" for n in ("", "-whole", "-7GB", "-4GB")} <= {*memory["deep"]}
    assert not [c for names in memory.values() for c in names if c.startswith(("jit", "remat", "compile"))]


def test_deep_is_of_the_precision_that_is_asked_for(chosen):
    assert {n.split("-")[1] for n in chosen("--nets", "deep")["deep"]} == {"bf16"}
    for precision in ("fp32", "tf32", "bf16"):
        found = chosen("--nets", "deep,batch", "--precision", precision)
        assert {n.split("-")[1] for names in found.values() for n in names} == {precision}


def test_each_precision_has_a_column_that_keeps_all(benchmarks, chosen):
    known = benchmarks("gpu_columns.columns")
    kept = {c.name: c.options["memory_budget"] for c in known.columns() if "memory_budget" in c.options}
    assert kept == {f"mxlite-{p}-whole": known.PLENTY for p in known.PRECISIONS}
    assert all([n for n in c if n in kept] == ["mxlite-bf16-whole"] for c in chosen("--quick").values())


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--nets", "mlp,none"], "there is no network 'none'; there are resnet50"),
        (["--columns", "mxlite-*,none-*"], "there is no column 'none-*'; there are mxlite-fp32"),
        (["--nets", "mlp,batch", "--columns", "mxlite-bf16"], "no column of ResNet-50 224 B256 (batch) is"),
    ],
)
def test_names_that_are_none_are_refused_at_once(chosen, capsys, arguments, said):
    with pytest.raises(SystemExit):
        chosen(*arguments)
    assert said in capsys.readouterr().err


def test_the_time_for_measuring_kernels_reaches_our_columns_and_the_page(
    benchmarks, chosen, terms, monkeypatch
):
    page = benchmarks("gpu_columns.page")
    monkeypatch.setenv(page.TUNING, "1")
    chosen("--tuning", "7")
    assert os.environ[page.TUNING] == "7"
    assert "had 7 s to measure kernels" in page.Page(None, terms).body()


def test_versions_name_the_libraries_that_products_and_norms_use(benchmarks, monkeypatch):
    ours = benchmarks("gpu_columns.mxlite_gpu")
    monkeypatch.setattr(ours.cublaslt, "library", lambda: None)
    monkeypatch.setattr(ours.cudnn, "library", lambda: None)
    assert (ours.cublaslt_version(), ours.cudnn_version()) == ("absent", "absent")

    class Library:
        version = 130103
        backend_version = staticmethod(lambda: 91900)

    monkeypatch.setattr(ours.cublaslt, "library", Library)
    monkeypatch.setattr(ours.cudnn, "library", Library)
    monkeypatch.setattr(ours.importlib.metadata, "version", lambda name: "1.32.0")
    assert (ours.cublaslt_version(), ours.cudnn_version()) == ("13.1.3", "91900, front end 1.32.0")
    source = Path(ours.__file__).read_text()
    assert '"cuBLASLt": cublaslt_version()' in source and '"cuDNN": cudnn_version()' in source


def test_it_needs_no_mxlite_but_its_checkouts_and_takes_wheels_along(tmp_path):
    """Here and in its processes; another mxlite that is in the way is not looked at."""
    other, wheels = tmp_path / "other", tmp_path / "wheels"
    (other / "mxlite").mkdir(parents=True)
    (other / "mxlite" / "__init__.py").write_text("raise ImportError('another mxlite')\n")
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "jax-1.0-py3-none-any.whl", "w") as file:
        file.writestr("jax/__init__.py", "raise ImportError('brought along')\n")
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--emulated", "--nets", "mlp"]
    command += ["--columns", "mxlite-fp32,jit-fp32", "--seconds", "0.001", "--wheels", str(wheels)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(other)}, timeout=250,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "brought along: jax-1.0-py3-none-any.whl" in done.stderr
    assert "| MLP 12-16-10 B8 | JAX jit, fp32 | ImportError: brought along |" in done.stdout
    assert "ours GPU emulated GPU" in done.stdout


def test_a_number_is_looked_for_downwards_by_a_sixteenth(benchmarks):
    search = benchmarks("gpu_columns.search")
    for fitting in (0, 1, 7, 90, 100):
        looked = []
        found = search.downwards(lambda n: looked.append(n) or n <= fitting, 100)  # noqa: B023
        assert found <= fitting and (not fitting or found >= fitting * 15 // 16)
        assert looked == sorted(looked, reverse=True) and len(looked) < 60
    assert np.all([search.below(n) < n for n in range(1, 100)])
