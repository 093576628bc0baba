"""Faults in how many threads a kernel has, and in what its scratch and its sums follow from."""

from .fault import Fault

_TEST = "tests/executor/test_crews.py::"

FAULTS = [
    Fault(
        "fewer threads cost no time",
        "mxlite/memplan/problem.py",
        "        longer = self.forms[0][0] / threads\n",
        "        longer = 1.0\n",
        _TEST + "test_a_kernel_has_the_most_threads_that_fit_and_takes_the_longer",
    ),
    Fault(
        "the lower bound takes scratch of all threads",
        "mxlite/memplan/problem.py",
        "        if self.has_forms:\n            return self.leanest.task_bound\n",
        "",
        _TEST + "test_the_least_budget_and_the_lower_bound_are_those_of_one_thread",
    ),
    Fault(
        "kernels have fewer threads than the budget has room for",
        "mxlite/memplan/cost/forms.py",
        "fits.argmax(axis=1)",
        "fits.shape[1] - 1",
        _TEST + "test_a_kernel_has_the_most_threads_that_fit_and_takes_the_longer",
    ),
    Fault(
        "the plan does not say that kernels have fewer threads",
        "mxlite/memplan/problem.py",
        'instead=f"{self.instead}, {what}" if self.instead else what,',
        "instead=self.instead,",
        _TEST + "test_the_plan_and_its_file_say_which_kernels_have_fewer_threads",
    ),
    Fault(
        "a plan's file forgets the threads",
        "mxlite/memplan/files/planfile.py",
        "    return {name: x for name, x in found.items() if name not in _SELDOM or x != _SELDOM[name]}\n",
        "    return {name: x for name, x in found.items() if name not in _SELDOM}\n",
        _TEST + "test_the_plan_and_its_file_say_which_kernels_have_fewer_threads",
    ),
    Fault(
        "a kernel runs with more threads than planned",
        "mxlite/executor/run/calls.py",
        "call.with_threads(task.threads)",
        "call.kernel",
        _TEST + "test_a_kernel_runs_with_as_many_threads_as_the_plan_says",
    ),
    Fault(
        "a norm's parts of sums follow the threads",
        "mxlite/backends/cpu/kernels/generated/compiled_norm.py",
        "self.parts = parts_for(2 * self.numbers * r.dtype.itemsize)",
        "self.parts = num_threads()",
        _TEST + "test_sums_of_generated_kernels_are_the_same_on_any_number_of_threads",
    ),
    Fault(
        "blocks of sums over rows, for a layer norm or a bias, follow the threads",
        "mxlite/backends/cpu/compiled/nests/writer.py",
        "with f.loop(first, last, ROWS) as rows:",
        "with f.loop(first, last, f.plus(f.threads, ROWS)) as rows:",
        _TEST + "test_sums_of_generated_kernels_are_the_same_on_any_number_of_threads",
    ),
    Fault(
        "inference within a budget keeps scratch of all threads",
        "mxlite/executor/plan/candidates.py",
        "plan = leanest(plan)",
        "pass",
        _TEST + "test_the_least_budget_never_falls_with_threads_and_that_of_one_fits_any_number",
    ),
]
