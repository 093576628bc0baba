"""Networks drawn at random give what the oracle gives, under all settings; no rewrite goes without a hit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mxlite.backends import Backend
from mxlite.backends.cpu import passes as cpu
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.gpu import passes as gpu, planning_backend
from mxlite.backends.rewrite import observed, Pass, Rewrite, Stage
from mxlite.executor.plan.lower import rewrites
from mxlite.ops import TABLE
from tests.differential import agreement, torch_peer
from tests.differential.draw import draw
from tests.differential.network import Call, Network, Value, Variable
from tests.differential.program import program
from tests.differential.run import backends, HITS, run
from tests.differential.setting import Setting
from tests.differential.shrink import shrunk

CHUNKS, EACH = 10, 50

needs_compiler = pytest.mark.skipif(not usable(), reason="there is no compiler (llvmlite)")


def judged(seed):
    """A verdict on the network of a seed; a failure is shrunk and printed as a program."""
    case = draw(seed)
    verdict = agreement.judge(case.network, case.setting)
    if verdict.wrong:
        smaller = shrunk(
            case, lambda c: agreement.judge(c.network, c.setting).failure == verdict.failure, seconds=20
        )
        pytest.fail(f"seed {seed}: {verdict.wrong}\n{program(smaller)}")
    return verdict


@needs_compiler
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_networks_give_what_the_oracle_gives(chunk, record_property):
    """Few are too badly conditioned to say anything, and kinks are rare."""
    verdicts = [judged(seed) for seed in range(chunk * EACH, (chunk + 1) * EACH)]
    arrays, vague = (sum(getattr(v, n) for v in verdicts) for n in ("arrays", "vague"))
    assert arrays > 4 * EACH and vague < arrays / 20
    assert sum(v.kink for v in verdicts) <= 2 and sum(v.rounding for v in verdicts) <= 1
    record_property("count: arrays of random networks", {"agreed": arrays - vague, "vague": vague})


@needs_compiler
@pytest.mark.parametrize("seed", [500, 772])
def test_passes_over_reference_kernels_prepack_no_weight(seed):
    """Inference without a budget and within one: a prepacked weight has a library's kernel."""
    assert backends()["cpu passes"].optimize().of(Stage.CONSTANTS) == ()
    judged(seed)


@pytest.mark.torch
def test_the_oracle_gives_what_pytorch_gives(monkeypatch, record_property):
    pytest.importorskip("torch", reason="PyTorch is the peer of this test")
    parts = [part for seed in range(40) if (part := torch_peer.common(draw(seed).network))]
    assert [found for part in parts if (found := torch_peer.differs(part))] == []
    assert len(parts) > 25 and sum(len(p.calls) for p in parts) > 150
    record_property("count: networks held against PyTorch", {"agreed": len(parts)})
    bent = next(p for p in parts if "tanh" in {c.op for c in p.calls})
    monkeypatch.setitem(torch_peer.TRANSLATIONS, "tanh", torch_peer.TRANSLATIONS["sigmoid"])
    assert "from PyTorch" in torch_peer.differs(bent)


def nudged(ulps, *kinds):
    """A backend like "cpu passes" whose reversed arrays are too large by so many ulps. No pass fuses them."""

    def row(r):
        def run(xp, a, data, *, out):
            xp.multiply(data[:, ::-1], 1 + ulps * 2.0**-23, out=out)

        return replace(Backend.reference(r.op, r.attrs, r.inputs, r.outputs, r.dtype), run=run)

    own = backends()["cpu passes"]
    scaled = TABLE["reverse"]
    return replace(
        own, kernels={**own.kernels, scaled: [lambda r: row(r) if r.dtype.name in kinds else None]}
    )


@pytest.mark.parametrize(
    "ulps, kinds, found",
    [
        (9, ("float32",), "rounding"),
        (9, ("float32", "float64"), "wrong"),  # as a rewrite that leaves out a term
        (200, ("float32",), "wrong"),  # a kernel of one type
    ],
)
def test_rounding_is_told_from_a_fault(ulps, kinds, found, monkeypatch):
    """The sine of large numbers: an ulp of them is many of it."""
    x = Variable("data", (3, 40), "data")
    calls = (
        Call("large", "_mul_scalar", (Value("data"),), (x.shape,), dict(scalar=63.0)),
        Call("part", "reverse", (Value("large"),), (x.shape,), dict(axis=1)),
        Call("bent", "sin", (Value("part"),), (x.shape,)),
    )
    network = Network((x,), calls, (Value("bent"),), frozenset({"data"}))
    setting = Setting(pipeline="cpu passes", how="infer")
    assert not agreement.judge(network, setting).rounding
    monkeypatch.setitem(backends(), "cpu passes", nudged(ulps, *kinds))
    verdict = agreement.judge(network, setting)
    assert (bool(verdict.wrong), verdict.rounding, verdict.kink) == (
        found == "wrong",
        found == "rounding",
        False,
    )


