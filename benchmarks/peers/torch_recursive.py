"""PyTorch's side of benchmarks/dynamic.py: the Tree-LSTM batched by hand, level by level."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from harness.worker import serve
from torch.nn.functional import cross_entropy, embedding, linear

from peers.recursive_peer import RATE, RecursivePeer
from peers.recursive_samples import HIDDEN, parameters


class TorchRecursive(RecursivePeer):
    """Nodes are numbered level by level; states of all levels so far are one array, which a level indexes."""

    def versions(self) -> dict[str, str]:
        return {"torch": torch.__version__}

    def build(self, net: str, batch: int) -> Callable[[Sequence[Any]], float]:
        of = {n: torch.tensor(v, requires_grad=True) for n, v in parameters(net).items()}
        sgd = torch.optim.SGD(of.values(), lr=RATE)

        def step(samples: Sequence[Any]) -> float:
            words: list[int] = []
            levels: list[list[tuple[Any, Any]]] = []

            def place(t: Any) -> tuple[int, int]:
                if isinstance(t, int):
                    words.append(t)
                    return 0, len(words) - 1
                left, right = place(t[0]), place(t[1])
                at = max(left[0], right[0])
                if at == len(levels):
                    levels.append([])
                levels[at].append((left, right))
                return at + 1, len(levels[at]) - 1

            roots = [place(t) for t, _ in samples]
            x = embedding(torch.tensor(words), of["words_weight"])
            i, o, u = linear(x, of["leaf_weight"], of["leaf_bias"]).split(HIDDEN, 1)
            c = i.sigmoid() * u.tanh()
            states = torch.cat([o.sigmoid() * c.tanh(), c], 1)
            begins = [0, len(words)]
            for pairs in levels:
                where = torch.tensor([[begins[a] + b for a, b in pair] for pair in pairs])
                both = states.index_select(0, where.reshape(-1)).reshape(len(pairs), 2, 2, HIDDEN)
                pre = linear(both[:, :, 0].reshape(len(pairs), -1), of["join_weight"], of["join_bias"])
                i, fl, fr, o, u = pre.split(HIDDEN, 1)
                c = i.sigmoid() * u.tanh() + fl.sigmoid() * both[:, 0, 1] + fr.sigmoid() * both[:, 1, 1]
                states = torch.cat([states, torch.cat([o.sigmoid() * c.tanh(), c], 1)])
                begins.append(len(states))
            h = states.index_select(0, torch.tensor([begins[a] + b for a, b in roots]))[:, :HIDDEN]
            logits = linear(h, of["out_weight"], of["out_bias"])
            loss = cross_entropy(logits, torch.tensor([label for _, label in samples]), reduction="sum")
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            return float(loss)

        return step


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(TorchRecursive().answer)
