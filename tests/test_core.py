"""The ground everything stands on: sizes, dtypes, devices, settings, errors, files."""

from __future__ import annotations

import gc
import io
import os
import stat
import threading

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

import mxlite as mx
from mxlite.core import (
    as_dtype,
    BudgetError,
    config,
    Context,
    current_context,
    DeviceError,
    DTypeError,
    errors,
    flag_of,
    FLAGS,
    format_bytes,
    is_floating,
    MXLiteError,
    nearest,
    parse_bytes,
    read_at_most,
    replacing,
)
from mxlite.core.collection import no_collection

# -- bytes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "size, nbytes",
    [
        (1, 1),
        (4096, 4096),
        (np.int64(7), 7),
        ("4096", 4096),
        ("64MiB", 64 << 20),
        ("64mib", 64 << 20),
        ("1.5GB", 1_500_000_000),
        (" 2 kB ", 2000),
        ("3KiB", 3072),
        ("1TiB", 1 << 40),
        ("1TB", 10**12),
        ("10b", 10),
        (".5KiB", 512),
        ("0.0015kB", 1),
        ("1.999999999B", 1),
        ("9007199254740993", 9007199254740993),
        ("9007199254740993.5", 9007199254740993),
    ],
)
def test_a_number_of_bytes_is_read(size, nbytes):
    got = parse_bytes(size)
    assert got == nbytes
    assert type(got) is int


@pytest.mark.parametrize(
    "size",
    [
        0, -1, np.int32(0), 1.5, 64.0, float("nan"), float("inf"), True, False, None, b"64MiB", [64],
        (1, "GB"), np.array([64, 64]), np.float64(64),
        "", " ", "MiB", "lots", "64 MB iB", "64XB", "-1MB", "+1MB", "1e9", "0x10",
        "1_000", "1,5GB", "1.GB", "1..5GB",
        "NaN", "inf",
        "0", "0GB", "0.4B", ".B", "٣MB", "64\x00MB", "64 M i B", "1 2 GB",
    ],
)  # fmt: skip
def test_nonsense_is_no_budget(size):
    with pytest.raises(BudgetError, match="budget") as caught:
        parse_bytes(size)
    assert isinstance(caught.value, ValueError)


def test_the_error_shows_what_was_written_and_what_would_do():
    with pytest.raises(BudgetError, match=r"'64MBit'.*MiB.*for example"):
        parse_bytes("64MBit")
    with pytest.raises(BudgetError, match=r"at least 1 byte, got -3"):
        parse_bytes(-3)


@given(st.text(max_size=12))
def test_any_text_is_a_positive_number_or_a_budget_error(text):
    try:
        assert parse_bytes(text) > 0
    except BudgetError:
        pass


@given(st.integers(1, 1 << 21), st.sampled_from(["kB", "MB", "GB", "KiB", "MiB", "GiB", "TiB"]))
def test_units_are_powers_of_1000_or_1024(n, unit):
    power = "kmgt".index(unit[0].lower()) + 1
    assert parse_bytes(f"{n}{unit}") == n * (1024 if "i" in unit else 1000) ** power


def test_bytes_are_written_for_people():
    assert format_bytes(0) == "0 B"
    assert format_bytes(1023) == "1023 B"
    assert format_bytes(1024) == "1.00 KiB"
    assert format_bytes(33554432) == "32.00 MiB"
    assert format_bytes(3 << 30) == "3.00 GiB"
    assert format_bytes(5 << 50) == "5120.00 TiB"
    assert format_bytes(-2048) == "-2.00 KiB"


# -- dtypes ----------------------------------------------------------------------------------------------


def test_none_is_float32_not_numpys_float64():
    """`np.dtype('float64') == None` is True in numpy: comparing before asking would take None for float64."""
    assert as_dtype(None) == np.float32
    assert as_dtype("float64") == np.float64
    assert flag_of(None) == 0
    assert is_floating(None)


