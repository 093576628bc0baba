"""Faults of Gluon's steps that wait to become one program."""

from torture.planted.fault import Fault

_CALL = "mxlite/gluon/blocks/deferred_call.py"
_PROGRAM = "mxlite/gluon/blocks/joined_program.py"
_TESTS = "tests/gluon/test_deferred_step.py"

FAULTS = [
    Fault(
        "labels that are written after the call count",
        _CALL,
        "self.labels = self.calls.inputs_for((self.key, key), own)",
        "self.labels = own",
        f"{_TESTS}::test_what_is_written_to_inputs_after_the_call_is_not_seen",
    ),
    Fault(
        "a call that waits reads parameters that were written meanwhile",
        _CALL,
        "        self._check()\n        stage, self",
        "        stage, self",
        f"{_TESTS}::test_a_parameter_that_is_written_before_the_call_has_run_is_refused",
    ),
    Fault(
        "a call that waits loses its inputs to the next one",
        "mxlite/gluon/blocks/bound_call.py",
        "                self._waiting.run()\n            self._waiting = None",
        "                pass\n            self._waiting = None",
        f"{_TESTS}::test_outputs_of_several_calls_in_one_loss[two calls]",
    ),
    Fault(
        "an output of another network passes for the loss's input",
        _CALL,
        "isinstance(h, _Result) and h.call is self and",
        "isinstance(h, _Result) and",
        f"{_TESTS}::test_outputs_of_several_calls_in_one_loss[two networks]",
    ),
    Fault(
        "batches of another size have states of their own",
        _PROGRAM,
        "            arrays |= {state_name",
        "            {state_name",
        f"{_TESTS}::test_batches_of_other_sizes_share_the_states_of_the_optimizer",
    ),
    Fault(
        "a step divides by the batch size of an earlier one",
        _PROGRAM,
        "            and self.rule == call.trainer.optimizer.update_rule()\n",
        "",
        f"{_TESTS}::test_a_batch_size_that_changes_each_time_costs_few_plans",
    ),
    Fault(
        "an optimizer's own update is replaced by the fused form that it inherits",
        "mxlite/module/optim/optimizer_base.py",
        'if "update_rule" not in vars(cls) and _UPDATES.intersection(vars(cls)):',
        "if False:",
        "tests/module/test_optimizer.py::test_what_a_subclass_changes_is_not_left_out_of_a_fused_step[update]",
    ),
]
