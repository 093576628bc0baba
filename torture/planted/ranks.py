"""Faults in sums over ranks, in what ranks agree in, and in the watch that they keep."""

from .fault import Fault

_RANKS = "tests/dist/test_ranks.py::"
_SUMS = _RANKS + "test_sums_are_those_in_the_order_of_the_ranks[3]"
_TRAINING = _RANKS + "test_training_gives_the_bits_of_one_process[2-cases0]"
_STORES = _RANKS + "test_stores_and_trainers_that_ranks_share"
_FAILURES = "tests/dist/test_failures.py::test_a_failure_ends_the_job"
_STEP = "tests/executor/test_rank_sums.py::"

FAULTS = [
    Fault(
        "ranks are added up from the last to the first",
        "mxlite/comm/communicator.py",
        "first, *others = rows\n",
        "first, *others = rows[::-1]\n",
        _SUMS,
    ),
    Fault(
        "sums of 16 bits are rounded after each rank",
        "mxlite/comm/ordered_sum.py",
        "if dtype.itemsize == 2 and comm.window.wide and is_floating(dtype):\n            self._wide",
        "if dtype.itemsize == 1 and comm.window.wide and is_floating(dtype):\n            self._wide",
        _SUMS,
    ),
    Fault(
        "flags of rows are added up, and 1 + 255 is none",
        "mxlite/comm/communicator.py",
        "np.bitwise_or if first.dtype == np.uint8 else np.add",
        "np.add",
        _SUMS,
    ),
    Fault(
        "a rank steps its part of a weight with the first of its states",
        "mxlite/ops/collective/sharded_update.py",
        "*(s[own] for s in states)",
        "*(s[: own.stop - own.start] for s in states)",
        _TRAINING,
    ),
    Fault(
        "a message has its place where its gradient is made",
        "mxlite/memplan/order/messages.py",
        "        while waiting and waiting[0][0] <= clock:",
        "        while waiting:",
        "tests/memplan/test_messages.py::test_a_message_has_its_place_where_it_ends",
    ),
    Fault(
        "the arrays that waited last for a message are left out",
        "mxlite/comm/buckets.py",
        "    yield from waiting.values()\n",
        "",
        "tests/comm/test_buckets.py::test_messages_are_shared_by_small_arrays_of_one_type",
    ),
    Fault(
        "a sum inside a step does not take the wire",
        "mxlite/executor/run/program.py",
        "                writes[g][WIRE] = None\n",
        "                pass\n",
        _STEP + "test_a_sum_is_a_segment_of_its_own_that_has_the_wire",
    ),
    Fault(
        "sums inside a step have no order",
        "mxlite/executor/plan/rank_sums.py",
        "        inputs = (*bucket, *token)\n",
        "        inputs = (*bucket,)\n",
        _STEP + "test_every_gradient_is_in_one_sum_and_sums_have_one_order",
    ),
    Fault(
        "a lazy update takes the rows of its own rank",
        "mxlite/executor/plan/step.py",
        "{w: total[f] for w, f in flags.items()}",
        "dict(flags)",
        _TRAINING,
    ),
    Fault(
        "a step of visible gradients keeps the rows of its own rank",
        "mxlite/dist/sums.py",
        "return (array.whole, array.flags) if isinstance(array, RowGradient) else (array,)",
        "return (array.whole,) if isinstance(array, RowGradient) else (array,)",
        _TRAINING,
    ),
    Fault(
        "ranks begin with parameters of their own",
        "mxlite/module/training.py",
        "        for name in self.parameters:\n"
        "            broadcast_into(binding.whole.get(name, binding.arg_dict[name]))\n",
        "",
        _TRAINING,
    ),
    Fault(
        "buckets have their sums inside the step",
        "mxlite/module/training.py",
        "if self.in_buckets and self.ranks > 1:",
        "if False:",
        _TRAINING,
    ),
    Fault(
        "what compression has not sent is forgotten",
        "mxlite/dist/compression.py",
        "            every[comm.rank * each :][:each] = self._taken(kept)\n",
        "            every[comm.rank * each :][:each] = self._taken(kept)\n            kept[:] = 0\n",
        _STORES,
    ),
    Fault(
        "Gluon's deferred parameters begin as each rank draws them",
        "mxlite/gluon/parameters/parameter.py",
        "                    trainer.begin(self)\n",
        "                    pass\n",
        _STORES,
    ),
    Fault(
        "an uncaught exception ends one rank alone",
        "mxlite/comm/heartbeat.py",
        "        sys.excepthook = self._failed\n",
        "",
        _FAILURES + "[raise]",
    ),
    Fault(
        "a rank that has ended is waited for",
        "mxlite/comm/communicator.py",
        "if self.missing and waited",
        "if False and waited",
        _FAILURES + "[fewer]",
    ),
    Fault(
        "time in which this process was stopped counts as another's silence",
        "mxlite/comm/heartbeat.py",
        "            heard += max(0.0, now - last - BEAT_S)",
        "            heard += 0.0",
        "tests/comm/test_heartbeat.py::test_a_healthy_rank_is_left_alone",
    ),
    Fault(
        "a rank that was stopped is waited for",
        "mxlite/comm/heartbeat.py",
        'return state not in "TtZX"',
        'return state not in "ZX"',
        _FAILURES + "[stop]",
    ),
    Fault(
        "other data shapes of a rank are not seen",
        "mxlite/comm/agreement.py",
        "digest != usual",
        "False",
        "tests/dist/test_failures.py::test_ranks_that_differ_are_refused_before_the_first_step",
    ),
]
