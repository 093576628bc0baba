"""`mx.sym.contrib.foreach`, `while_loop` and `cond`: a Python function is traced once and becomes a subgraph.

While the function runs, an AttrScope marks every operator it creates with `__subgraph_name__`. An entry that
the outputs depend on and that lacks the mark is outside: it becomes an input of the subgraph, a variable
of its own, and an argument of the node. So a body may use any symbol that Python can see, weights and results
alike.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ..core.errors import MXLiteError, OpAttributeError
from ..core.nested import describe, flatten, pair, restore
from ..graph import Entry, Graph, Node, Op, output_name, parse_attrs
from ..ops import find_op
from ..ops.control.subgraph import Subgraph
from .attribute import AttrScope
from .compose import parameter_text
from .functions import operator_function
from .naming import NameManager
from .symbol import Symbol

_MARK = "__subgraph_name__"
_traced = itertools.count()


def foreach(body: Callable[..., Any], data: Any, init_states: Any, name: str = "foreach") -> tuple[Any, Any]:
    """A loop over the rows of `data`: ``out, states = body(row, states)``.

    body: called once, with symbols; returns (outputs, states), each a symbol or nested lists of symbols, the
    states in the form of `init_states`. It may use symbols from outside; outputs may be [].
    data: a symbol, or nested lists, of one length along axis 0. A row of a vector is of shape (1,).
    init_states: a symbol, or nested lists; [] for none.
    name: a part of the names of the body's nodes.

    Returns (outputs stacked along axis 0, last states), in the body's form.
    Training keeps the states before each iteration and recomputes the body in backward.
    """
    rows, row_form = _symbols(data, "foreach: data")
    states, state_form = _symbols(init_states, "foreach: init_states")
    if not rows:
        raise OpAttributeError("foreach: data must be one symbol or more, got an empty list.")
    trace = _Trace(name)
    with trace.scope:
        row_vars, state_vars = trace.variables(rows), trace.variables(states)
        result = body(restore(iter(row_vars), row_form), restore(iter(state_vars), state_form))
        outs, new_states = pair(result, "foreach: body")
        outs, out_form = _symbols(outs, "foreach: an output of body")
        news, new_form = _symbols(new_states, "foreach: a state from body")
        _same_form(state_form, new_form, "foreach: body", len(states), len(news))
        sub = trace.subgraph([*outs, *news], "foreach: body")
    inputs = _positions([*rows, *states], [*row_vars, *state_vars])
    trace.locations(sub, inputs)
    for what, given, made in (("data", rows, row_vars), ("init_states", states, state_vars)):
        for k, (symbol, v) in enumerate(zip(given, made)):
            if v.entries[0].node not in sub.inputs:
                raise OpAttributeError(
                    f"foreach: body does not use {what} {k} ({symbol.name!r}); leave it out, since "
                    f"what a body does not read cannot be stored in a file."
                )
    place = {n: i for i, n in enumerate(sub.inputs)}
    first = [place[v.entries[0].node] for v in (*row_vars, *state_vars)]
    parameters = dict(
        num_outputs=len(outs) + len(news),
        num_out_data=len(outs),
        in_data_locs=first[: len(rows)],
        in_state_locs=first[len(rows) :],
        remain_locs=[i for i in range(len(sub.inputs)) if i not in first],
    )
    outputs = _node("_foreach", {"body": sub}, inputs, parameters)
    return restore(iter(outputs[: len(outs)]), out_form), restore(iter(outputs[len(outs) :]), new_form)


def while_loop(
    cond: Callable[..., Any],
    func: Callable[..., Any],
    loop_vars: Any,
    max_iterations: int | None = None,
    name: str = "while_loop",
) -> tuple[Any, Any]:
    """A loop as long as ``cond(*loop_vars)`` is not 0: ``out, loop_vars = func(*loop_vars)``.

    cond, func: each called once, with symbols; func returns (step outputs, new loop_vars), either may be []
    or None if there is nothing to return. They may use symbols from outside.
    loop_vars: a list of symbols (nested lists are possible), or one symbol.
    max_iterations: the most iterations, and the length of the outputs. Training keeps so many states.
    name: a part of the names of the functions' nodes.

    Returns (outputs stacked along axis 0, last loop_vars). Rows of iterations that did not run are 0 (MXNet
    leaves them undefined).
    """
    if max_iterations is None:
        raise OpAttributeError(
            "while_loop needs max_iterations: outputs are as long as that, and memory is planned so."
        )
    states, form = _symbols(loop_vars, "while_loop: loop_vars")
    if not states:
        raise OpAttributeError("while_loop: loop_vars must be one symbol or more, got an empty list.")

    def call(function: Callable[..., Any], variables: Sequence[Symbol]) -> Any:
        given = restore(iter(variables), form)
        return function(*given) if isinstance(given, list) else function(given)

    deciding = _Trace(f"{name}_cond")
    with deciding.scope:
        cond_vars = deciding.variables(states)
        decision = call(cond, cond_vars)
        if not isinstance(decision, Symbol) or len(decision.entries) != 1:
            raise OpAttributeError(
                f"while_loop: cond must return a symbol of one output, got {describe(decision)}."
            )
        cond_sub = deciding.subgraph([decision], "while_loop: cond")
    trace = _Trace(f"{name}_func")
    with trace.scope:
        func_vars = trace.variables(states)
        outs, new_states = (
            x if x is not None else [] for x in pair(call(func, func_vars), "while_loop: func")
        )
        outs, out_form = _symbols(outs, "while_loop: an output of func")
        news, new_form = _symbols(new_states, "while_loop: a loop_var from func")
        if form in (None, [None]) and new_form in (None, [None]):  # one by itself, or in a list
            new_form = form
        _same_form(form, new_form, "while_loop: func", len(states), len(news))
        sub = trace.subgraph([*outs, *news], "while_loop: func")
    for k, (symbol, v) in enumerate(zip(states, func_vars)):
        if v.entries[0].node not in sub.inputs:
            raise OpAttributeError(
                f"while_loop: func does not use loop_var {k} ({symbol.name!r}); leave it out."
            )
    inputs: dict[Any, Entry] = {}
    cond_locs = deciding.locations(cond_sub, inputs, _keys(states, cond_vars))
    func_locs = trace.locations(sub, inputs, _keys(states, func_vars))
    place = {n: i for i, n in enumerate(sub.inputs)}
    parameters = dict(
        num_outputs=len(outs) + len(news),
        num_out_data=len(outs),
        max_iterations=_whole(max_iterations),
        cond_input_locs=cond_locs,
        func_input_locs=func_locs,
        func_var_locs=[place[v.entries[0].node] for v in func_vars],
    )
    outputs = _node("_while_loop", {"cond": cond_sub, "func": sub}, inputs, parameters)
    return restore(iter(outputs[: len(outs)]), out_form), restore(iter(outputs[len(outs) :]), new_form)


def cond(pred: Any, then_func: Callable[[], Any], else_func: Callable[[], Any], name: str = "cond") -> Any:
    """`then_func()` if `pred` is not 0, else `else_func()`; only that one is computed.

    pred: a symbol of one number.
    then_func, else_func: called once each, without arguments; return a symbol, or nested lists of symbols, of
    the same form, shapes and types. Their inputs come from outside.
    name: a part of the names of the functions' nodes.

    Returns the outputs in the form of `then_func`'s. No gradient goes through `pred`.
    """
    if not isinstance(pred, Symbol) or len(pred.entries) != 1:
        raise OpAttributeError(f"cond: pred must be a symbol of one output, got {describe(pred)}.")
    subs, forms, traces = [], [], []
    for function, what in ((None, "pred"), (then_func, "then"), (else_func, "else")):
        trace = _Trace(f"{name}_{what}")
        with trace.scope:
            outs, form = _symbols(pred if function is None else function(), f"cond: the {what} branch")
            subs.append(trace.subgraph(outs, f"cond: {what}"))
        forms.append(form)
        traces.append(trace)
    if forms[1] != forms[2]:
        counts = [len(s.graph.outputs) for s in subs[1:]]
        raise OpAttributeError(
            f"cond: both branches must return the same form; then gives {counts[0]} symbols, "
            f"else {counts[1]}, or in other lists."
        )
    inputs: dict[Any, Entry] = {}
    locs = [t.locations(s, inputs) for t, s in zip(traces, subs)]
    parameters = dict(
        num_outputs=len(subs[1].graph.outputs),
        cond_input_locs=locs[0],
        then_input_locs=locs[1],
        else_input_locs=locs[2],
    )
    outputs = _node("_cond", dict(zip(("cond", "then_branch", "else_branch"), subs)), inputs, parameters)
    return restore(iter(outputs), forms[1])


class _Trace:
    """One run of a user's function: its mark, and the entries it takes from outside."""

    def __init__(self, name: str) -> None:
        outer = AttrScope.current.get(None).get(_MARK)
        self.name = f"{outer}${name}" if outer else name
        self.name += str(next(_traced))
        self.scope = AttrScope(**{_MARK: self.name})
        self._names: Counter[str] = Counter()
        self._own: dict[Node, None] = {}
        self._outer: dict[Entry, Node] = {}  # outside entry -> its variable here
        self._entry_of: dict[Node, Entry] = {}

    def variables(self, symbols: Sequence[Symbol]) -> list[Symbol]:
        """A variable for each row or state."""
        created = []
        for symbol in symbols:
            entry = symbol.entries[0]
            node = self._variable(f"{entry.node.name}-{entry.index}", {})
            self._own[node] = None
            created.append(Symbol((Entry(node),)))
        return created

    def _variable(self, name: str, about: dict[str, str]) -> Node:
        self._names[name] += 1
        if (count := self._names[name]) > 1:
            name = f"{name}_{count}"
        return Node(None, None, (), name, annotations={**about, _MARK: self.name})

    def subgraph(self, outputs: Sequence[Symbol], who: str) -> Subgraph:
        """The graph of these outputs, with a variable for each entry from outside."""
        entries, seen = [], set()
        if not outputs:
            raise OpAttributeError(f"{who} must return one symbol or more.")
        for symbol in outputs:
            if len(symbol.entries) != 1:
                raise OpAttributeError(
                    f"{who} returned {symbol!r} of {len(symbol.entries)} outputs; choose one of them."
                )
            entry = symbol.entries[0]
            if not self._is_inside(entry.node) or entry in seen:  # each output comes from inside, and once
                entry = operator_function("identity")(symbol).entries[0]
            seen.add(entry)
            entries.append(entry)
        try:
            return Subgraph(Graph(self._cut(entries)))
        except OpAttributeError as error:
            raise OpAttributeError(f"{who}: {error}") from None

    def _is_inside(self, node: Node) -> bool:
        return node.op is not None and node.annotations.get(_MARK) == self.name

    def _cut(self, outputs: Sequence[Entry]) -> tuple[Entry, ...]:
        fresh: dict[Node, Node] = {}

        def now(entry: Entry) -> Entry:
            node = entry.node
            if node in fresh:
                return Entry(fresh[node], entry.index)
            if node in self._own:
                return entry
            if entry not in self._outer:
                about = {k: v for k, v in node.annotations.items() if node.op is None and k != _MARK}
                self._outer[entry] = self._variable(output_name(entry), about)
                self._entry_of[self._outer[entry]] = entry
            return Entry(self._outer[entry])

        stack = [(e.node, False) for e in reversed(outputs)]
        while stack:
            node, ready = stack.pop()
            if node in fresh or not self._is_inside(node):
                continue
            if not ready:
                stack.append((node, True))
                stack += [(e.node, False) for e in reversed(node.inputs)]
                continue
            fresh[node] = Node(
                node.op, node.attrs, tuple(map(now, node.inputs)), node.name, node.given,
                dict(node.annotations), node.forward, node.absent,
            )  # fmt: skip
        return tuple(map(now, outputs))

    def locations(
        self, sub: Subgraph, inputs: dict[Any, Entry], keys: dict[Node, tuple[Any, Entry]] | None = None
    ) -> list[int]:
        """The index of each input of `sub` in `inputs`, to which missing ones are appended."""
        places = []
        for node in sub.inputs:
            if node in (keys or {}):
                key, entry = (keys or {})[node]
            elif node in self._entry_of:
                key = entry = self._entry_of[node]
            else:
                continue  # a row or a state, which has its index
            inputs.setdefault(key, entry)
            places.append(list(inputs).index(key))
        return places