@pytest.mark.parametrize("flag", FLAGS)
def test_each_dtype_has_its_number_and_its_name(flag):
    dtype = FLAGS[flag]
    assert flag_of(dtype) == flag
    assert as_dtype(str(dtype)) == dtype
    assert as_dtype(dtype) == dtype
    assert as_dtype(dtype.type) == dtype


def test_names_are_numpys_as_in_mxnet():
    for name in ("f", "<f4", "d", "e", "i4", "u1", "?", "half", "single", "double", "float", "int"):
        assert as_dtype(name) == np.dtype(name)


def test_numbers_are_mxnets():
    wanted = {
        "float32": 0,
        "float64": 1,
        "float16": 2,
        "uint8": 3,
        "int32": 4,
        "int8": 5,
        "int64": 6,
        "bool": 7,
    }
    assert {n: flag_of(n) for n in wanted} == wanted
    assert flag_of(ml_dtypes.bfloat16) == 12


def test_only_floating_types_have_gradients():
    floating = {"float16", "float32", "float64", "bfloat16"}
    assert {str(d) for d in FLAGS.values() if is_floating(d)} == floating
    assert is_floating(float)
    assert not is_floating(int)


@pytest.mark.parametrize("kind", ["float23", "Float32", "", "(", "f,i", ">f4", "complex64", "object", "str"])
def test_unsupported_names_are_refused(kind):
    with pytest.raises(DTypeError, match="float32"):
        as_dtype(kind)


@pytest.mark.parametrize(
    "kind", [np.complex64, "O", object, np.uint16, np.dtype("S4"), np.dtype(">f4"), 3, [1], {}]
)
def test_unsupported_types_are_refused(kind):
    with pytest.raises(DTypeError, match="float32") as caught:
        as_dtype(kind)
    assert isinstance(caught.value, TypeError)


def test_a_near_name_is_suggested():
    with pytest.raises(DTypeError, match="Did you mean 'float16'"):
        as_dtype("flaot16")


# -- devices ---------------------------------------------------------------------------------------------


def test_contexts_are_equal_by_kind_and_number():
    assert mx.cpu() == Context("cpu", 0) == Context(mx.cpu())
    assert mx.cpu(1) != mx.cpu(0) != mx.gpu(0)
    assert mx.cpu() != "cpu(0)"
    assert len({mx.cpu(), mx.cpu(0), mx.gpu(0), mx.gpu(1)}) == 3
    assert (repr(mx.gpu(2)), str(mx.cpu())) == ("gpu(2)", "cpu(0)")
    assert (mx.cpu().device_typeid, mx.gpu().device_typeid, Context("cpu_pinned").device_typeid) == (1, 2, 3)
    assert Context(mx.gpu(3)).device_id == 3


def test_a_with_block_changes_the_default_of_its_thread_only():
    seen = []
    with mx.gpu(1):
        assert current_context() == mx.gpu(1)
        with mx.cpu(2):
            assert current_context() == mx.cpu(2)
        assert current_context() == mx.gpu(1)
        thread = threading.Thread(target=lambda: seen.append(current_context()))
        thread.start()
        thread.join()
        with pytest.raises(KeyError), mx.gpu(5):
            raise KeyError
        assert current_context() == mx.gpu(1)
    assert seen == [mx.cpu(0)]
    assert current_context() == mx.cpu(0)


@pytest.mark.parametrize("number", [-1, 1.0, "0", None, True])
def test_a_device_number_is_a_natural_number(number):
    with pytest.raises(DeviceError, match="0 or more"):
        Context("cpu", number)


def test_an_unknown_device_is_named():
    with pytest.raises(DeviceError, match=r"'gqu'.*Did you mean 'gpu'"):
        Context("gqu")


# -- settings --------------------------------------------------------------------------------------------

NAMES = ("ENGINE", "CPU_WORKERS", "BLAS_THREADS", "MAX_PENDING", "BULK_SIZE", "CHECK_PLAN")


