"""Milliseconds and bytes of networks of many kinds on the CPU, compared with PyTorch.

    python benchmarks/generality.py            everything, about an hour; prints only
    python benchmarks/generality.py --write    the same; writes results/<date>-generality.md
    python benchmarks/generality.py --quick    small sizes; checks that both frameworks compute the same, and
                                               prints tables without times
    python benchmarks/generality.py --nets vit,gpt --peers eager,compile    some networks, some columns
    python benchmarks/generality.py --budgets  predicted and measured extra time within four budgets instead,
                                               half an hour; with --write results/<date>-budgets.md

Each network of networks/general is built twice by hand and starts from equal weights and batches. Before
anything is timed, losses, outputs and gradients of all parameters are compared with those of PyTorch in
float64; a network that is wrong is reported, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

from harness import heading, RESULTS, Worker
from harness.machine import keep_cores, today, usable_cores
from networks import general
from networks.network import Case
from peers.agreement import Agreement
from peers.column import chosen, Column
from peers.contest import Entries, Entry, hold, say, Terms
from peers.general_report import budgets_report, report, Result
from planning.calibrated import Study, study

SCRIPTS = {"ours": "general_mxlite.py", "torch": "general_torch.py"}
EXACT = "exact.npz"
SHARES = (0.8, 0.6, 0.45, 0.3)  # of the arena without a budget
PEERS = ("eager", "channels_last", "compile")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", help="some of the modules in networks/general, with commas between")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"some of {', '.join(PEERS)}, with commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one column in one round")
    parser.add_argument("--threads", type=int, default=usable_cores(), help="of each (default: cores)")
    parser.add_argument(
        "--limit", type=float, default=420, help="seconds until a column must be ready to run"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, no times")
    parser.add_argument("--budgets", action="store_true", help="extra time within four budgets instead")
    parser.add_argument("--write", action="store_true", help="write the tables into a file")
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="its folder (default: benchmarks/results)"
    )
    args = parser.parse_args()
    if unknown := set(args.peers.split(",")) - set(PEERS):
        raise SystemExit(f"There is no column {sorted(unknown)[0]!r}; there are {', '.join(PEERS)}.")
    wanted = args.nets.split(",") if args.nets else general.names()
    if unknown := set(wanted) - set(general.names()):
        raise SystemExit(
            f"There is no network {sorted(unknown)[0]!r}; there are {', '.join(general.names())}."
        )
    keep_cores(args.threads)
    columns = [replace(c, script=SCRIPTS[c.side]) for c in chosen(args.peers.split(","))]
    terms = Terms(args.rounds, args.seconds, args.threads, args.limit, profiled=0)
    if args.budgets:
        text = heading("Predicted and measured extra time of networks of many kinds", {}) + "\n"
        studies = {n: within_budgets(n, args.quick) for n in wanted}
        return publish(text + budgets_report(studies), "budgets", args)
    text = heading("Networks of many kinds on the CPU", {"torch": version("torch")})
    text += f"- threads: {args.threads}; rounds: {args.rounds} of {args.seconds:g} s for each column\n\n"
    results = []
    with ExitStack() as stack:
        columns = [c for c in columns if not args.quick or c.name in ("mxlite", "eager")]
        workers = {c.name: stack.enter_context(c.start(args.threads)) for c in columns if args.quick}
        for name in wanted:
            for train in (True, False):
                case = Case(name, general.network(name), train, args.quick)
                if args.quick:
                    results.append(checked(case, columns, workers, args.limit))
                else:
                    results.append(measured(case, columns, terms))
    publish(text + report(results), "generality", args)
    return int(any(r.is_wrong or "mxlite" not in r.agreements for r in results))


def publish(page: str, name: str, args: argparse.Namespace) -> int:
    """Print a page, and write it if that is asked for. 0."""
    print(page)
    if args.write:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / f"{today()}-{name}.md").write_text(page, encoding="utf-8")
    return 0


def measured(case: Case, columns: Sequence[Column], terms: Terms) -> Result:
    """Compare and time one case, each column in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        answering = [replace(c, options=c.options | files(c, columns, Path(folder))) for c in columns]
        result = Result(case, {})
        result.entries = hold(
            case, answering, terms, Path(folder), lambda entries: examine(result, entries, Path(folder))
        )
    return result


def files(column: Column, columns: Sequence[Column], folder: Path) -> dict[str, str]:
    """Where a column writes what it computes; the first of PyTorch's, what it computes in float64, too."""
    found = {"answers": str(folder / f"{column.name}.answers.npz")}
    if column == next((c for c in columns if c.side == "torch"), None):
        found["exact"] = str(folder / EXACT)
    return found


def checked(case: Case, columns: Sequence[Column], workers: Mapping[str, Worker], limit: float) -> Result:
    """Compare one case, without times."""
    say(case.title)
    result = Result(case, {c.name: Entry(c) for c in columns})
    with tempfile.TemporaryDirectory() as folder:
        spec = case.prepare(Path(folder))
        for c in columns:
            options = files(c, columns, Path(folder)) | c.options_for(case)
            workers[c.name].ask(limit, do="load", spec=spec, **options)
        examine(result, result.entries, Path(folder))
    return result


def examine(result: Result, entries: Entries, folder: Path) -> None:
    """Note how far each column agrees with PyTorch in float64, and which are wrong."""
    for name, entry in entries.items():
        answers = folder / f"{name}.answers.npz"
        if answers.exists() and (folder / EXACT).exists():
            found = Agreement.of(answers, folder / EXACT)
            result.agreements[name] = found
            entry.note = entry.note or found.wrong(result.case.network.bound)
            if entry.note:
                say(f"  {entry.column.title}: {entry.note}")


def within_budgets(name: str, quick: bool) -> Study:
    """Predicted and measured extra time of a network's training step."""
    case = Case(name, general.network(name), True, quick)
    say(f"{case.title}, within budgets")
    values = {n.partition(":")[2]: a for n, a in case.arrays().items()}
    rounds = 3 if quick else 9
    found = study(case.symbol(), case.shapes(), rounds, perf_counter, shares=SHARES, values=values)
    say(f"{found.done}\n\n{found.table()}")
    return found


if __name__ == "__main__":
    sys.exit(main())
