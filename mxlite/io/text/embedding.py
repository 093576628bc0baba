"""Vectors of tokens, read from files: one line a token, `token number number ...`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from ...core.disk.files import opened
from ...core.errors import (
    ArgumentError,
    FormatError,
    MXLiteError,
    nearest,
    ShapeError,
    UnknownNameError,
)
from ...core.wanted import wanted, wanted_path
from ...ndarray import array, NDArray, zeros
from .pretrained import FAST_TEXT, GLOVE
from .vocab import Vocabulary

_registered: dict[str, type[TokenEmbedding]] = {}


def register(embedding_cls: type[TokenEmbedding]) -> type[TokenEmbedding]:
    """Class decorator: `create` and `get_pretrained_file_names` know the class by its name in lower case."""
    if not isinstance(embedding_cls, type) or not issubclass(embedding_cls, TokenEmbedding):
        raise ArgumentError(f"register takes a subclass of TokenEmbedding, got {embedding_cls!r}.")
    _registered[embedding_cls.__name__.lower()] = embedding_cls
    return embedding_cls


def create(embedding_name: str, **kwargs: Any) -> TokenEmbedding:
    """An embedding of that name, such as 'glove'; `kwargs` go to its class."""
    return _class_of(embedding_name)(**kwargs)


def get_pretrained_file_names(embedding_name: str | None = None) -> Any:
    """Names of the files that an embedding can read: a list, or a dict of lists without `embedding_name`."""
    if embedding_name is not None:
        return list(_class_of(embedding_name).pretrained_file_names)
    return {n: list(c.pretrained_file_names) for n, c in _registered.items() if c.pretrained_file_names}


def _class_of(name: str) -> type[TokenEmbedding]:
    cls = _registered.get(wanted("embedding_name", name, "a name", str).lower())
    if cls is None:
        raise UnknownNameError(
            f"There is no embedding {name!r}.{nearest(name, _registered)} Known: {', '.join(_registered)}."
        )
    return cls


class TokenEmbedding(Vocabulary):
    """A vocabulary with a vector for each token; base of all embeddings.

    A subclass calls `_read` in its `__init__`. `init_unknown_vec(shape=n)` gives the vector of unknown
    tokens, unless the file has one. With a `vocabulary` the tokens are that one's, in its order.
    """

    pretrained_file_names: ClassVar[Sequence[str]] = ()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._idx_to_vec: NDArray | None = None

    @property
    def vec_len(self) -> int:
        """Length of a vector."""
        return self.idx_to_vec.shape[1]

    @property
    def idx_to_vec(self) -> NDArray:
        """(tokens, vec_len) float32: the vectors in the order of the indices."""
        if self._idx_to_vec is None:
            raise MXLiteError(f"This {type(self).__name__} has read no file yet, and so has no vectors.")
        return self._idx_to_vec

    def get_vecs_by_tokens(self, tokens: str | Sequence[str], lower_case_backup: bool = False) -> NDArray:
        """The vector of a token, (vec_len,), or of each of a list, (n, vec_len).

        A token without one gets that of unknown tokens; with `lower_case_backup` only if it has none in lower
        case either.
        """
        single = isinstance(tokens, str)
        known = self.token_to_idx
        rows = []
        for token in [tokens] if isinstance(tokens, str) else tokens:
            row = known.get(token)
            if row is None and lower_case_backup:
                row = known.get(token.lower())
            rows.append(row or 0)
        vectors = self.idx_to_vec.asnumpy()[rows]
        return array(vectors[0] if single else vectors)

    def update_token_vectors(self, tokens: str | Sequence[str], new_vectors: NDArray) -> None:
        """Give tokens other vectors: an NDArray (n, vec_len), or (vec_len,) for one token.

        UnknownNameError for a token that is not in the vocabulary: its vector is the unknown token's.
        """
        names = [tokens] if isinstance(tokens, str) else list(tokens)
        wanted("update_token_vectors: new_vectors", new_vectors, "an NDArray", NDArray)
        shape = (len(names), self.vec_len)
        if new_vectors.shape != shape and not (len(names) == 1 and new_vectors.shape == shape[1:]):
            raise ShapeError(
                f"update_token_vectors: {len(names)} tokens need vectors of shape {shape}, got "
                f"{new_vectors.shape}."
            )
        if strange := [t for t in names if t not in self.token_to_idx]:
            raise UnknownNameError(
                f"The token {strange[0]!r} is not in the vocabulary. All such share one vector: that of "
                f"{self.unknown_token!r}, which can be updated by that name."
            )
        self.idx_to_vec[[self.token_to_idx[t] for t in names]] = new_vectors.reshape(shape)

    # -- reading ---------------------------------------------------------------------------------------

    def _read(
        self,
        path: str,
        elem_delim: str,
        init_unknown_vec: Callable[..., Any],
        encoding: str = "utf8",
        vocabulary: Vocabulary | None = None,
    ) -> None:
        """Take tokens and vectors out of a file. Raises FormatError, naming the line that is malformed."""
        path = os.path.expanduser(wanted_path("The file of vectors", path))
        if not os.path.isfile(path):
            raise UnknownNameError(f"There is no file {path} to read vectors from.")
        names, vectors = [self.unknown_token], []
        seen: set[str] = set()
        unknown = None
        for number, token, values in _lines(path, elem_delim, encoding):
            if token == self.unknown_token and unknown is None:
                unknown = values
            elif token in seen:
                warnings.warn(
                    f"{path}, line {number}: {token!r} has been there before, and keeps its first vector.",
                    stacklevel=4,
                )
                continue
            elif len(values) == 1:
                warnings.warn(
                    f"{path}, line {number}: {token!r} has one number; taken for a header and left out.",
                    stacklevel=4,
                )
                continue
            else:
                names.append(token)
                vectors.append(values)
            seen.add(token)
            length = len(vectors[0] if vectors else values)
            if len(values) != length:
                raise FormatError(
                    f"{path}, line {number}: {token!r} has {len(values)} numbers, those before have {length}."
                )
        if not vectors:
            raise FormatError(f"{path} has no vectors.")
        length = len(vectors[0])
        if unknown is None:
            unknown = np.asarray(init_unknown_vec(shape=length).asnumpy(), np.float32)
        elif len(unknown) != length:
            raise FormatError(
                f"{path}: {self.unknown_token!r} has {len(unknown)} numbers, the others have {length}."
            )
        self._idx_to_token = names
        self._token_to_idx = {t: i for i, t in enumerate(names)}
        self._idx_to_vec = array(np.stack([unknown, *vectors]))
        if vocabulary is not None:
            self._take_over(vocabulary, [self])

    def _take_over(self, vocabulary: Vocabulary, embeddings: Sequence[TokenEmbedding]) -> None:
        """Take over the tokens of `vocabulary`, with their vectors in `embeddings` concatenated."""
        wanted("vocabulary", vocabulary, "a Vocabulary", Vocabulary)
        parts = [e.get_vecs_by_tokens(vocabulary.idx_to_token).asnumpy() for e in embeddings]
        # The unknown token's own name may mean another in the vocabulary: index 0 is unknown in all.
        for part, e in zip(parts, embeddings):
            part[0] = e.idx_to_vec[0].asnumpy()
        self._idx_to_vec = array(np.concatenate(parts, axis=1))
        self._idx_to_token = list(vocabulary.idx_to_token)
        self._token_to_idx = dict(vocabulary.token_to_idx)
        self._unknown_token = vocabulary.unknown_token
        self._reserved_tokens = vocabulary.reserved_tokens


_TokenEmbedding = TokenEmbedding  # its name in MXNet


def _lines(path: str, delimiter: str, encoding: str) -> Iterator[tuple[int, str, np.ndarray]]:
    """Line number, token and numbers of each line that is not empty."""
    with opened(path) as file:
        for number, raw in enumerate(file, 1):
            try:
                line = raw.decode(encoding).rstrip()
            except UnicodeDecodeError as error:
                raise FormatError(f"{path}, line {number}: not {encoding}: {error}.") from None
            if not line:
                continue
            token, *rest = line.split(delimiter)
            if not rest:
                raise FormatError(
                    f"{path}, line {number}: should be a token and numbers with {delimiter!r} between them, "
                    f"but is {line[:60]!r}."
                )
            try:
                yield number, token, np.array(rest, np.float32)
            except ValueError:
                wrong = next(x for x in rest if not _is_number(x))
                raise FormatError(
                    f"{path}, line {number}: {wrong[:40]!r} is no number (of {token[:40]!r})."
                ) from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class _Pretrained(TokenEmbedding):
    """Vectors from one of the published files, `first_choice` unless another is named."""

    first_choice: ClassVar[str]

    def __init__(
        self,
        pretrained_file_name: str | None = None,
        embedding_root: str = os.path.join("~", ".mxnet", "embeddings"),
        init_unknown_vec: Callable[..., Any] = zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ) -> None:
        path = self._pretrained_path(embedding_root, pretrained_file_name or self.first_choice)
        super().__init__(**kwargs)
        self._read(path, " ", init_unknown_vec, vocabulary=vocabulary)

    @classmethod
    def _pretrained_path(cls, root: str, name: str) -> str:
        """Path of a pretrained file; UnknownNameError, or MXLiteError if it is missing."""
        if name not in cls.pretrained_file_names:
            raise UnknownNameError(
                f"{cls.__name__} has no pretrained file {name!r}.{nearest(name, cls.pretrained_file_names)}"
            )
        path = os.path.join(os.path.expanduser(root), cls.__name__.lower(), name)
        if not os.path.isfile(path):
            raise MXLiteError(
                f"{cls.__name__}: mxlite downloads nothing. Get {name} by other means and put it at {path}, "
                f"or give embedding_root, the folder in which {cls.__name__.lower()}/{name} is."
            )
        return path


@register
class GloVe(_Pretrained):
    """Vectors of J. Pennington, R. Socher, C. Manning, 2014, "GloVe: global vectors for word representation".

    The file is read from `embedding_root`/glove/`pretrained_file_name` (glove.840B.300d.txt).
    """

    pretrained_file_names = GLOVE
    first_choice = "glove.840B.300d.txt"


@register
class FastText(_Pretrained):
    """Vectors of P. Bojanowski, E. Grave, A. Joulin, T. Mikolov, 2017, "Enriching word vectors with subword
    information".

    The file is read from `embedding_root`/fasttext/`pretrained_file_name` (wiki.simple.vec).
    """

    pretrained_file_names = FAST_TEXT
    first_choice = "wiki.simple.vec"


class CustomEmbedding(TokenEmbedding):
    """Vectors from a file of the user's: lines of a token and its numbers, `elem_delim` between them."""

    def __init__(
        self,
        pretrained_file_path: str,
        elem_delim: str = " ",
        encoding: str = "utf8",
        init_unknown_vec: Callable[..., Any] = zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._read(pretrained_file_path, elem_delim, init_unknown_vec, encoding, vocabulary)


class CompositeEmbedding(TokenEmbedding):
    """The tokens of a vocabulary with the concatenated vectors of several embeddings."""

    def __init__(
        self, vocabulary: Vocabulary, token_embeddings: TokenEmbedding | Sequence[TokenEmbedding]
    ) -> None:
        wanted("CompositeEmbedding: vocabulary", vocabulary, "a Vocabulary", Vocabulary)
        given: Any = token_embeddings
        embeddings = list(given) if isinstance(given, (list, tuple)) else [given]
        for e in embeddings:
            wanted("CompositeEmbedding: one of token_embeddings", e, "a TokenEmbedding", TokenEmbedding)
        super().__init__(unknown_token=vocabulary.unknown_token)
        self._take_over(vocabulary, embeddings)
