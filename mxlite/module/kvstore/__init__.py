"""`mx.kv`: stores of arrays by key, within this process or shared by the ranks of a job."""

from __future__ import annotations

from ...core import MXLiteError, nearest, UnknownNameError
from ...core.errors import ArgumentError
from .distributed import DistributedStore as DistributedStore
from .store import KVStore as KVStore

TYPES = ("local", "device", "nccl", "local_update_cpu", "local_allreduce_cpu", "local_allreduce_device")

SYNCHRONOUS = ("dist", "dist_sync", "dist_device_sync", "dist_sync_device", "horovod")
"""Types of stores that all ranks share. They are one here: no server, every rank has all arrays."""


def create(name: str = "local") -> KVStore:
    """A store of that type. Within one process all types of one machine are the same.

    One of SYNCHRONOUS joins the job that a launcher has started this process in; without one it has one
    worker. Raises MXLiteError for 'dist_async' and its like, whose results depend on who comes first.
    """
    if not isinstance(name, str):
        raise ArgumentError(f"The type of a KVStore is text such as 'local', got {name!r}.")
    kind = name.lower()
    if kind in SYNCHRONOUS:
        return DistributedStore(kind)
    if "async" in kind or kind in ("p3", "byteps"):
        raise MXLiteError(
            f"kvstore {name!r}: workers that do not wait for each other, and servers, are not supported; "
            f"'dist_sync' is, with no server, and gives every worker the same bits."
        )
    if kind not in TYPES:
        known = (*TYPES, *SYNCHRONOUS)
        raise UnknownNameError(
            f"There is no kvstore {name!r}.{nearest(kind, known)} Known: {', '.join(known)}."
        )
    return KVStore(kind)
