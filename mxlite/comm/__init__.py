"""Messages among the ranks of a job: the communicator that this process has, and sums over all ranks.

Start reading at `communicator.py`. `python -m mxlite.launch -n 4 train.py` starts a job.
"""

from .adding import add_in_order as add_in_order
from .agreement import (
    dissenters as dissenters,
    gathered as gathered,
    in_words as in_words,
    shown as shown,
)
from .buckets import bucket_workspace as bucket_workspace, buckets as buckets, sum_bucket as sum_bucket
from .communicator import (
    Alone as Alone,
    Collectives as Collectives,
    Communicator as Communicator,
    HOST as HOST,
    Request as Request,
    Window as Window,
)
from .ordered_sum import (
    gather_parts as gather_parts,
    own_parts as own_parts,
    parts as parts,
    PIECE as PIECE,
    reduce_and_gather as reduce_and_gather,
    shard_length as shard_length,
    sum_over_ranks as sum_over_ranks,
    sum_to_parts as sum_to_parts,
    sum_workspace as sum_workspace,
)
from .world import current as current, join as join, WIRE as WIRE
