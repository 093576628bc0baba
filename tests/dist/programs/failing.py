"""Training in which something happens to the last rank, or to rank 0, in step 5."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time

import numpy as np

import mxlite as mx
from mxlite.comm import current
from mxlite.module.saved.statefile import Packed

what, stamp = sys.argv[1:3]


def module_for(batch=8, hidden=16, rate=0.1, optimizer="sgd", **how):
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=hidden, name="fc1")
    x = mx.sym.FullyConnected(mx.sym.Activation(x, act_type="tanh"), num_hidden=4, name="fc2")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(x, name="softmax"), fused_update=True, **how)
    module.bind([("data", (batch, 12))], [("softmax_label", (batch,))])
    module.init_params(mx.init.Xavier())
    module.init_optimizer("dist_sync", optimizer, optimizer_params={"learning_rate": rate})
    return module


def step(module):
    x, y = mx.nd.array(np.ones((8, 12))), mx.nd.array(np.arange(8) % 4)
    module.forward_backward(mx.io.DataBatch([x], [y]))
    module.update()


def happen():
    with open(stamp, "w") as file:
        file.write(str(time.time()))
    if what == "raise":
        raise RuntimeError("as planned")
    if what == "exit":
        sys.exit(3)
    if what in ("kill", "checkpoint"):
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if what == "interrupt":
        time.sleep(60)  # until the test has sent the signal


mx.dist.init()
last = mx.dist.rank() == mx.dist.size() - 1
if what == "refuse":
    for other in ({"batch": 4}, {"hidden": 17}, {"rate": 0.2}, {"memory_budget": "1MiB"}):
        try:
            module_for(**(other if last else {}))
        except mx.BindError as error:
            for turn in range(mx.dist.size()):  # one after the other, so that lines stay whole
                if turn == mx.dist.rank():
                    print(f"rank {turn}: {error}", flush=True)
                mx.dist.barrier()
        else:
            raise AssertionError(other)
    module_for()  # nothing is left over of what was refused
    sys.exit()
if last:  # automatic names count on, and that is no difference
    mx.sym.Activation(mx.sym.Activation(mx.sym.Variable("x"), act_type="tanh"), act_type="tanh")

states = mx.memplan.Ranks(shard="optimizer")
shared = {"hidden": 4096, "optimizer": "adam", "ranks": states} if what == "alone" else {}
module = module_for(**shared)
for i in range(10):
    if i == 5 and last and what not in ("alone", "disk", "early", "busy", "checkpoint"):
        happen()
    if i == 5 and mx.dist.rank() == 0 and what == "disk":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        happen()
        module.save_checkpoint(stamp, 1)
    if i == 5 and mx.dist.rank() == 0 and what == "alone":
        happen()
        module.save_checkpoint(stamp + ".model", 1, save_optimizer_states=True)
    if i == 3 and what == "checkpoint":
        module.save_resume_state(stamp, 1, i, None)
    if i == 5 and what == "checkpoint":
        if last:
            Packed.write = lambda self, file: (file.write(b"begun"), happen())
        module.save_resume_state(stamp, 1, i, None)
    if i == 7 and last and what == "fewer":
        happen()
        break
    step(module)
mx.nd.waitall()
assert current().step == 10 or what == "fewer"
if what == "early" and not last:
    time.sleep(6)  # the others have ended, and nothing is wrong
if what == "busy" and last:
    np.sort(np.random.default_rng(0).random(1 << 16))
    until = time.time() + 6
    sys.setswitchinterval(60)  # no other thread of this process runs: as in a long call that keeps the lock
    while time.time() < until:
        pass
    sys.setswitchinterval(0.005)
if what == "busy":
    mx.dist.barrier()
sys.stdout.flush()
os.write(1, f"rank {mx.dist.rank()} is done\n".encode())  # at once: two ranks share the pipe
