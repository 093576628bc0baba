"""Faults about mistakes of users: what would pass in silence again."""

from __future__ import annotations

from torture.planted.fault import Fault

_TEST = "tests/module/test_mistakes.py::"

FAULTS = [
    Fault(
        "the largest label that is no class passes",
        "mxlite/executor/run/feed.py",
        "(part < self.count)",
        "(part <= self.count)",
        _TEST + "test_a_label_that_is_no_class_is_told_once_with_its_place",
    ),
    Fault(
        "fractions pass for classes",
        "mxlite/executor/run/feed.py",
        " & (part == np.trunc(part))",
        "",
        _TEST + "test_a_label_that_is_no_class_is_told_once_with_its_place",
    ),
    Fault(
        "only the first piece of many labels is looked at",
        "mxlite/executor/run/feed.py",
        "range(0, flat.size, _AT_A_TIME)",
        "range(0, min(flat.size, 1), _AT_A_TIME)",
        _TEST + "test_a_wrong_label_deep_in_a_large_array_is_found",
    ),
    Fault(
        "labels that go by way of another shape are not looked at",
        "mxlite/executor/run/feed.py",
        "while entry.node.op is not None and issubclass(entry.node.op, Move):",
        "while False:",
        _TEST + "test_labels_are_found_by_way_of_other_shapes_and_for_every_loss_of_classes",
    ),
    Fault(
        "backward without a forward pass gives gradients of what the arena holds",
        "mxlite/executor/executor.py",
        "        if not self.has_run and not (self.arguments_are_given and ",
        "        if False and (self.arguments_are_given and ",
        _TEST + "test_backward_without_a_forward_is_refused_at_every_budget",
    ),
    Fault(
        "a second backward moves moving statistics again",
        "mxlite/executor/executor.py",
        "            before.copyto(state)  # the plan may move statistics in either pass\n",
        "            pass\n",
        "tests/executor/test_executor.py::test_a_second_backward_moves_no_statistics",
    ),
    Fault(
        "a gradient may be written over an argument",
        "mxlite/executor/request/given.py",
        "if grad.backend.overlap(grad.storage, others[other].storage):",
        "if False:",
        _TEST + "test_a_gradient_over_an_argument_is_refused_also_where_they_share_a_part",
    ),
    Fault(
        "a misspelt name in args_grad means no gradient",
        "mxlite/executor/request/given.py",
        "            refuse_misspelt(what, arrays, names)\n",
        "            pass\n",
        _TEST + "test_names_much_like_one_that_is_missing_are_refused_and_others_left_out",
    ),
    Fault(
        "what a custom operator does not write holds what others left",
        "mxlite/ndarray/operators/custom.py",
        "return ends is not None and all(ends[0][i] == _UNWRITTEN for i in ends[1])",
        "return False",
        _TEST + "test_an_output_that_a_custom_operator_does_not_write_fails_by_name",
    ),
    Fault(
        "a gradient that a custom operator does not write holds what others left",
        "mxlite/ndarray/operators/custom.py",
        "                    array.fill(0)\n",
        "                    pass\n",
        _TEST + "test_a_gradient_that_a_custom_operator_does_not_write_is_0",
    ),
]
