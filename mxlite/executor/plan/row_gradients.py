"""Flags of the weight rows that a step's gradient can reach.

Gradients are dense arrays in a bound program. Those that MXNet stores by rows (of an Embedding with
`sparse_grad`, of the factor of a csr matrix) come with **flags**, one byte for each row, so that a
lazy update leaves the other rows unchanged, as MXNet's does:

    data -> Embedding(data, weight) -> loss          flags = _touched_rows(data)
    csr  -> dot(csr, weight) -> loss                 flags = _touched_columns(csr)

A weight that is used several times has the rows of all uses; a use without `Op.touched_rows`
reaches all rows, and then the gradient is like any other. csr matrices are variables with `stype="csr"` and
results of operators that map 0 to 0; in the program they are dense, so a stored
0 does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...graph import Entry, Graph, Node, parse_attrs, Touched
from ...ops import find_op
from ...ops.linalg.sparse_storage import STYPES, ZERO_AT_ZERO

STORAGE = "__storage_type__"

_KEEPS_CSR = ZERO_AT_ZERO | {"_mul_scalar", "_div_scalar", "Cast", "amp_cast", "_shore"}


def touched_rows(graph: Graph, weights: Sequence[Entry]) -> tuple[dict[Entry, Entry], list[Node]]:
    """Flags of each of `weights` whose gradient reaches only some rows, and the nodes that compute them."""
    csr = _csr_entries(graph)
    reached: dict[Entry, Touched | None] = dict.fromkeys(graph.outputs)  # None: all rows
    for node in reversed(graph.nodes):
        op = node.op
        outs = [Entry(node, i) for i in range(len(node.output_names))] if op is not None else []
        if op is None or not any(e in reached for e in outs):
            continue
        if op.grad_op is None and not op.gradient_is and not op.relays:
            continue
        ins = node.named_inputs
        some = op.touched_rows(node.attrs, ins, reached.get(outs[0]), csr)
        for name, e in ins.items():
            mine = some.get(name)
            before = reached.get(e, frozenset())
            reached[e] = None if mine is None or before is None else mine | before
    flags: dict[Entry, Entry] = {}
    made: dict[tuple[str, Entry, int], Node] = {}
    joined: list[Node] = []
    for weight in weights:
        rows = reached.get(weight)
        if not rows:
            continue
        total: Entry | None = None
        for name, data, size in sorted(rows, key=lambda r: (r[0], r[1].node.name, r[1].index)):
            key = name, data, size
            if key not in made:
                attrs = {"size": size} if name == "_touched_rows" else {}
                declared = find_op(name)
                made[key] = Node(declared, parse_attrs(declared, attrs), (data,), f"{data.node.name}_rows")
                joined.append(made[key])
            node = made[key]
            if total is not None:
                both = find_op("broadcast_maximum")
                node = Node(both, parse_attrs(both, {}), (total, Entry(node)), f"{weight.node.name}_rows")
                joined.append(node)
            total = Entry(node)
        assert total is not None
        flags[weight] = total
    return flags, joined


def is_row_sparse(weight: Entry) -> bool:
    """True if a variable was declared with stype='row_sparse'."""
    return weight.node.annotations.get(STORAGE) == STYPES["row_sparse"]


def _csr_entries(graph: Graph) -> frozenset[Entry]:
    found: set[Entry] = set()
    for node in graph.nodes:
        if node.op is None:
            if node.annotations.get(STORAGE) == STYPES["csr"]:
                found.add(Entry(node))
        elif node.op.op_name == "cast_storage":
            if node.attrs.stype == "csr":
                found.add(Entry(node))
        elif (node.op.op_name in _KEEPS_CSR or node.op.relays) and node.inputs[0] in found:
            found.add(Entry(node))
    return frozenset(found)
