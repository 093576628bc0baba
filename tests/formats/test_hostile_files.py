"""Files that anybody may have written: an error of mxlite's own, or something that can be used."""

from __future__ import annotations

import errno
import math
import re
import struct
import subprocess
import sys
import time
import zlib

import numpy as np
import pytest
from mxlite.lr_scheduler import FactorScheduler, PolyScheduler

import mxlite as mx
from mxlite import ArgumentError, FormatError, OutOfMemoryError
from mxlite.core.disk import schema
from mxlite.core.errors import file_error
from mxlite.executor.measure.timings import Seconds
from mxlite.io.image_codec import encode
from mxlite.module.saved import resume
from mxlite.module.saved.statefile import pack_state, unpack_state


def state_file(header: str, arrays: bytes = b"") -> bytes:
    """A state with a right checksum, whatever is in it."""
    body = struct.pack("<Q", len(header)) + header.encode() + arrays
    return struct.pack("<8sII", b"MXLSTATE", 1, zlib.crc32(body)) + body


def stepped(updater):
    for index in (0, "b"):
        weight = mx.nd.ones((2, 3))
        updater(index, mx.nd.ones((2, 3)), weight)
        weight.asnumpy()


OPTIMIZERS = {
    "adam": dict(lr_scheduler=FactorScheduler(2, 0.9)),
    "nadam": dict(clip_gradient=1.0),
    "sgd": dict(momentum=0.9, lr_scheduler=mx.lr_scheduler.MultiFactorScheduler([1, 4], 0.5)),
    "lars": dict(momentum=0.9, lr_scheduler=PolyScheduler(9, warmup_steps=2)),
    "lbsgd": dict(batch_scale=2, warmup_epochs=2),
    "sgld": {},
    "lamb": {},
}


def fresh(name):
    updater = mx.optimizer.get_updater(mx.optimizer.create(name, **OPTIMIZERS[name]))
    stepped(updater)
    return updater


GONE = object()


def changed(tree, path, value):
    """A copy with one value another, or gone."""
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    if value is GONE and len(path) == 1:
        del copy[path[0]]
        return copy
    copy[path[0]] = changed(tree[path[0]], path[1:], value)
    return copy


def leaves(tree, path=()):
    if isinstance(tree, (dict, list)):
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            yield from leaves(tree[key], (*path, key))
    else:
        yield path


VALUES = ("nan", None, math.nan, math.inf, -1, 0, 1.0, 2.5, 2**53, 2**70, -1e300, True, [], {}, [1, 2])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_any_value_of_an_optimizers_state_may_be_any_other(name):
    """It is refused, and nothing has changed, or it can be trained with; neither takes long."""
    sound = unpack_state(fresh(name).get_states(dump_optimizer=True))
    updater = fresh(name)
    refused, began = 0, time.process_time()
    for path in leaves(sound):
        for value in (*VALUES, GONE):
            before = updater.optimizer.settings(), updater.optimizer.progress()
            try:
                updater.set_states(pack_state(changed(sound, path, value)))
            except FormatError:
                refused += 1
                assert (updater.optimizer.settings(), updater.optimizer.progress()) == before
                continue
            try:
                stepped(updater)
            except FormatError as error:
                assert "The optimizer state of" in str(error)
            updater = fresh(name)
    assert refused > 100
    assert time.process_time() - began < 20


def test_errors_say_where_in_the_file():
    updater = fresh("adam")
    tree = unpack_state(updater.get_states(dump_optimizer=True))
    for path, value, says in (
        (("progress", "num_update"), "nan", r"\['num_update'\] must be a finite number"),
        (("progress", "counts", 1, 1), 2.0**60, r"\['counts'\]\[1\]\[1\] must be"),
        (("settings", "beta1"), 1.0, r"Adam\['beta1'\] must be a finite number of at least 0, less than 1"),
        (("settings", "beta2"), 10**400, "a whole number of 1329 bits"),
        (("settings", "lr"), None, r"\['lr'\] must be a finite number, got None"),
        (("progress", "lr_scheduler", "step"), 0, r"FactorScheduler,\['step'\]"),
        (("states", 0, 0), 1.5, r"\[0\]\[0\] must be a number or a name, got 1.5"),
        (("states", 0), [0], r"\[0\] must be a list of 2"),
    ):
        with pytest.raises(FormatError, match=says):
            updater.set_states(pack_state(changed(tree, path, value)))


