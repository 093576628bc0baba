"""`python -m mxlite`: what it prints, its exit codes, and that no input ends in a traceback."""

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
import tracemalloc
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.compiled import usable
from mxlite.cli import frontier, main
from mxlite.cli.doctor import EXTRAS
from mxlite.cli.fit_batch import _BatchSearch
from mxlite.cli.request import Request, types_of
from mxlite.cli.source import ModelSource, named_options, parse_shape
from mxlite.cli.writing import write
from mxlite.core.table import table
from mxlite.memplan.holders import at_peak, peak_step
from tests.emulators.emulated_driver import emulated_gpus

ROOT = Path(__file__).resolve().parents[2]
CHAIN = "zoo:mlp,hidden=(64,64,64,64),features=64"
"""Long enough to gain from recomputation, and no longer: searches take most of the time of these tests."""


@pytest.fixture
def ask(capsys):
    """Runs one command; (exit code, what it printed, what it printed as errors)."""

    def run(*argv):
        code = main([str(a) for a in argv])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return run


def refused(answer):
    """The message of an answer that is an error: one line, exit code 2."""
    code, out, err = answer
    assert code == 2, (code, out, err)
    lines = [line for line in err.splitlines() if not line.startswith("usage:") and line[:1] != " "]
    assert len(lines) == 1 and lines[0].startswith("mxlite"), err
    return lines[0]


def size(out, row):
    """Bytes in a row of a printed plan."""
    found = re.search(rf"^ *{re.escape(row)}  +([\d.]+ \w+)", out, re.MULTILINE)
    assert found, out
    return 0 if found[1] == "0 B" else mx.parse_bytes(found[1])


# -- plan --------------------------------------------------------------------------------------


def test_plan_prints_what_memory_plan_says(ask):
    net = mx.models.get("lenet")
    inputs = {"data", "softmax_label"}
    requests = {n: "write" for n in net.list_arguments() if n not in inputs}
    plan = net.memory_plan(mx.cpu(), grad_req=requests, data=(16, 1, 28, 28))
    code, out, err = ask("plan", "zoo:lenet", "--batch", 16)
    assert code == 0 and not err
    assert plan.summary() in out


def test_a_budget_that_fits_is_0_and_one_that_does_not_is_1_with_both_bounds(ask, quick_refusals):
    code, out, _ = ask("plan", CHAIN, "--batch", 1024)
    assert code == 0
    code, out, _ = ask("plan", CHAIN, "--batch", 1024, "--budget", "1MiB")
    assert code == 1
    least = int(re.search(r"A budget of (\d+) bytes", out)[1])
    bound = int(re.search(r"Proven lower bound: (\d+) bytes", out)[1])
    assert bound <= least
    code, out, _ = ask("plan", CHAIN, "--batch", 1024, "--budget", least)
    assert code == 0 and "It fits" in out
    assert "0 operations run again" not in out


def test_ranks_share_a_budget_each(ask):
    more = ("zoo:mlp", "--optimizer", "adam", "--ranks", 4, "--link", "10Gbit/s")
    code, out, _ = ask("plan", *more, "--batch", 8)
    assert code == 0 and "4 ranks over 1.25 GB/s" in out and "messages to ranks" in out
    whole = size(out, "optimizer")
    code, out, _ = ask("plan", *more, "--batch", 8, "--shard", "optimizer")
    assert code == 0 and size(out, "optimizer") < 0.35 * whole
    code, out, _ = ask("frontier", *more, "--batch", 8, "--budgets", 3)
    assert code == 0 and "4 ranks" in out
    code, out, _ = ask("fit-batch", *more, "--budget", "3MiB")
    assert code == 0 and "4 ranks" in out


def test_ranks_that_cannot_be_are_refused(ask):
    assert "--optimizer adam" in refused(ask("plan", "zoo:mlp", "--ranks", 2))
    assert "10Gbit/s" in refused(ask("plan", "zoo:mlp", "--optimizer", "sgd", "--ranks", 2, "--link", "fast"))
    assert "0" in refused(ask("plan", "zoo:mlp", "--ranks", 0))


def test_a_budget_below_the_parameters_says_so(ask, quick_refusals):
    code, out, _ = ask("plan", CHAIN, "--budget", "1KiB")
    assert code == 1 and "The fixed part alone is larger than the budget" in out


@pytest.mark.parametrize("form", ["file", "zoo"])
def test_shapes_and_batch(ask, form, tmp_path):
    model = "zoo:lenet"
    if form == "file":
        model = tmp_path / "lenet.json"
        mx.models.get("lenet").save(model)
    whole = ask("plan", model, "--shape", "data:8,1,28,28")[1]
    marked = ask("plan", model, "--shape", "data:N,1,28,28", "--batch", 8)[1]
    first = ask("plan", model, "--shape", "data:99,1,28,28", "--batch", 8)[1]
    tables = [out.split("\n\n", 1)[1] for out in (whole, marked, first)]
    assert tables[0] == tables[1] == tables[2]
    assert size(ask("plan", model, "--shape", "data:N,1,28,28")[1], "inputs") == pytest.approx(
        32 * (28 * 28 + 1) * 4, rel=0.01
    )


def heading(answer):
    return answer[1].split("\n", 1)[0]


def test_the_heading_says_the_batch_of_the_shapes_given(ask, tmp_path):
    said = heading(ask("plan", "zoo:lenet", "--shape", "data:16,1,28,28", "--device", "1TFLOP/s,9GB/s"))
    assert "batch 16," in said and said.endswith(", times of 1TFLOP/s,9GB/s")
    # The zoo knows that steps come first here, and gives its own inputs the same batch.
    options = "zoo:lstm,hidden=8,vocabulary=9,steps=5"
    code, out, err = ask("plan", options, "--shape", "data:7,4")
    assert code == 0 and "batch 4," in out, err
    assert out == ask("plan", options, "--shape", "data:7,N", "--batch", 4)[1]
    file = tmp_path / "lstm.json"
    mx.models.get("lstm", hidden=8, vocabulary=9).save(file)
    states = [f"--shape=lstm_state{end}:2,4,8" for end in ("", "_cell")]
    code, out, err = ask("plan", file, "--shape", "data:7,4", *states)
    assert code == 0 and "batch" not in heading((code, out, err))  # 7 and 2 come first: nobody says which
    assert "do not agree on one batch: write N" in refused(
        ask("plan", file, "--shape", "data:7,4", *states, "--batch", 2)
    )


