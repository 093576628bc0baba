"""Faults of graph passes, of where they run, and of what the executor makes of their graphs."""

from torture.planted.fault import Fault

_LAYOUTS = "tests/backends/passes/test_layouts.py"
_FOLLOWS = f"{_LAYOUTS}::test_every_operator_that_follows_its_data_computes_the_same"
_RANKS = f"{_LAYOUTS}::test_operands_of_every_rank_are_broadcast_from_the_last_axis"
_CHANNELS = "mxlite/backends/passes/channels_last.py"

FAULTS = [
    Fault(
        "an update that reads what another has changed stays behind that",
        "mxlite/backends/passes/tiling/gradient_updates.py",
        " and e not in written for e in node.inputs)",
        " for e in node.inputs)",
        "tests/backends/passes/test_dense_updates.py::test_data_that_are_a_parameter_are_read_before_they_change",
    ),
    Fault(
        "an update that makes its gradient passes for no reader of its data",
        "mxlite/backends/passes/tiling/gradient_updates.py",
        "        own = changed(node) if node in updates else frozenset()\n",
        "        own = node.inputs if node in updates else frozenset()\n",
        "tests/backends/passes/test_dense_updates.py::test_an_update_that_makes_its_gradient_reads_its_data",
    ),
    Fault(
        "a convolution that takes its pooling along forgets what it adds or multiplies by",
        "mxlite/backends/passes/fusion/pooled_convolutions.py",
        "(_rectifies(conv) and not _has_more(conv))",
        "_rectifies(conv)",
        "tests/backends/passes/test_pooled_convolutions.py::test_what_else_a_convolution_does_at_inference_is_not_lost",
    ),
    Fault(
        "a copy that backward alone reads is not put before its reader",
        "mxlite/backends/passes/tiling/inline_dense_casts.py",
        "            result.order.append(cast)  # before the first that still reads the copy",
        "            result.order.insert(0, cast)",
        "tests/backends/passes/test_inline_batch_casts.py::test_a_copy_that_backward_alone_reads_is_made_there",
    ),
    Fault(
        "a broadcast operand of fewer axes is read as it is beside channels that are last",
        _CHANNELS,
        "        if all(d == 1 for d in self.r.shapes[old]):",
        "        if True:",
        _RANKS,
    ),
    Fault(
        "axes that an operand lacks are put behind it",
        _CHANNELS,
        "axis=tuple(range(lacks))",
        "axis=tuple(range(rank - lacks, rank))",
        _RANKS,
    ),
    Fault(
        "an axis behind the channels stays where it was when they become the last",
        _CHANNELS,
        "axis - 1 if axis > 1 else 0",
        "axis if axis > 1 else 0",
        _FOLLOWS,
    ),
    Fault(
        "a slope for each channel is read as one that follows the data",
        _CHANNELS,
        "return all(op.operand_shape(a, n, s, whole) == s for n, s in zip(node.input_names, shapes))",
        "return True",
        _FOLLOWS,
    ),
    Fault(
        "a variable that a pass lists behind its reader stays there",
        "mxlite/graph/rewrite.py",
        "    return replace(graph, order=(*early, *(n for n in graph.order if n not in early)))",
        "    return graph",
        "tests/backends/passes/test_rewrites.py::test_a_hidden_layer_may_be_an_output_too",
    ),
    Fault(
        "an operator that is read before it is made passes for a variable",
        "mxlite/graph/rewrite.py",
        "            if e.node.op is not None:",
        "            if e.node.op is not None and e.node.forward is not None:",
        "tests/backends/passes/test_rewrites.py::test_an_operator_behind_its_reader_is_the_fault_of_the_pass",
    ),
    Fault(
        "a sum of gradients that somebody else reads is written over",
        "mxlite/executor/plan/lower.py",
        "            and readers[v] == 1\n",
        "",
        "tests/executor/test_accumulate.py::test_a_sum_that_somebody_else_reads_stays_where_it_is",
    ),
    Fault(
        "the order between segments is lost where it goes through a preview",
        "mxlite/executor/run/program.py",
        "more = (q for p in row if p in left_out for q in result[p])",
        "more = (q for p in row if p in left_out for q in before[p][:0])",
        "tests/executor/test_program.py::test_an_order_through_segments_that_are_left_out_holds_without_them",
    ),
    Fault(
        "the order through one preview behind another is lost",
        "mxlite/executor/run/program.py",
        "more = (q for p in row if p in left_out for q in result[p])",
        "more = (q for p in row if p in left_out for q in before[p])",
        "tests/executor/test_program.py::test_an_order_through_segments_that_are_left_out_holds_without_them",
    ),
    Fault(
        "what arrays of the user's hold is taken for parameters of inference",
        "mxlite/executor/bind.py",
        "            knows_inputs=bool(data),\n",
        "",
        "tests/executor/test_bind.py::test_inference_on_arrays_of_the_users_with_a_label",
    ),
    Fault(
        "the check of rewrites looks at no gradient",
        "mxlite/backends/checks/rewrite_check.py",
        "if self.train and self.num_forward is None:",
        "if False:",
        "tests/backends/passes/test_rewrite_check.py::test_a_pass_that_changes_gradients_alone_is_found",
    ),
    Fault(
        "the check of rewrites does not look at what a step writes",
        "mxlite/backends/checks/rewrite_check.py",
        "for p in (*pairs, *written):",
        "for p in pairs:",
        "tests/backends/passes/test_rewrite_check.py::test_what_a_step_writes_is_compared",
    ),
    Fault(
        "a sum over tiles begins again in each tile",
        "mxlite/backends/fused/tile_program.py",
        "self._is_begun(n, name) or any(tiles[x] for x in loops)",
        "self._is_begun(n, name)",
        "tests/backends/passes/test_inline_batch_casts.py::test_a_region_computes_what_a_layer_with_a_copy_computes",
    ),
    Fault(
        "what a call outside the loops has written is overwritten by the first tile",
        "mxlite/backends/fused/tile_program.py",
        "in c.outputs and c.level < call.level",
        "in c.outputs and c.level > call.level",
        "tests/backends/passes/test_activation_prologue.py::test_a_layer_behind_a_function_applies_it",
    ),
    Fault(
        "a tile that is not contiguous is passed to a kernel that reads it as if it were",
        "mxlite/backends/fused/tile_program.py",
        "copied = tuple(n for n in views if n not in chosen.views)",
        "copied = ()",
        "tests/backends/passes/test_regions.py::test_a_layer_in_any_loops",
    ),
    Fault(
        "an output of a region lies over an input that is read again in a later tile",
        "mxlite/backends/fused/tile_program.py",
        "is_tiled = None not in axes and not x.sums and not y.sums",
        "is_tiled = not x.sums and not y.sums",
        "tests/backends/passes/test_sample_tiles.py::test_an_output_lies_over_nothing_that_is_still_read",
    ),
]
