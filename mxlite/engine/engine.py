"""The dependency engine: how work on shared data runs in parallel and still means what it says.

The idea
--------
User code says `b = a + 1; a *= 2; print(b)`. Read top to bottom that is a program, and each line could
run later, or elsewhere, or next to another, as long as nobody can tell. What can be told apart is
only the order in which one piece of data is read and written. So each piece of data gets a tag, a **Var**,
and each line becomes a **push**: a closure, the Vars it reads and the Vars it writes.

    push(add_one,  reads=[a],  writes=[b])       #1
    push(double,   reads=[a],  writes=[a])       #2       #1 ---> #2
    push(show,     reads=[b],  writes=[screen])  #3       #1 ---> #3       #2 and #3 may run together

The engine knows nothing else. It has not heard of arrays, shapes or gradients; a Var may stand for an
array, a random stream, a workspace or a network connection. That is why data loading, parameter exchange
and computation overlap without knowing of each other.

The contract
------------
1.  *Readers share, writers exclude, order of push is order of effect.* Between operations that share no Var
    there is no order. Each Var is as if its operations had run one by one in the order of push. A Var
    in both lists is written. Duplicates mean nothing.
2.  *push returns at once* and the closure runs later on a worker of its (device, kind). If too much is
    pending, push blocks: the program may run ahead, not away. A push inside an operation never blocks.
3.  *Wait before you look.* `wait_for(var)` returns when everything pushed that writes it is over.
    Waiting inside an operation is an EngineError: the operation might be waiting for itself.
4.  *Nothing fails silently.* An exception (any BaseException) in a closure **poisons** what the operation
    would have written. An operation that reads a poisoned Var does not run, and its writes are poisoned by
    the same failure. An operation that only writes it runs, and the fresh value is healthy. `wait_for` a
    poisoned Var raises OperatorError, with the operation's name, the user's line and the original exception,
    *every time* until it is written anew. `wait_all` raises each failure that no wait has raised yet, once.
5.  *A thread's view is sequential.* Two threads that push on the same Var get some order, as with any shared
    data.

Two engines keep it. `naive.py` runs each closure inside push: slow to nobody's surprise, and the oracle:
`threaded.py`, which runs them on workers, must give the same state, versions and failures for every program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from ..core.errors import EngineError
from .failure import Journal, SourceLine
from .operation import check_vars
from .var import Var


class Engine(ABC):
    """The contract above. Everything may be called from any thread."""

    def __init__(self) -> None:
        self.journal = Journal()

    @abstractmethod
    def push(
        self,
        fn: Callable[[], object],
        reads: Iterable[Var] = (),
        writes: Iterable[Var] = (),
        *,
        name: str = "",
        priority: int = 0,
        device: str = "cpu",
        kind: str = "compute",
        where: SourceLine | None = None,
    ) -> None:
        """Run `fn()` as soon as `reads` and `writes` allow.

        `name` and `where` ("file:line") appear in errors; without `where` it is the nearest line of the
        caller's code outside mxlite. Of the ready operations the highest `priority` runs first, then the
        oldest.
        `kind` is "compute", "team", "copy" or "io"; each (device, kind) has its own workers. "team" is for
        operations that start threads: it has one worker, so that all such operations run on one thread.
        """

    @abstractmethod
    def bulk(self, size: int) -> AbstractContextManager[object]:
        """`with engine.bulk(100):` this thread's pushes are run as segments of up to `size` operations.

        A segment costs the engine about as much as one operation, and holds the Vars of all its members
        until the last is over. Effects and errors are those of the single operations.
        """

    def wait_for(self, *vars: Var) -> None:
        """Wait for all pushed writes of these Vars, so that they can be read. Raises their failure."""
        self._settle(check_vars(vars), False)
        self._raise_failure_of(vars)

    def wait_to_write(self, *vars: Var) -> None:
        """Wait for all pushed reads and writes of these Vars, to write them. Raises their failure."""
        self._settle(check_vars(vars), True)
        self._raise_failure_of(vars)

    def wait_all(self) -> None:
        """Wait until all operations pushed before, and those that they push themselves, are over.

        Raises the first failure, in order of push, that has not surfaced yet, with the others as notes.
        """
        self._drain()
        error = self.journal.surface_all()
        if error is not None:
            raise error

    def rest(self) -> None:
        """Wait until all operations pushed before are over, failed or not. Raises no failure."""
        self._drain()

    @abstractmethod
    def stop(self) -> None:
        """Finish everything, then end the workers; later pushes are EngineErrors. Raises like `wait_all`."""

    @abstractmethod
    def stats(self) -> dict[str, int]:
        """Operations pushed, executed (also if they failed), failed, skipped (they read poison), and pending.

        A bulk's segment counts as one pending operation, and its members in the other figures. While
        operations run the figures are no consistent snapshot.
        """

    @abstractmethod
    def _settle(self, vars: tuple[Var, ...], exclusive: bool) -> None:
        """Wait, raising nothing but EngineError."""

    @abstractmethod
    def _drain(self) -> None:
        """Wait for everything, raising nothing but EngineError."""

    @abstractmethod
    def before_fork(self) -> None:
        """Drain the engine; see `process.py`."""

    @abstractmethod
    def after_fork_in_parent(self) -> None:
        """Go on where `before_fork` stopped."""

    @abstractmethod
    def after_fork_in_child(self) -> None:
        """Start empty: the caller is the only thread left."""

    def _raise_failure_of(self, vars: tuple[Var, ...]) -> None:
        for var in vars:
            failure = var.failure
            if failure is not None:
                raise self.journal.surface(failure)


def check_bulk_size(size: int) -> int:
    if size < 1:
        raise EngineError(f"bulk needs a size of at least 1, got {size}.")
    return size


def refuse_push() -> EngineError:
    return EngineError("push after stop: this engine has finished its work.")


def refuse_wait() -> EngineError:
    return EngineError(
        "wait inside an operation: it might wait for itself. Push what comes after as an operation."
    )
