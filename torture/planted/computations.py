"""Faults of tensor expressions: of their gradients, their loop nests and the code of these."""

from torture.planted.fault import Fault

_RANDOM = "tests/te/test_nests.py::test_random_computations"
_WRITER = "mxlite/backends/cpu/compiled/nests/writer.py"
_ORDER = "tests/te/test_nests.py::test_two_outputs_over_what_the_other_reads"
_EVALUATED = (
    "tests/te/test_evaluate.py::test_random_computations_have_the_same_bits_whichever_outputs_are_wanted"
)
_NESTS = "mxlite/backends/nests/build.py"

FAULTS = [
    Fault(
        "lanes beyond the end of a row count in its sum",
        _WRITER,
        "term = f.select(p.mask, term, firsts[j])",
        "term = term",
        _RANDOM,
    ),
    Fault(
        "every part of a sum takes all of it",
        _WRITER,
        "if self.nest.in_parts and axis == self.facts.reduced[0]:",
        "if False:",
        "tests/te/test_nests.py::test_bits_do_not_depend_on_the_number_of_threads",
    ),
    Fault(
        "the sums of all blocks of rows but the last are forgotten",
        _WRITER,
        "more = f.add(f.load(here[total], i, mask=mask), f.load(here[block], i, mask=mask))",
        "more = f.load(here[block], i, mask=mask)",
        "tests/te/test_nests.py::test_bits_do_not_depend_on_the_number_of_threads",
    ),
    Fault(
        "a nest reads an array that an earlier one has written over",
        _NESTS,
        "if over.intersection(x.array for x in placed.nest.loads):",
        "if False:",
        _ORDER,
    ),
    Fault(
        "neighbouring axes are one although a row of a picked array lies between them",
        _NESTS,
        "x[before] == x[k] * self.domain[k]",
        "True",
        "tests/backends/cpu/test_computed_kernels.py::test_picked_elements_are_numpys_for_any_index",
    ),
    Fault(
        "what is stored for the last sweep is written over what this still reads",
        "mxlite/backends/nests/facts.py",
        "if all(self.is_unit[i] or i >= len(n.loads) for i in rest):",
        "if True:",
        "tests/te/test_nests.py::test_what_is_kept_for_the_last_sweep_does_not_lie_over_what_that_reads",
    ),
    Fault(
        "a gradient that is the same along an axis counts once, not for each of its elements",
        "mxlite/te/computation.py",
        "return found if times == 1 else found * self._count(times)",
        "return found",
        "tests/te/test_computations.py::test_gradients_are_those_of_finite_differences",
    ),
    Fault(
        "a mean of many float16 numbers divides by infinity",
        "mxlite/te/operator.py",
        "floats = [accumulator(d) for d in",
        "floats = [d for d in",
        "tests/backends/cpu/test_computed_kernels.py::test_the_mean_of_very_many_float16_numbers_has_a_gradient",
    ),
    Fault(
        "a sum over many blocks is that of the last one",
        "mxlite/te/evaluate.py",
        "ufunc(total, more, out=total)",
        "total[...] = more",
        _EVALUATED,
    ),
    Fault(
        "a slot is used again although its tensor is read once more",
        "mxlite/te/slots.py",
        "last[x] = at",
        "last.setdefault(x, at)",
        _EVALUATED,
    ),
    Fault(
        "an output is written over an input that a later sweep reads",
        "mxlite/te/sweeps.py",
        "levels[n] = max(levels[n], *(v for k, v in levels.items() if over & reads[k]), 0)",
        "levels[n] = levels[n]",
        "tests/te/test_evaluate.py::test_what_a_later_sweep_reads_is_not_written_over_before",
    ),
    Fault(
        "oneDNN moves two-byte elements as bfloat16 numbers",
        "mxlite/backends/cpu/kernels/onednn/onednn_move.py",
        '2: (np.dtype("uint8"), 2)',
        '2: (__import__("ml_dtypes").bfloat16 and np.dtype("uint8"), 1)',
        "tests/backends/cpu/test_move_kernels.py::test_channels_move_there_and_back",
    ),
    Fault(
        "what differs between rows is computed for the first one alone",
        _WRITER,
        "if self.facts.is_unit[i] and self._is_shared(i)",
        "if self.facts.is_unit[i]",
        "tests/te/test_sums_at_index.py::test_what_is_the_same_in_all_rows_is_computed_once[7]",
    ),
    Fault(
        "terms that are known later are added with earlier ones",
        "mxlite/backends/nests/groups.py",
        "max(self.last[index], self.last[terms]) < g",
        "True",
        "tests/te/test_sums_at_index.py::test_sums_along_another_axis_than_their_bases_have_a_nest_of_their_own",
    ),
]
