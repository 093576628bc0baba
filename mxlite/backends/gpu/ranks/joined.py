"""The GPUs of all ranks of a job, joined by NCCL once all of them can take part."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....comm import Communicator, gathered, in_words
from ....core.errors import DeviceError
from ..vendor import nccl

_BOOT = Path("/proc/sys/kernel/random/boot_id")  # of a machine, where names of machines are not unique


def joined(device: Any, comm: Communicator) -> nccl.Peers:
    """This rank among the GPUs of all; `device` is current. All ranks call it, and nothing else is sent.

    Raises DeviceError, on every rank alike: a rank has no NCCL, or another version, or two have one GPU.
    """
    try:
        bindings, why = device.driver.nccl(), None
        version = bindings.get_version()
    except DeviceError as error:
        bindings, why, version = None, error, 0
    place, count = device.driver.place()
    own = (version, count, _number(_machine()), _number(place))
    versions, gpus, machines, places = gathered(comm, np.array(own, np.int64)).T.tolist()
    if why is not None:
        raise why
    _check_versions(versions)
    for rank, place in enumerate(zip(machines, places)):
        alike = [q for q, other in enumerate(zip(machines, places)) if other == place]
        if len(alike) > 1:
            here = machines.count(machines[rank])
            raise DeviceError(
                f"{in_words(alike).capitalize()} have one GPU, but each needs one of its own: their machine "
                f"has {gpus[rank]}, for {here} ranks. mx.gpu(mx.dist.local_rank()) gives each rank another."
            )
    identity = np.zeros(nccl.ID_BYTES, np.uint8)
    if comm.rank == 0:
        identity[:] = np.frombuffer(nccl.new_identity(bindings), np.uint8)
    comm.wait(comm.broadcast(identity, 0))
    return nccl.Peers(bindings, comm.size, identity.tobytes(), comm.rank)


def _check_versions(versions: Sequence[int]) -> None:
    if lacking := [rank for rank, version in enumerate(versions) if not version]:
        raise DeviceError(f"There is no NCCL on {in_words(lacking)}, whose own error says what is missing.")
    for rank, version in enumerate(versions):
        if version < nccl.OLDEST:
            raise DeviceError(
                f"NCCL {nccl.in_words(version)} on rank {rank} is too old: messages inside of CUDA graphs "
                f"need {nccl.in_words(nccl.OLDEST)} or later."
            )
        if version != versions[0]:
            raise DeviceError(
                f"NCCL is of version {nccl.in_words(versions[0])} on rank 0 and {nccl.in_words(version)} on "
                f"rank {rank}: all ranks need the same one, as versions may speak differently."
            )


def _machine() -> str:
    return socket.gethostname() + (_BOOT.read_text() if _BOOT.exists() else "")


def _number(text: str) -> int:
    """64 bits that stand for a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)
