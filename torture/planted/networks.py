"""Faults that networks drawn at random have found, put back."""

from .fault import Fault

_REWRITES = "tests/backends/passes/test_rewrites.py"

FAULTS = [
    Fault(
        "What a pass leaves without a reader is run all the same",
        "mxlite/backends/rewrite.py",
        "    if not unread:\n        return after, num_forward\n",
        "    if not unread or unread:\n        return after, num_forward\n",
        f"{_REWRITES}::test_what_a_pass_leaves_without_a_reader_is_not_run",
    ),
    Fault(
        "A 16-bit copy that backward alone reads is made in the forward pass",
        "mxlite/backends/passes/tiling/inline_dense_casts.py",
        "        if not any(n in step.forward and reads_copy(n, c) for n in readers.all(Entry(c)))\n",
        "        if False\n",
        "tests/backends/passes/test_inline_batch_casts.py::test_a_copy_that_backward_alone_reads_is_made_there",
    ),
    Fault(
        "A parameter that no gradient reaches does not decay in a fused step",
        "mxlite/executor/plan/step.py",
        "    if rule is not None and found:\n        trained, found = _with_zeros",
        "    if rule is not None and not found:\n        trained, found = _with_zeros",
        "tests/module/test_module.py::test_a_parameter_that_no_gradient_reaches_decays_in_the_step_as_in_the_loop",
    ),
    Fault(
        "a bfloat16 convolution with taps beside the data is left to a kernel that reads left-over bytes",
        "mxlite/backends/cpu/convolution/direct.py",
        "lib.has_bf16 and _all_taps_meet(g)",
        "lib.has_bf16",
        "tests/executor/test_left_over_bytes.py::test_taps_that_meet_no_data_have_no_gradient",
    ),
    Fault(
        "an operand of a broadcast is told by its shape: fewer axes are one number a channel",
        "mxlite/backends/passes/channels_last.py",
        "self.raised(e, rank) if e in arrays else self.first(e)",
        "self.raised(e, rank) if e in arrays and len(self.r.shapes[e]) == rank else self.first(e)",
        "tests/differential/test_differential.py::test_networks_give_what_the_oracle_gives[4]",
    ),
    Fault(
        "updates of recurrent layers leave products of few columns to other kernels",
        "mxlite/backends/fused/rnn_update.py",
        "any_width=True",
        "any_width=False",
        "tests/backends/passes/test_recurrent_updates.py::test_few_hidden_states_have_the_bits_of_a_whole_gradient",
    ),
]
