"""The error for a sound model that uses something mxlite does not have."""

from ...core import FormatError


class NotSupportedError(FormatError):
    """A part of an importable format that mxlite cannot run; names the node, the operator and why."""
