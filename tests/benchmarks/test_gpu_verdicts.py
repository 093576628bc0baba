"""What benchmarks/gpu.py says of its targets: against whom, of how much, and never more than was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

MET, COUNTED, WHERE, AGAINST = 3, 4, 5, 6


@pytest.fixture
def made(benchmarks):
    """Entries of a network by name: seconds, or a note; peaks in bytes."""
    columns, entry = benchmarks("gpu_columns.columns"), benchmarks("peers.contest").Entry
    spread = benchmarks("harness").Spread

    def entries(known, peaks=(), of=None):
        named = {c.name: c for c in of or columns.columns()}
        found = {n: entry(named[n]) for n in known}
        for name, value in known.items():
            if isinstance(value, str):
                found[name].note = value
            else:
                found[name].seconds, found[name].host = spread((value,)), spread((value / 1000,))
        for name, peak in dict(peaks).items():
            found[name].memory = {"allocated": peak}
        return found

    return entries


@pytest.fixture
def nets(benchmarks):
    return {n.name: n for n in benchmarks("gpu_columns.nets").nets()}


@pytest.fixture
def verdict(benchmarks):
    """The cells of the row that begins like this."""

    def row(begin, results=(), deep=None, batches=()):
        text = benchmarks("gpu_columns.verdicts").targets(list(results), deep, batches)
        lines = [[c.strip() for c in x.strip("|").split("|")] for x in text.splitlines()]
        (found,) = [x for x in lines if x[0].startswith(begin)]
        return found

    return row


def test_a_step_is_the_best_of_ours_against_the_best_of_pytorchs_and_both_are_named(made, nets, verdict):
    known = {"mxlite-bf16": 2.0, "mxlite-bf16-whole": 1.0, "eager-bf16": 3.0, "compile-bf16": 1.4}
    results = [(nets["mlp"], made(known))]
    row = verdict("the same, least of the nets bound", results)
    assert row[1:] == [
        ">= 1.3",
        "1.40",
        "yes",
        "1 of 1 cells",
        f"{nets['mlp'].title}, bf16: max-autotune / mxlite, all memory",
        "PyTorch eager, max-autotune",
    ]
    assert verdict("step, ", results)[2:5] == ["1.40", "yes", "1 of 1 cells"]


def test_verdicts_say_how_many_cells_count_and_who_was_not_measured_in_all(made, nets, verdict):
    """Peers that fail are named; of ours, whatever lacks keeps "yes" away, and a miss is a miss."""
    whole = {"mxlite-bf16": 1.0, "eager-bf16": 1.5, "last-bf16": 2.0}
    other = {"mxlite-tf32": 1.0, "eager-tf32": 1.5, "compile-tf32": "there is no compiler"}
    row = verdict("the same, least of all", [(nets["lenet"], made(whole)), (nets["mlp"], made(other))])
    assert row[MET] == "yes" and row[COUNTED] == "2 of 2 cells"
    assert row[AGAINST] == "PyTorch eager, channels_last (1); without max-autotune (1)"
    for note in ("no time was left", "wrong: losses 1 instead of 2", "it ended"):
        lost = {"mxlite-tf32": note, "eager-tf32": 1.0}
        for begin in ("step, ", "the same, least of all", "host time"):
            row = verdict(begin, [(nets["lenet"], made(whole)), (nets["mlp"], made(lost))])
            assert row[MET] in ("open", "NO") and row[COUNTED].startswith("1 of 2 c"), row
        beside = {**whole, "mxlite-bf16-whole": note}  # the other column of ours has a time
        row = verdict("the same, least of all", [(nets["lenet"], made(beside))])
        assert row[MET] == "open" and row[COUNTED] == "1 of 1 cells"
        slow = {**beside, "eager-bf16": 0.5}
        assert verdict("the same, least of all", [(nets["lenet"], made(slow))])[MET] == "NO"
    alone = verdict("step, ", [(nets["mlp"], made({"mxlite-bf16": 1.0, "eager-bf16": "it ended"}))])
    assert alone[2:5] == ["-", "-", "0 of 1 cells"] and alone[AGAINST] == "-; without PyTorch eager (1)"
    assert verdict("step, ")[2:] == ["-", "-", "0 of 0 cells", "-", "-"]


def test_memory_is_ours_without_a_budget_against_the_lesser_of_pytorchs(made, nets, verdict):
    """Neither the column with all memory counts, nor what torch.compile makes again."""
    known = dict.fromkeys(
        ("mxlite-bf16", "mxlite-bf16-whole", "eager-bf16", "last-bf16", "compile-bf16"), 1.0
    )
    peaks = {
        "mxlite-bf16": 60,
        "mxlite-bf16-whole": 99,
        "eager-bf16": 100,
        "last-bf16": 80,
        "compile-bf16": 10,
    }
    entries = made(known, peaks)
    row = verdict("peak memory without a budget", [(nets["resnet50"], entries)])
    assert row[2:5] == ["0.75", "NO", "1 of 1 cells"] and row[WHERE].endswith("bf16: channels_last / mxlite")
    assert row[AGAINST] == "PyTorch eager, channels_last"
    entries["mxlite-bf16-whole"].note = "it ended"
    entries["mxlite-bf16"].memory = {"measured": 40}
    assert verdict("peak memory", [(nets["resnet50"], entries)])[2:4] == ["0.50", "yes"]


def test_budgets_are_held_against_the_fastest_of_our_own(benchmarks, made, verdict):
    """Which need not be the step without a budget, and is not known before both have a time."""
    columns = benchmarks("gpu_columns.columns")
    assert columns.BUDGETS == {"7 GB": 7_000_000_000, "4 GB": 4_000_000_000}
    known = {"mxlite-bf16": 0.074, "mxlite-bf16-whole": 0.070, "mxlite-bf16-7GB": 0.0838,
             "mxlite-bf16-4GB": "it ended", "last-bf16": 0.01}  # fmt: skip

    def reached(**more):
        deep = made({**known, **more}, of=columns.within(columns.BUDGETS, "bf16"))
        return [verdict(f"ResNet-1001 B32 within {name}", deep=deep) for name in columns.BUDGETS]

    seven, four = reached()
    assert seven[1:5] == ["<= 1.2", "1.20", "yes", "3 of 3 columns"] and seven[AGAINST] == "mxlite, all kept"
    assert four[1:5] == ["<= 1.35", "-", "-", "2 of 3 columns"]
    assert reached(**{"mxlite-bf16-7GB": 0.0847})[0][2:4] == ["1.21", "NO"]
    for name in ("mxlite-bf16", "mxlite-bf16-whole"):
        assert reached(**{name: "no time was left"})[0][2:5] == ["-", "-", "2 of 3 columns"]


def test_largest_batches_are_those_that_were_run(benchmarks, verdict):
    """Against the better of both ways of checkpointing."""
    columns, batches = benchmarks("gpu_columns.columns"), benchmarks("gpu_columns.batches")
    ours, last, again, segments = (
        batches.Found(c, n) for c, n in zip(columns.batches("tf32"), (300, 100, 0, 240))
    )
    ours.ran = batches.Trial(300, 7_900_000_000, 0.1, 0.2)

    def rows():
        found = [ours, last, again, segments]
        return [verdict(b, batches=found) for b in ("largest batch", "the same / PyTorch check")]

    plain, better = rows()
    assert plain[2:5] == ["3.00", "yes", "2 of 2 columns"] and plain[WHERE] == "300 images, tf32"
    assert better[2:5] == ["1.25", "yes", "2 of 3 columns"]
    assert better[AGAINST] == "the same, sqrt(n) stretches; without PyTorch, checkpointed"
    ours.ran = None
    assert [r[MET] for r in rows()] == ["planned only", "planned only"]
    ours.batch = 0
    assert [r[MET] for r in rows()] == ["-", "-"]


def test_the_hosts_time_is_that_of_captured_steps(made, nets, verdict):
    """The median of the rounds; a step that has calls on the host is none."""
    entries = made({"mxlite-bf16": 0.045, "mxlite-tf32": 0.2})
    assert verdict("host time", [(nets["mlp"], entries)])[2:5] == ["200 us", "NO", "2 of 2 columns"]
    entries["mxlite-tf32"].plan = {"on the host": 1, "tasks": 7}
    row = verdict("host time", [(nets["mlp"], entries)])
    assert row[2:5] == ["45.0 us", "yes", "1 of 2 columns"]
    entries["mxlite-bf16"].host = replace(entries["mxlite-bf16"].host, values=(3e-5, 4e-5, 9e-5))
    assert verdict("host time", [(nets["mlp"], entries)])[2] == "40.0 us"