def test_explain_halves_the_batch_that_was_given(ask):
    options = "zoo:lstm,hidden=8,vocabulary=9,steps=5"  # its states have another first axis
    code, out, _ = ask("explain", options, "--shape", "data:5,6")
    assert code == 0
    half = size(ask("plan", options, "--batch", 3)[1], "peak")
    found = re.search(r"batch 3 instead of 6 +([\d.]+ \w+) +([\d.]+ \w+)", out)
    assert mx.parse_bytes(found[1]) == half and mx.parse_bytes(found[2]) > 0


def test_inference_has_no_optimizer(ask):
    said = refused(ask("plan", "zoo:lenet", "--infer", "--optimizer", "sgd"))
    assert "--optimizer" in said and "--infer" in said


def test_inference_fits_the_same_batch_wherever_it_is_asked(ask):
    budget = 400_000
    net = "zoo:mlp,hidden=(64,),features=64,classes=3"
    at = int(re.search(r"Batch (\d+) fits", ask("fit-batch", net, "--infer", "--budget", budget)[1])[1])
    fits = [ask("plan", net, "--infer", "--budget", budget, "--batch", n)[0] for n in (at, at + 1)]
    assert fits == [0, 1]
    plans = frontier.frontier(Request(ModelSource("zoo:lenet"), train=False), 3)
    assert (
        min(p.peak_bytes for p in plans)
        == Request(ModelSource("zoo:lenet"), train=False).plan(2**40).peak_bytes
    )


def test_inference_takes_no_gradients_and_less(ask):
    train, infer = (ask("plan", "zoo:lenet", mode)[1] for mode in ("--train", "--infer"))
    assert size(infer, "gradients") == 0 < size(train, "gradients")
    assert size(infer, "peak") < size(train, "peak")


def test_an_optimizer_takes_the_place_of_gradients(ask):
    out = ask("plan", "zoo:lenet", "--optimizer", "adam")[1]
    assert size(out, "gradients") == 0
    assert size(out, "optimizer") == pytest.approx(2 * size(out, "arguments"), rel=0.01)
    sgd = ask("plan", "zoo:lenet", "--optimizer", "sgd,momentum=0.9")[1]
    assert size(sgd, "optimizer") == pytest.approx(size(out, "optimizer") / 2, rel=0.01)


@pytest.mark.parametrize("dtype", ["bf16", "bfloat16", "fp16", "float16"])
def test_16_bit_types_are_mixed_precision(ask, dtype):
    """Parameters stay float32; what lies between is halved, and so is a batch that nobody reads otherwise."""
    full, mixed = (
        ask("plan", "zoo:resnet20_cifar", "--batch", 64, "--dtype", kind)[1] for kind in ("float32", dtype)
    )
    for fixed in ("arguments", "gradients", "auxiliary", "outputs"):
        assert size(mixed, fixed) == size(full, fixed), fixed
    assert 0.5 <= size(mixed, "inputs") / size(full, "inputs") < 0.51
    assert 0.45 < size(mixed, "activations") / size(full, "activations") < 0.55
    assert "operations, keep all\n" in full and "operations, keep all, run Cast again\n" in mixed
    name = {"bf16": "bfloat16", "fp16": "float16"}.get(dtype, dtype)
    assert mixed.startswith(f"resnet20_cifar, batch 64, mixed {name} and float32, training")


def test_frontier_and_fit_batch_know_mixed_precision(ask):
    assert "mixed bfloat16" in ask("frontier", "zoo:lenet", "--dtype", "bf16", "--budgets", 3)[1]
    found = [
        int(re.search(r"^Batch (\d+) fits", out, re.MULTILINE)[1])
        for kind in ("float32", "bf16")
        if (out := ask("fit-batch", "zoo:lenet", "--budget", "32MiB", "--dtype", kind)[1])
    ]
    assert found[1] > 1.3 * found[0]  # images and indices of maxima take as much in both


def test_a_perceptron_of_16_bits_takes_a_larger_batch(ask):
    """Most of its bytes are the batch, which is fed in 16 bits."""
    found = [
        int(re.search(r"^Batch (\d+) fits", out, re.MULTILINE)[1])
        for kind in ("float32", "bf16")
        if (out := ask("fit-batch", "zoo:mlp", "--budget", "32MiB", "--dtype", kind)[1])
    ]
    assert found[1] > 1.8 * found[0]


def test_inference_of_16_bits_has_narrow_parameters(ask):
    full, mixed = (
        ask("plan", "zoo:resnet20_cifar", "--batch", 2, "--infer", "--dtype", kind)[1]
        for kind in ("float32", "bf16")
    )
    assert "mixed bfloat16 and float32, narrow parameters, inference" in mixed
    assert size(mixed, "arguments") < 0.51 * size(full, "arguments")


def test_float64_leaves_token_numbers_and_lengths_alone():
    options = dict(layers=1, width=8, heads=2, hidden=8, vocabulary=9, length=4)
    net, shapes = mx.models.get("bert_base", **options), mx.models.shapes_of("bert_base", 2, **options)
    types = types_of(net, set(shapes))
    assert not {"data", "segment", "length"} & set(types)
    args, _, _ = net.infer_type_partial(**types)
    by_name = dict(zip(net.list_arguments(), args))
    for name in ("embed_weight", "segment_embed_weight", "position_weight", "score_weight"):
        assert str(np.dtype(by_name[name])) == "float64", name
    plan = Request(ModelSource(named("bert_base", options)), 2, dtype="float64").plan()
    full = Request(ModelSource(named("bert_base", options)), 2).plan()
    assert plan.breakdown["inputs"] == full.breakdown["inputs"] + 2 * 4  # labels are as the scores
    assert plan.breakdown["arguments"] == 2 * full.breakdown["arguments"]


def named(model, options):
    return ",".join([f"zoo:{model}", *(f"{k}={v}" for k, v in options.items())])


