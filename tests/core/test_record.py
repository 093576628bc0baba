"""Records: frozen dataclasses that are made when first needed."""

import dataclasses
import pickle
import sys
import threading
from dataclasses import dataclass

import pytest

from mxlite import ops
from mxlite.core.record import record
from mxlite.graph.opdef import NoAttrs


@record
class Window:
    kernel: tuple
    stride: int = 1


@record
class Padded(Window):
    pad: int = 0

    def __post_init__(self):
        if self.pad < 0:
            raise ValueError("pad is 0 or more.")


def is_made(kind):
    return isinstance(vars(kind)["__dataclass_fields__"], dict)


def test_a_record_is_a_frozen_dataclass():
    a, b = Padded((2, 2), pad=3), Padded((2, 2), 1, 3)
    assert a == b and hash(a) == hash(b) and repr(a) == "Padded(kernel=(2, 2), stride=1, pad=3)"
    assert a != Padded((2, 2)) and Window((2, 2)) != Padded((2, 2))
    assert dataclasses.replace(a, stride=2).stride == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        a.pad = 1
    with pytest.raises(TypeError, match="unexpected keyword argument 'padd'"):
        Padded((2, 2), padd=3)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'kernel'"):
        Padded()
    with pytest.raises(ValueError, match="0 or more"):
        Padded((2, 2), pad=-1)


def test_a_record_is_made_by_whoever_needs_it_first():
    def fresh():
        base = record(type("Base", (), {"__annotations__": {"x": int}}))
        return record(type("Record", (base,), {"__annotations__": {"y": int}, "y": 1}))

    for need in (
        lambda kind: kind(1),
        dataclasses.fields,
        dataclasses.is_dataclass,
        lambda kind: type("Plain", (kind,), {})(1),
        lambda kind: dataclass(frozen=True)(type("Sub", (kind,), {})),
    ):
        kind = fresh()
        assert not is_made(kind) and not is_made(kind.__base__)
        need(kind)
        assert is_made(kind) and is_made(kind.__base__)
        assert [f.name for f in dataclasses.fields(kind)] == ["x", "y"] and kind(3) == kind(3, 1)


def test_a_record_can_arrive_before_one_was_made_here():
    assert pickle.loads(pickle.dumps(Padded((1,), pad=2))) == Padded((1,), pad=2)
    kind = record(type("Record", (), {"__annotations__": {"x": int}}))
    copied = kind.__new__(kind)  # as unpickling and copying do
    copied.__dict__["x"] = 1
    assert is_made(kind) and copied == kind(1)


def test_threads_that_need_a_record_at_once_get_whole_ones():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            kind = record(type("Record", (), {"__annotations__": {"x": int, "y": int}, "y": 2}))
            made, start = [], threading.Barrier(4)

            def run(kind=kind, made=made, start=start):
                start.wait()
                made.append(kind(1) == kind(1, y=2) and len(dataclasses.fields(kind)) == 2)

            threads = [threading.Thread(target=run) for _ in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert made == [True] * 4
    finally:
        sys.setswitchinterval(interval)


def test_parameters_of_operators_are_records():
    """So that importing all operators does not make the classes of all: write @record."""
    kinds = {op.Attrs for op in ops.ALL} - {NoAttrs}
    assert [f"{k.__module__}.{k.__qualname__}" for k in kinds if "__new__" not in vars(k)] == []


def test_a_record_that_an_interrupt_left_half_made_is_made_by_the_next(monkeypatch):
    kind = record(
        type("Record", (), {"__annotations__": {"x": int, "y": int}, "y": dataclasses.field(default=1)})
    )
    whole = dataclasses._process_class

    def interrupted(cls, *args, **kwargs):
        whole(cls, *args, **kwargs)
        del cls.__hash__
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(dataclasses, "_process_class", interrupted)
        with pytest.raises(KeyboardInterrupt):
            kind(1)
    assert kind(1) == kind(1, 1) and hash(kind(1)) == hash(kind(1, 1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        kind(1).x = 2
