"""Files that anybody may have written: checks of readers left out, and of whose the cache is."""

from torture.planted.fault import Fault

_FORGED = "tests/test_forged_cache.py"
_HOSTILE = "tests/test_hostile_files.py"
FAULTS = [
    Fault(
        "the cache believes files of other users",
        "mxlite/core/kept.py",
        "if _POSIX and found.st_uid != os.geteuid():",
        "if False:",
        f"{_FORGED}::test_forged_code_is_never_loaded",
    ),
    Fault(
        "the cache believes files that others may write",
        "mxlite/core/kept.py",
        'return "other users may write there" if _POSIX and found.st_mode & _OTHERS_WRITE else None',
        "return None",
        f"{_FORGED}::test_forged_code_is_never_loaded",
    ),
    Fault(
        "a link in the cache is followed",
        "mxlite/core/kept.py",
        "flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK",
        "flags = os.O_RDONLY | os.O_NONBLOCK",
        f"{_FORGED}::test_forged_code_is_never_loaded",
    ),
    Fault(
        "others may read what is left in the cache",
        "mxlite/core/kept.py",
        "        os.replace(temporary, path)",
        "        os.chmod(temporary, 0o644)\n        os.replace(temporary, path)",
        f"{_FORGED}::test_files_and_folders_are_private_whatever_the_umask",
    ),
    Fault(
        "the cache's folder is not looked at when it is opened",
        "mxlite/core/kept.py",
        'if _fault(os.fstat(where), stat.S_ISDIR, "folder") is not None:',
        "if False:",
        f"{_FORGED}::test_a_folder_replaced_after_it_was_looked_at_is_not_read",
    ),
    Fault(
        "the cache's root may be anybody's",
        "mxlite/core/kept.py",
        "if _POSIX and found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:",
        "if False:",
        f"{_FORGED}::test_the_root_is_looked_at_too",
    ),
    Fault(
        "a file of the cache is looked at by its name, and then opened",
        "mxlite/core/kept.py",
        "        status = os.fstat(file.fileno())",
        '        status = os.fstat(file.fileno())\n        file = stack.enter_context(open(path, "rb"))',
        f"{_FORGED}::test_a_file_replaced_after_it_was_looked_at_is_not_read",
    ),
    Fault(
        "a file of the cache is read however much it grows",
        "mxlite/core/kept.py",
        "            return data if len(data) <= most_bytes else None",
        "            return data",
        f"{_FORGED}::test_a_file_that_grows_after_it_was_looked_at_is_read_no_further",
    ),
    Fault(
        "an optimizer's beta of 1 comes out of a file",
        "mxlite/core/schema.py",
        "if least <= value <= most and value < below:",
        "if least <= value <= most:",
        f"{_HOSTILE}::test_any_value_of_an_optimizers_state_may_be_any_other",
    ),
    Fault(
        "true is a number in a file",
        "mxlite/core/schema.py",
        "if (type(value) is int and abs(value) <= MOST) or",
        "if (isinstance(value, int) and abs(value) <= MOST) or",
        f"{_HOSTILE}::test_schemas_take_what_they_say_and_nothing_else",
    ),
    Fault(
        "true is a whole number in a file",
        "mxlite/core/schema.py",
        "if type(value) is not int or not least <= value <= most:",
        "if not isinstance(value, int) or not least <= value <= most:",
        f"{_HOSTILE}::test_schemas_take_what_they_say_and_nothing_else",
    ),
    Fault(
        "a state of another shape steps a weight",
        "mxlite/module/optim/updater.py",
        "if i in self._loaded:",
        "if False:",
        f"{_HOSTILE}::test_a_state_that_fits_no_weight_is_refused_at_its_first_update",
    ),
    Fault(
        "a state's header may be nested without end",
        "mxlite/module/saved/statefile.py",
        "if depth == DEEPEST:",
        "if False:",
        f"{_HOSTILE}::test_headers_of_states_are_bounded",
    ),
    Fault(
        "an axis of length 0 lets the others be of any length",
        "mxlite/module/saved/statefile.py",
        "if dtype.itemsize * math.prod(n for n in shape if n) < 2**63:",
        "if True:",
        f"{_HOSTILE}::test_headers_of_states_are_bounded",
    ),
    Fault(
        "a sparse array's declared shape takes memory all over",
        "mxlite/ndarray/sparse_form.py",
        "values = np.zeros(self.shape, self.dtype)",
        "values = np.full(self.shape, 0, self.dtype)",
        f"{_HOSTILE}::test_a_dense_form_takes_memory_for_what_is_stored",
    ),
    Fault(
        "a record's length is believed",
        "mxlite/io/recordio/record.py",
        "        if padded > left:",
        "        if False:",
        "tests/test_recordio.py::test_a_length_that_lies_allocates_nothing",
    ),
    Fault(
        "a container's array is allocated before its bytes are counted",
        "mxlite/ndarray/container.py",
        "        if nbytes > self.left:",
        "        if False:",
        "tests/test_params_format.py::test_a_shape_larger_than_the_file_is_refused_before_allocation",
    ),
    Fault(
        "a schedule that is far behind comes one change too far",
        "mxlite/module/optim/lr_scheduler.py",
        "left = self._changes_until(num_update) - 1",
        "left = self._changes_until(num_update)",
        f"{_HOSTILE}::test_a_schedule_catches_up_at_once_with_what_one_by_one_would_give",
    ),
]
