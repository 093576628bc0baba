"""The share of messages that kernels hide, over a link of known speed between two ranks of this machine.

    python benchmarks/overlap.py            about three minutes; needs Linux, root, `ip` and `tc`; prints only
    python benchmarks/overlap.py --write    the same; writes results/<date>-overlap.md

Each rank is in a network namespace of its own, made here and deleted at the end; between them is a pair of
virtual Ethernet devices whose rate a token bucket limits. MPI is told to use it, and no shared memory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import heading, RESULTS
from harness.machine import today
from harness.ranks import measured
from harness.table import markdown

WORKER = Path(__file__).parent / "peers" / "overlap_worker.py"
NETS = (("perceptron", 64), ("ResNet-18", 8), ("ResNet-18", 16))
SPACES = ("mxlite-overlap-a", "mxlite-overlap-b")
DEVICES = ("mxov-a", "mxov-b")
LIMIT_S = 400


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", default="2", help="of the link, in Gbit/s")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--write", action="store_true", help="write the table into a file")
    parser.add_argument("--output", type=Path, default=RESULTS, help="its folder")
    args = parser.parse_args()
    text = heading("Messages beside kernels", {})
    text += f"- ranks: 2, one thread each; link: {args.rate} Gbit/s; medians of {args.steps} steps\n\n"
    rows = []
    with link(args.rate):
        for name, batch in NETS:
            found = job(name, batch, f"{args.rate}Gbit/s", args.steps)
            rows.append(row(f"{name}, batch {batch}", found))
            print(" ".join(rows[-1]), file=sys.stderr)
    head = ("ms", "kernels", "backward", "messages", "together", "hidden", "waiting", "MiB more")
    page = (
        text
        + markdown(head, rows)
        + (
            "\nKernels: a step of one rank. Messages: the sums of all gradients by themselves. Together:\n"
            "a step of both ranks. Hidden: kernels + messages - together, as a share of the shorter of\n"
            "messages and backward. Waiting: the step of a plan with a byte less, whose kernels wait for\n"
            "each message; the last column is what overlap takes beyond it.\n"
        )
    )
    print(page)
    if args.write:
        (args.output / f"{today()}-overlap.md").write_text(page, encoding="utf-8")
    return 0


@contextmanager
def link(rate: str) -> Iterator[None]:
    """Two namespaces with a link of so many Gbit/s between them."""
    remove()
    try:
        for space in SPACES:
            command("ip", "netns", "add", space)
        command("ip", "link", "add", DEVICES[0], "type", "veth", "peer", "name", DEVICES[1])
        for i, (space, device) in enumerate(zip(SPACES, DEVICES)):
            command("ip", "link", "set", device, "netns", space)
            inside = ("ip", "netns", "exec", space)
            command(*inside, "ip", "addr", "add", f"10.77.3.{i + 1}/24", "dev", device)
            command(*inside, "ip", "link", "set", "lo", "up")
            command(*inside, "ip", "link", "set", device, "up")
            bucket = ("tbf", "rate", f"{rate}gbit", "burst", "512kb", "latency", "50ms")
            command(*inside, "tc", "qdisc", "add", "dev", device, "root", *bucket)
        yield
    finally:
        remove()


def remove() -> None:
    for space in SPACES:
        subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


def command(*words: str) -> None:
    subprocess.run(words, check=True)


def job(name: str, batch: int, rate: str, steps: int) -> dict[str, Any]:
    """The answer of rank 0."""
    line: list[str] = []
    for i, (space, device) in enumerate(zip(SPACES, DEVICES)):
        program = [sys.executable, str(WORKER), name, str(batch), rate, str(steps)]
        line += [":"] * bool(i) + ["-n", "1", "-env", "UCX_NET_DEVICES", device]
        line += ["ip", "netns", "exec", space, *program]
    network = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_LOG_LEVEL": "error"}
    return measured(line, 1, LIMIT_S, network)


def row(title: str, found: dict[str, Any]) -> tuple[str, ...]:
    backward = found["kernels"] - found["forward"]
    hidden = found["kernels"] + found["messages"] - found["together"]
    share = hidden / min(found["messages"], backward)
    ms = [1e3 * found[n] for n in ("kernels", "messages", "together", "waiting")]
    more = (found["peak"] - found["least"]) / 2**20
    return (
        title,
        f"{ms[0]:.0f}",
        f"{1e3 * backward:.0f}",
        f"{ms[1]:.0f}",
        f"{ms[2]:.0f}",
        f"{100 * share:.0f} %",
        f"{ms[3]:.0f}" if found["plan"] else "-",
        f"{more:.1f}",
    )


if __name__ == "__main__":
    sys.exit(main())
