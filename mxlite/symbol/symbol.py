"""Symbol: a handle on outputs of a graph, with MXNet's methods."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, overload

from ..core import read_at_most, replacing
from ..core.disk.files import opened
from ..core.errors import FormatError, IndexingError, MXLiteError, nearest, OpAttributeError, UnknownNameError
from ..core.supplied import Supplied
from ..core.wanted import wanted, wanted_path
from ..graph import Entry, gradient, Graph, Node, output_name, Shape
from ..ops import TABLE
from ..ops.shape.split import split_parameters
from . import inference
from .arithmetic import Arithmetic, single
from .attribute import both_spellings, HIDDEN, is_annotation, require_text, stored_key
from .bindable import Bindable
from .compose import duplicate, graph_of, substitute
from .debug import describe
from .json_reader import loads, LONGEST_TEXT
from .json_writer import dumps


class Symbol(Arithmetic, Bindable):
    """Outputs of a graph: operators take and return symbols, which can be bound, saved and differentiated.

    A symbol never changes (but for `_set_attr`), and shares its nodes with the symbols it was made from.
    Python's operators make nodes: `a + b` for two symbols of one shape, `a + 1`, `a > b`.
    """

    __slots__ = ("__weakref__", "_built", "_places", "entries")

    def __init__(self, outputs: Sequence[Entry] | Graph) -> None:
        self._built = outputs if isinstance(outputs, Graph) else None
        self._places: dict[str, list[int]] | None = None
        self.entries: tuple[Entry, ...] = outputs.outputs if isinstance(outputs, Graph) else tuple(outputs)

    @property
    def graph(self) -> Graph:
        """The graph held by this symbol's outputs."""
        if self._built is None:
            self._built = graph_of(self.entries)
        return self._built

    # -- names and lists ---------------------------------------------------------------------

    @property
    def name(self) -> str | None:
        """The name of the node whose outputs these are; None for a group."""
        nodes = {e.node for e in self.entries}
        return self.entries[0].node.name if len(nodes) == 1 else None

    def __repr__(self) -> str:
        if self.name is not None:
            return f"<Symbol {self.name}>"
        names = [e.node.name for e in self.entries[:8]]
        return f"<Symbol group [{', '.join(names)}{', ...' if len(self.entries) > 8 else ''}]>"

    def list_arguments(self) -> list[str]:
        """Names of the free variables, states excluded, in depth-first order of first use."""
        return [n.name for n in self.graph.arguments]

    def list_auxiliary_states(self) -> list[str]:
        """Names of the variables that operators update by themselves, in graph order."""
        return [n.name for n in self.graph.auxiliary]

    def list_inputs(self) -> list[str]:
        """Names of all free variables, states included, in graph order."""
        return [n.name for n in self.graph.variables]

    def list_outputs(self) -> list[str]:
        """NODE_output, or NODE_mean and the like for a node with several; a variable's own name."""
        return [output_name(e) for e in self.entries]

    def get_internals(self) -> Symbol:
        """Every visible output in the graph, in graph order: `net.get_internals()["fc1_output"]`."""
        nodes = self.graph.nodes
        return Symbol([Entry(n, i) for n in nodes for i in range(n.num_visible_outputs)])

    def get_children(self) -> Symbol | None:
        """A group of the inputs of this symbol's nodes; None for variables."""
        nodes = dict.fromkeys(e.node for e in self.entries)
        children = [e for n in nodes for e in n.inputs]
        return Symbol(children) if children else None

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Symbol]:
        return (Symbol((e,)) for e in self.entries)

    @overload
    def __getitem__(self, index: int | str) -> Symbol: ...
    @overload
    def __getitem__(self, index: slice) -> Symbol: ...
    def __getitem__(self, index: Any) -> Symbol:
        """One output by place or by its name in `list_outputs`; several by a slice.

        Raises IndexingError past the end, UnknownNameError for a name that no output or several have.
        """
        if isinstance(index, slice):
            return Group(Symbol((e,)) for e in self.entries[index])
        if isinstance(index, str):
            return Symbol((self.entries[self._place(index)],))
        if isinstance(index, bool) or not hasattr(index, "__index__"):
            raise OpAttributeError(f"Outputs of {self!r} are chosen by number, name or slice, not {index!r}.")
        place = index.__index__()
        if place < 0:
            raise MXLiteError(f"Outputs of {self!r} are counted from 0, got {place}.")
        if place >= len(self.entries):
            raise IndexingError(f"{self!r} has {len(self.entries)} outputs; there is no number {place}.")
        return Symbol((self.entries[place],))

    def _place(self, name: str) -> int:
        if self._places is None:
            places: dict[str, list[int]] = {}
            for i, output in enumerate(self.list_outputs()):
                places.setdefault(output, []).append(i)
            self._places = places
        found = self._places.get(name, [])
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownNameError(f"{len(found)} outputs of {self!r} are called {name!r}; choose by number.")
        raise UnknownNameError(f"{self!r} has no output {name!r}.{nearest(name, self._places)}")

    def __getattr__(self, name: str) -> Any:
        """Operators as methods: `net.sum(axis=1)` is `mx.sym.sum(net, axis=1)`."""
        if name.startswith("_") or name not in TABLE:
            raise AttributeError(f"'Symbol' object has no attribute {name!r}")
        return partial(operator_function.call(name), self)

    def split_v2(
        self, indices_or_sections: int | Sequence[int], axis: int = 0, squeeze_axis: bool = False
    ) -> Symbol:
        """`mx.sym.split_v2` of this symbol."""
        split = operator_function.call("_split_v2")
        given = split_parameters(indices_or_sections)
        return split(self, **given, axis=axis, squeeze_axis=squeeze_axis)

    def astype(self, dtype: Any) -> Symbol:
        """`mx.sym.Cast(self, dtype=dtype)`."""
        cast: Symbol = self.Cast(dtype=dtype)
        return cast

    # -- attributes --------------------------------------------------------------------------

    def attr(self, key: str) -> str | None:
        """One attribute of the node, parameters included; None if it has none, or this is a group."""
        return self.list_attr().get(key)

    def list_attr(self, recursive: bool = False) -> dict[str, str]:
        """The node's parameters and attributes as text; hidden keys under both spellings. {} for a group."""
        if recursive:
            raise MXLiteError("list_attr(recursive=True) is not supported; use attr_dict().")
        if self.name is None:
            return {}
        return _attributes(self.entries[0].node)

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """`list_attr` of every node in the graph that has any, by name."""
        return {n.name: attributes for n in self.graph.nodes if (attributes := _attributes(n))}

    def _set_attr(self, **attributes: str) -> None:
        """Set attributes of the node in place: all symbols that hold the node see it.

        Operators take `__key__` and the hidden keys only: their parameters are fixed once made.
        """
        if self.name is None:
            raise MXLiteError(f"{self!r} is a group; set attributes on one of its symbols.")
        node = self.entries[0].node
        for key, value in attributes.items():
            require_text(key, value, node.name)
            if node.op is not None and not is_annotation(key):
                raise OpAttributeError(
                    f"{node.op.op_name} {node.name!r}: {key!r} cannot be set once the node is made; "
                    f"use one of {HIDDEN} or a key like '__{key}__'."
                )
        for key, value in attributes.items():
            node.annotations[stored_key(key)] = value

    # -- composition -------------------------------------------------------------------------

    def __call__(self, *args: Symbol, name: str | None = None, **kwargs: Symbol) -> Symbol:
        """This symbol with free variables replaced: `net(data=other)`. `name` renames the output node.

        Nodes that do not depend on a replaced variable are shared with the original, so
        weights are too. Raises UnknownNameError for a name that is no free variable.
        """
        if args:
            raise MXLiteError(f"{self!r} is composed by name, as in net({self.list_arguments()[0]}=symbol).")
        variables: dict[str, list[Node]] = {}
        for n in self.graph.variables:
            variables.setdefault(n.name, []).append(n)
        replacement: dict[Node, Entry] = {}
        for key, value in kwargs.items():
            if not isinstance(value, Symbol):
                raise OpAttributeError(
                    f"{self!r}: {key!r} must be replaced by a Symbol, got {type(value).__name__}."
                )
            if key not in variables:
                raise UnknownNameError(f"{self!r} has no free variable {key!r}.{nearest(key, variables)}")
            replacement |= dict.fromkeys(variables[key], single(value, repr(self)))
        if name is not None and (self.name is None or self.entries[0].node.op is None):
            raise MXLiteError(f"{self!r} is not one operator, so it cannot be renamed to {name!r}.")
        renamed = {self.entries[0].node: name} if name is not None else {}
        return Symbol(substitute(self.entries, replacement, renamed))

    def gradient(self, wrt: str | Sequence[str]) -> Symbol:
        """d(sum of all outputs)/d(variable) for each name in `wrt`, as nodes of a new symbol.

        Losses define their own gradient; other outputs start with ones. Raises UnknownNameError for a name
        that is no argument, MXLiteError for one that no output depends on.
        """
        names = [wrt] if isinstance(wrt, str) else list(wrt)
        arguments = {n.name: n for n in self.graph.arguments}
        for key in names:
            if key not in arguments:
                raise UnknownNameError(
                    f"gradient: {self!r} has no argument {key!r}.{nearest(key, arguments)}"
                )
        whole = gradient(self.graph, [Entry(arguments[k]) for k in names])
        return Symbol(Graph(whole.outputs[len(self.entries) :], order=whole.order))

    def __copy__(self) -> Symbol:
        return Symbol(duplicate(self.graph))

    def __deepcopy__(self, memo: dict[int, Any]) -> Symbol:
        return Symbol(duplicate(self.graph))

    def __reduce__(self) -> tuple[Any, ...]:
        return load_json, (self.tojson(),)

    # -- inference ---------------------------------------------------------------------------

    def infer_shape(self, *args: Shape | None, **kwargs: Shape | None) -> inference.ShapeLists:
        """Shapes of (arguments, outputs, auxiliary states) from some that are known.

        By name, or by position in `list_arguments` order; 0 is an unknown dimension. All three are None if
        anything stays unknown. Raises ShapeError for a contradiction, UnknownNameError for a wrong name.
        """
        return inference.shapes(self.graph, inference.known_by_name(self.graph, args, kwargs, "shape"), False)

    def infer_shape_partial(self, *args: Shape | None, **kwargs: Shape | None) -> inference.ShapeLists:
        """As `infer_shape`, with () for an unknown rank and 0 for an unknown dimension."""
        return inference.shapes(self.graph, inference.known_by_name(self.graph, args, kwargs, "shape"), True)

    def infer_type(self, *args: Any, **kwargs: Any) -> inference.TypeLists:
        """Numpy types of (arguments, outputs, auxiliary states); all three None if anything stays unknown."""
        return inference.types(self.graph, inference.known_by_name(self.graph, args, kwargs, "type"), False)

    def infer_type_partial(self, *args: Any, **kwargs: Any) -> inference.TypeLists:
        """As `infer_type`, with None for each type that stays unknown."""
        return inference.types(self.graph, inference.known_by_name(self.graph, args, kwargs, "type"), True)

    # -- text and files ----------------------------------------------------------------------

    def debug_str(self) -> str:
        """The graph as text to read."""
        return describe(self.graph)

    def tojson(self, remove_amp_cast: bool = True) -> str:
        """MXNet's Symbol JSON. `remove_amp_cast` is MXNet's; there is nothing here to remove."""
        return dumps(self.graph)

    def save(self, fname: str | os.PathLike[str], remove_amp_cast: bool = True) -> None:
        """Write `tojson()` to a file, whole or not at all."""
        try:
            content = self.tojson().encode("utf-8")
        except UnicodeEncodeError as error:
            raise FormatError(
                f"A name or attribute has a character that no file can hold: {error}."
            ) from None
        with replacing(fname) as file:
            file.write(content)