@pytest.fixture
def environment(monkeypatch):
    for name in (*(f"MXLITE_{n}" for n in NAMES), "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch.setenv


@pytest.mark.parametrize("empty", [False, True])
def test_defaults_also_for_empty_variables(environment, monkeypatch, empty):
    monkeypatch.setattr(config, "available_cores", lambda: 16)
    if empty:
        for name in NAMES:
            environment(f"MXLITE_{name}", "")
    assert config.engine_kind() == "threaded"
    assert (config.cpu_workers(), config.max_pending(), config.bulk_size()) == (2, 4096, 64)
    assert config.blas_threads() == 8
    assert config.check_plan() is False


def test_the_environment_is_read_when_asked(environment):
    for name, value in dict(zip(NAMES, ("naive", "3", "5", "10", "1", "1"))).items():
        environment(f"MXLITE_{name}", value)
    assert config.engine_kind() == "naive"
    assert (config.cpu_workers(), config.max_pending(), config.bulk_size()) == (3, 10, 1)
    assert config.blas_threads() == 5
    assert config.check_plan() is True
    environment("MXLITE_CPU_WORKERS", "4")
    assert config.cpu_workers() == 4


def test_workers_and_blas_share_the_cores(environment, monkeypatch):
    monkeypatch.setattr(config, "available_cores", lambda: 8)
    environment("MXLITE_CPU_WORKERS", "3")
    assert config.blas_threads() == 2
    environment("MXLITE_CPU_WORKERS", "50")
    assert config.blas_threads() == 1
    monkeypatch.setattr(config, "available_cores", lambda: 1)
    assert config.blas_threads() == 1


@pytest.mark.parametrize("name", ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"])
def test_what_the_user_told_blas_stands_unless_told_otherwise_here(environment, name):
    environment(name, "7")
    assert config.blas_threads() is None
    environment("MXLITE_BLAS_THREADS", "2")
    assert config.blas_threads() == 2


@pytest.mark.parametrize(
    "name, read, value, text",
    [
        ("MXLITE_CPU_WORKERS", config.cpu_workers, "0", "at least 1, got 0"),
        ("MXLITE_CPU_WORKERS", config.cpu_workers, "two", "whole number, got 'two'"),
        ("MXLITE_CPU_WORKERS", config.cpu_workers, "2.5", "whole number"),
        ("MXLITE_BLAS_THREADS", config.blas_threads, "-1", "at least 1"),
        ("MXLITE_MAX_PENDING", config.max_pending, "0", "at least 1"),
        ("MXLITE_BULK_SIZE", config.bulk_size, "0", "at least 1"),
        ("MXLITE_BULK_SIZE", config.bulk_size, " ", "whole number"),
        ("MXLITE_CHECK_PLAN", config.check_plan, "yes", "whole number"),
        ("MXLITE_CHECK_PLAN", config.check_plan, "-1", "at least 0"),
        ("MXLITE_ENGINE", config.engine_kind, "naiv", "Did you mean 'naive'"),
        ("MXLITE_ENGINE", config.engine_kind, "NaiveEngine", "'threaded' or 'naive'"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(environment, name, read, value, text):
    environment(name, value)
    with pytest.raises(MXLiteError, match=text) as caught:
        read()
    assert name in str(caught.value)


# -- errors ----------------------------------------------------------------------------------------------


def test_every_error_is_an_mxlite_error_and_in_the_tree_of_the_docstring():
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and kind.__module__ == errors.__name__ and name == kind.__name__:
            assert issubclass(kind, MXLiteError)
            assert issubclass(kind, RuntimeError)
            assert f" {name} " in errors.__doc__
            for base in kind.__bases__:
                if base.__module__ == "builtins" and kind is not MXLiteError:
                    line = next(x for x in errors.__doc__.splitlines() if f" {name} " in x)
                    assert f"({base.__name__})" in line
    assert errors.MXNetError is MXLiteError


def test_nearest_suggests_one_candidate_or_nothing():
    assert nearest("weigth", ["bias", "weight", "weights"]) == " Did you mean 'weight'?"
    assert nearest("zzz", ["bias", "weight"]) == ""
    assert nearest("x", []) == ""
    assert nearest("fc1_bais", iter(["fc1_bias"])) == " Did you mean 'fc1_bias'?"


def test_the_nearest_attribute_is_looked_for_when_the_message_is_read(monkeypatch):
    monkeypatch.setattr(errors, "nearest", lambda *_: pytest.fail("nobody has read the message"))
    modules, name = (mx.sym, mx.nd, mx.nd.op, mx.nd.contrib, mx.ops), "transpos"
    for module in modules:
        assert not hasattr(module, name)
    monkeypatch.undo()
    for module in modules[:3]:
        with pytest.raises(AttributeError, match=r"no .*'transpos'.* Did you mean 'transpose'\?"):
            getattr(module, name)


# -- files -----------------------------------------------------------------------------------------------


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "model.params"
    with replacing(path) as file:
        file.write(b"half")
        file.flush()
        assert not path.exists()
        file.write(b" whole")
    assert path.read_bytes() == b"half whole"
    assert os.listdir(tmp_path) == ["model.params"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "model.params"
    path.write_bytes(b"old")
    with pytest.raises(error), replacing(path) as file:
        file.write(b"new")
        raise error
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.params"]


def test_a_reader_has_the_old_file_until_it_opens_anew(tmp_path):
    path = tmp_path / "model.params"
    path.write_bytes(b"old")
    with open(path, "rb") as reader:
        with replacing(str(path)) as file:
            file.write(b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"


@pytest.mark.skipif(os.name != "posix", reason="POSIX rights")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_file_has_the_rights_of_any_new_file(tmp_path, mask):
    before = os.umask(mask)
    try:
        with replacing(tmp_path / "a") as file:
            file.write(b"")
        (tmp_path / "b").touch()
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    a, b = (stat.S_IMODE((tmp_path / n).stat().st_mode) for n in "ab")
    assert a == b == 0o666 & ~mask


def test_text_is_utf8_and_its_line_ends_stay(tmp_path):
    with replacing(tmp_path / "net.json", "w") as file:
        file.write("ünï\n\r\nx")
    assert (tmp_path / "net.json").read_bytes() == "ünï\n\r\nx".encode()


def test_a_name_without_a_folder_means_the_current_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with replacing("here") as file:
        file.write(b"x")
    assert os.listdir(tmp_path) == ["here"]


def test_a_missing_folder_is_an_error_at_once(tmp_path):
    path = tmp_path / "no" / "x"
    with pytest.raises(FileNotFoundError) as caught, replacing(path):
        raise AssertionError("the block must not run")
    assert caught.value.filename == str(path)


def test_a_small_file_takes_little_memory_whatever_may_be_read():
    class Counted(io.BytesIO):
        asked = 0

        def read(self, size=-1):
            self.asked = max(self.asked, size)
            return super().read(size)

    content = bytes(3_000_000)
    for most, found in ((1 << 40, content), (2_500_000, content[:2_500_000]), (0, b"")):
        file = Counted(content)
        assert read_at_most(file, most) == found and file.asked <= 1 << 20


def test_a_target_that_cannot_be_replaced_leaves_nothing_behind(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError), replacing(tmp_path / "folder") as file:
        file.write(b"x")
    assert os.listdir(tmp_path) == ["folder"]


def test_collection_pauses_until_the_last_one_has_left():
    assert gc.isenabled()
    inner, left = threading.Event(), threading.Event()

    def stay() -> None:
        with no_collection():
            inner.set()
            left.wait()

    other = threading.Thread(target=stay)
    with no_collection():
        other.start()
        inner.wait()
        assert not gc.isenabled()
    assert not gc.isenabled()  # the other is in there still
    left.set()
    other.join()
    assert gc.isenabled()


def test_collection_that_somebody_has_turned_off_stays_off():
    gc.disable()
    try:
        with no_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
