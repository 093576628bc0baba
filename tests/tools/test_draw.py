"""`print_summary` and `plot_network`, as text."""

from __future__ import annotations

import sys

import pytest

import mxlite.symbol as sym
from mxlite.core import MXLiteError, OpAttributeError, ShapeError, UnknownNameError
from mxlite.symbol import NameManager
from mxlite.tools import plot_network, print_summary

SHAPE = {"data": (1, 1, 28, 28)}


@pytest.fixture
def net():
    with NameManager():
        x = sym.Convolution(sym.Variable("data"), kernel=(5, 5), num_filter=20, name="c1")
        x = sym.Activation(sym.BatchNorm(x, name="bn"), act_type="relu", name="r")
        x = sym.Pooling(x, pool_type="max", kernel=(2, 2), stride=(2, 2), name="p")
        x = sym.FullyConnected(sym.Flatten(x), num_hidden=10, name="fc")
        return sym.SoftmaxOutput(x, name="softmax")


def rows(text):
    """Layer -> the words of its line."""
    lines = [line.split() for line in text.splitlines() if not line.startswith(("_", "="))]
    return {words[0]: words[1:] for words in lines if words}


def test_summary_counts_what_mxnet_counts(net, capsys):
    print_summary(net, shape=SHAPE)
    text = capsys.readouterr().out
    assert rows(text) == {
        "Layer": ["(type)", "Output", "Shape", "Param", "#", "Previous", "Layer"],
        "data(null)": ["1x28x28", "0"],
        "c1(Convolution)": ["20x24x24", "520", "data"],
        "bn(BatchNorm)": ["20x24x24", "40", "c1"],
        "r(Activation)": ["20x24x24", "0", "bn"],
        "p(Pooling)": ["20x12x12", "0", "r"],
        "flatten0(Flatten)": ["2880", "0", "p"],
        "fc(FullyConnected)": ["10", "28810", "flatten0"],
        "softmax(SoftmaxOutput)": ["10", "0", "fc"],
        "Total": ["params:", "29370"],
    }
    line = text.splitlines()[3]
    assert [line.index(w) for w in ("data(null)", "1x28x28", "0 ")] == [0, 52, 76]


def test_summary_without_shapes_does_not_guess(net, capsys):
    print_summary(net)
    found = rows(capsys.readouterr().out)
    assert found["c1(Convolution)"] == ["?", "data"] and found["r(Activation)"] == ["0", "bn"]
    assert found["Total"][:2] == ["params:", "?"]


def test_a_shared_weight_is_counted_once(capsys):
    x, w = sym.Variable("x"), sym.Variable("w")
    for i in range(3):
        x = sym.FullyConnected(x, w, num_hidden=4, no_bias=True, name=f"f{i}")
    print_summary(x, shape={"x": (2, 4)})
    assert rows(capsys.readouterr().out)["Total"] == ["params:", "16"]


def test_all_that_is_learned_counts_also_without_a_layer_of_its_own(capsys):
    scale = sym.Variable("scale", shape=(1, 4))
    print_summary(sym.broadcast_mul(sym.Variable("x"), scale, name="m"), shape={"x": (2, 4)})
    assert rows(capsys.readouterr().out)["m(broadcast_mul)"] == ["4", "4", "x"]


def test_summary_names_several_inputs_and_then_counts_them(capsys):
    parts = [sym.Variable(f"v{i}") for i in range(9)]
    print_summary(sym.Concat(*parts, name="c"), shape={f"v{i}": (2, 1) for i in range(9)}, line_length=80)
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("c(Concat)"))
    assert [line.split()[-1] for line in lines[at : at + 2]] == ["v0", "v1"]
    assert lines[at + 2].strip() == "(7 more)"
    assert all(len(line) <= 80 for line in lines if not line.startswith("Total"))


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        ({"data": (1, 1, 3, 3)}, ShapeError),  # smaller than the kernel
        ({}, ShapeError),
        ({"dta": (1, 1, 28, 28)}, UnknownNameError),
        ({"data": "28"}, ShapeError),
    ],
)
@pytest.mark.parametrize("tool", [print_summary, plot_network])
def test_shapes_that_do_not_fit_or_suffice_are_refused(net, tool, shape, error, capsys):
    with pytest.raises(error):
        tool(net, shape=shape)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("tool", [print_summary, plot_network])
def test_only_symbols_are_drawn(tool):
    with pytest.raises(OpAttributeError, match="A Symbol is needed, got dict"):
        tool({})


def test_a_long_chain_is_summed_up(capsys):
    x = sym.Variable("x")
    for _ in range(20_000):
        x = x + 1
    print_summary(x, shape={"x": (2, 3)})
    assert capsys.readouterr().out.count("_plus_scalar") == 20_000


def test_a_plot_shows_layers_and_what_flows_between_them(net):
    pytest.importorskip("graphviz")
    source = plot_network(net, title="lenet", shape=SHAPE).source
    assert source.startswith("digraph lenet {")
    assert 'c1 [label="Convolution\n5x5/1, 20"' in source and 'p [label="Pooling\nmax, 2x2/2x2"' in source
    assert 'c1 -> data [label="1x28x28" arrowtail=open dir=back]' in source
    assert "softmax_label" in source and "c1_weight" not in source and "moving_mean" not in source


def test_a_plot_shows_weights_and_types_when_asked(net):
    pytest.importorskip("graphviz")
    drawing = plot_network(
        net,
        save_format="svg",
        dtype={"data": "float16"},
        node_attrs={"fixedsize": "false"},
        hide_weights=False,
    )
    assert drawing.format == "svg"
    assert "fc -> fc_weight [label=float16" in drawing.source and "bn_moving_mean" in drawing.source
    assert "fixedsize=true" not in drawing.source


def test_names_that_graphviz_would_misread_stay_apart():
    pytest.importorskip("graphviz")
    first, second = sym.Variable("a:b"), sym.Variable("same")
    net = sym.Group([first + second, sym.Variable("same") + 1, sym.Variable("a\\n")])
    with pytest.warns(UserWarning, match="by a number: same"):
        source = plot_network(net).source
    nodes = [line for line in source.splitlines() if "[label=" in line and "->" not in line]
    assert len(nodes) == len({line.split("[")[0] for line in nodes}) == 6
    assert not any(":" in line for line in source.splitlines() if "->" in line)


def test_a_missing_graphviz_is_named(net, monkeypatch):
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(MXLiteError, match=r"pip install mxlite\[viz\]"):
        plot_network(net)
