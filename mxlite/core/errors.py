"""Every error mxlite raises on purpose.

* MXLiteError (RuntimeError)                     also known as MXNetError
  + DefinitionError                              an operator or pass is declared wrongly (the author's fault)
  + DerivativeError                              an operator has no second gradient, and one was asked for
  + ShapeError (ValueError, AssertionError)      shapes do not fit (the caller's fault)
  + DTypeError (TypeError)                       element types do not fit or are not supported
  + OpAttributeError (TypeError, AssertionError) an operator's parameter is unknown, missing or wrong
  + ArgumentError (TypeError, AssertionError)    a function was given something of another kind than it wants
  + RangeError (ValueError, AssertionError)      a function was given a value outside what it takes
  + UnknownNameError (ValueError, KeyError)      a name that nothing has; suggests the nearest one
  + UnknownAttributeError (AttributeError)       the same, of a module
  + IndexingError (IndexError)                   the value in brackets is no index of the array or list
  + MissingMethodError (NotImplementedError)     a user's class lacks a method that it must define
  + BindError (ValueError)                       arrays given to bind do not match the symbol's lists
  + BudgetError (ValueError)                     `memory_budget` is not a number of bytes
  + MemoryBudgetError                            no plan that mxlite can find fits the budget
  + OutOfMemoryError (MemoryError)               an array is larger than the memory there is
  + SearchLimitError                             an exact search ended at its limit without an answer
  + PlanError                                    a memory plan breaks a rule (mxlite's fault: please report)
  + RewriteError                                 a pass changed what a graph computes (please report)
  + FormatError (ValueError, AssertionError)     a file is truncated, corrupt or of an unknown version
  + FileError (OSError)                          a file or folder cannot be opened, read or written
    + MissingFileError (FileNotFoundError)       it is not there
    + FileAccessError (PermissionError)          this user may not
    + FolderError (IsADirectoryError)            a folder stands where a file should
  + StateError (AssertionError)                  calls in the wrong order (forward before bind, ...)
    + DeferredInitializationError                a Gluon parameter's values wait for the first forward pass
    + ScheduledRateError (UserWarning)           a learning rate is set that a scheduler decides
  + DeviceError                                  the device is not there, or has no backend
  + EngineError                                  the engine was misused, as by a push after its stop
  + OperatorError                                an operation failed while running
    + PlaceError (IndexError)                    as an index is out of range

Errors about values that a caller passed are AssertionErrors too: MXNet's Python checks its arguments with
`assert`, and programs catch that.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self


class MXLiteError(RuntimeError):
    """Base of all errors raised by mxlite."""


MXNetError = MXLiteError


class DefinitionError(MXLiteError):
    """An operator declaration contradicts itself; raised at import time."""


class DerivativeError(MXLiteError):
    """An operator's gradient cannot be differentiated again."""


class ShapeError(MXLiteError, ValueError, AssertionError):
    """Shapes do not fit the operator or each other."""


class DTypeError(MXLiteError, TypeError):
    """Element types do not fit the operator, each other, or the backend."""


class OpAttributeError(MXLiteError, TypeError, AssertionError):
    """An operator's parameter is unknown, missing, or not of the right kind."""


class ArgumentError(MXLiteError, TypeError, AssertionError):
    """A function was given something of another kind than it wants."""


class RangeError(MXLiteError, ValueError, AssertionError):
    """A function was given a value outside what it takes: a number, a length or a choice."""


class UnknownNameError(MXLiteError, ValueError, KeyError):
    """A name that nothing has."""

    __str__ = Exception.__str__  # a KeyError's would be the message in quotation marks


class UnknownAttributeError(MXLiteError, AttributeError):
    """A name that a module does not have.

    The nearest of `candidates()` is looked for when the message is read: tools ask every module for names of
    their own, and an import of a submodule asks its package first.
    """

    def __init__(self, message: str, name: str, candidates: Callable[[], Iterable[str]]) -> None:
        super().__init__(message)
        self._asked = name, candidates

    def __str__(self) -> str:
        name, candidates = self._asked
        return f"{super().__str__()}{nearest(name, candidates())}"


class IndexingError(MXLiteError, IndexError):
    """The value in brackets is out of range, or of a kind that is no index."""


class MissingMethodError(MXLiteError, NotImplementedError):
    """A user's class lacks a method that every derived class has to define."""


class BindError(MXLiteError, ValueError):
    """The arrays given to bind do not match the symbol's arguments."""


class BudgetError(MXLiteError, ValueError):
    """`memory_budget` cannot be read as a positive number of bytes."""


