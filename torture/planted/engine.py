"""Faults of the engine, of the executor's pushes, of locks at a fork, of OpenMP's waiting and of columns."""

from torture.planted.fault import Fault

_PROGRAMS = "tests/engine/test_engine_random_programs.py::test_thousands_of_seeded_programs_agree"
_ENGINE = "tests/engine/test_engine.py::"
_FORKS = "tests/core/test_forks.py::"
_COLUMNS = "tests/backends/cpu/test_by_columns.py::"

FAULTS = [
    Fault(
        "a writer does not wait for those who read before it",
        "mxlite/engine/schedule.py",
        "                waits += len(readers)\n                var.readers = None",
        "                var.readers = None",
        _PROGRAMS,
    ),
    Fault(
        "a reader does not wait for the writer before it",
        "mxlite/engine/schedule.py",
        "waits += 1\n            readers = var.readers\n            if readers is None:",
        "waits += 0\n            readers = var.readers\n            if readers is None:",
        _PROGRAMS,
    ),
    Fault(
        "a drain does not wait for what operations push themselves",
        "mxlite/engine/threaded.py",
        "                operation.generation = parent.generation\n",
        "                pass\n",
        _PROGRAMS,
    ),
    Fault(
        "who only writes a poisoned Var does not heal it",
        "mxlite/engine/operation.py",
        "        for var in self.reads:\n            if var.failure is not None:",
        "        for var in self.reads + self.writes:\n            if var.failure is not None:",
        _PROGRAMS,
    ),
    Fault(
        "a poisoned Var stops nobody who reads it",
        "mxlite/engine/operation.py",
        "            if var.failure is not None:\n                failure = var.failure",
        "            if var.failure is None and var.version < 0:\n                failure = var.failure",
        _PROGRAMS,
    ),
    Fault(
        "a wait for a write does not wait for readers",
        "mxlite/engine/threaded.py",
        "if var.writer is not None or (exclusive and var.readers):",
        "if var.writer is not None:",
        _ENGINE + "test_wait_for_does_not_wait_for_readers_but_wait_to_write_does",
    ),
    Fault(
        "what fails unseen leaves the exit status at 0",
        "mxlite/engine/process.py",
        "            sys.stderr = _Unflushed(sys.stderr)\n",
        "",
        _ENGINE + "test_a_failure_that_nobody_waited_for_is_printed_at_exit_and_is_no_success",
    ),
    Fault(
        "work that is pending when the process ends is dropped",
        "mxlite/engine/process.py",
        "            engine.stop()\n",
        "            engine.journal.surface_all()\n",
        _ENGINE + "test_a_script_that_falls_off_its_end_finishes_its_work",
    ),
    Fault(
        "what a fork could not wait for is not poisoned in the child",
        "mxlite/engine/threaded.py",
        "var.failure = Failure(operation.label(), operation.where, operation.order, error)",
        "pass",
        _ENGINE + "test_what_a_fork_could_not_wait_for_is_poisoned_in_the_child",
    ),
    Fault(
        "locks of other threads stay closed in a forked child",
        "mxlite/core/process/forks.py",
        "            each._at_fork_reinit()  # as the standard library renews its own",
        "            pass",
        _FORKS + "test_a_child_trains_though_other_threads_of_its_parent_held_every_lock",
    ),
    Fault(
        "a fork does not wait for who holds a lock for a moment",
        "mxlite/core/process/forks.py",
        "each.acquire(timeout=max(0.0, ends - monotonic()))",
        "each.acquire(timeout=0.0)",
        _FORKS + "test_what_a_lock_guards_is_whole_in_the_child",
    ),
    Fault(
        "in a forked child threads of the parent are still inside",
        "mxlite/core/process/forks.py",
        "        in_child(self._leave_alone)\n",
        "",
        _FORKS + "test_in_a_child_only_who_forked_is_still_inside",
    ),
    Fault(
        "a lock is made that no child can take",
        "mxlite/executor/measure/timings.py",
        "_lock = forks.lock()",
        "import threading\n\n_lock = threading.Lock()",
        _FORKS + "test_every_lock_is_one_that_a_child_can_take",
    ),
    Fault(
        "a class that an interrupt left half made stays so",
        "mxlite/core/record.py",
        "            if before is not None:",
        "            if False and before is not None:",
        "tests/core/test_record.py::test_a_record_that_an_interrupt_left_half_made_is_made_by_the_next",
    ),
    Fault(
        "how long OpenMP's threads spin is left in the environment",
        "mxlite/backends/cpu/runtime/spins.py",
        "        system.unsetenv(_NAME)",
        "        pass",
        "tests/backends/cpu/test_openmp.py::test_threads_sleep_soon_and_no_setting_is_left_behind",
    ),
    Fault(
        "what the user says of OpenMP's waiting is not heard",
        "mxlite/core/config.py",
        'return "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ',
        'return "GOMP_SPINCOUNT" in os.environ',
        "tests/backends/cpu/test_openmp.py::test_what_the_user_says_holds",
    ),
    Fault(
        "columns at the border of the data are dropped",
        "mxlite/backends/cpu/convolution/columns.py",
        "            if low < high:\n",
        "            if low < high and pad == 0:\n",
        _COLUMNS + "test_columns_give_output_and_gradients",
    ),
    Fault(
        "columns of later rows are added to the first",
        "mxlite/backends/cpu/convolution/columns.py",
        "        starts[0] = part.o0\n        windows",
        "        starts[0] = 0\n        windows",
        _COLUMNS + "test_columns_give_output_and_gradients",
    ),
    Fault(
        "who takes over the arena does not wait for its former user",
        "mxlite/executor/run/program.py",
        "        tail = self.arena.tail if first else ()",
        "        tail = ()",
        "tests/executor/test_program.py::test_who_takes_over_the_arena_waits_for_every_step_of_its_former_user",
    ),
    Fault(
        "after an interrupt nobody waits for what was pushed",
        "mxlite/executor/run/program.py",
        "(*self.arena.tail, *(s.done for s in self.passes))",
        "(*self.arena.tail,)",
        "tests/executor/test_program.py::test_who_comes_after_an_interrupt_waits_for_all_that_was_pushed",
    ),
    Fault(
        "the random step of a program is no input of what draws",
        "mxlite/executor/run/program.py",
        "                reads[g][self.rng_var] = None",
        "                pass",
        "tests/executor/test_program.py::test_the_next_random_step_waits_for_this_one",
    ),
]
