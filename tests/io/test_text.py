"""mx.contrib.text: vocabularies, and vectors out of files. The values are what MXNet 1.9.1 gives."""

import subprocess
import sys
from collections import Counter

import pytest
from mxlite.contrib import text
from mxlite.contrib.text.vocab import Vocabulary

import mxlite as mx


@pytest.fixture
def words():
    counter = Counter(["b", "b", "a", "c", "c", "c", "z"])
    return Vocabulary(counter, most_freq_count=2, reserved_tokens=["<pad>", "a"])


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors"
    path.write_text("a 1 2\n<unk> 9 9\nb 3 4\nc 5 6\n")
    return path


def test_tokens_are_counted():
    found = text.utils.count_tokens_from_str(" Life is great ! \n life is good . \n", to_lower=True)
    assert found == Counter({"life": 2, "is": 2, "great": 1, "!": 1, "good": 1, ".": 1})
    apart = text.utils.count_tokens_from_str("One_AND_two_and_Two", "_AND_", "_and_", to_lower=True)
    assert apart == Counter({"two": 2, "one": 1})
    more = text.utils.count_tokens_from_str("is|it", token_delim=r"\|", counter_to_update=found)
    assert more["is"] == 3 and found["is"] == 2


def test_a_vocabulary_numbers_its_tokens(words):
    assert words.idx_to_token == ["<unk>", "<pad>", "a", "c", "b"] and len(words) == 5
    assert words.token_to_idx["c"] == 3
    assert (words.unknown_token, words.reserved_tokens) == ("<unk>", ["<pad>", "a"])
    assert words.to_indices(["a", "q"]) == [2, 0] and words.to_indices("c") == 3
    assert words.to_tokens([0, 1]) == ["<unk>", "<pad>"] and words.to_tokens(2) == "a"
    assert Vocabulary(Counter("aabbc"), min_freq=2).idx_to_token == ["<unk>", "a", "b"]


def test_vectors_come_out_of_a_file(vectors):
    e = text.embedding.CustomEmbedding(str(vectors))
    assert e.idx_to_token == ["<unk>", "a", "b", "c"] and e.vec_len == 2
    assert e.idx_to_vec.asnumpy().tolist() == [[9, 9], [1, 2], [3, 4], [5, 6]]
    assert e.get_vecs_by_tokens("b").asnumpy().tolist() == [3, 4]
    assert e.get_vecs_by_tokens(["B", "q"], lower_case_backup=True).asnumpy().tolist() == [[3, 4], [9, 9]]
    e.update_token_vectors("b", mx.nd.array([7, 7]))
    e.update_token_vectors(["a", "c"], mx.nd.array([[1, 1], [2, 2]]))
    assert e.idx_to_vec.asnumpy().tolist() == [[9, 9], [1, 1], [7, 7], [2, 2]]


def test_a_vocabulary_chooses_among_the_vectors(vectors, words):
    e = text.embedding.CustomEmbedding(str(vectors), vocabulary=words, init_unknown_vec=mx.nd.ones)
    assert e.idx_to_token == words.idx_to_token and e.reserved_tokens == ["<pad>", "a"]
    assert e.idx_to_vec.asnumpy().tolist() == [[9, 9], [9, 9], [1, 2], [5, 6], [3, 4]]
    both = text.embedding.CompositeEmbedding(words, [e, text.embedding.CustomEmbedding(str(vectors))])
    assert both.vec_len == 4
    assert both.get_vecs_by_tokens("b").asnumpy().tolist() == [3, 4, 3, 4]


def test_headers_and_repeated_tokens_are_left_out_with_a_warning(tmp_path):
    path = tmp_path / "vectors"
    path.write_text("2 3\na 1 2 3\na 4 5 6\n")
    with pytest.warns(UserWarning) as told:
        e = text.embedding.CustomEmbedding(str(path), init_unknown_vec=mx.nd.ones)
    assert [str(w.message).split(", ")[1].split(":")[0] for w in told] == ["line 1", "line 3"]
    assert e.idx_to_vec.asnumpy().tolist() == [[1, 1, 1], [1, 2, 3]]