def test_plan_writes_page_and_data(ask, tmp_path):
    page, data = tmp_path / "plan.html", tmp_path / "plan.json"
    code, _, _ = ask("plan", "zoo:lenet", "--html", page, "--json", data, "-v")
    assert code == 0
    assert page.read_text().startswith("<!doctype html>")
    assert mx.memplan.MemoryPlan.from_json(data.read_text()).peak_bytes > 0


def test_plan_draws_and_traces(ask, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    trace, page = tmp_path / "trace.json", tmp_path / "plan.html"
    code, out, _ = ask("plan", "zoo:lenet", "--draw", "--trace", trace, "--html", page, "--budgets", 3)
    assert code == 0 and "no smaller arena exists" in out and "Fullest at step" in out
    assert max(len(line) for line in out.split("address")[1].splitlines()) <= 70
    assert json.loads(trace.read_text())["traceEvents"] and page.read_text().count('"method"') > 1
    assert ask("plan", "zoo:lenet", "--image", tmp_path / "plan.gif")[0] == 2
    assert ask("plan", "zoo:lenet", "--html", page, "--budgets", 0)[0] == 2


def test_onnx_files_are_planned(ask, tmp_path):
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    weight = onnx.numpy_helper.from_array(np.ones((4, 3), "float32"), "w")
    graph = h.make_graph(
        [h.make_node("Gemm", ["x", "w"], ["y"], "gemm", transB=1), h.make_node("Relu", ["y"], ["z"], "relu")],
        "g",
        [h.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 3])],
        [h.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["batch", 4])],
        [weight],
    )
    path = tmp_path / "model.onnx"
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)]), path)
    code, out, _ = ask("plan", path, "--shape", "x:N,3", "--batch", 1000)
    assert code == 0 and size(out, "inputs") >= 1000 * 3 * 4
    said = refused(ask("plan", path))
    assert said.endswith("input 'x' is (batch, 3): give its shape, as in --shape x:N,3.")
    assert refused(ask("plan", path, "--batch", 8)) == said
    assert "types of its inputs itself" in refused(
        ask("plan", path, "--shape", "x:2,3", "--dtype", "float64")
    )
    fixed = h.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [7, 3])
    graph.input.pop()
    graph.input.append(fixed)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)]), tmp_path / "fixed.onnx")
    said = ask("plan", tmp_path / "fixed.onnx")[1]
    assert said.split("\n", 1)[1] == ask("plan", path, "--shape", "x:7,3")[1].split("\n", 1)[1]
    said = refused(ask("fit-batch", tmp_path / "fixed.onnx", "--budget", "1MiB"))
    assert "('x' (7, 3)): export it with a batch that is left open" in said
    code, out, _ = ask("explain", path, "--shape", "x:N,3")
    assert code == 0 and "mixed bfloat16 instead of float32" in out and "inference only" in out
    code, out, _ = ask("plan", path, "--shape", "x:N,3", "--batch", 1000, "--loss", "mse")
    assert code == 0 and "training, loss mse" in out and size(out, "inputs") >= 27_900
    code, out, _ = ask("fit-batch", path, "--shape", "x:N,3", "--loss", "softmax", "--budget", "1MiB")
    assert code == 0 and "loss softmax" in out and "fits 1.00 MiB" in out
    assert "--loss is what training needs" in refused(ask("plan", path, "--loss", "mse", "--infer"))
    assert "has a loss already" in refused(ask("plan", CHAIN, "--loss", "mse"))


# -- frontier, fit-batch, explain, diff, doctor ------------------------------------------------


def test_a_small_batch_that_is_too_slow_for_another_reason_hides_no_larger_one(ask):
    """16-bit copies of weights are made again whatever the budget; a larger batch's time hides it."""
    net = "zoo:lstm,hidden=64,vocabulary=200"
    asked = net, "--dtype", "bf16", "--optimizer", "adam", "--budget", "4MiB"
    slow = float(re.search(r"batch 1: fits: .* MiB, ([\d.]+) %", ask("fit-batch", *asked, "-v")[1])[1])
    code, out, _ = ask("fit-batch", *asked, "-v", "--extra-time", 0.9 * slow)
    assert code == 0 and "batch 1: too slow" in out
    batch = int(re.search(r"Batch (\d+) fits", out)[1])
    assert batch > 1 and float(re.search(r"predicted extra time +([\d.]+) %", out)[1]) <= 0.9 * slow
    assert f"Batch {batch + 1} does not" in out
    code, out, _ = ask("fit-batch", *asked, "--extra-time", 0)
    assert code == 1 and "only with more than 0.0 % extra time" in out


def test_explain_has_no_table_of_remedies_where_it_knows_none(ask):
    asked = "zoo:mlp", "--batch", 1, "--infer"
    assert "bfloat16 instead" in ask("explain", *asked)[1]
    code, out, _ = ask("explain", *asked, "--dtype", "bf16")
    assert code == 0 and "What each would save" not in out and "remedy" not in out


def test_diff_says_of_measured_plans_what_plan_says(ask, tmp_path):
    file = tmp_path / "plan.json"
    budget = int(0.95 * size(ask("plan", CHAIN)[1], "peak"))
    _, out, _ = ask("plan", CHAIN, "--budget", budget, "--device", "measured", "--json", file)
    assert heading((0, out)).endswith(", measured times")
    _, rows, _ = ask("diff", file, file)
    step = re.search(r"predicted step +([\d.]+) ms", out)[1]
    extra = re.search(r"predicted extra time +(-?[\d.]+) %", out)[1]
    assert f"{step} ms" in rows and re.search(rf"predicted extra time +{extra} %", rows)


def test_a_budget_beyond_all_addresses_is_refused(ask):
    for budget in ("99999999999999999999GiB", str(2**62)):
        assert "below 2**62 bytes" in refused(ask("plan", CHAIN, "--budget", budget))
    assert ask("plan", CHAIN, "--budget", str(2**62 - 1))[0] == 0


def test_frontier_costs_less_the_more_it_may_take():
    plans = frontier.frontier(Request(ModelSource(CHAIN), 2048, optimizer="sgd"), 6)
    assert len(plans) == 6
    assert all(p.peak_bytes <= p.budget_bytes for p in plans[:-1])
    assert plans[-1].extra_time == 0 < plans[0].extra_time
    assert all(a.extra_time >= b.extra_time for a, b in pairwise(plans))


