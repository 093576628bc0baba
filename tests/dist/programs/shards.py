"""Checkpoints that ranks write together, and read on another number of ranks: FOLDER write, then FOLDER read."""

from __future__ import annotations

import os
import sys

import numpy as np

import mxlite as mx
from mxlite.module.saved.statefile import Packed


def module_of(shard, store="dist_sync"):
    """A module with weights in one piece and in two, which ranks share, and small ones, which they do not."""
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=301, name="fc1")
    x = mx.sym.FullyConnected(mx.sym.BatchNorm(x, name="bn"), num_hidden=300, name="fc2")
    x = mx.sym.FullyConnected(x, num_hidden=3, name="fc3")
    ranks = mx.memplan.Ranks(shard=shard)
    module = mx.mod.Module(mx.sym.SoftmaxOutput(x, name="softmax"), fused_update=True, ranks=ranks)
    module.bind([("data", (4, 101))], [("softmax_label", (4,))])
    mx.random.seed(3)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(store, "adam")
    return module


def stepped(module, count, seed):
    rng = np.random.default_rng([seed, mx.dist.rank()])
    for _ in range(count):
        x, y = mx.nd.array(rng.standard_normal((4, 101))), mx.nd.array(rng.integers(0, 3, 4))
        module.forward_backward(mx.io.DataBatch([x], [y]))
        module.update()
    return module


def weights(module):
    return b"".join(a.asnumpy().tobytes() for _, a in sorted(module.get_params()[0].items()))


def write(folder):
    shared, whole = stepped(module_of("optimizer"), 3, 0), stepped(module_of("none"), 3, 0)
    parted = stepped(module_of("weights"), 3, 0)
    assert weights(shared) == weights(whole) == weights(parted)
    if mx.dist.rank() == 0:
        whole.save_optimizer_states(f"{folder}/whole.states")
        whole.save_params(f"{folder}/x.params")
    for _ in range(2):  # the second replaces the first
        shared.save_optimizer_states(f"{folder}/shared.states")
        shared.save_resume_state(f"{folder}/run", 2, 5, None)
    parted.save_resume_state(f"{folder}/parted", 2, 5, None)
    mx.dist.barrier()
    before = sorted(os.listdir(folder))
    assert len(before) == 5 + 3 * mx.dist.size(), before

    fails = mx.dist.rank() == 1
    packed_write = Packed.write
    if fails:
        Packed.write = lambda self, file: file.write(b"x" * 3 + None)
    try:
        shared.save_optimizer_states(f"{folder}/shared.states")
    except (TypeError, mx.StateError) as error:
        assert fails == isinstance(error, TypeError), error
        assert fails or "since rank 1 failed" in str(error), error
    else:
        raise AssertionError("nothing was raised")
    Packed.write = packed_write
    mx.dist.barrier()
    assert sorted(os.listdir(folder)) == before
    try:
        shared.save_resume_state(f"{folder}/rank{mx.dist.rank()}", 2, 5, None)
    except mx.BindError as error:
        assert "The checkpoint of ranks 1 and 2 differs" in str(error), error
    else:
        raise AssertionError("nothing was raised")

    # As many ranks go on in the same bits.
    want = weights(stepped(shared, 2, 1))
    for kind, prefix in (("optimizer", "run"), ("weights", "parted"), ("none", "parted")):
        again = module_of(kind)
        assert again.load_resume_state(f"{folder}/{prefix}", None) == (2, 5)
        assert weights(stepped(again, 2, 1)) == want, (kind, prefix)


def read(folder):
    found = {}
    kinds = [("none", "whole"), ("none", "shared"), ("optimizer", "whole"), ("weights", "shared")]
    for shard, file in kinds:
        module = module_of(shard)
        module.load_params(f"{folder}/x.params")
        module.load_optimizer_states(f"{folder}/{file}.states")
        found[shard, file] = weights(stepped(module, 2, 1))
    for kind, prefix in (("optimizer", "run"), ("weights", "parted")):
        resumed = module_of(kind)
        assert resumed.load_resume_state(f"{folder}/{prefix}", None) == (2, 0)  # the epoch begins anew
        found[prefix] = weights(stepped(resumed, 2, 1))
    assert len(set(found.values())) == 1, [k for k, v in found.items() if v != found["none", "whole"]]


if __name__ == "__main__":
    mx.dist.init()
    (write if sys.argv[2] == "write" else read)(sys.argv[1])
    mx.dist.barrier()
    if mx.dist.rank() == 0:
        print("agreed")