class MemoryBudgetError(MXLiteError):
    """No plan found fits the budget.

    `budget_bytes` was asked for. A plan is known for `least_feasible_bytes`: asking for exactly this
    succeeds, with `least_extra_time` (a share of the step). `lower_bound_bytes` is proven: no plan exists
    below it. `keep_all_peak_bytes` is the peak of a step without recomputation.

    `advise` gives more lines of text with advice. It plans for that, so it is called when the message is
    first read, and never if the error is only caught.
    """

    def __init__(
        self,
        message: str,
        *,
        budget_bytes: int,
        least_feasible_bytes: int,
        lower_bound_bytes: int,
        keep_all_peak_bytes: int = 0,
        least_extra_time: float = 0.0,
        advise: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(message)
        self.budget_bytes = budget_bytes
        self.least_feasible_bytes = least_feasible_bytes
        self.lower_bound_bytes = lower_bound_bytes
        self.keep_all_peak_bytes = keep_all_peak_bytes
        self.least_extra_time = least_extra_time
        self.advise = advise

    def __str__(self) -> str:
        advise, self.advise = self.advise, None
        if advise is not None and (advice := advise()):
            self.remark(advice)
        return super().__str__()

    def remark(self, line: str) -> None:
        """Add a line to the message."""
        self.args = (f"{self.args[0]}\n{line}",)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the error with its whole message, as `advise` stays in this process."""
        return partial(
            type(self),
            str(self),
            budget_bytes=self.budget_bytes,
            least_feasible_bytes=self.least_feasible_bytes,
            lower_bound_bytes=self.lower_bound_bytes,
            keep_all_peak_bytes=self.keep_all_peak_bytes,
            least_extra_time=self.least_extra_time,
        ), ()


class OutOfMemoryError(MXLiteError, MemoryError):
    """An array that is asked for does not fit into the memory of the device."""


class SearchLimitError(MXLiteError):
    """An exact search reached its limit and knows neither a solution nor a proof that there is none."""


class PlanError(MXLiteError):
    """A memory plan lets two live buffers overlap, reads a dead one, or leaves an order open."""


class RewriteError(MXLiteError):
    """A pass has made a graph that cannot run, or that computes something else than the graph before it."""


class FormatError(MXLiteError, ValueError, AssertionError):
    """A file is truncated, corrupt, or of a version that cannot be read."""


class FileError(MXLiteError, OSError):
    """A file or folder cannot be opened, read or written. Its arguments are those of OSError."""

    def __new__(cls, *args: Any) -> Self:
        return OSError.__new__(cls, *args)

    __init__ = OSError.__init__


class MissingFileError(FileError, FileNotFoundError):
    """There is no such file or folder."""


class FileAccessError(FileError, PermissionError):
    """This user may not open, read or write the file."""


class FolderError(FileError, IsADirectoryError):
    """A folder stands where a file should."""


def file_error(error: OSError, path: object = None, told: str | None = None) -> FileError:
    """The FileError for an error of the system about a file.

    `path` is named instead of the file that the system was asked for, `told` said instead of its words.
    """
    kinds: dict[type, type[FileError]] = {
        FileNotFoundError: MissingFileError,
        PermissionError: FileAccessError,
        IsADirectoryError: FolderError,
    }
    kind = next((kinds[k] for k in type(error).__mro__ if k in kinds), FileError)
    name = error.filename if path is None else path
    made: FileError = kind(
        error.errno, told or error.strerror or str(error), *(() if name is None else (name,))
    )
    return made


class StateError(MXLiteError, AssertionError):
    """A call that needs another call first."""


class DeferredInitializationError(StateError):
    """A parameter whose values wait for the first forward pass, which tells its shape."""


class ScheduledRateError(StateError, UserWarning):
    """The learning rate follows from a scheduler. A UserWarning, as MXNet raises."""


class DeviceError(MXLiteError):
    """The device does not exist here, or no backend serves it."""


class EngineError(MXLiteError):
    """The engine was used against its contract."""


class OperatorError(MXLiteError):
    """An operation failed while the engine ran it; the cause is chained.

    `operation` is its name, `where` the "file:line" of the user's code that pushed it.
    """

    def __init__(self, message: str, *, operation: str = "", where: str = "") -> None:
        super().__init__(message)
        self.operation = operation
        self.where = where


class PlaceError(OperatorError, IndexError):
    """An operation failed because an index, which it saw only while running, is out of range."""


def nearest(name: str, candidates: Iterable[str], likeness: float = 0.6) -> str:
    """`" Did you mean 'x'?"` for the candidate most like `name`, or an empty string.

    likeness: the share of letters in common, from 0 to 1, that a candidate has at least.
    """
    names = [c for c in candidates if isinstance(c, str)]
    matches = difflib.get_close_matches(name, names, n=1, cutoff=likeness)
    return f" Did you mean {matches[0]!r}?" if matches else ""


def refuse_misspelt(what: str, given: Iterable[str], names: Iterable[str]) -> None:
    """Raise UnknownNameError for a name given that is none of `names` but much like one that is not given.

    A name that is like none of them is ignored, as in MXNet: programs give one dict to several networks.
    """
    known, said = set(names), set(given)
    open_names = sorted(known - said)
    for name in sorted(said - known, key=str):
        if meant := nearest(name, open_names, likeness=0.8) if isinstance(name, str) else "":
            raise UnknownNameError(f"{what} has {name!r}, which the network does not have.{meant}")