def _keys(symbols: Sequence[Symbol], variables: Sequence[Symbol]) -> dict[Node, tuple[Any, Entry]]:
    """Keys of rows and states, which are distinct even if one symbol is given twice."""
    return {v.entries[0].node: (("own", k), s.entries[0]) for k, (s, v) in enumerate(zip(symbols, variables))}


def _positions(symbols: Sequence[Symbol], variables: Sequence[Symbol]) -> dict[Any, Entry]:
    return dict(_keys(symbols, variables).values())


def _symbols(value: Any, what: str) -> tuple[list[Symbol], Any]:
    """The symbols of nested lists, one output each, and their form."""
    if isinstance(value, Symbol) and len(value.entries) > 1:
        value = list(value)
    elif isinstance(value, (list, tuple)):
        value = [list(v) if isinstance(v, Symbol) and len(v.entries) > 1 else v for v in value]
    return flatten(value, lambda x: isinstance(x, Symbol), what)


def _same_form(old: Any, new: Any, who: str, count: int, found: int) -> None:
    if old != new:
        raise OpAttributeError(
            f"{who} must return states in the form they came in: {count} in {_shape_of(old)}, "
            f"got {found} in {_shape_of(new)}."
        )


def _shape_of(form: Any) -> str:
    if form is None:
        return "no list"
    return f"a list of {len(form)}" if all(f is None for f in form) else "nested lists"


def _whole(value: Any) -> int:
    if hasattr(value, "asscalar"):
        value = value.asscalar()
    try:
        return int(value)
    except (TypeError, ValueError):
        raise OpAttributeError(f"while_loop: max_iterations must be a whole number, got {value!r}.") from None


def _node(
    op_name: str, subgraphs: dict[str, Subgraph], inputs: dict[Any, Entry], parameters: dict[str, Any]
) -> list[Symbol]:
    """The visible outputs of the new node."""
    op: type[Op] = find_op(op_name)
    given = {"num_args": len(inputs) + len(subgraphs), **parameters}
    text = {k: parameter_text(v) for k, v in given.items()}
    try:
        attrs = parse_attrs(op, {**text, **subgraphs})
    except OpAttributeError as error:
        raise MXLiteError(f"{error} This is a bug in mxlite; please report it.") from error
    about = AttrScope.current.get(None)
    node = Node(op, attrs, tuple(inputs.values()), NameManager.current.get(None, op_name), text, about)
    return [Symbol((Entry(node, i),)) for i in range(node.num_visible_outputs)]
