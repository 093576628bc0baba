"""Contracts of MXNet's users: nan in gradients, states, monitors, iterators, the alias."""

from .fault import Fault

FAULTS = [
    Fault(
        "relu gives the gradient 0 at nan",
        "mxlite/ops/elementwise/activation.py",
        'lambda w, y: w("sign", y), "out")',
        'lambda w, y: w.one_where("gt", y, 0.0), "out")',
        "tests/ops/test_nan.py::test_no_activation_hides_a_nan",
    ),
    Fault(
        "a leaky rectifier of slope 0 loses the gradient at nan",
        "mxlite/ops/elementwise/leaky.py",
        'slope = w("select", w("le", known, 0.0), below, above)',
        'slope = w("select", w("gt", known, 0.0), above, below)',
        "tests/ops/test_nan.py::test_no_activation_hides_a_nan",
    ),
    Fault(
        "a norm joined with a rectifier stops nan on its way back",
        "mxlite/backends/cpu/compiled/norm/norm_form.py",
        'f.compare("ugt", seen, zero), d, zero)',
        'f.compare("ogt", seen, zero), d, zero)',
        "tests/ops/test_nan.py::test_no_network_hides_a_nan_of_a_weight_from_its_gradients",
    ),
    Fault(
        "max pooling gives the gradient of a window with nan to nobody",
        "mxlite/ops/nn/pool_kernels.py",
        "        xp.logical_or(equal, nan, out=equal)\n",
        "",
        "tests/ops/test_nan.py::test_a_nan_is_the_maximum_of_its_window_and_gets_its_gradient",
    ),
    Fault(
        "generated max pooling takes the last nan of a window",
        "mxlite/backends/cpu/compiled/pool.py",
        'f.both(f.compare("ugt", new, v), f.compare("ord", v, v))',
        'f.binary("or", f.compare("ogt", new, v), f.compare("uno", new, new))',
        "tests/backends/cpu/test_pool_kernels.py::test_numbers_of_every_kind_go_through",
    ),
    Fault(
        "max gives its gradient to nobody where an element is nan",
        "mxlite/ops/reduce/extremes.py",
        "            equal[part] |= flat[part] != flat[part]",
        "            equal[part] |= flat[part] < flat[part]",
        "tests/ops/test_nan.py::test_a_nan_is_the_maximum_of_its_window_and_gets_its_gradient",
    ),
    Fault(
        "the float32 weight comes before the momentum",
        "mxlite/module/optim/optimizer_base.py",
        "        return (state, master) if self.master_last else (master, state)\n",
        "        return master, state\n",
        "tests/oracles/mxnet/test_contracts.py::test_the_state_comes_before_the_float32_weight",
    ),
    Fault(
        "states of an older order are read as they stand",
        "mxlite/module/optim/updater.py",
        "        if self.optimizer.master_last and not tree.get(",
        "        if False and not tree.get(",
        "tests/oracles/mxnet/test_contracts.py::test_states_written_when_float32_weights_came_first_are_read",
    ),
    Fault(
        "a monitor misses the statistics of BatchNorm",
        "mxlite/executor/request/watch.py",
        "range(node.num_outputs if statistics else node.num_visible_outputs)",
        "range(node.num_visible_outputs)",
        "tests/oracles/mxnet/test_contracts.py::test_a_monitor_lists_the_statistics_of_batch_norm",
    ),
    Fault(
        "a callback on a module's executor is lost when the module plans anew",
        "mxlite/module/bound_module.py",
        "        self.install_monitor(CallbackMonitor(callback, watch))\n",
        "        pass\n",
        "tests/oracles/mxnet/test_contracts.py::test_a_callback_on_a_modules_executor_sees_its_passes",
    ),
    Fault(
        "debug_str counts steps of which some have no scratch",
        "mxlite/executor/plan/listing.py",
        "    scratch = sum(task.workspace > 0 for task in steps)\n",
        "    scratch = len(steps) + 1\n",
        "tests/oracles/mxnet/test_contracts.py::test_debug_str_ends_with_the_two_lines_that_memonger_reads",
    ),
    Fault(
        "MNISTIter gives lists where MXNet gives arrays",
        "mxlite/io/mnist.py",
        "        return super().getdata()[0]\n",
        "        return super().getdata()\n",
        "tests/oracles/mxnet/test_contracts.py::test_mnist_gives_arrays_where_mxnet_does",
    ),
    Fault(
        "the alias loads modules a second time",
        "mxlite/core/finder.py",
        "        module = importlib.import_module(self._real)\n        self._spec = module.__spec__\n",
        "        module = importlib.util.module_from_spec(importlib.util.find_spec(self._real))\n"
        "        module.__spec__.loader.exec_module(module)\n        self._spec = module.__spec__\n",
        "tests/oracles/mxnet/test_contracts.py::test_the_alias_gives_the_same_modules_and_goes_away",
    ),
    Fault(
        "the alias writes over an installed MXNet",
        "mxlite/core/alias.py",
        "    if file.parent.exists() and not (file.exists() and is_ours(file)):\n        raise StateError(\n"
        '            f"{file.parent} is there',
        '    if False:\n        raise StateError(\n            f"{file.parent} is there',
        "tests/oracles/mxnet/test_contracts.py::test_the_alias_replaces_no_mxnet",
    ),
    Fault(
        "random csr arrays of tests have another density than they were asked for",
        "mxlite/test_utils/random_arrays.py",
        "    total = round(rows * columns * share)\n",
        "    total = int(np.random.binomial(rows * columns, share)) + 1\n",
        "tests/oracles/mxnet/test_contracts.py::test_sparse_arrays_of_tests_are_uniform_with_the_density_asked_for",
    ),
]
