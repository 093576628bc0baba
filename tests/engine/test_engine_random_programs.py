"""Whatever is pushed, `threaded` gives what `naive` gives: programs of torture/engine_programs.py."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, HealthCheck, settings, strategies as st

from mxlite.engine import NaiveEngine, ThreadedEngine
from tests.engine.watchdog import in_time
from torture.engine_programs import KINDS, run, seeded_program, Step, VARS, without_neighbours


@pytest.fixture(scope="module")
def engines() -> Any:
    made = [ThreadedEngine(workers=1), ThreadedEngine(workers=2), ThreadedEngine(workers=4, max_pending=5)]
    yield made
    for engine in made:
        engine.stop()


some_vars = st.lists(st.integers(0, VARS - 1), max_size=3).map(tuple)
pushes = st.builds(
    Step,
    reads=some_vars,
    writes=st.lists(st.integers(0, VARS - 1), max_size=2).map(tuple),
    fails=st.sampled_from([False] * 9 + [True]),
    sleep_us=st.sampled_from([0, 0, 0, 1, 30]),
    priority=st.integers(0, 2),
    kind=st.sampled_from(KINDS),
    bulk=st.sampled_from([0, 0, 1, 4, 16]),
    pushes=st.sampled_from([0] * 9 + [2]),
)
waits = st.builds(
    Step,
    action=st.sampled_from(["wait_for", "wait_to_write", "wait_all", "forget"]),
    reads=some_vars,
    writes=some_vars,
    bulk=st.sampled_from([0, 4]),
)
programs = st.lists(st.one_of(pushes, pushes, pushes, pushes, pushes, waits), max_size=60)


@in_time(120)
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(program=programs)
def test_threaded_gives_what_naive_gives(engines: list[ThreadedEngine], program: list[Step]) -> None:
    expected = run(program, NaiveEngine())
    for engine in engines:
        assert run(program, engine) == expected


@in_time(240)
@pytest.mark.parametrize("block", range(4))
def test_thousands_of_seeded_programs_agree(engines: list[ThreadedEngine], block: int) -> None:
    for seed in range(block * 750, (block + 1) * 750):
        program = seeded_program(seed)
        engine = engines[seed % len(engines)]
        assert run(program, engine) == run(program, NaiveEngine()), f"seed {seed}"


@in_time(60)
def test_several_threads_run_programs_on_one_engine(engines: list[ThreadedEngine]) -> None:
    """Each thread has Vars of its own, so each must get its own oracle's result. Failures surface at waits on
    the Vars only, since `wait_all` would raise the neighbours' failures too."""
    wrong: list[int] = []

    def run_some(first: int) -> None:
        for seed in range(first, first + 40):
            program = without_neighbours(seeded_program(seed))
            expected, found = run(program, NaiveEngine()), run(program, engines[1])
            if any(expected[key] != found[key] for key in ("state", "versions", "waits")):
                wrong.append(seed)

    threads = [threading.Thread(target=run_some, args=(10_000 + 100 * i,)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
