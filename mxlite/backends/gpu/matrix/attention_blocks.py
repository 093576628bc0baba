"""Attention on tensor cores: products by cuBLASLt, with a kernel for rows of scores in between.

It serves two-byte floats, and float32 where TF32 is allowed. The scores of a few key heads at a time are in
scratch, about as much as the second-level cache holds: as float32 for the softmax. Two-byte floats are
rounded once for the product that follows, as in kernels that keep scores on the chip; float32 is not.
Everything else is as in `attention.py`, which handles what this cannot: other types, very long sequences,
gradients of masks.

    forward    scores = query @ key.T;  weights = softmax(scores);  out = weights @ value
    backward   scores and d_weights = d_out @ value.T;  d_scores = weights * (d_weights - delta);
               d_value = weights.T @ d_out;  d_key = d_scores.T @ query;  d_query = d_scores @ key
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ....core import config
from ..compiler.source import kernel, KernelSource, NAMES, shared
from ..handwritten.each import launch
from ..runtime.device import InOrder, nothing, pointer, Run
from ..runtime.scratch import padded
from .attention import Attention, DELTA_THREADS
from .gemm import kernel_name, Pair, Product, product, workspace

MOST_SCRATCH = 64 << 20  # bytes of scores and values derived from them, unless one head takes more
MOST_OF_A_HEAD = 128 << 20
PITCH = 8  # rows of scores are a multiple of so many elements: 16 bytes of two-byte floats


@functools.lru_cache(maxsize=32)
def source(dtype: str, length: str, drops: bool) -> KernelSource:
    """The kernels "attention_weights" and "attention_weights_again"."""
    t, kind = NAMES[dtype], NAMES[length]
    text = shared("types", "math", "philox", "gemm") + f"constexpr bool DROPS = {str(drops).lower()};\n"
    text += shared("attention", "attention_rows")
    head = ["Sizes z", "int64 first", "int64 rows", "int pitch", "const float *scores"]
    masks = ["const void *mask", f"const {kind} *length", "const uint64 *state"]
    parameters = [*head, *masks, f"{t} *weights", "float *log_sum"]
    call = f"weigh_rows<{t}>(z, first, rows, pitch, scores, mask, length, state, weights, log_sum);"
    text += kernel("attention_weights", parameters, [call], DELTA_THREADS)
    parameters = [*head, "const float *d_weights", *masks, "const float *log_sum", "const float *delta"]
    parameters += [f"{t} *weights", f"{t} *d_scores"]
    body = [
        f"weigh_rows_again<{t}>(z, first, rows, pitch, scores, d_weights, mask, length, state, log_sum,",
        "    delta, weights, d_scores);",
    ]
    text += kernel("attention_weights_again", parameters, body, DELTA_THREADS)
    return KernelSource(text, contract=True)


def _scratch(dtype: str, backward: bool) -> dict[str, int]:
    """Bytes for each score, by purpose."""
    made = {"scores": 4, "d_weights": 4} if backward else {"scores": 4}
    if dtype != "float32":
        made |= {"weights": 2, "d_scores": 2} if backward else {"weights": 2}
    return made


@dataclass(frozen=True)
class Blocks:
    """The calls of one operator, `heads` key heads at a time."""

    whole: Attention
    backward: bool
    heads: int

    @classmethod
    def of(cls, whole: Attention | None, backward: bool) -> Blocks | None:
        """None if cuBLASLt cannot run the products on tensor cores, or if a head has too many scores."""
        if whole is None or whole.dtype not in ("float16", "bfloat16", "float32"):
            return None
        if whole.dtype == "float32" and not config.allow_tf32():
            return None
        z = whole.plan
        rows, pitch = z.shared * z.queries, -(-z.keys // PITCH) * PITCH
        each = rows * pitch * sum(_scratch(whole.dtype, backward).values())
        total = z.batch * z.groups
        if not (total and each and z.width and z.values) or each > MOST_OF_A_HEAD:
            return None
        made = cls(whole, backward, max(1, min(total, MOST_SCRATCH // each)))
        used = made.products(made.heads).values()
        if any(kernel_name(whole.device, p) != "cublasLt" for p in used):
            return None
        return made

    @property
    def rows(self) -> int:
        """Number of queries that meet one key head."""
        return self.whole.plan.shared * self.whole.plan.queries

    @property
    def pitch(self) -> int:
        return -(-self.whole.plan.keys // PITCH) * PITCH

    def products(self, count: int) -> dict[str, Product]:
        """Products for `count` key heads, by the name of their result."""
        z, dtype = self.whole.plan, self.whole.dtype
        m, n, e, v, pitch = self.rows, z.keys, z.width, z.values, self.pitch

        def made(rows: int, columns: int, terms: int, a: Pair, b: Pair, c: Pair, **more: Any) -> Product:
            """a, b, c: (pitch, elements of one matrix)."""
            return Product(
                rows, columns, terms, dtype, lda=a[0], ldb=b[0], ldc=c[0], batch=(1, count),
                strides_a=(0, a[1]), strides_b=(0, b[1]), strides_c=(0, c[1]), tf32=dtype == "float32",
                **more,
            )  # fmt: skip

        q, k, value, out, s = (e, m * e), (e, n * e), (v, n * v), (v, m * v), (pitch, m * pitch)
        scores = made(m, n, e, q, k, s, out="float32", trans_b=True, alpha=z.scale)
        if not self.backward:
            return {"scores": scores, "out": made(m, v, n, s, value, out)}
        return {
            "scores": scores,
            "d_weights": made(m, n, v, out, value, s, out="float32", trans_b=True),
            "d_value": made(n, v, m, s, out, value, trans_a=True),
            "d_key": made(n, e, m, s, q, k, trans_a=True, alpha=z.scale),
            "d_query": made(m, e, n, s, k, q, alpha=z.scale),
        }

    def pieces(self) -> dict[str, int]:
        """Bytes of scratch by name."""
        elements = self.heads * self.rows * self.pitch
        device, total = self.whole.device, self.whole.plan.batch * self.whole.plan.groups
        made = {n: size * elements for n, size in _scratch(self.whole.dtype, self.backward).items()}
        if self.backward:
            made["delta"] = self.whole.delta_bytes
        counts = {self.heads, total % self.heads or self.heads}
        made["products"] = max(workspace(device, p) for n in counts for p in self.products(n).values())
        return made

    @property
    def nbytes(self) -> int:
        return sum(map(padded, self.pieces().values()))

    def _places(self, work: int) -> dict[str, int]:
        places = {}
        for name, nbytes in self.pieces().items():
            places[name] = work
            work += padded(nbytes)
        # With float32 a weight overwrites its score: the thread that writes it has read the score.
        places.setdefault("weights", places["scores"])
        if self.backward:
            places.setdefault("d_scores", places["d_weights"])
        return places

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """(first key head, number of heads) of each block."""
        total = self.whole.plan.batch * self.whole.plan.groups
        for first in range(0, total, self.heads):
            yield first, min(self.heads, total - first)

    def _product(self, products: dict[str, Product], at: dict[str, int], name: str, a: str, b: str) -> Run:
        return product(self.whole.device, products[name], at[a], at[b], at[name], 0, at["products"])

    def connect(self, arrays: dict[str, Any], work: int, rng: Any, train: bool) -> Run:
        """arrays: by name, None where there is none. work: `nbytes`, aligned to 256."""
        whole, device, z = self.whole, self.whole.device, self.whole.plan
        wanted = ("d_query", "d_key", "d_value") if self.backward else ("out", "log_sum")
        if all(arrays[n] is None for n in wanted):
            return nothing
        at = {n: 0 if x is None else device.address(x) for n, x in arrays.items()} | self._places(work)
        text = source(whole.dtype, whole.length_type, train and whole.p > 0)
        sizes, state = whole.sizes(rng, train, ()), whole.state(rng, train)
        lengths = {"query": self.rows * z.width, "key": z.keys * z.width, "value": z.keys * z.values}
        lengths |= {f"d_{n}": x for n, x in lengths.items()}
        lengths |= dict.fromkeys(("out", "d_out"), self.rows * z.values)
        size = 4 if whole.dtype == "float32" else 2
        runs: list[Run] = [whole.delta(arrays, at["delta"])] if self.backward else []
        for first, count in self._blocks():
            here = at | {n: at[n] + size * x * first for n, x in lengths.items() if at.get(n)}
            products = self.products(count)

            make = functools.partial(self._product, products, here)
            rows = count * self.rows
            head = [sizes, ctypes.c_int64(first * self.rows), ctypes.c_int64(rows), self.pitch]
            masks = [arrays["mask"], arrays["length"], state]
            runs.append(make("scores", "query", "key"))
            scores = pointer(at["scores"])
            if self.backward:
                runs.append(make("d_weights", "d_out", "value"))
                values = [*head, scores, pointer(at["d_weights"]), *masks]
                values += [pointer(at[n]) for n in ("log_sum", "delta", "weights", "d_scores")]
                name = "attention_weights_again"
            else:
                weights = pointer(at["weights"] if arrays["out"] is not None else 0)
                values = [*head, scores, *masks, weights, arrays["log_sum"]]
                name = "attention_weights"
            blocks = min(-(-rows // (DELTA_THREADS // 32)), 2**16)
            runs.append(launch(device, text, name, blocks, DELTA_THREADS, *values))
            if not self.backward:
                if arrays["out"] is not None:
                    runs.append(make("out", "weights", "value"))
                continue
            for made, a, b in (
                ("d_value", "weights", "d_out"),
                ("d_key", "d_scores", "query"),
                ("d_query", "d_scores", "key"),
            ):
                if arrays[made] is not None:
                    runs.append(make(made, a, b))
        return InOrder(runs)
