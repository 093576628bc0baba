"""Settings from the environment. This file is the only reader of `os.environ`.

| variable            | default         | meaning                                                           |
|---------------------|-----------------|-------------------------------------------------------------------|
| MXLITE_ENGINE       | threaded        | `threaded` or `naive` (each operation at once, inside the call)   |
| MXLITE_CPU_WORKERS  | 2               | threads that run operations of one CPU device                     |
| MXLITE_BLAS_THREADS | cores / workers | threads of one matrix product of a bound program; left alone where |
|                     |                 | OPENBLAS_NUM_THREADS or OMP_NUM_THREADS says a number             |
| MXLITE_MAX_PENDING  | 4096            | pushes that may wait to run before a further push blocks          |
| MXLITE_BULK_SIZE    | 64              | steps of a bound program that one push to the engine runs         |
| MXLITE_CHECK_PLAN   | 0               | 1: every plan passes the judge before it runs                     |
| MXLITE_CHECK_REWRITES | 0             | 1: each pass's graph is computed before and after the pass, by     |
|                     |                 | reference kernels on random inputs; for small networks            |
| MXLITE_KERNELS      | onednn,compiled | kernels besides numpy's reference kernels: any of these two,       |
|                     |                 | or `reference` for neither                                        |
| MXLITE_DNNL_LIB     |                 | the file of oneDNN's library, instead of the one that is found    |
| MXLITE_TARGET       | native          | instructions that kernels of oneDNN and of generated code may use: |
|                     |                 | `native` for all that this processor has, or no more than a level  |
|                     |                 | of x86-64: `x86-64`, `x86-64-v2`, `x86-64-v3`, `x86-64-v4`         |
| MXLITE_CUBLASLT_LIB |                 | the file of cuBLASLt's library, instead of the one that is found  |
| MXLITE_ALLOW_TF32   | 0               | 1: matrix products of float32 on a GPU may round their operands   |
|                     |                 | to 10 bits (TF32), several times as fast                          |
| MXLITE_GPU_TUNING   | 1               | 0: kernels of a GPU are chosen by rules, not by measurements      |
| MXLITE_GPU_TUNING_SECONDS | no limit  | seconds that a process may take to measure, with what has to be   |
|                     |                 | compiled for it; later choices are made by rules                  |
| MXLITE_NUM_THREADS  | cores           | threads that one kernel of oneDNN or of generated code may use    |
| MXLITE_CACHE_DIR    | the user's      | folder of compiled code and planning results for later processes;  |
|                     |                 | `off`: nowhere                                                    |
| MXLITE_RECORDS      |                 | the file of schedules, made by `mxlite tune`, that programs are   |
|                     |                 | bound with where they name none                                   |
| MXLITE_PLAN_CACHE   | 1               | 0: planning results are neither stored nor read                   |
| MXLITE_GUARD        | 0               | 1: guard bytes around every array, checked after each kernel of a |
|                     |                 | bound program; for finding a kernel that writes outside its arrays |
| MXLITE_GPU_MEMORY_LIMIT | all there is | bytes (`8GiB`) that this process takes of a GPU, at most          |
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

from .bytesize import parse_bytes
from .errors import MXLiteError, nearest
from .process.cores import available_cores

MOST_THREADS = 1024
"""The most threads of one kind; a higher number is a slip of the pen."""


def _integer(name: str, default: int, least: int, most: int | None = None) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        raise MXLiteError(f"{name} must be a whole number, got {text!r}.") from None
    if value < least:
        raise MXLiteError(f"{name} must be at least {least}, got {value}.")
    if most is not None and value > most:
        raise MXLiteError(f"{name} must be at most {most}, got {value}.")
    return value


def engine_kind() -> str:
    """`threaded` or `naive`."""
    kind = os.environ.get("MXLITE_ENGINE", "") or "threaded"
    if kind not in ("threaded", "naive"):
        raise MXLiteError(
            f"MXLITE_ENGINE must be 'threaded' or 'naive', got "
            f"{kind!r}.{nearest(kind, ('threaded', 'naive'))}"
        )
    return kind


def cpu_workers() -> int:
    """Threads that run compute operations of one CPU device."""
    return _integer("MXLITE_CPU_WORKERS", 2, 1, MOST_THREADS)


def blas_threads() -> int | None:
    """Threads for one matrix product, so that engine workers and BLAS together keep to the cores.

    None: the user has set them in a way BLAS itself reads.
    """
    if os.environ.get("MXLITE_BLAS_THREADS"):
        return _integer("MXLITE_BLAS_THREADS", 1, 1, MOST_THREADS)
    if os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS"):
        return None
    return max(1, available_cores() // cpu_workers())


KERNELS = ("onednn", "compiled")


class _Here(threading.local):
    """The restrictions of this thread."""

    kinds: frozenset[str] = frozenset(KERNELS)


_here = _Here()


@contextlib.contextmanager
def only_kinds(kinds: frozenset[str]) -> Iterator[None]:
    """A context in which this thread chooses kernels of no other kinds than these, if these are allowed."""
    before, _here.kinds = _here.kinds, _here.kinds & kinds
    try:
        yield
    finally:
        _here.kinds = before


def kernel_kinds() -> frozenset[str]:
    """Kinds of kernels that may be chosen besides the reference kernels."""
    return _allowed_kinds() & _here.kinds


def _allowed_kinds() -> frozenset[str]:
    text = os.environ.get("MXLITE_KERNELS", "")
    if not text:
        return frozenset(KERNELS)
    words = [w.strip() for w in text.split(",") if w.strip()]
    for word in words:
        if word not in (*KERNELS, "reference"):
            raise MXLiteError(
                f"MXLITE_KERNELS must list some of {KERNELS} or say 'reference', got "
                f"{word!r}.{nearest(word, (*KERNELS, 'reference'))}"
            )
    return frozenset(words) - {"reference"}


TARGETS = ("native", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")


def target() -> str:
    """One of TARGETS: the instruction set that kernels may use."""
    text = os.environ.get("MXLITE_TARGET", "") or "native"
    if text not in TARGETS:
        raise MXLiteError(
            f"MXLITE_TARGET must be one of {', '.join(TARGETS)}, got {text!r}.{nearest(text, TARGETS)}"
        )
    return text


def dnnl_lib() -> str:
    """The file of oneDNN's library; empty if it is to be searched for."""
    return os.environ.get("MXLITE_DNNL_LIB", "")