operator_function: Supplied[Callable[[str], Callable[..., Symbol]]] = Supplied()
"""The function `mx.sym.<name>` of a name, see `functions.py`."""


def Group(symbols: Iterable[Symbol]) -> Symbol:
    """One symbol with the outputs of several, in order."""
    wanted("Group: symbols", symbols, "a list of Symbols", Symbol, Iterable)
    members = [symbols] if isinstance(symbols, Symbol) else list(symbols)
    if not members or not all(isinstance(s, Symbol) for s in members):
        raise OpAttributeError(f"A group is made of one symbol or more, got {members!r}.")
    return Symbol([e for s in members for e in s.entries])


def load_json(json_str: str) -> Symbol:
    """The symbol in a text that `tojson` or MXNet wrote. Raises FormatError, naming the node."""
    if not isinstance(json_str, str):
        raise FormatError(f"A symbol's JSON must be text, got {type(json_str).__name__}.")
    return Symbol(loads(json_str))


def load(fname: str | os.PathLike[str]) -> Symbol:
    """The symbol in a file of `save` or of MXNet 0.8 to 1.9. Raises FormatError, naming file and node."""
    fname = wanted_path("load: fname", fname)
    with opened(fname) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LONGEST_TEXT:
            raise FormatError(
                f"{os.fspath(fname)} has {size} bytes; a symbol's JSON has at most {LONGEST_TEXT}."
            )
        content = read_at_most(file, LONGEST_TEXT + 1)
    try:
        return load_json(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{os.fspath(fname)} is no symbol's JSON: its byte {error.start} is not UTF-8 text."
        ) from None
    except FormatError as error:
        raise FormatError(f"{os.fspath(fname)}: {error}") from None


def _attributes(node: Node) -> dict[str, str]:
    return both_spellings({**node.given, **node.annotations})