@pytest.mark.parametrize("seed", [14, 84])
def test_a_printed_program_has_the_network_its_setting_and_its_numbers(seed):
    """Also of a network that was made smaller, which no seed draws; numbers follow from these."""
    case = draw(seed)
    smaller = shrunk(case, lambda c: len(c.network.calls) > 2, seconds=5)
    for one in (case, smaller):
        made = {}
        exec(program(one), made)
        assert (made["network"], made["setting"]) == (one.network, one.setting)
        assert made["verdict"] == agreement.judge(one.network, one.setting)
    assert smaller.network != case.network


def test_networks_are_those_of_their_seeds():
    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


WITNESSES = {
    "cpu": {
        "channels_last": 21,
        "epilogue with _convolution_epilogue": 21,
        "norm_act": 21,
        "hoist_pooling": 49,
        "pooled_convolutions": 49,
        "inline_loss_casts": 15,
        "recurrent_forms with _rnn_keeping_gates": 16,
        "recurrent_forms with _rnn_wide": 84,
        "forget_gates": 84,
        "chunked_cross_entropy": 4,
        "chunked_cross_entropy with _tiled_update of _state_term": 16,
        "split_gradients": 3,
        "epilogue with _dense_epilogue": 138,
        "stem_gradients": 27,
        "norm_prologue": 21,
        "activation_prologue": 43,
        "inline_dense_casts": 3,
        "inline_dense_casts with _tiled of Cast": 3,
        "inline_convolution_casts": 111,
        "inline_gradient_casts": 84,
        "gradient_updates with _tiled_update of _backward_FullyConnected": 7,
        "gradient_updates with _tiled_update of _fused_computation_gradient": 401,
        "gradient_updates with _tiled_update of _backward__convolution_channels_last": 184,
        "gradient_updates with _rnn_update": 16,
        "sample_tiles": 4,
        "accumulate_gradients": 3,
        "norm_chains": 21,
        "inline_remat": 27,
        "chains": 0,
        "reductions": 0,
        "cheap_remat": 4,
        "remat_at_peak": 16,
        "sink_results": 60,
        "pack": 15,
        "previews": 16,
        "constants": 15,
    },
    "gpu passes": {
        "channels_last": 28,
        "epilogue with _convolution_epilogue": 40,
        "norm_act": 28,
        "hoist_pooling": 129,
        "recurrent_forms": 188,
        "split_gradients": 1,
        "inline_gradient_casts": 32,
        "epilogue with _dense_epilogue": 2,
        "epilogue with _dense_slope": 2,
        "accumulate_gradients": 1,
        "epilogue with _norm_act plus behind": 207,
        "norm_chains": 193,
        "inline_remat": 59,
        "chains": 1,
        "group_casts": 23,
        "group_updates": 19,
        "remat_at_peak": 1,
        "split_norm_statistics": 59,
        "sink_results": 1,
        "constants": 17,
    },
}
"""A seed, of those that are run here, whose network each rewrite has something to do in."""


def test_every_rewrite_has_a_witness():
    """A new pass wants a motif in `differential` that it looks for."""
    for pipeline, backend in (("cpu", backends()["cpu"]), ("gpu passes", planning_backend())):
        assert {n.partition(" with ")[0] for n in WITNESSES[pipeline]} == set(rewrites(backend))
        assert max(WITNESSES[pipeline].values()) < CHUNKS * EACH


@needs_compiler
@pytest.mark.parametrize(
    "pipeline, seed", sorted({(p, s) for p, of in WITNESSES.items() for s in of.values()})
)
def test_rewrites_have_something_to_do_in_the_networks_that_are_run(pipeline, seed):
    case = draw(seed)
    names = [n for n, s in WITNESSES[pipeline].items() if s == seed]
    before = {n: HITS.changed[pipeline, n] for n in names}
    for budget in {"none", case.setting.budget}:
        run(case.network, replace(case.setting, budget=budget))
    assert [n for n in names if HITS.changed[pipeline, n] == before[n]] == []


@needs_compiler
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_a_pass_without_its_anchors_has_nothing_to_do(first, monkeypatch):
    """A pass is left out where a step has none of the operators that it names: it would change nothing."""
    passes = {p.name: p for p in (*cpu.PASSES, *cpu.LOW_MEMORY, *gpu.PASSES, *gpu.LOW_MEMORY)}
    skipped: set[str] = set()

    def look(rewrite: Rewrite) -> None:
        work = passes.get(rewrite.name)
        if work is not None and work.anchors and rewrite.before.operator_types.isdisjoint(work.anchors):
            skipped.add(work.name)
            assert not rewrite.changed, work.name

    monkeypatch.setattr(Pass, "applies", lambda self, step: True)
    for seed in range(first, first + 20):
        case = draw(seed)
        with observed(look):
            run(case.network, case.setting)
    assert len(skipped) > 10
