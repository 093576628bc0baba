"""Faults of what is bound, shared and kept between executors; tests passed them once."""

from .fault import Fault

FAULTS = [
    Fault(
        "a master that is gone is remembered, and another at its place passes for it",
        "mxlite/executor/request/masters.py",
        "if found is None else found[0]",
        "if found is None else found[1]  # type: ignore[assignment]",
        "tests/executor/test_masters.py::test_a_master_that_is_gone_is_forgotten",
    ),
    Fault(
        "a gradient that nobody writes may not lie over an argument",
        "mxlite/executor/request/given.py",
        '        if requests[name] == "null":\n            continue\n',
        "",
        "tests/module/test_mistakes.py::test_a_gradient_over_an_argument_is_refused_also_where_they_share_a_part",
    ),
    Fault(
        "a shared executor lends what the other does not have",
        "mxlite/executor/request/given.py",
        "        and k in planned.train.step.owned\n",
        "",
        "tests/executor/test_bind.py::test_what_only_the_lender_has_stays_with_it",
    ),
    Fault(
        "any object passes for a list of arrays",
        "mxlite/executor/request/given.py",
        '        wanted(what, arrays, "a list or a dict of NDArrays", list, tuple)\n',
        "",
        "tests/executor/test_bind.py::test_arrays_are_given_in_a_list_or_a_dict",
    ),
    Fault(
        "a loss scale that moves is another after a reshape",
        "mxlite/executor/request/reshape.py",
        '("var", HISTORY) in executor._arrays)',
        '("var", HISTORY) not in executor._arrays)',
        "tests/module/test_mixed_training.py::test_a_loss_scale_that_moves_is_that_of_every_shape",
    ),
    Fault(
        "of two tables read by the same numbers one loses its rows",
        "mxlite/executor/plan/step.py",
        "        if flag in storage:\n",
        "        if False:\n",
        "tests/executor/test_row_gradients.py::test_two_tables_that_are_read_by_the_same_numbers_have_their_rows_each",
    ),
    Fault(
        "an optimizer updates whole numbers",
        "mxlite/executor/plan/step.py",
        "and (rule is None or is_floating(graph.dtypes[Entry(n)]))",
        "",
        "tests/executor/test_bind.py::test_whole_numbers_have_gradients_but_no_update",
    ),
    Fault(
        "whole numbers have no gradient",
        "mxlite/executor/plan/step.py",
        "and (rule is None or is_floating(graph.dtypes[Entry(n)]))",
        "and is_floating(graph.dtypes[Entry(n)])",
        "tests/executor/test_bind.py::test_whole_numbers_have_gradients_but_no_update",
    ),
    Fault(
        "a value of another shape is made in the gradient's array",
        "mxlite/executor/plan/lower.py",
        "            and found.shape[v] == found.shape[at]\n",
        "",
        "tests/executor/test_accumulate.py::test_a_sum_of_another_shape_stays_where_it_is",
    ),
]
