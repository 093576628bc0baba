"""gluon.contrib: layers side by side and finer images; texts, and the sampler that goes on in them."""

import numpy as np
import pytest

import mxlite as mx
from mxlite import gluon
from mxlite.gluon import contrib, nn


@pytest.mark.parametrize(
    ("kind", "hybrid"), [("Concurrent", False), ("HybridConcurrent", False), ("HybridConcurrent", True)]
)
def test_blocks_side_by_side_are_joined(kind, hybrid):
    net = getattr(contrib.nn, kind)(axis=1)
    net.add(nn.Dense(2), contrib.nn.Identity())
    net.initialize(mx.init.One())
    if hybrid:
        net.hybridize()
    np.testing.assert_allclose(net(mx.nd.array([[1, 2, 3]])).asnumpy(), [[6, 6, 1, 2, 3]])


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize(
    ("kind", "factor"), [("1D", 3), ("2D", (2, 3)), ("2D", 2), ("3D", (2, 3, 4)), ("3D", 2)]
)
def test_a_channel_is_a_place_in_each_cell_of_the_finer_image(kind, factor, hybrid):
    axes = int(kind[0])
    factors = (factor,) * axes if isinstance(factor, int) else factor
    net = getattr(contrib.nn, f"PixelShuffle{kind}")(factor)
    if hybrid:
        net.hybridize()
    lengths, channels = (2, 3, 2)[:axes], 2
    x = np.random.default_rng(1).standard_normal((2, channels * np.prod(factors), *lengths)).astype("f")
    want = np.empty((2, channels, *(n * f for n, f in zip(lengths, factors))), "f")
    for place in np.ndindex(*want.shape):
        inside = [i % f for i, f in zip(place[2:], factors)]
        channel = np.ravel_multi_index((place[1], *inside), (channels, *factors))
        want[place] = x[(place[0], channel, *(i // f for i, f in zip(place[2:], factors)))]
    np.testing.assert_array_equal(net(mx.nd.array(x)).asnumpy(), want)


def test_a_factor_for_too_many_axes_is_named():
    with pytest.raises(
        mx.MXNetError, match=r"PixelShuffle2D: factor must be one number or 2, got \(2, 2, 2\)"
    ):
        contrib.nn.PixelShuffle2D((2, 2, 2))


def test_the_gradient_of_a_sparse_embedding_has_the_rows_that_were_looked_up():
    net = contrib.nn.SparseEmbedding(5, 2)
    net.initialize()
    with mx.autograd.record():
        loss = net(mx.nd.array([1, 3, 1])).sum()
    loss.backward()
    assert net.weight.grad().indices.asnumpy().tolist() == [1, 3]


def test_an_interval_sampler_takes_every_third():
    assert list(contrib.data.IntervalSampler(8, 3)) == [0, 3, 6, 1, 4, 7, 2, 5]
    once = contrib.data.IntervalSampler(8, 3, rollover=False)
    assert (list(once), len(once)) == ([0, 3, 6], 3)
    with pytest.raises(mx.MXNetError, match="interval must be at most length 2, got 3"):
        contrib.data.IntervalSampler(2, 3)


def test_a_text_is_rows_of_words_with_the_next_words_as_labels(tmp_path):
    (tmp_path / "wiki.train.tokens").write_text(" a b a \n\n c a \n")
    (tmp_path / "wiki.test.tokens").write_text("c d\n")
    text = contrib.data.text.WikiText2(str(tmp_path), "train", seq_len=3)
    numbers = text.vocabulary.to_indices("a b a <eos> c a <eos>".split())
    assert [row.asnumpy().tolist() for row in text[0]] == [numbers[:3], numbers[1:4]]
    assert [row.asnumpy().tolist() for row in text[1]] == [numbers[3:6], numbers[4:7]]
    assert len(text) == 2
    assert text.frequencies["a"] == 3
    other = contrib.data.text.WikiText2(str(tmp_path), "test", text.vocabulary, 2)
    assert other[0][0].asnumpy().tolist() == text.vocabulary.to_indices(["c", "<unk>"])
    with pytest.raises(mx.MXNetError, match=r"wiki\.valid\.tokens is not there"):
        contrib.data.text.WikiText103(str(tmp_path), "validation")
    with pytest.raises(mx.MXNetError, match="segment must be one of train, validation, test, got 'tests'"):
        contrib.data.text.WikiText2(str(tmp_path), "tests")


def test_a_loader_becomes_an_iterator_of_full_batches():
    data = gluon.data.ArrayDataset(np.arange(10, dtype="f").reshape(5, 2), np.arange(5))
    rows = mx.contrib.io.DataLoaderIter(gluon.data.DataLoader(data, 3), label_name="y")
    assert [tuple(d) for d in rows.provide_data + rows.provide_label] == [("data", (3, 2)), ("y", (3,))]
    for _ in range(2):
        rows.reset()
        first, last = list(rows)
        assert (first.pad, last.pad) == (0, 1)
        np.testing.assert_array_equal(first.label[0].asnumpy(), [0, 1, 2])
        np.testing.assert_array_equal(last.data[0].asnumpy(), [[6, 7], [8, 9], [0, 0]])
    with pytest.raises(mx.MXNetError, match="the loader has no batch"):
        mx.contrib.io.DataLoaderIter([])
