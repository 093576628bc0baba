"""Steps on streams: what is dealt out keeps every order that is asked for, and so does what is captured."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from dataclasses import replace

import numpy as np
import pytest

from mxlite.backends import planning_backend
from mxlite.backends.gpu.graphs.graph import Graph, GraphError
from mxlite.backends.gpu.graphs.graph_numbers import dial_of, RandomState
from mxlite.backends.gpu.graphs.graph_streams import COMPUTE, FETCH, Order, order_of, STORE
from mxlite.backends.gpu.runtime.cuda_device import CudaDevice
from mxlite.backends.gpu.runtime.driver import DriverError
from mxlite.backends.gpu.vendor.cublaslt import CublasError
from mxlite.backends.gpu.vendor.cudnn import CudnnError
from mxlite.backends.remote import MESSAGE
from mxlite.core import DeviceError, PlanError
from mxlite.executor.run.graph_program import passes_of, program_order, realised_order
from mxlite.memplan import check, HostLink, make_plan
from tests.backends.gpu.recorder import marked, RecordingDriver
from tests.emulators.emulated_driver import EmulatedDriver
from tests.memplan.problems import random_problem


def ancestors(before):
    result = []
    for earlier in before:
        result.append(set(earlier).union(*(result[p] for p in earlier)))
    return result


def random_steps(seed, count=40):
    draw = random.Random(seed)
    before = [tuple(draw.sample(range(s), min(s, draw.choice([0, 1, 1, 2, 3])))) for s in range(count)]
    kinds = [draw.choice([COMPUTE] * 6 + [STORE, FETCH, MESSAGE]) for _ in range(count)]
    return before, kinds, [draw.random() for _ in range(count)]


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_streams_and_events_imply_the_order_that_was_asked_for(streams):
    for seed in range(30):
        before, kinds, seconds = random_steps(seed)
        order = order_of(before, kinds, seconds, streams)
        for start in (0, 7):
            known = ancestors([[p - start for p in row] for row in order.realised(start)])
            for s in range(start, len(before)):
                assert {p - start for p in before[s] if p >= start} <= known[s - start]
        assert {order.stream[s] for s, k in enumerate(kinds) if k == STORE} <= {streams}
        assert {order.stream[s] for s, k in enumerate(kinds) if k == FETCH} <= {streams + 1}
        assert {order.stream[s] for s, k in enumerate(kinds) if k == MESSAGE} <= {streams + 2}


def test_no_event_is_used_that_others_make_sure_of():
    for seed in range(10):
        before, kinds, seconds = random_steps(seed)
        order = order_of(before, kinds, seconds, 3)
        for s, row in enumerate(order.waits):
            for p in row:
                fewer = list(order.waits)
                fewer[s] = tuple(q for q in row if q != p)
                known = ancestors(Order(order.stream, tuple(fewer), 3).realised())
                assert any(not set(before[t]) <= known[t] for t in range(s, len(before)))


def test_independent_steps_run_side_by_side_and_one_stream_needs_no_event():
    before = [(), (), (0,), (1,), (2, 3)]
    two = order_of(before, [COMPUTE] * 5, [1.0] * 5, 2)
    assert two.stream[:4] == (0, 1, 0, 1) and two.waits[:4] == ((), (), (), ()) and len(two.waits[4]) == 1
    one = order_of(before, [COMPUTE] * 5, [1.0] * 5, 1)
    assert set(one.stream) == {0} and not any(one.waits)


@pytest.mark.parametrize("seed", range(12))
def test_the_judge_accepts_streams_of_random_plans_and_misses_no_event(seed):
    problem = random_problem(seed, 6 + seed)
    draw = random.Random(seed)
    if seed % 2:
        problem = replace(problem, host=HostLink(300.0, 300.0))
    counts = [draw.choice([0, 0, 1, -1 if seed % 2 else 1]) for _ in range(problem.num_forward)]
    plan = make_plan(problem, counts, room=2000)
    groups = passes_of(plan)
    for streams in (1, 2, 3):
        order = program_order(plan, streams, planning_backend().remote)
        check(plan, realised_order(order, groups))
        check(plan, order.realised())
    needed = 0
    for s, row in enumerate(order.waits):
        if row:
            without = [*order.waits]
            without[s] = ()
            try:
                check(plan, Order(order.stream, tuple(without), 3).realised())
            except PlanError:
                needed += 1
    assert needed or not any(order.waits)


# -- capturing ---------------------------------------------------------------------------------------------


class Add:
    """In the place of a kernel: values[to] = values[source] + by, when its turn comes on the stream."""

    def __init__(self, driver, device, values, to, source, by):
        self.driver, self.device, self.values = driver, device, values
        self.to, self.source, self.by = to, source, by

    def run(self):
        self.values[self.to] = self.values[self.source] + self.by

    def __call__(self):
        self.driver._put(self.device.stream, "add", self.run)


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_a_graph_of_steps_in_the_least_order_gives_what_the_list_gives(streams):
    for seed in range(20):
        driver = EmulatedDriver(seed=seed)
        device = CudaDevice(driver, 0)
        before, kinds, seconds = random_steps(seed, 25)
        sources = [row[0] if row else s for s, row in enumerate(before)]
        before = [tuple(row[:1]) for row in before]
        values = np.zeros(25)
        calls = [Add(driver, device, values, s, sources[s], s + 1) for s in range(25)]
        graph = Graph(device, calls, order_of(before, kinds, seconds, streams))
        want = None
        for run in range(4):
            values[:] = -np.inf if run else 0
            values[[s for s, row in enumerate(before) if not row]] = 0
            graph()
            device.synchronize()
            want = values.copy() if want is None else want
            assert np.array_equal(values, want)
        assert graph.graphs == 1


def test_what_cannot_be_captured_runs_between_graphs():
    driver = RecordingDriver(EmulatedDriver())
    device = CudaDevice(driver, 0)
    seen = []

    class Host:
        blocks_capture = "it asks the host"

        def __call__(self):
            device.synchronize()
            seen.append(values.copy())

    values = np.zeros(6)
    calls = [Add(driver.driver, device, values, s, max(0, s - 1), 1) for s in range(6)]
    calls[3:3] = [Host()]
    order = order_of([(s - 1,) if s else () for s in range(7)], [COMPUTE] * 7, [1.0] * 7)
    graph = Graph(device, marked(driver, calls), order)
    for _ in range(3):
        graph()
    device.synchronize()
    assert graph.graphs == 2 and graph.why_not == {3: "it asks the host"}
    assert [v[2] for v in seen] == [3, 4, 5] and values[5] == 8


def test_a_call_that_may_not_be_captured_after_all_is_done_without():
    driver = EmulatedDriver()
    device = CudaDevice(driver, 0)
    calls = [lambda: device.arena(64), lambda: None]
    order = order_of([(), ()], [COMPUTE] * 2, [1.0] * 2)
    graph = Graph(device, calls, order)
    for _ in range(3):
        graph()
    assert graph.graphs == 0 and "captured" in graph.why_not[0]
    assert not driver.graphs  # nothing is left of what was captured by then
    assert device.empty(64).nbytes == 64


def test_a_capture_that_fails_on_several_streams_leaves_all_of_them_usable():
    driver = EmulatedDriver()
    device = CudaDevice(driver, 0)
    values, fails = np.zeros(4), [True]

    def picky():
        if device.is_capturing and fails[0]:
            raise ValueError("not now")

    calls = [Add(driver, device, values, s, s, 1) for s in range(3)] + [picky]
    order = order_of([()] * 4, [COMPUTE] * 4, [1.0] * 4, 3)
    assert len(set(order.stream)) > 1
    graph = Graph(device, calls, order)
    graph()
    with pytest.raises(GraphError) as caught:
        graph()
    assert caught.value.place == 3 and isinstance(caught.value.__cause__, ValueError)
    assert not driver.graphs and all(s.capture is None for s in driver.streams.values())
    fails[0] = False
    graph()
    device.synchronize()
    assert graph.graphs == 1 and not graph.why_not


def test_what_has_failed_in_the_first_run_is_run_once_more_before_it_is_captured():
    """What has never run may load kernels when it does, which a capture does not allow."""
    driver = EmulatedDriver()
    device = CudaDevice(driver, 0)
    values, captured, fails = np.zeros(3), [], [True]

    def noted():
        captured.append(device.is_capturing)
        if fails[0]:
            raise ValueError("no")
        calls[0]()

    calls = [Add(driver, device, values, 1, 1, 1)]
    graph = Graph(device, [*calls, noted], order_of([(), (0,)], [COMPUTE] * 2, [1.0] * 2))
    with pytest.raises(GraphError):
        graph()
    fails[0] = False
    graph()
    graph()
    device.synchronize()
    assert captured == [False, False, True] and graph.graphs == 1


def test_a_fault_in_a_replay_is_that_of_no_call_and_closes_the_device():
    driver = EmulatedDriver(late=0)
    device = CudaDevice(driver, 0)
    values = np.zeros(3)
    calls = [Add(driver, device, values, s, s, 1) for s in range(3)]
    order = order_of([()] * 3, [COMPUTE] * 3, [1.0] * 3)
    graph = Graph(device, calls, order)
    for _ in range(3):
        graph()
    assert graph.graphs == 1

    def launch(*_):
        driver.fault = DriverError("an illegal address.", name="cudaErrorIllegalAddress", is_lasting=True)
        raise driver.fault

    driver.launch_graph = launch
    with pytest.raises(DriverError, match="illegal address"), device.active():
        graph()
    with pytest.raises(DeviceError, match=r"gpu\(0\) cannot be used any more"):
        device.synchronize()
    del graph  # what frees it touches nothing


@pytest.mark.parametrize("kind", [CublasError, CudnnError])
def test_a_library_that_refuses_a_capture_goes_on_without(kind):
    driver = EmulatedDriver()
    device = CudaDevice(driver, 0)
    values = np.zeros(3)
    add = Add(driver, device, values, 1, 1, 1)

    def picky():
        if device.is_capturing:
            raise kind("operation not permitted when stream is capturing")
        add()

    graph = Graph(device, [add, picky], order_of([(), (0,)], [COMPUTE] * 2, [1.0] * 2))
    for _ in range(3):
        graph()
    device.synchronize()
    assert values[1] == 6 and graph.graphs == 0 and "not permitted" in graph.why_not[0]


def test_a_graph_for_which_there_is_no_room_is_done_without(monkeypatch):
    """What CUDA takes for a graph itself comes on top of a plan, which may have all of the rest."""
    driver = EmulatedDriver()
    device = CudaDevice(driver, 0)
    values = np.zeros(3)
    calls, real = [Add(driver, device, values, 1, 1, 1) for _ in range(2)], driver.end_capture

    def refuse(stream):
        real(stream)
        raise DriverError("graphInstantiate: cudaErrorMemoryAllocation.", is_memory=True)

    monkeypatch.setattr(driver, "end_capture", refuse)
    graph = Graph(device, calls, order_of([(), (0,)], [COMPUTE] * 2, [1.0] * 2))
    for _ in range(3):
        graph()
    device.synchronize()
    assert values[1] == 6 and graph.graphs == 0 and "cudaErrorMemoryAllocation" in graph.why_not[0]


def test_a_graph_for_which_there_is_no_room_at_its_first_launch_is_done_without(monkeypatch):
    driver = EmulatedDriver()
    device = CudaDevice(driver, 0)
    values = np.zeros(3)
    calls = [Add(driver, device, values, 1, 1, 1) for _ in range(2)]

    def refuse(graph, stream):
        assert stream == device.compute  # where its launches follow
        raise DriverError("graphUpload: cudaErrorMemoryAllocation.", is_memory=True)

    monkeypatch.setattr(driver, "upload_graph", refuse)
    graph = Graph(device, calls, order_of([(), (0,)], [COMPUTE] * 2, [1.0] * 2))
    for _ in range(3):
        graph()
    device.synchronize()
    assert values[1] == 6 and graph.graphs == 0 and "cudaErrorMemoryAllocation" in graph.why_not[0]
    assert not driver.graphs


def test_an_upload_that_is_refused_for_another_reason_is_left_to_the_launch(monkeypatch):
    driver = EmulatedDriver()
    device = CudaDevice(driver, 0)
    values = np.zeros(3)

    def refuse(graph, stream):
        raise DriverError("graphUpload: cudaErrorNotSupported.", name="cudaErrorNotSupported")

    monkeypatch.setattr(driver, "upload_graph", refuse)
    add = Add(driver, device, values, 1, 1, 1)
    device.capture([add])()
    device.synchronize()
    assert values[1] == 1


@pytest.mark.parametrize("often", [1, 100])
@pytest.mark.parametrize("streams", [1, 2])
def test_a_capture_that_anothers_wait_for_the_device_ends_is_begun_again(often, streams):
    """As cudaDeviceSynchronize does, of whatever library on whatever thread."""
    driver = EmulatedDriver()
    device = CudaDevice(driver, 0)
    values, left, said = np.zeros(3), [often], []
    adds = [Add(driver, device, values, s, s, 1) for s in range(3)]

    def wait_for_the_device():
        try:
            driver.finish()
        except DriverError as error:
            said.append(error.name)

    def meddled():
        if device.is_capturing and left[0]:
            left[0] -= 1
            thread = threading.Thread(target=wait_for_the_device)
            thread.start()
            thread.join()
        adds[1]()

    graph = Graph(device, [adds[0], meddled, adds[2]], order_of([()] * 3, [COMPUTE] * 3, [1.0] * 3, streams))
    for _ in range(4):
        graph()
    device.synchronize()
    assert values.tolist() == [4, 4, 4] and set(said) == {"cudaErrorStreamCaptureUnsupported"}
    assert graph.graphs == (often == 1) and bool(graph.why_not) == (often > 1)
    assert often == 1 or "waited for the device" in graph.why_not[0]
    assert all(s.capture is None for s in driver.streams.values())


@pytest.mark.parametrize("run", [1, 2])
def test_an_error_tells_which_call_it_was(run):
    device = CudaDevice(EmulatedDriver(), 0)
    left = [run]

    def fail():
        left[0] -= 1
        if not left[0]:
            raise ZeroDivisionError

    graph = Graph(device, [lambda: None, fail, lambda: None], order_of([()] * 3, [0] * 3, [1.0] * 3))
    with pytest.raises(GraphError) as caught:
        for _ in range(run):
            graph()
    assert caught.value.place == 1 and isinstance(caught.value.__cause__, ZeroDivisionError)


# -- numbers ------------------------------------------------------------------------------------------------


def read(device, array):
    result = np.empty(array.shape, array.dtype)
    device.download(result, array, device.mark())
    return result


@pytest.mark.parametrize("late", [0.0, 0.3])
def test_a_dial_sends_what_has_changed_and_each_kernel_reads_its_own(late):
    driver = RecordingDriver(EmulatedDriver(late=late))
    device = CudaDevice(driver, 0)
    array = device.empty(16).view("float64")
    copies = [device.empty(16).view("float64") for _ in range(20)]
    dial = dial_of(array)
    assert dial is dial_of(array)
    start = len(driver.calls)
    for k in range(20):
        dial.set(np.array([k // 2, 1.0]))
        device.copy(copies[k], array)
        device.mark()
    assert dial.writes == 10
    waits = [c for c in driver.calls[start:] if c.name in ("synchronize", "synchronize_event")]
    assert len(waits) <= 2  # for the ring: nobody else has waited since
    for k in range(20):
        assert read(device, copies[k]).tolist() == [k // 2, 1.0]


def test_a_dial_and_what_captures_need_end_with_their_array_and_their_device():
    driver = EmulatedDriver()
    device = CudaDevice(driver, 0)
    array = device.empty(16).view("float64")
    dial_of(array).set(np.array([1.0, 2.0]))
    assert driver.pinned_of
    Graph(device, [lambda: None] * 2, order_of([(), (0,)], [COMPUTE] * 2, [1.0] * 2))._captured()
    gone = weakref.ref(array), weakref.ref(device)
    del array
    gc.collect()
    assert gone[0]() is None and not driver.pinned_of
    del device
    gc.collect()
    assert gone[1]() is None


def test_what_nobody_can_write_to_is_compared_once_and_all_else_each_time():
    """An array is known again as itself only if it must still have the numbers it had."""
    device = CudaDevice(EmulatedDriver(), 0)
    dial = dial_of(device.empty(16).view("float64"))
    fixed, own = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    lent = own[:]  # of one who can write
    for array in (fixed, lent):
        array.setflags(write=False)
    writes = []
    for values, known in (
        *[(fixed, True)] * 2, *[(own, True)] * 2, *[(lent, True)] * 2, *[(fixed, True)] * 2, (fixed, False)
    ):  # fmt: skip
        own += 1.0
        dial.set(values, known=known)
        assert read(device, dial.array).tolist() == values.tolist()
        writes.append(dial.writes)
    assert writes == [1, 1, 2, 3, 4, 5, 6, 6, 7]


def test_random_steps_count_by_themselves_until_somebody_else_draws():
    driver = RecordingDriver(EmulatedDriver())
    device = CudaDevice(driver, 0)
    state = RandomState(device.empty(16).view("uint64"))
    kernels = []
    for seed, step in ((3, 0), (3, 1), (3, 2), (3, 7), (3, 8), (2**64 - 1, 0)):
        start = len(driver.calls)
        state.expect(seed, step)
        state.advance()
        kernels.append(sum(c.name == "launch" for c in driver.calls[start:]))
        assert read(device, state.array).tolist() == [seed, step]
    assert kernels == [2, 1, 1, 2, 1, 2]
