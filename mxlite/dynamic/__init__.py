"""mx.dynamic: networks whose shape depends on the sample, in batches, inside a byte budget.

Users write plain recursion over samples; calls of one cell at one depth run together.
"""

from .cell import Cell as Cell
from .network import Network as Network
from .tape import Handle as Handle
