"""Common parts of all benchmarks: a heading with machine and versions, tables, worker processes."""

from . import plot as plot
from .machine import heading as heading, mxnet_python as mxnet_python, RESULTS as RESULTS
from .table import markdown as markdown, Spread as Spread
from .worker import Worker as Worker