@pytest.mark.parametrize(
    "state, says",
    [
        (None, "must be a tuple of 2, but it is None"),
        ([np.zeros((2, 3), "f")], "must be a tuple of 2, but it is a tuple of 1"),
        ([np.zeros((2, 3), "f"), np.zeros((3, 2), "f")], r"must be \(2, 3\) of float32, but it is \(3, 2\)"),
        ([np.zeros((2, 3), "f"), np.zeros((2, 3), "int32")], "of float32, but it is .* of int32"),
        ([np.zeros((2, 3), "f"), 7], "but it is 7"),
    ],
)
def test_a_state_that_fits_no_weight_is_refused_at_its_first_update(state, says):
    updater = fresh("adam")
    tree = unpack_state(updater.get_states())
    updater.set_states(pack_state(changed(tree, ("states", 0, 1), state)))
    with pytest.raises(FormatError, match=f"The optimizer state of 0 .*{says}"):
        stepped(updater)


@pytest.mark.parametrize(
    "header, arrays, says",
    [
        ("[" * 900 + "]" * 900, b"", "levels of brackets|not JSON"),
        ("[" * 40 + "]" * 40, b"", "more than 32 levels of brackets"),
        ("[" * 100_000, b"", "not JSON"),
        ('{"array":["float32",[0,1180591620717411303424]]}', b"", "does not describe an array"),
        ('{"array":["float32",[0,4611686018427387904,4]]}', b"", "does not describe an array"),
        ('{"array":["(9,9)f4,(9,9)f4",[1]]}', b"", "does not describe an array"),
        ('{"array":[["float32"],[1]]}', b"", "does not describe an array"),
        ('{"array":["float32",[true]]}', bytes(4), "does not describe an array"),
        ("1" * 5000, b"", "not JSON"),
        ('{"array":["float32",[1]]}', bytes(5), "1 bytes follow its last array"),
        ('{"array":["float32",[2]]}', bytes(7), "an array of 8 bytes"),
    ],
)
def test_headers_of_states_are_bounded(header, arrays, says):
    with pytest.raises(FormatError, match=says):
        unpack_state(state_file(header, arrays))


@pytest.mark.parametrize("tree", [{1: 2}, {"a": {"array": 3}}, {("a",): 1}])
def test_a_state_that_would_be_read_as_another_is_not_written(tree):
    """JSON makes text of numbers; and "array" alone says where an array lies."""
    with pytest.raises(ArgumentError, match="A state's keys are text, and not 'array' alone"):
        pack_state(tree)


def test_numbers_of_numpy_are_numbers_of_a_state():
    found = unpack_state(pack_state([np.float32(1.5), np.int64(-3), np.bool_(True), (1, None)]))
    assert found == [1.5, -3, True, [1, None]] and type(found[1]) is int


def test_a_bool_of_a_file_is_0_or_1():
    found = unpack_state(state_file('{"array":["bool",[3]]}', b"\0\x01\xff"))
    assert found.view(np.uint8).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "change, says",
    [
        ({"epoch": 1.5}, r"\['epoch'\]"),
        ({"nbatch": -1}, r"\['nbatch'\]"),
        ({"random": ["1", "9" * 30]}, r"\['random'\]\[1\]"),
        ({"random": ["1", "-1"]}, r"\['random'\]\[1\]"),
        ({"random_of_others": [["1", "2"], ["1"]]}, r"\['random_of_others'\]\[1\] must be a list of 2"),
        ({"random": 3}, r"\['random'\] must be a list of 2"),
        ({"args": [1]}, r"\['args'\] must be a dict"),
        ({"args": {"w": "x"}}, r"\['args'\]\['w'\] must be an array"),
        ({"optimizer": [1]}, r"\['optimizer'\]"),
        ({"loss_scale": [0.0, 1]}, r"\['loss_scale'\]\[0\]"),
        ({"loss_scale": [1.0]}, r"\['loss_scale'\] must be a list of 2"),
        ({"more": 1}, "'more' is unknown"),
    ],
)
def test_a_resume_file_is_checked_field_by_field(tmp_path, change, says):
    tree = dict(epoch=1, nbatch=2, args={}, aux={}, optimizer=np.zeros(1, "uint8"), random=["1", "2"])
    path = tmp_path / "run.resume"
    path.write_bytes(pack_state({"kind": "resume", "data": None, **tree}))
    assert resume.load(str(tmp_path / "run")).random == [(1, 2)]
    path.write_bytes(pack_state({"kind": "resume", "data": None, **tree, **change}))
    with pytest.raises(FormatError, match=f"run.resume is corrupt: .*{says}"):
        resume.load(str(tmp_path / "run"))


