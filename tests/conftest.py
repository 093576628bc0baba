"""What tests have counted, at the end of the run; a fixture of several files.

A test says `record_property("count: SUBJECT", {"passed": 3, ...})`; the counts of a subject are added up over
all tests and test processes, and printed as one line.
"""

import gc
import importlib
import logging
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

os.environ["MXLITE_PLAN_CACHE"] = (
    "0"  # tests are about planning; tests/memplan/test_plan_cache.py switches it on
)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is in the background of a shell; processes that tests start would inherit it, deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start some two hundred Python processes. Where bytecode is not to be written, each of them compiles
# the whole package, which takes longer than most of what they do then; and every test process all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

PREFIX = "count: "

LONG = (
    "test_node_cases_of_the_standard",
    "test_networks_give_what_the_oracle_gives",
    "test_a_plan_without_the_gpu_is_the_one_with_it",
    "test_random_bodies_are_their_unrolled_loops",
    "test_pytorch_has_the_same_losses",
    "test_a_stopped_example_resumes",
    "test_commands_print_what_the_page_says",
    "test_python_blocks_run_and_print_what_the_page_says[README.md]",
    "test_a_step_of_lenet_is_measured",
    "test_model_cases_of_the_standard",
    "test_every_budget_is_kept_or_refused",
    "test_fit_batch_with_a_limit_on_time_is_smaller",
    "test_a_budget_that_fits_is_0",
    "test_row[RNN-long]",
    "test_what_is_missing",
    "test_generated_kernels_of_a_lesser_processor",
)
"""Tests of six seconds and more. They begin first: for one that begins last all other processes wait."""


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.name.startswith(LONG))


def pytest_collection_finish():
    # Modules and tests are hundreds of thousands of objects, and stay: each gc.collect() would visit them.
    set_aside()
    # Planning makes objects by the hundred thousand, few of them in cycles; a test of cycles collects itself.
    gc.set_threshold(20_000, 20, 50)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    # So does what tests leave in caches of mxlite: after some thousand, each gc.collect() took a second.
    if nextitem is not None and nextitem.path != item.path:
        set_aside()


def set_aside():
    """From now on the collector visits none of the objects that there are."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    totals: dict[str, Counter] = {}
    for reports in list(terminalreporter.stats.values()):
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name.startswith(PREFIX) and getattr(report, "when", "") == "call":
                    totals.setdefault(name.removeprefix(PREFIX), Counter()).update(value)
    for subject, counts in sorted(totals.items()):
        parts = ", ".join(f"{n:,} {kind}" for kind, n in counts.items())
        terminalreporter.write_line(f"{subject}: {parts}, of {sum(counts.values()):,}")


@pytest.fixture(autouse=True)
def log_stays_as_it_is():
    """A test that leaves another log level behind fails here, rather than a later test that reads the log."""
    logger = logging.getLogger("mxlite")
    before = logger.level, logger.disabled, logger.propagate
    yield
    after = logger.level, logger.disabled, logger.propagate
    logger.disabled, logger.propagate = before[1:]
    logger.setLevel(before[0])
    assert after == before, f"(level, disabled, propagate) of the log: {before} before, {after} after"


@pytest.fixture(autouse=True)
def registered_classes_do_not_stay():
    """What a test registers by name is unknown to later ones; mxlite's own, which an import brings, stays."""
    # Imported here, as the settings above are to be made before.
    from mxlite.module.initial import initializer
    from mxlite.module.metrics import metric_base
    from mxlite.module.optim import optimizer_base

    registries = initializer._registry, metric_base.metrics_by_name, optimizer_base._registry
    before = [dict(r._classes) for r in registries]
    yield
    for registry, known in zip(registries, before):
        for name, cls in list(registry._classes.items()):
            if known.get(name) is not cls and not cls.__module__.startswith("mxlite."):
                del registry._classes[name]
                if name in known:
                    registry._classes[name] = known[name]


REMAT = "mxlite.memplan.remat."
LESS = {
    REMAT + "frontier": {
        "SMALL_VISITS": 30,
        "VISITS": 300_000,
        "MORE_VISITS": 30,
        "COUNTED": 30,
        "MOST_COUNTED": (100_000, 200_000),
        "ANNEALED": 60,
        "MOST_ANNEALED": (100_000, 350_000),
        "TIMES": 1,
        "SQUEEZED": (200_000, 600_000),
        "EXCHANGED": 150,
        "MOST_EXCHANGED": 100_000,
    },
    REMAT + "beam": {"LABELS": 200, "ROUNDS": 1},
}
"""Every search for schedules within a budget, in a tenth of its time or so: none is left out."""

TESTS = Path(__file__).parent
QUICK = (
    "differential/",
    "executor/",
    "gluon/",
    "memplan/test_messages.py",
    "memplan/test_plan_cache.py",
    "memplan/test_report.py",
    "module/",
)

_quickly_found: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def quick_search(request, monkeypatch):
    """Schedules are searched for in less time, and may be slower ones, where tests are about what runs them
    or about what is offered: a search is most of the time of many a test within a budget. Others ask how good
    they are.
    """
    path = request.path.relative_to(TESTS).as_posix()
    if not path.startswith(QUICK):
        return
    search = importlib.import_module(REMAT + "search")
    for module, limits in LESS.items():
        for name, limit in limits.items():
            monkeypatch.setattr(importlib.import_module(module), name, limit)
    # What was found so is remembered for tests like this one, and what others found is not.
    for name in ("_plans", "_frontiers"):
        kept = getattr(search, name)
        monkeypatch.setattr(search, name, _quickly_found.setdefault(name, type(kept)(kept.size)))


@pytest.fixture
def quick_refusals(monkeypatch):
    """What would help is estimated: a refusal that is read makes up to twelve plans for it, most of the time
    of many a test. tests/executor/test_refusal.py is about them."""
    monkeypatch.setattr(importlib.import_module("mxlite.executor.plan.remedies"), "WORK", 0)


@pytest.fixture
def benchmarks(monkeypatch):
    """Imports modules of benchmarks/; the tests have a module of the name of a package there."""
    root = Path(__file__).resolve().parent.parent
    for name in [n for n in sys.modules if n.split(".")[0] == "networks"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.setenv("MXLITE_BENCHMARK_EMULATED", "1")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    yield importlib.import_module
    for name in [n for n in sys.modules if n.split(".")[0] == "networks"]:
        del sys.modules[name]
