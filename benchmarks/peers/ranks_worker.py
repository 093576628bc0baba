"""One rank of benchmarks/ranks.py: ranks_worker.py SIDE SPECIFICATION SECONDS, started by mpiexec.

Rank 0 prints what it measured as JSON: seconds of each timed step, the loss before the last, bytes of a rank.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.ranks import tell

from peers.peer import Peer

WARM = 3  # steps before the first that is timed
LEAST = 5  # timed steps


def mxlite_rank(spec: dict[str, Any], threads: int) -> tuple[int, Peer]:
    import mxlite as mx
    from peers.general_mxlite import General

    peer = General()
    peer.load(spec, kvstore="dist_sync")
    return mx.dist.rank(), peer


def ddp_rank(spec: dict[str, Any], threads: int) -> tuple[int, Peer]:
    import torch
    from mpi4py import MPI
    from torch import distributed, nn

    from peers.general_torch import General

    torch.set_num_threads(threads)
    world = MPI.COMM_WORLD
    port = world.bcast(spec["port"])
    distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=world.rank, world_size=world.size
    )

    class Parallel(General):
        def wrapped(self, net: nn.Module) -> nn.Module:
            return nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)

        def memory(self) -> dict[str, int]:
            # Gradients are views of the buckets, which were allocated with the network.
            buckets = sum(p.numel() * p.element_size() for p in self.net.parameters())
            return {"measured": self.allocated() + buckets}

    peer = Parallel()
    peer.load(spec)
    return world.rank, peer


SIDES = {"mxlite": mxlite_rank, "ddp": ddp_rank}


def main(side: str, specification: str, steps: str) -> None:
    spec = json.loads(Path(specification).read_text())
    rank, peer = SIDES[side](spec, spec["threads"])
    peer.run(WARM)
    seconds = []
    for _ in range(max(LEAST, int(steps))):  # the same number on all ranks
        start = time.perf_counter()
        peer.run(1)
        seconds.append(time.perf_counter() - start)
    found = {"seconds": seconds, "loss": peer.loss(0), "bytes": peer.memory()["measured"]}
    if rank == 0:
        tell(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