def test_frontier_is_drawn(ask, tmp_path):
    pytest.importorskip("matplotlib")
    svg, png = tmp_path / "f.svg", tmp_path / "f.png"
    code, out, _ = ask("frontier", CHAIN, "--batch", 512, "--budgets", 3, "--svg", svg, "--png", png)
    assert code == 0 and "Proven lower bound" in out and "keep all" in out
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    assert png.read_bytes().startswith(b"\x89PNG")


def test_frontier_without_matplotlib_says_what_to_install(ask, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "mxlite[viz]" in refused(ask("frontier", CHAIN, "--svg", tmp_path / "f.svg"))


def test_fit_batch_finds_the_largest_batch(ask):
    code, out, _ = ask("fit-batch", "zoo:lenet", "--budget", "8MiB", "--optimizer", "sgd", "-v")
    assert code == 0
    batch = int(re.search(r"^Batch (\d+) fits", out, re.MULTILINE)[1])
    assert f"batch {batch}: fits" in out and f"batch {batch + 1}: does not fit" in out
    budget = mx.parse_bytes("8MiB")
    assert Request(ModelSource("zoo:lenet"), batch, optimizer="sgd").plan(budget).peak_bytes <= budget
    with pytest.raises(mx.MemoryBudgetError):
        Request(ModelSource("zoo:lenet"), batch + 1, optimizer="sgd").plan(budget)


def test_fit_batch_says_where_it_stops_looking(ask):
    code, out, _ = ask("fit-batch", "zoo:mlp,hidden=(4,),features=4", "--budget", "1TiB")
    assert code == 0 and out.endswith("Batch 1048576 fits 1.00 TiB. No larger one is tried.\n")


def test_fit_batch_with_a_limit_on_time_is_smaller(ask):
    def largest(*more):
        out = ask("fit-batch", CHAIN, "--budget", "1MiB", *more)[1]
        return int(re.search(r"^Batch (\d+) fits", out, re.MULTILINE)[1])

    assert largest("--extra-time", 0) < largest()


def test_fit_batch_says_when_not_even_one_sample_fits(ask):
    code, out, _ = ask("fit-batch", "zoo:lenet", "--budget", "1MiB")
    assert code == 1 and "batch 1," in out and "A budget of" in out


@pytest.fixture
def scratch(monkeypatch):
    """Scratch of activations by batch, which kernels choose as they like: bytes, 0 of those not named."""
    monkeypatch.setenv("MXLITE_KERNELS", "reference")
    by_batch = {}
    monkeypatch.setattr(
        mx.ops.Activation, "workspace",
        classmethod(lambda _, a, inputs, outputs, dtype: by_batch.get(inputs[0][0], 0)),
    )  # fmt: skip
    return by_batch


def test_what_fits_need_be_no_interval_and_need_not_begin_at_1(ask, scratch):
    scratch |= dict.fromkeys([1, 2, 3, 9, 10, *range(12, 3000)], 1 << 20)
    asked = "fit-batch", "zoo:mlp,hidden=(4,),features=4", "--infer"
    code, out, _ = ask(*asked, "--budget", "64KiB")
    said = (
        "Batch 11 fits 64.00 KiB. Batch 12 does not, nor 13 and 14. Of smaller ones that were tried, 1, 2, 9"
    )
    assert code == 0 and out.endswith(f"{said} and 10 do not.\n"), out
    code, out, _ = ask(*asked, "--budget", "400B")
    assert code == 1 and "A budget of" in out
    assert out.endswith(
        "Batches tried: 1, 2, 4 and 8. None fits. Of 1, 2, 4 and 8 that is proven by lower bounds.\n"
    )


def test_a_batch_that_the_network_does_not_take_is_passed_over(ask, tmp_path):
    data = mx.sym.Reshape(mx.sym.Variable("data"), shape=(-1, 12))
    net = tmp_path / "net.json"
    mx.sym.FullyConnected(data, num_hidden=2, name="fc").save(str(net))
    asked = "fit-batch", net, "--infer", "--budget", "1KiB", "-v"
    code, out, _ = ask(*asked, "--shape", "data:N,3")
    batch = int(re.search(r"^Batch (\d+) fits", out, re.MULTILINE)[1])
    assert code == 0 and batch > 4 and batch % 4 == 0 and "batch 1: the network does not take it" in out
    assert "Reshape" in refused(ask(*asked, "--shape", "data:N,5"))


def test_the_batch_that_is_found_is_one_that_binding_finds_too(ask, monkeypatch):
    def found():
        out = ask("fit-batch", "zoo:mlp,hidden=(16,16),features=16", "--budget", "20KiB")[1]
        return re.search(r"^Batch \d+ fits", out, re.MULTILINE)[0]

    honest = found()
    monkeypatch.setattr(_BatchSearch, "from_template", lambda _, plan: plan)  # which fits if one believes it
    assert found() == honest


def test_explain_accounts_for_every_byte_of_the_peak():
    plan = Request(ModelSource("zoo:resnet20_cifar"), 8).plan()
    assert sum(h.nbytes for h in at_peak(plan)) == plan.max_live_bytes == plan.live_bytes()[peak_step(plan)]
    assert {h.kind for h in at_peak(plan)} >= {"activation"}


def test_explain_names_tensors_and_remedies(ask, monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "reference")  # who is largest depends on the kernels
    code, out, _ = ask("explain", "zoo:resnet20_cifar", "--top", 3)
    assert code == 0
    for remedy in (
        "mixed bfloat16 instead of float32", "inference only", "update inside the step (sgd)",
        "batch 16 instead of 32",
        "recomputation, to the least", "recomputation, half of that", "that much with host memory too",
    ):  # fmt: skip
        assert re.search(
            rf"^  {re.escape(remedy)} +[\d.]+ \w+ +-?[\d.]+ \w+ +[\d.]+ %$", out, re.MULTILINE
        ), out
    assert "activation" in out and "Convolution" in out and "more" in out


@pytest.mark.skipif(not usable(), reason="there is no compiler (llvmlite)")
def test_explain_shows_the_loops_of_a_kernel(ask):
    code, out, _ = ask("explain", "--kernel", "softmax", "--shape", "data:64,512")
    assert code == 0
    forward, gradient = out.split("its gradient: ")
    lines = [line.strip() for line in forward.splitlines()]
    assert lines.count("sweep i1 in 512:") == 3 and "%1 max= %0" in lines and "%4 sum= %3" in lines
    assert gradient.count("sweep i1 in 512:") == 2 and "d_data[i0, i1] = " in gradient
    for asked in ("LayerNorm", "sum,axis=0", "take --shape a:100,64 --shape indices:30"):
        name, *more = asked.split()
        code, out, _ = ask("explain", "--kernel", name, *more)
        assert code == 0 and "Loops:" in out, out
    _, out, _ = ask("explain", "--kernel", "LayerNorm")
    places = [out.index(text) for text in ("mean[i0] =", "std[i0] =", "gamma[i1]", "out[i0, i1] =")]
    assert places == sorted(places), "what a row has once is stored before the sweep that reads the row again"
    _, out, _ = ask(
        "explain", "--kernel", "BilinearSampler", "--shape", "data:2,8,16,16", "--shape", "grid:2,2,16,16"
    )
    assert "i1 innermost" in out, "what all channels share is computed once"
    _, out, _ = ask("explain", "--kernel", "sort")
    assert "declares no computation" in out


def test_explain_of_a_budget_that_does_not_fit_explains_what_there_is(ask, quick_refusals):
    code, out, _ = ask("explain", CHAIN, "--budget", "1KiB")
    assert code == 1 and "No plan fits" in out and "fullest at step" in out


def test_diff_of_models_and_of_files_is_the_same(ask, tmp_path):
    files = []
    for batch in (8, 16):
        files.append(tmp_path / f"{batch}.json")
        ask("plan", "zoo:lenet", "--batch", batch, "--json", files[-1])
    code, out, _ = ask("diff", *files)
    assert code == 0
    a, b = (mx.memplan.MemoryPlan.from_json(f.read_text()) for f in files)
    row = next(line for line in out.splitlines() if line.startswith("  peak  "))
    assert row.split("  ")[-1].strip() == "+" + mx.format_bytes(b.peak_bytes - a.peak_bytes)
    same = ask("diff", "zoo:lenet", "zoo:lenet", "--batch", 8)[1]
    assert re.search(r"^  peak +\S+ \w+ +\S+ \w+ +0 B$", same, re.MULTILINE)


def test_diff_of_a_budget_that_does_not_fit_is_1_and_says_whose(ask, quick_refusals):
    code, out, err = ask("diff", "zoo:lenet", "zoo:mlp", "--budget", "2MiB")
    assert code == 1 and not err
    assert out.startswith("zoo:lenet\n\nNo plan fits 2.00 MiB")


def test_no_file_is_written_to_before_planning_is_refused(ask, tmp_path, monkeypatch):
    monkeypatch.setattr(Request, "plan", lambda *_: pytest.fail("planned first"))
    for command, option in (("plan", "--json"), ("plan", "--html"), ("frontier", "--png")):
        refused(ask(command, "zoo:lenet", option, tmp_path / "none" / "x"))


def test_doctor_lists_versions_and_extras(ask):
    code, out, _ = ask("doctor")
    assert code == 0
    assert re.search(rf"numpy +{re.escape(np.__version__)}$", out, re.MULTILINE)
    for word in ("engine", "cores", "backend of cpu(0)", "backend of gpu(0)", "matplotlib", "onnx"):
        assert word in out
    for word in ("GPUs", "CuPy", "NVRTC", "cuBLASLt", "operators with GPU kernels"):
        assert re.search(rf"^ *{word} ", out, re.MULTILINE), out


def test_plans_for_a_gpu_that_is_not_here(ask, tmp_path):
    """The same plan as `memory_plan(mx.gpu(0))` has; by every command that plans."""
    net, shapes = mx.models.get("lenet"), {"data": (64, 1, 28, 28), "softmax_label": (64,)}
    asked = ("zoo:lenet", "--batch", "64", "--gpu", "--optimizer", "sgd,momentum=0.9")
    written = tmp_path / "plan.json"
    code, out, _ = ask("plan", *asked, "--json", written)
    assert code == 0 and "sgd,momentum=0.9 inside the step, on a GPU" in out and "NVIDIA H200" in out
    there = net.memory_plan(
        mx.gpu(0),
        grad_req={n: "write" for n in net.list_arguments() if n not in shapes},
        optimizer=mx.optimizer.SGD(momentum=0.9),
        **shapes,
    )
    assert json.loads(written.read_text())["peak_bytes"] == there.peak_bytes
    assert any(t.kernel.startswith("cuda") for t in there.problem.tasks)
    assert ask("plan", *(x for x in asked if x != "--gpu"), "--json", written)[0] == 0
    assert json.loads(written.read_text())["peak_bytes"] != there.peak_bytes
    for command in (
        ("frontier", *asked, "--budgets", "3"),
        ("explain", *asked),
        ("fit-batch", *asked[:1], *asked[3:], "--budget", "20MiB"),
    ):
        code, out, _ = ask(*command)
        assert code == 0 and "on a GPU" in out
    assert "--gpu plans for a GPU" in refused(ask("plan", "zoo:lenet", "--device", "GPU"))


def test_doctor_looks_for_the_packages_of_every_extra():
    """But NVIDIA's libraries, which its table of GPUs has, those that only its authors want, and llvmlite,
    which is installed without an extra where it can be, and is in the table of kernels."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {
        re.match(r"[\w-]+", package)[0]: extra.removesuffix("-small")
        for extra, packages in project["optional-dependencies"].items()
        if extra not in ("dev", "docs", "gpu-compile")
        for package in packages
    }
    libraries = {name for name in wanted if name.startswith(("nvidia-", "mxlite"))} | {"llvmlite"}
    assert {n: extra for n, (extra, _) in EXTRAS.items()} == {
        n: e for n, e in wanted.items() if n not in libraries
    }


def test_doctor_says_how_to_install_a_compiler_that_is_missing(ask, monkeypatch):
    def target():
        raise ImportError("llvmlite is not installed")

    monkeypatch.setattr("mxlite.cli.doctor.native.target", target)
    code, out, _ = ask("doctor")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert code == 0
    (line,) = re.findall(r"^ *LLVM .*$", out, re.MULTILINE)
    assert f"absent; pip install '{project['optional-dependencies']['compile'][0]}'" in line
    assert "operators with compiled kernels" not in out


def test_doctor_says_what_a_gpu_is_and_what_holds_it(ask):
    with emulated_gpus(count=2, capacity=2**30) as opened:
        code, out, _ = ask("doctor")
        assert code == 0 and len(opened) == 2
    assert re.search(r"^ *GPUs +2$", out, re.MULTILINE)
    assert re.search(
        r"^ *gpu\(1\) +emulated GPU, sm_90, 2 multiprocessors, 1.00 GiB of 1.00 GiB free", out, re.M
    )


def test_lines_end_at_words_in_a_terminal_and_are_whole_in_a_pipe(ask, monkeypatch):
    """Rows of tables too, where what is written above and below their last cell leaves room for it."""
    monkeypatch.setenv("MXLITE_KERNELS", "reference")
    monkeypatch.setenv("COLUMNS", "80")
    asked = (
        ("plan", "zoo:mlp,hidden=(8,)", "--budget", "2KiB"),
        ("plan", "zoo:mlp,hidden=(8,)", "--budget", "80KiB", "--offload", "auto"),
        ("plan", "zoo:lenet", "--optimizer", "sdg"),
    )
    rows = [("layer0_" + "x" * 90 + "_out", "1 B"), ("short", "2 B")]
    whole = [ask(*argv) for argv in asked]
    assert rows[0][0] in table(("tensor", "bytes"), rows, gives_way=0)
    for out in (sys.stdout, sys.stderr):
        monkeypatch.setattr(out, "isatty", lambda: True)
    for argv, (code, *before) in zip(asked, whole):
        again, *broken = ask(*argv)
        lines, words = [t.splitlines() for t in before + broken], [t.split() for t in before + broken]
        assert again == code and words[:2] == words[2:]
        assert max(map(len, lines[0] + lines[1])) > 80 >= max(map(len, lines[2] + lines[3]))
    cut = table(("tensor", "bytes"), rows, gives_way=0).splitlines()
    assert max(map(len, cut)) == 80 and "layer0_xx" in cut[2] and "..." in cut[2] and "x_out " in cut[2]


# -- bad usage and bad input -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "COMMAND"),
        (["plam"], "plam"),
        (["plan"], "MODEL"),
        (["plan", "zoo:lenet", "--nonsense"], "--nonsense"),
        (["plan", "zoo:lenet", "--dtype", "int8"], "int8"),
        (["plan", "zoo:lenet", "--batch", "0"], "at least 1"),
        (["plan", "zoo:lenet", "--train", "--infer"], "--infer"),
        (["plan", "nowhere.json"], "nowhere.json"),
        (["plan", "."], "is a folder"),
        (["plan", "lenet"], "Did you mean 'zoo:lenet'"),
        (["plan", "zoo:lennet"], "Did you mean 'lenet'"),
        (["plan", "zoo:lenet,klasses=3"], "no option 'klasses'"),
        (["plan", "zoo:lenet,classes"], "OPTION=VALUE"),
        (["plan", "zoo:lenet,classes=-1"], "num_hidden"),
        (["plan", "zoo:mlp,hidden=5"], "iterable"),
        (["plan", "zoo:lenet", "--budget", "lots"], "lots"),
        (["plan", "zoo:lenet", "--budget", "-1"], "'-1'"),
        (["plan", "zoo:lenet", "--optimizer", "sdg"], "sdg"),
        (["plan", "zoo:lenet", "--optimizer", "sgd,momentum=x"], "momentum must be a number"),
        (["plan", "zoo:lenet", "--shape", "data"], "NAME:LENGTH"),
        (["plan", "zoo:lenet", "--shape", "data:1,0,28,28"], "at least 1"),
        (["plan", "zoo:lenet", "--shape", "data:1,-1,28,28"], "at least 1"),
        (["plan", "zoo:lenet", "--shape", f"data:{'9' * 30},1,28,28"], "NAME:LENGTH"),
        (["plan", "zoo:lenet", "--shape", "dta:1,1,28,28"], "Did you mean 'data'"),
        (["plan", "zoo:lenet", "--shape", "data:1,1,2,2"], "kernel"),
        (["plan", "zoo:lenet", "--shape", "data:999999999999999999,1,28,28"], "beyond any memory"),
        (["plan", "zoo:lenet", "--shape", "data:9,99999999999,99999999,9999999"], "beyond any memory"),
        (["plan", "zoo:lenet", "--shape", "data:1,1,28,28", "--shape", "data:2,1,28,28"], "'data' twice"),
        (["plan", "zoo:lenet", "--shape", "data:\u0663,1,28,28"], "NAME:LENGTH"),
        (["plan", "zoo:lenet", "--shape", f"{'y' * 10_000}:3"], "yyy...yyy"),
        (["plan", "zoo:lenet", "--budget", "1e300GiB"], "'1e300GiB'"),
        (["plan", "zoo:lenet", "--budget", "9" * 5000], "999"),
        (["plan", ""], "name of the model is empty"),
        (["plan", "folder.onnx"], "is a folder"),
        (["diff", ".", "zoo:lenet"], "is a folder"),
        (["explain", "zoo:lenet", "--top", "-1"], "at least 1"),
        (["explain"], "takes a MODEL or --kernel"),
        (["explain", "zoo:lenet", "--kernel", "softmax"], "one of them"),
        (["explain", "--kernel", "sofmax"], "Did you mean 'softmax'"),
        (["explain", "--kernel", "softmax,axis=5"], "axis 5"),
        (["explain", "--kernel", "softmax", "--shape", "x:3"], "no input 'x'"),
        (["explain", "--kernel", "_zeros"], "no inputs"),
        (["plan", "zoo:lenet", "--html", "no/such/folder.html"], "cannot be written"),
        (["fit-batch", "zoo:lenet"], "--budget"),
        (["fit-batch", "zoo:lenet", "--budget", "1GB", "--extra-time", "-1"], "at least 0"),
        (["fit-batch", "model.json", "--budget", "1GB"], "model.json: No such file"),
        (["frontier", "zoo:lenet", "--budgets", "1"], "from 2"),
        (["diff", "zoo:lenet", "nowhere.json"], "nowhere.json"),
        (["plan", "zoo:unet,batch=3"], "no option 'batch'"),
        (["plan", "zoo:lenet", "--json", ""], "file to write is empty"),
        (["plan", "zoo:lenet", "--trace", "folder.onnx"], "folder.onnx cannot be written"),
        (["frontier", "zoo:lenet", "--svg", "no/such.svg"], "no/such.svg cannot be written"),
        (["plan", "zoo:lenet", "--offload", "much"], "offload='auto'"),
    ],
)  # fmt: skip
def test_bad_usage_is_one_line_and_2(ask, argv, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.onnx").mkdir()
    said = refused(ask(*argv))
    assert says in said and len(said) < 1000


def test_a_file_without_shapes_says_which_inputs_need_them(ask, tmp_path):
    """And names no weights, whose shapes follow."""
    path = tmp_path / "net.json"
    mx.models.get("lenet").save(str(path))
    said = refused(ask("plan", str(path)))
    assert "The shape of 'data' is not known" in said and "--shape data:N,3,224,224" in said
    assert "weight" not in said
    first, second = mx.sym.Variable("a"), mx.sym.Variable("b")
    (mx.sym.FullyConnected(first, num_hidden=2) + second).save(str(path))
    said = refused(ask("plan", str(path)))
    assert "The shapes of 'a', 'b' are not known" in said


def test_where_no_batch_is_known_the_inputs_are_called_by_their_names(ask, tmp_path):
    path = tmp_path / "net.json"
    pixels = mx.sym.Variable("pixels", shape=(4, 8))
    mx.sym.dot(pixels, mx.sym.Variable("more", shape=(8, 2))).save(str(path))
    for command in (["plan", path, "--batch", 3], ["fit-batch", path, "--budget", "1MiB"]):
        assert refused(ask(*command)).endswith("as in --shape pixels:N,8 --shape more:N,2.")
    said = refused(ask("plan", path, "--batch", 3, "--shape", "pixels:4,8", "--shape", "more:8,2"))
    assert said.endswith(
        "do not agree on one batch: write N where it stands, as in --shape pixels:N,8 --shape more:N,2."
    )
    mx.sym.FullyConnected(mx.sym.Variable("tokens"), num_hidden=2).save(str(path))
    for command in (["plan", path, "--batch", 3], ["fit-batch", path, "--budget", "1MiB"]):
        assert "The shape of 'tokens' is not known" in refused(ask(*command))


BAD_SYMBOLS = {
    "empty": "",
    "cut short": '{"nodes": [{"op": "null", "name": "data", ',
    "no json": "garbage",
    "a list": "[]",
    "deep": "[" * 100000,
    "no outputs": '{"nodes":[],"arg_nodes":[],"heads":[]}',
    "unknown operator": '{"nodes":[{"op":"Foo","name":"f","inputs":[]}],"arg_nodes":[],"heads":[[0,0,0]]}',
    "a cycle": '{"nodes":[{"op":"relu","name":"a","inputs":[[1,0,0]]},'
    '{"op":"relu","name":"b","inputs":[[0,0,0]]}],'
    '"arg_nodes":[],"heads":[[1,0,0]]}',
    "many outputs": '{"nodes":[{"op":"null","name":"data","inputs":[]},{"op":"SliceChannel","name":"s",'
    '"attrs":{"num_outputs":"1000000000"},"inputs":[[0,0,0]]}],"arg_nodes":[0],"heads":[[1,0,0]]}',
    "a shape that is none": '{"nodes":[{"op":"null","name":"data","inputs":[],"attrs":{"__shape__":"x"}},'
    '{"op":"relu","name":"a","inputs":[[0,0,0]]}],"arg_nodes":[0],"heads":[[1,0,0]]}',
    "half a character": '{"nodes":[{"op":"null","name":"a\\ud800","inputs":[]}],"arg_nodes":[0],'
    '"heads":[[0,0,0]]}',
    "half a character in a value": '{"nodes":[{"op":"null","name":"a","attrs":{"x":"\\ud800"},"inputs":[]}],'
    '"arg_nodes":[0],"heads":[[0,0,0]]}',
    "no shape": '{"nodes":[{"op":"null","name":"data","inputs":[]}],"arg_nodes":[0],"heads":[[0,0,0]]}',
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_SYMBOLS)
def test_bad_symbol_files_are_one_line_and_2(ask, what, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(BAD_SYMBOLS[what])
    refused(ask("plan", path))


def test_bytes_that_are_no_text_or_no_onnx_are_one_line_and_2(ask, tmp_path):
    for name in ("bad.json", "bad.onnx"):
        if name.endswith("onnx"):
            pytest.importorskip("onnx")
        (tmp_path / name).write_bytes(b"\xff\xfe\x00\x01")
        assert name in refused(ask("plan", tmp_path / name))


@pytest.mark.parametrize("name", ["huge.json", "huge.onnx", "huge"])
def test_files_that_are_too_large_are_refused_unread(ask, tmp_path, name):
    if name.endswith("onnx"):
        pytest.importorskip("onnx")
    path = tmp_path / name
    with open(path, "wb") as file:
        file.truncate(3 << 30)
    tracemalloc.start()
    try:
        assert "has 3221225472 bytes" in refused(ask("plan", path))
        assert "has 3221225472 bytes" in refused(ask("diff", path, path))
        with open(path, "r+b") as file:
            file.write(b'{"mxlite_memory_plan": 9, ')
        if not name.endswith("onnx"):
            assert "a plan has at most" in refused(ask("diff", path, path))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_data_that_an_onnx_file_keeps_elsewhere_and_that_is_not_there(ask, tmp_path):
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    weight = onnx.numpy_helper.from_array(np.ones((4, 3), "float32"), "w")
    graph = h.make_graph(
        [h.make_node("Gemm", ["x", "w"], ["y"], "gemm", transB=1)],
        "g",
        [h.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])],
        [h.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 4])],
        [weight],
    )
    path = tmp_path / "m.onnx"
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)])
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    assert ask("plan", path, "--shape", "x:2,3")[0] == 0
    (tmp_path / "m.data").unlink()
    said = refused(ask("plan", path, "--shape", "x:2,3"))
    assert "'m.data', but that file is missing" in said
    path.write_bytes(path.read_bytes()[:-9])
    said = refused(ask("plan", path, "--shape", "x:2,3"))
    assert said.count("m.onnx") == 1 and "cut short" in said


def named_net(name, data="data"):
    x = mx.sym.FullyConnected(mx.sym.Variable(data), num_hidden=3, name=name)
    return mx.sym.SoftmaxOutput(x, name="softmax")


def test_names_of_every_kind_are_planned_and_shown(ask, tmp_path):
    """Nothing that a terminal would obey, nothing without end, and no letter that it lacks stops it."""
    path, page = tmp_path / "net.json", tmp_path / "plan.html"
    for name in (
        "データ\N{SLIGHTLY SMILING FACE}",
        "\x1b[31mred\r\n\x07<script>alert(1)</script>",
        "x" * 10_000,
    ):
        named_net(name, "ein\u202e").save(path)
        for command in (["plan", "--draw", "--html", page], ["explain"]):
            code, out, _ = ask(*command, path, "--shape", "ein\u202e:4,5")
            assert code == 0
            assert not set(out) & {"\x1b", "\r", "\x07", "\u202e"}
            assert max(map(len, out.splitlines())) < 250
        assert "<script>alert" not in page.read_text(encoding="utf-8")
    named_net("データ").save(path)
    done = subprocess.run(
        [sys.executable, "-m", "mxlite", "explain", str(path), "--shape", "data:4,5"],
        cwd=ROOT, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr and b"\\u30c7" in done.stdout


def test_what_is_no_file_is_written_to_and_stays_what_it_was(tmp_path):
    """A device, a pipe; a link's target is replaced."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes with names here")
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    reader = subprocess.Popen(
        [sys.executable, "-c", f"print(open({str(pipe)!r}).read())"], stdout=subprocess.PIPE
    )
    write(str(pipe), b"through")
    assert reader.communicate(timeout=60)[0].strip() == b"through" and pipe.is_fifo()
    link.symlink_to(target)
    write(str(link), b"old")
    write(str(link), b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"
    if os.path.exists("/dev/full"):
        with pytest.raises(mx.MXLiteError, match="/dev/full cannot be written: No space left"):
            write("/dev/full", b"x" * 10_000)
        assert not os.path.isfile("/dev/full")


def test_onnx_without_the_package_says_what_to_install(ask, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    (tmp_path / "m.onnx").write_bytes(b"")
    assert "mxlite[onnx]" in refused(ask("plan", tmp_path / "m.onnx"))


def test_every_cut_and_every_wrong_kind_in_a_plan_file_is_found(ask, tmp_path):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    ask("plan", "zoo:mlp,hidden=(4,)", "--batch", 2, "--json", good)
    text = good.read_text()
    for stop in range(100, len(text) - 1, 997):
        bad.write_text(text[:stop])
        assert "bad.json" in refused(ask("diff", good, bad))
    data = json.loads(text)
    for key in ("problem", "schedule", "buffers", "placed_bytes"):
        for wrong in (None, [], "x", {"a": 1}, -1):
            bad.write_text(json.dumps({**data, key: wrong}))
            assert "bad.json" in refused(ask("diff", good, bad)), (key, wrong)
    for old, new in (
        ('"placed_bytes": ', '"placed_bytes": 6'), ('"fixed_bytes": {', '"fixed_bytes": {"x": 1e400, '),
        ('"seconds": ', '"seconds": -1'),
        ('"fixed_bytes": {', '"fixed_bytes": {"workspace": 9223372036854775807, '),
    ):  # fmt: skip
        bad.write_text(re.sub(re.escape(old) + (r"\d+" if new[-1] == "6" else ""), new, text, count=1))
        assert "bad.json" in refused(ask("diff", good, bad)), new
    assert "`mxlite diff` reads it" in refused(ask("plan", good))


@pytest.mark.parametrize("error", [KeyError("a\nb"), mx.FormatError("a\nb"), OSError("a\nb"), MemoryError()])
def test_whatever_is_raised_is_one_line_too(ask, monkeypatch, error):
    def fails(self, budget=None):
        raise error

    monkeypatch.setattr(Request, "plan", fails)
    refused(ask("plan", "zoo:lenet"))


@pytest.mark.parametrize("command", ["", "plan", "frontier", "fit-batch", "explain", "diff", "doctor"])
def test_help(ask, command):
    code, out, _ = ask(*command.split(), "--help")
    assert code == 0 and out.startswith("usage: mxlite")


# -- words -------------------------------------------------------------------------------------


def test_options_are_literals_or_text():
    assert named_options("sgd") == ("sgd", {})
    assert named_options("x,a=1,b=(1, 2),c=3x3,d=True,e=[1,{2:3}]") == (
        "x",
        {"a": 1, "b": (1, 2), "c": "3x3", "d": True, "e": [1, {2: 3}]},
    )


def test_names_of_shapes_may_have_colons():
    assert parse_shape("in:0:2, N") == ("in:0", (2, "N"))


def test_module_and_pipe():
    """As a process: `python -m mxlite`, and a reader that goes away."""
    command = [sys.executable, "-m", "mxlite"]
    done = subprocess.run([*command, "--version"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == f"mxlite {mx.__version__}\n"
    process = subprocess.Popen(
        [*command, "plan", "zoo:lenet"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=120) in (0, 2) and "Traceback" not in error


def test_where_there_is_no_output_the_exit_code_still_answers(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["plan", "zoo:lenet"]) == 0
    assert main(["plan", "zoo:lenet", "--budget", "1kB"]) == 1


def test_the_installed_command_is_a_function_that_is_there():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    module, _, function = scripts["mxlite"].partition(":")
    assert getattr(importlib.import_module(module), function)(["--version"]) == 0