@pytest.mark.parametrize(
    "content, words",
    [
        (b"a 1 2\nb 1\nc 1 2 3\n", "line 3: 'c' has 3 numbers, those before have 2"),
        (b"a 1 2\nb 1 x\n", "line 2: 'x' is no number"),
        (b"a 1 2\n\nalone\n", "line 3: should be a token and numbers"),
        (b"a 1 2\n\xff 1 2\n", "line 2: not utf8"),
        (b"a 1 2\n<unk> 1 2 3\n", "line 2: '<unk>' has 3 numbers"),
        (b"<unk> 1 2 3\na 1 2\n", "'<unk>' has 3 numbers, the others have 2"),
        (b"", "has no vectors"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*taken for a header")
def test_a_malformed_file_is_refused_by_its_line(tmp_path, content, words):
    path = tmp_path / "vectors"
    path.write_bytes(content)
    with pytest.raises(mx.FormatError, match=words):
        text.embedding.CustomEmbedding(str(path))


def test_pretrained_files_are_named_and_read_where_they_are(tmp_path):
    names = text.embedding.get_pretrained_file_names()
    assert sorted(names) == ["fasttext", "glove"]
    assert len(names["fasttext"]) == 327 and "wiki.simple.vec" in names["fasttext"]
    assert text.embedding.get_pretrained_file_names("glove")[1] == "glove.6B.50d.txt"
    with pytest.raises(
        mx.MXLiteError, match=r"downloads nothing. Get glove\.6B\.50d\.txt .* put it at .*glove"
    ):
        text.embedding.create("glove", pretrained_file_name="glove.6B.50d.txt", embedding_root=str(tmp_path))
    (tmp_path / "glove").mkdir()
    (tmp_path / "glove" / "glove.6B.50d.txt").write_text("a 1 2\n")
    e = text.embedding.create("GloVe", pretrained_file_name="glove.6B.50d.txt", embedding_root=str(tmp_path))
    assert e.idx_to_vec.asnumpy().tolist() == [[0, 0], [1, 2]]


def test_an_embedding_of_ones_own_is_created_by_name(vectors):
    @text.embedding.register
    class Mine(text.embedding.TokenEmbedding):
        def __init__(self, **given):
            super().__init__(**given)
            self._read(str(vectors), " ", mx.nd.zeros)

    assert text.embedding.create("mine").vec_len == 2


@pytest.mark.parametrize(
    "act, error, words",
    [
        (lambda e: e.update_token_vectors("zz", mx.nd.array([7, 7])), ValueError, "'zz' is not in the voc"),
        (
            lambda e: e.update_token_vectors("a", mx.nd.array([7])),
            mx.ShapeError,
            r"shape \(1, 2\), got \(1,\)",
        ),
        (lambda e: e.to_tokens(99), ValueError, r"\[0, 4\), got 99"),
        (lambda e: text.embedding.create("glov"), mx.UnknownNameError, "Did you mean 'glove'"),
        (lambda e: text.embedding.get_pretrained_file_names("x"), mx.UnknownNameError, "no embedding 'x'"),
        (lambda e: text.embedding.create("glove", pretrained_file_name="q"), mx.UnknownNameError, "no pretr"),
        (lambda e: text.embedding.TokenEmbedding().vec_len, mx.MXLiteError, "no vectors"),
        (lambda e: text.embedding.CustomEmbedding("nowhere"), ValueError, "no file nowhere"),
        (lambda e: Vocabulary(reserved_tokens=["a", "a"]), TypeError, "'a' twice"),
        (lambda e: Vocabulary({"a": 1}), TypeError, "Counter"),
        (lambda e: Vocabulary(min_freq=0), ValueError, "at least 1"),
        (lambda e: text.embedding.CompositeEmbedding(e, [3]), TypeError, "TokenEmbedding"),
    ],
)
def test_what_is_given_wrongly_is_said(vectors, act, error, words):
    e = text.embedding.CustomEmbedding(str(vectors))
    with pytest.raises(error, match=words):
        act(e)


def test_programs_import_it_by_its_name_in_mxnet():
    code = "import mxlite.contrib.text.embedding as e; from mxlite.contrib.text import vocab; e.GloVe"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