@pytest.mark.parametrize("tree", [[1], {"kind": "states"}, "resume", None])
def test_another_state_is_none_to_resume_from(tmp_path, tree):
    (tmp_path / "run.resume").write_bytes(pack_state(tree))
    with pytest.raises(FormatError, match="holds a state, but not one to resume training from"):
        resume.load(str(tmp_path / "run"))


ITERATORS = {
    "NDArrayIter": lambda: mx.io.NDArrayIter(np.zeros((6, 2)), None, 2, shuffle=True, seed=0),
    "ResizeIter": lambda: mx.io.ResizeIter(mx.io.NDArrayIter(np.zeros((6, 2)), None, 2), 5),
    "PrefetchingIter": lambda: mx.io.PrefetchingIter(mx.io.NDArrayIter(np.zeros((6, 2)), None, 2)),
    "BucketSentenceIter": lambda: mx.rnn.BucketSentenceIter([[1, 2]] * 6, 2, [2]),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_any_value_of_an_iterators_state_may_be_any_other(name):
    iterator = ITERATORS[name]()
    sound, refused = unpack_state(pack_state(iterator.state())), 0
    paths = [(), *leaves(sound)]
    for path in paths:
        for value in (*VALUES, np.zeros(3), np.zeros((2, 2), "int64"), "x"):
            try:
                iterator.set_state(changed(sound, path, value))
            except FormatError:
                refused += 1
        iterator.set_state(sound)
    assert refused > 10 * len(paths)
    assert len(list(iterator)) >= 3


def test_a_schedule_catches_up_at_once_with_what_one_by_one_would_give():
    """A file may say that it is 2**53 updates behind."""

    def one_by_one(step, factor, floor, rate, update):
        count = 0
        while update > count + step:
            count, rate = count + step, max(rate * factor, floor)
        return rate, count

    for step in (1, 3):
        for factor in (1, 0.5, 0.0, -1, -0.5):
            for floor in (1e-8, 0.02, 0):
                schedule = FactorScheduler(step, factor, floor, 0.01)
                for update in (1, 4, 5, 40, 41, 400):
                    wanted = one_by_one(step, factor, floor, 0.01, update)
                    assert (schedule(update), schedule.count) == wanted
    for factor in (1, 0.9, 1 - 2**-53, -1):
        schedule = FactorScheduler(1, factor)
        began = time.process_time()
        assert math.isfinite(schedule(2**53)) and schedule.count == 2**53 - 1
        assert time.process_time() - began < 2


def sparse_file(shape):
    """A csr array of one stored number with `shape` columns, as MXNet's containers have it."""
    rows, columns = shape

    def dims(*d):
        return struct.pack(f"<i{len(d)}q", len(d), *d)

    starts = np.zeros(rows + 1, "<i8")
    starts[-1] = 1
    head = struct.pack("<QQQ", 0x112, 0, 1) + struct.pack("<Ii", 0xF993FAC9, 2)
    head += dims(1) + dims(rows, columns) + struct.pack("<iii", 1, 0, 0)
    head += struct.pack("<i", 6) + dims(rows + 1) + struct.pack("<i", 6) + dims(1)
    return head + struct.pack("<f", 5) + starts.tobytes() + struct.pack("<q", 3) + struct.pack("<Q", 0)


def test_a_sparse_array_that_says_terabytes_is_refused_where_it_would_be_dense():
    (array,) = mx.nd.load_frombuffer(sparse_file((4, 2**42)))
    assert array.shape == (4, 2**42) and array.data.asnumpy().tolist() == [5]
    for use in (array.asnumpy, lambda: array.tostype("default"), lambda: array.plain()):
        with pytest.raises(
            OutOfMemoryError, match=rf"shape .4, {2**42}. stores .* are {2**46}: this machine"
        ):
            use()


def test_a_dense_form_takes_memory_for_what_is_stored():
    """A gigabyte of zeros that nobody looks at is no memory: pages come when they are touched."""
    import resource

    (array,) = mx.nd.load_frombuffer(sparse_file((2, 2**27)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    dense = array.asnumpy()
    assert dense.shape == (2, 2**27) and dense[1, 3] == 5 and dense[0, 7] == 0
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 100 * 2**20


def test_a_loop_read_twice_runs_though_its_shapes_were_found_for_the_first():
    """Equal subgraphs share what was found out about them; their nodes are others."""
    data, state = mx.sym.Variable("rows", shape=(3, 4)), mx.sym.Variable("held", shape=(4,))
    rows, last = mx.sym.contrib.foreach(lambda x, s: (x * 2.125, [s[0] + x]), data, [state])
    text = mx.sym.Group([rows, *last]).tojson()
    mx.sym.load_json(text).infer_shape()
    exe = mx.sym.load_json(text).simple_bind(mx.cpu(), grad_req="write")
    exe.arg_dict["rows"][:] = 1
    exe.arg_dict["held"][:] = 0
    assert exe.forward(is_train=True)[1].asnumpy().tolist() == [3, 3, 3, 3]
    exe.backward([mx.nd.ones((3, 4)), mx.nd.zeros((4,))])
    assert (exe.grad_dict["rows"].asnumpy() == 2.125).all()


def test_schemas_take_what_they_say_and_nothing_else():
    kind = schema.fields({"n": schema.whole(0, 9)}, {"x": schema.several(schema.real(0, below=1), most=2)})
    for sound in ({"n": 0}, {"n": 9, "x": []}, {"n": 1, "x": [0, 0.5]}):
        assert kind(sound, "It") is sound
    for bad in (3, [], {}, {"n": True}, {"n": 1.0}, {"n": 10}, {"n": 1, "y": 0}, {"n": 1, "x": [1]}):
        with pytest.raises(FormatError, match=r"^It"):
            kind(bad, "It")
    for bad in ([0.1] * 3, ["0"], [math.nan], [False], 0.5, None):
        with pytest.raises(FormatError, match=r"^It\['x'\]"):
            kind({"n": 1, "x": bad}, "It")


def _record_of(tmp_path, label):
    path = str(tmp_path / "a.rec")
    file = mx.recordio.MXRecordIO(path, "w")
    file.write(mx.recordio.pack((0, label, 0, 0), encode(np.zeros((4, 4, 3), "uint8"), 3, ".png")))
    file.close()
    return path


@pytest.mark.parametrize("head", [
    [math.nan, 5], [2, math.inf], [2, math.nan], [-math.inf, math.nan], [12, 5], [7, 1e30], [3e38, 5],
])  # fmt: skip
def test_a_label_of_boxes_that_begins_with_no_number_is_refused(tmp_path, head):
    """In lists and in records, whichever iterator reads them."""
    label = [*head, 0, 0.1, 0.1, 0.5, 0.5]
    path, words = tmp_path / "a.lst", r": the label .* of 7 numbers should be A, W"
    (tmp_path / "a.png").write_bytes(encode(np.zeros((4, 4, 3), "uint8"), 3, ".png"))
    path.write_text("\t".join(map(str, [0, *label, "a.png"])) + "\n")
    with pytest.raises(FormatError, match=rf"'a.png'{words}"):
        mx.image.ImageDetIter(1, (3, 8, 8), path_imglist=str(path), path_root=str(tmp_path))
    record = _record_of(tmp_path, label)
    with pytest.raises(FormatError, match=rf"a.rec{words}"):
        mx.image.ImageDetIter(1, (3, 8, 8), path_imgrec=record)
    how = dict(path_imgrec=record, data_shape=(3, 8, 8), batch_size=1, verbose=False)
    with mx.io.ImageDetRecordIter(**how) as it, pytest.raises(FormatError, match=rf"byte 0{words}"):
        it.next()


def test_a_box_that_reaches_to_infinity_is_left_out(tmp_path):
    """As is one without width: neither can be drawn, nor moved with its image."""
    sound, endless = [1, 0.125, 0.25, 0.5, 0.75], [0, 0.125, 0.25, math.inf, 0.75]
    record = _record_of(tmp_path, [2, 5, *endless, *sound])
    how = dict(path_imgrec=record, data_shape=(3, 8, 8), batch_size=1, verbose=False)
    with mx.io.ImageDetRecordIter(**how) as it:
        label = it.next().label[0].asnumpy()[0]
    assert label.tolist() == [3, 8, 8, 7, 2, 5, *sound, *[-1] * 5]
    it = mx.image.ImageDetIter(1, (3, 8, 8), path_imgrec=record)
    assert it.next().label[0].asnumpy().tolist() == [[sound]]
    it.reset()
    next(it.draw_next())


def test_a_line_of_pixels_is_not_resized_beyond_the_memory(tmp_path):
    """The shorter side of 1 x 60,000 pixels, as `resize` wants it: the system would end the process."""
    path = str(tmp_path / "a.rec")
    file = mx.recordio.MXRecordIO(path, "w")
    file.write(mx.recordio.pack((0, 1.0, 0, 0), encode(np.zeros((1, 60000, 3), "uint8"), 3, ".png")))
    file.close()
    how = dict(path_imgrec=path, data_shape=(3, 8, 8), batch_size=1, resize=2**21, verbose=False)
    words = "no memory to resize an image of 60000 x 1 pixels to 125829120000 x 2097152"
    with mx.io.ImageRecordIter(**how) as it, pytest.raises(OutOfMemoryError, match=words):
        it.next()


_LIMITED = """
import pathlib, resource, sys, warnings
import mxlite as mx
from mxlite.io.image_codec import decode, encode
warnings.simplefilter("ignore")
name, flag, spare = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) * 2**20
raw = pathlib.Path(name).read_bytes()
decode(encode(__import__("numpy").zeros((8, 8, 3), "uint8")), flag, bgr=True)
taken = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + spare,) * 2)
try:
    print(decode(raw, flag, bgr=True).shape)
except mx.MXLiteError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited by a call of Linux")
@pytest.mark.parametrize("flag", [1, -1])
def test_an_image_is_decoded_in_ten_bytes_a_pixel_or_refused_by_its_size(tmp_path, flag):
    """An image of 48 MB in a small file failed with a MemoryError: it was copied as often as four times."""
    path = tmp_path / "a.jpg"
    path.write_bytes(encode(np.zeros((255, 65304, 3), "uint8")))
    assert path.stat().st_size < 600_000

    def said(spare):
        call = [sys.executable, "-c", _LIMITED, str(path), str(flag), str(spare)]
        return subprocess.run(call, capture_output=True, text=True, check=True, timeout=120).stdout.strip()

    assert said(spare=170) == "(255, 65304, 3)"
    for spare in (90, 40):  # not for the copy into an array, and not for Pillow's own pixels
        words = "OutOfMemoryError There is no memory for an image of 65304 x 255 pixels, .*store it smaller"
        assert re.match(words, said(spare))


def test_timings_of_a_file_give_no_time_below_zero():
    assert min(Seconds(1e-9, 1e5).in_steps(1e-3, 0.5, 0.5)) >= 0


@pytest.mark.parametrize("name", ["/dev/zero", "a\0b.png", "g" * 5000, "a.lst/x.png"])
def test_a_list_that_names_no_file_is_refused(tmp_path, name):
    path = tmp_path / "a.lst"
    path.write_text(f"0\t1.0\t{name}\n")
    with pytest.raises(FormatError, match="is no file"):
        next(mx.image.ImageIter(1, (3, 8, 8), path_imglist=str(path), path_root=str(tmp_path)))


READERS = {
    "load": mx.nd.load,
    "symbol": mx.sym.load,
    "image": mx.image.imread,
    "image list": lambda path: mx.image.ImageIter(1, (3, 4, 4), path_imglist=path),
    "records": lambda path: mx.recordio.MXRecordIO(path, "r"),
    "record iterator": lambda path: mx.io.ImageRecordIter(
        path_imgrec=path, data_shape=(3, 4, 4), batch_size=1
    ),
    "csv": lambda path: mx.io.CSVIter(data_csv=path, data_shape=(1,), batch_size=1),
    "libsvm": lambda path: mx.io.LibSVMIter(data_libsvm=path, data_shape=(1,), batch_size=1),
    "mnist": lambda path: mx.io.MNISTIter(image=path, label=path),
    "checkpoint": lambda path: mx.model.load_checkpoint(path, 1),
    "onnx": lambda path: mx.formats.onnx.import_model(path),
}
WRITERS = {
    "save": lambda path: mx.nd.save(path, [mx.nd.zeros(1)]),
    "symbol": lambda path: mx.sym.var("x").save(path),
    "records": lambda path: mx.recordio.MXRecordIO(path, "w"),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_not_there_is_an_error_of_ours_and_of_the_system(name, tmp_path):
    with pytest.raises(mx.MissingFileError, match="No such file") as raised:
        READERS[name](str(tmp_path / "nothing"))
    assert isinstance(raised.value, (mx.MXNetError, FileNotFoundError))
    assert raised.value.filename.startswith(str(tmp_path / "nothing")) and raised.value.errno == errno.ENOENT


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_cannot_be_written_is_one_too(name, tmp_path):
    with pytest.raises(mx.MissingFileError, match="No such file"):
        WRITERS[name](str(tmp_path / "nowhere" / "file"))
    with pytest.raises(mx.FolderError, match="Is a directory"):
        WRITERS[name](str(tmp_path))


def test_errors_of_files_keep_what_the_system_says():
    for known, ours in ((PermissionError, mx.FileAccessError), (OSError, mx.FileError)):
        found = file_error(known(errno.EACCES if known is PermissionError else errno.EIO, "words", "a"), "b")
        assert type(found) is ours and isinstance(found, known)
        assert (found.strerror, found.filename) == ("words", "b") and str(found).endswith("words: 'b'")
