"""Records of training: small networks after two steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from .digest import digest, digest_of_array

TRAINED: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": (32,), "features": 12},
    "lenet": {},
    "resnet50": {"stages": (1, 1, 1, 1), "classes": 4, "image": (3, 32, 32)},
    "resnet20_cifar": {"width": 8, "image": (3, 16, 16)},
    "resnet50_v2": {"stages": (2, 1, 1, 1), "classes": 4, "image": (3, 32, 32)},
    "mobilenet_v2": {"multiplier": 0.25, "classes": 4, "image": (3, 32, 32)},
    "inception_bn": {"classes": 4, "image": (3, 64, 64)},
    "unet": {"width": 8, "levels": 3, "image": (3, 32, 32)},
    "lstm": {"hidden": 32, "vocabulary": 50, "steps": 6, "loss": "cross_entropy"},
    "bert_base": {"layers": 2, "width": 32, "heads": 2, "hidden": 64, "vocabulary": 50, "length": 16},
    "gpt2": {
        "layers": 2, "width": 32, "heads": 2, "hidden": 64, "vocabulary": 50, "length": 16,
        "loss": "cross_entropy",
    },
}  # fmt: skip
"""Small networks whose results are recorded: two steps of SGD with momentum."""


def record_training(own: SimpleNamespace, match: re.Pattern[str], results: dict[str, Any]) -> None:
    """Part of section `results`: networks of TRAINED with and without a budget, in float32 and mixed."""
    mx = own.mx
    for name, options in TRAINED.items():
        for amp in (None, "bfloat16") if match.fullmatch(name) else ():
            key = f"{name} trained" + (f" {amp}" if amp else "")
            results[f"{key} none"] = _train(mx, name, options, amp)
            results[f"{key} none, fused"] = _train(mx, name, options, amp, fused_update=True)
            budget = 1
            while f"{key} least, fused" not in results:  # binding and the optimizer may each name another
                try:
                    made = _train(mx, name, options, amp, fused_update=True, memory_budget=budget)
                    results[f"{key} least, fused"] = made
                except mx.MemoryBudgetError as error:
                    assert error.least_feasible_bytes > budget
                    budget = error.least_feasible_bytes


def _train(mx: Any, name: str, options: Mapping[str, Any], amp: Any, **how: Any) -> dict[str, str]:
    import numpy as np

    rng = np.random.default_rng(5)
    net, shapes = mx.models.get(name, **options), mx.models.shapes_of(name, 4, **options)
    labels = [n for n in net.list_arguments() if n.endswith("_label")]
    given, _, states = net.infer_shape(**shapes)
    known = dict(zip((*net.list_arguments(), *net.list_auxiliary_states()), (*given, *states)))
    module = mx.mod.Module(net, list(shapes), labels, context=mx.cpu(), amp=amp, **how)
    module.bind(list(shapes.items()), [(n, known[n]) for n in labels])

    def first(n: str) -> Any:
        if n.endswith(("gamma", "var")):
            return mx.nd.array(rng.uniform(0.8, 1.2, known[n]))
        return mx.nd.array(rng.normal(0, 0.1, known[n]))

    def batch(n: str) -> Any:
        if n in labels or n == "segment":
            values = rng.integers(0, 2, known[n])
        elif len(known[n]) < 3 and name != "mlp":  # tokens, and how many there are
            values = rng.integers(1, 5, known[n])
        else:
            values = rng.normal(0, 1, known[n])
        return mx.nd.array(values.astype("float32"))

    arguments = [n for n in net.list_arguments() if n not in (*shapes, *labels)]
    mx.random.seed(3)
    module.init_params(
        arg_params={n: first(n) for n in arguments},
        aux_params={n: first(n) for n in net.list_auxiliary_states()},
    )
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.05, "momentum": 0.9})
    found = {}
    for step in (1, 2):
        one = mx.io.DataBatch([batch(n) for n in shapes], [batch(n) for n in labels])
        module.forward_backward(one)
        module.update()
        outs = [x.asnumpy() for x in module.get_outputs()]
        finite = all(np.isfinite(x.astype("float64")).all() for x in outs)
        found[f"outputs of step {step}"] = digest(*map(digest_of_array, outs)) + " not finite" * (not finite)
    for kind, arrays in zip(("parameters", "states"), module.get_params()):
        found[kind] = digest(*(f"{n} {digest_of_array(arrays[n].asnumpy())}" for n in sorted(arrays)))
    return found