def cublaslt_lib() -> str:
    """The file of cuBLASLt's library; empty if it is to be searched for."""
    return os.environ.get("MXLITE_CUBLASLT_LIB", "")


def allow_tf32() -> bool:
    """True if float32 products may be computed in TF32 where the call does not say."""
    return _integer("MXLITE_ALLOW_TF32", 0, 0) > 0


def gpu_tuning() -> bool:
    """True if a GPU's algorithms for a product are measured when the fastest is not known."""
    return _integer("MXLITE_GPU_TUNING", 1, 0) > 0


def gpu_tuning_seconds() -> int | None:
    """Seconds that this process may spend on measuring a GPU's algorithms; None: no limit."""
    text = os.environ.get("MXLITE_GPU_TUNING_SECONDS", "")
    return _integer("MXLITE_GPU_TUNING_SECONDS", 0, 0) if text else None


def cache_dir() -> str | None:
    """The directory for results that other processes can reuse; None: nothing is stored.

    MXLITE_CACHE_DIR, or `mxlite` where the system wants caches of a user to be.
    """
    text = os.environ.get("MXLITE_CACHE_DIR", "")
    if text:
        return None if text == "off" else os.path.abspath(os.path.expanduser(text))
    if sys.platform == "win32":
        root = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        root = "~/Library/Caches"
    else:
        root = os.environ.get("XDG_CACHE_HOME", "") or "~/.cache"
    root = os.path.expanduser(root)
    return os.path.join(root, "mxlite") if os.path.isabs(root) else None


def num_threads() -> int:
    """Threads inside one kernel: MXLITE_NUM_THREADS, else OMP_NUM_THREADS, else the cores this process may
    use, divided by the ranks of a job on this machine.
    """
    if os.environ.get("MXLITE_NUM_THREADS"):
        return _integer("MXLITE_NUM_THREADS", 1, 1, MOST_THREADS)
    # OpenMP's variable is a list, one number for each level of nesting; it ignores anything else.
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if first.isdecimal() and int(first):
        return min(int(first), MOST_THREADS)
    return max(1, available_cores() // ranks_here())


def is_rank() -> bool:
    """True if a launcher of MPI's or Slurm's has started this process as one of a job."""
    names = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
    return any(name in os.environ for name in names)


def has_other_ranks() -> bool:
    """True if a launcher has started this process as one of several; also before it has joined them."""
    told = (os.environ.get(n) for n in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"))
    return is_rank() and next((n for n in told if n), "") != "1"


def ranks_here() -> int:
    """Ranks of this job on this machine, as its launcher says; 1 if it does not say."""
    told = (os.environ.get(n, "") for n in ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"))
    return next((int(n) for n in told if n.isdecimal() and int(n)), 1)


def rank_silence() -> int:
    """Seconds after which a rank of which nothing is heard ends its job; 0: never."""
    return _integer("MXLITE_RANK_SILENCE_S", 60, 0)


def job_table() -> str | None:
    """The file in which ranks tell `mxlite.launch` what they do, which has made it; None without one."""
    return os.environ.get("MXLITE_JOB_TABLE")


def openmp_waits() -> bool:
    """True if the user has set how long OpenMP's threads spin before they sleep."""
    return "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ


def max_pending() -> int:
    """Operations that may be pending before `push` blocks."""
    return _integer("MXLITE_MAX_PENDING", 4096, 1)


def bulk_size() -> int:
    """Steps of a bound program in one engine operation."""
    return _integer("MXLITE_BULK_SIZE", 64, 1)


def check_plan() -> bool:
    """True if every plan passes the judge before it runs."""
    return _integer("MXLITE_CHECK_PLAN", 0, 0) > 0


def check_rewrites() -> bool:
    """True if every pass has to show that its graph computes the same as the graph before it."""
    return _integer("MXLITE_CHECK_REWRITES", 0, 0) > 0


def records() -> str | None:
    """The file of records of schedules; None: each kernel has its default schedule."""
    return os.environ.get("MXLITE_RECORDS", "") or None


def plan_cache() -> bool:
    """True if planning results are stored for later processes."""
    return _integer("MXLITE_PLAN_CACHE", 1, 0) > 0


def guard() -> bool:
    """True if arrays have guard bytes around them, which reveal kernels that write out of bounds."""
    return _integer("MXLITE_GUARD", 0, 0) > 0


def gpu_memory_limit() -> int | None:
    """The most bytes that this process takes of a GPU; None: all there is."""
    text = os.environ.get("MXLITE_GPU_MEMORY_LIMIT", "")
    try:
        return parse_bytes(text) if text else None
    except MXLiteError as error:
        raise MXLiteError(f"MXLITE_GPU_MEMORY_LIMIT: {error}") from None
