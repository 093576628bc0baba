"""Symbol JSON: MXNet's bytes out, every version since 0.8 in, nothing but FormatError for what is broken."""

from __future__ import annotations

import json
import os
import pathlib
import time
import tracemalloc
import warnings

import pytest
from hypothesis import given, settings, strategies as st

import mxlite.symbol as sym
from mxlite.core import FormatError, MXLiteError
from mxlite.symbol import NameManager

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "mxnet" / "lenet-symbol.json"
LENET = GOLDEN.read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def fresh_names():
    with NameManager():
        yield


def variable(name, **fields):
    return {"op": "null", "name": name, "inputs": [], **fields}


def text_of(nodes, heads, version=None, /, **fields):
    """A file as some version wrote it; None is 0.8, which did not say."""
    top = {"nodes": nodes, "arg_nodes": [i for i, n in enumerate(nodes) if n["op"] == "null"], "heads": heads}
    if version is not None:
        top["attrs"] = {"mxnet_version": ["int", version]}
    return json.dumps({**top, **fields})


# -- writing -------------------------------------------------------------------------------------


def test_mxnets_file_comes_back_byte_for_byte(tmp_path):
    sym.load(GOLDEN).save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == GOLDEN.read_bytes()


def test_the_same_network_composed_here_gives_mxnets_bytes():
    x = sym.Variable("data")
    for filters in (20, 50):
        x = sym.Convolution(data=x, kernel=(5, 5), num_filter=filters)
        x = sym.Activation(data=x, act_type="tanh")
        x = sym.Pooling(data=x, pool_type="max", kernel=(2, 2), stride=(2, 2))
    x = sym.FullyConnected(data=sym.Flatten(data=x), num_hidden=500)
    x = sym.Activation(data=x, act_type="tanh")
    x = sym.FullyConnected(data=x, num_hidden=10)
    assert sym.SoftmaxOutput(data=x, name="softmax").tojson() == LENET


def test_arrays_break_over_lines_from_eleven_items_on():
    text = sym.Concat(*(sym.Variable(f"v{i}") for i in range(11)), name="c").tojson()
    assert '{"num_args": "11"}, \n      "inputs": [\n        [0, 0, 0], \n        [1, 0, 0], \n' in text
    assert "        [10, 0, 0]\n      ]\n    }\n  ], \n" in text
    assert '  "arg_nodes": [\n    0, \n    1, \n' in text
    assert (
        '"arg_nodes": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], '
        in sym.Concat(*(sym.Variable(f"v{i}") for i in range(10))).tojson()
    )


def test_the_version_of_a_state_counts_its_writers():
    mean, var = sym.Variable("mean"), sym.Variable("var")
    x = sym.Variable("x")
    for i in (1, 2):
        x = sym.BatchNorm(x, moving_mean=mean, moving_var=var, name=f"b{i}")
    top = json.loads(x.tojson())
    written = {n["name"]: [version for _, _, version in n["inputs"]] for n in top["nodes"]}
    assert written["b1"] == [0, 0, 0, 1, 1] and written["b2"] == [0, 0, 0, 2, 2]
    assert top["node_row_ptr"][-1] == len(top["nodes"]) + 4  # BatchNorm counts for three


def test_text_is_escaped_as_mxnet_can_read_it():
    odd = 'quote " back \\ line\nfeed\ttab\rreturn \x01 \u00e9 / {}'
    v = sym.Variable(odd, attr={"k": odd})
    assert "\\u" not in v.tojson() and "\\/" not in v.tojson() and "\x01 \u00e9 /" in v.tojson()
    again = sym.load_json(v.tojson())
    assert again.name == odd and again.attr("k") == odd


@given(st.text(min_size=1), st.dictionaries(st.text(min_size=1), st.text(), max_size=3))
def test_every_name_and_attribute_comes_back(name, attr):
    v = sym.Variable(name, attr=attr)
    again = sym.load_json(v.tojson())
    assert again.name == name and again.list_attr() == v.list_attr()


def test_groups_with_repeats_and_parts_of_nodes_come_back():
    x = sym.Variable("x")
    parts = sym.split(x, num_outputs=3, name="s")
    net = sym.Group([parts[2], x, x, parts[0] + 1])
    assert sym.load_json(net.tojson()).list_outputs() == ["s_output2", "x", "x", "_plusscalar0_output"]


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "net.json"
    path.write_text("old")
    for wrong, error in (
        (sym.Variable("\ud800"), FormatError),
        ((sym.Variable("x") * 2).gradient("x"), MXLiteError),
    ):
        with pytest.raises(error):
            wrong.save(path)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["net.json"]


# -- older versions ------------------------------------------------------------------------------


def test_a_file_of_0_8_is_upgraded():
    nodes = [
        variable("d"),
        variable("fc_weight"),
        variable("fc_bias"),
        {
            "op": "FullyConnected",
            "name": "fc",
            "param": {"num_hidden": "3"},
            "inputs": [[0, 0], [1, 0], [2, 0]],
            "attr": {"ctx_group": "g", "weight_lr_mult": "2", "lr_mult": "7"},
            "backward_source_id": -1,
        },
    ]
    net = sym.load_json(text_of(nodes, [[3, 0]]))
    assert net.attr_dict() == {
        "fc_weight": {"__lr_mult__": "2", "lr_mult": "2"},
        "fc": {"num_hidden": "3", "__ctx_group__": "g", "ctx_group": "g", "__lr_mult__": "7", "lr_mult": "7"},
    }


def test_hidden_keys_that_fit_no_variable_stay_and_operators_refuse_them():
    kept = sym.load_json(
        text_of([variable("d", attr={"lr_mult": "3", "data_lr_mult": "4", "x": "y"})], [[0, 0]])
    )
    assert kept.list_attr() == {"__lr_mult__": "3", "lr_mult": "3", "data_lr_mult": "4", "x": "y"}
    relu = {"op": "Activation", "name": "r", "param": {"act_type": "relu"}, "inputs": [[0, 0]]}
    for attr in ({"foo_lr_mult": "2"}, {"foo": "1"}):
        with pytest.raises(FormatError, match=r"'r'.* has no parameter 'foo"):
            sym.load_json(text_of([variable("d"), {**relu, "attr": attr}], [[1, 0]]))


def batch_norm(inputs, **attr):
    return {
        "op": "BatchNorm",
        "name": "b",
        "attrs": {"eps": "0.1", **attr},
        "inputs": [[i, 0] for i in range(inputs)],
    }


def test_states_that_0_8_did_not_store_are_created():
    nodes = [variable("d"), variable("b_gamma"), variable("b_beta"), batch_norm(3, __x__="1")]
    net = sym.load_json(text_of(nodes, [[3, 0]]))
    assert net.list_inputs() == ["d", "b_gamma", "b_beta", "b_moving_mean", "b_moving_var"]
    assert net.attr_dict()["b_moving_var"] == {"__init__": '["one", {}]', "eps": "0.1", "__x__": "1"}
    with pytest.raises(FormatError, match=r"takes 5 inputs.*it has 3"):
        sym.load_json(text_of(nodes, [[3, 0]], 900))


@pytest.mark.parametrize(("version", "set_here"), [(903, True), (904, False), (10901, False)])
def test_initial_values_are_set_up_to_0_9_3(version, set_here):
    named = [variable(n) for n in ("d", "g", "b", "m", "v")]
    named[3]["attrs"] = {"__init__": "mine"}
    net = sym.load_json(text_of([*named, batch_norm(5)], [[5, 0]], version))
    assert net.attr_dict()["m"] == {"__init__": "mine"}
    assert net.attr_dict().get("v") == ({"__init__": '["one", {}]'} if set_here else None)


@pytest.mark.parametrize(("version", "axis"), [(None, None), (904, None), (905, "-1")])
def test_axis_minus_1_of_argmax_meant_all_axes_before_0_9_5(version, axis):
    nodes = [variable("d"), {"op": "argmax", "name": "m", "attrs": {"axis": "-1"}, "inputs": [[0, 0, 0]]}]
    assert sym.load_json(text_of(nodes, [[1, 0, 0]], version)).attr("axis") == axis


def test_a_newer_version_is_read_with_a_warning():
    with pytest.warns(UserWarning, match=r"2\.0\.0"):
        assert sym.load_json(text_of([variable("d")], [[0, 0, 0]], 20000)).name == "d"


def test_compact_json_and_escapes_of_other_writers_are_read():
    text = json.dumps(json.loads(LENET), separators=(",", ":"), ensure_ascii=True)
    assert sym.load_json(text).tojson() == LENET


# -- broken files --------------------------------------------------------------------------------

RELU = {"op": "Activation", "name": "r", "attrs": {"act_type": "relu"}, "inputs": [[0, 0, 0]]}
D = variable("d")


def node(**fields):
    return text_of([D, {**RELU, **fields}], [[1, 0, 0]], 10901)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cut short"),
        (LENET[:-1], "cut short"),
        (LENET[:500], "cut short"),
        ("[]", "is an object"),
        ("{}", "'nodes'; it is missing"),
        ("[" * 200_000, "too deeply|cut short"),
        ('{"nodes":' * 200_000, "too deeply|cut short"),
        ('{"nodes": ' + "9" * 10_000 + "}", "cut short|must have a list"),
        (text_of([], []), "no outputs"),
        (text_of([D], [[0, 0, 0]], nodes=3), "'nodes'; got 3"),
        (text_of([D], [[0, 0, 0]], extra=1), "unknown field 'extra'"),
        (text_of([D], [[0, 0, 0]], attrs={"mxnet_version": 3}), "mxnet_version"),
        (text_of([D], [[0, 0, 0]], attrs=[]), "'attrs' must be an object"),
        (text_of([D], [[0, 0, 0]], node_row_ptr=3), "node_row_ptr"),
        (text_of([D], [[0, 0, 0]], arg_nodes=[1]), "1 is none"),
        (text_of([D, RELU], [[1, 0, 0]], arg_nodes=[0, 1]), "1 is none"),
        (text_of([D], [[1, 0, 0]]), "output 0 is output 0 of node 1"),
        (text_of([D], [[-1, 0, 0]]), "node -1"),
        (text_of([D], [[0, 1, 0]]), "output 1 of 'd'"),
        (text_of([D], [[0, 0.0, 0]]), r"must be \[node, output, version\]"),
        (text_of([D], [[True, 0, 0]]), r"must be \[node, output, version\]"),
        (text_of([D], [[0]]), r"must be \[node, output, version\]"),
        (node(op="Activatio"), "'r'.*Did you mean 'Activation'"),
        (node(op="_backward_Activation"), "'r'"),
        (node(op=3), "text as 'op'; got 3"),
        (node(name=None), "text as 'name'"),
        (node(inputs=None), "list 'inputs'"),
        (node(inputs=[[1, 0, 0]]), "node ., which does not come before it.*no cycle"),  # itself: a cycle
        (node(inputs=[[2, 0, 0]]), "node ., which does not come before it.*no cycle"),
        (node(inputs=[]), "takes 1 inputs"),
        (node(inputs=[[0, 0, 0]] * 2), "it has 2"),
        (node(attrs={"act_type": "rel"}), "'r'.*Did you mean 'relu'"),
        (node(attrs={"act_typ": "relu"}), "'r'.*Did you mean 'act_type'"),
        (node(attrs={}), "'r' needs the parameter 'act_type'"),
        (node(attrs={"act_type": 3}), "it must be text"),
        (node(attrs=[]), "object as 'attrs'"),
        (node(atrs={}), "unknown field 'atrs'.*Did you mean 'attrs'"),
        (node(control_deps=[0]), "control_deps"),
        (text_of([D, variable("e", inputs=[[0, 0, 0]])], [[1, 0, 0]]), "cannot have inputs"),
        (node(op="Concat", attrs={"num_args": "100000"}), "'r' cannot have 100000 inputs"),
        (node(op="Concat", attrs={"num_args": "3"}), "num_args=3, but 1 inputs"),
        (node(op="SliceChannel", attrs={"num_outputs": "100000"}), "100000 outputs"),
        (node(op="FullyConnected", attrs={"num_hidden": "9" * 5000}), "num_hidden"),
    ],
    ids=lambda x: str(x)[:30],
)
def test_a_broken_file_is_refused_and_little_is_allocated(text, words):
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=words) as caught:
            sym.load_json(text)
        assert tracemalloc.get_traced_memory()[1] < 64 * len(text) + (1 << 20)
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 1000


def test_many_reads_of_a_node_with_many_outputs_are_checked_quickly():
    split = {"op": "SliceChannel", "name": "s", "attrs": {"num_outputs": "60000"}, "inputs": [[0, 0]]}
    cat = {"op": "Concat", "name": "c", "inputs": [[1, i] for i in range(60_000)]}
    began = time.process_time()
    assert len(sym.load_json(text_of([D, split, cat], [[2, 0]])).get_children()) == 60_000
    assert time.process_time() - began < 20  # well under a second; 60,000 * 60,000 steps would take hours


def test_errors_of_a_file_name_it(tmp_path):
    path = tmp_path / "bad.json"
    for content in (b"{", b"\xff\xfe"):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=r"bad\.json"):
            sym.load(path)
    with pytest.raises(FileNotFoundError):
        sym.load(tmp_path / "none.json")
    with pytest.raises(FormatError, match="must be text"):
        sym.load_json(b"{}")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_file_loads_or_raises_format_error(data):
    at = data.draw(st.integers(0, len(LENET) - 1))
    length = data.draw(st.integers(0, 12))
    new = data.draw(
        st.one_of(st.sampled_from(["", "-1", "9" * 30, '"', "[", "null", "{}", "0"]), st.text(max_size=4))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            net = sym.load_json(LENET[:at] + new + LENET[at + length :])
        except FormatError:
            return
        assert sym.load_json(net.tojson()).tojson() == net.tojson()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_file_with_one_value_replaced_loads_or_raises_format_error(data):
    top = json.loads(LENET)
    spots = []

    def walk(holder, depth=0):
        for key in holder if isinstance(holder, dict) else range(len(holder)):
            spots.append((holder, key))
            if isinstance(holder[key], (dict, list)) and depth < 6:
                walk(holder[key], depth + 1)

    walk(top)
    holder, key = data.draw(st.sampled_from(spots))
    holder[key] = data.draw(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-3, 30),
            st.floats(),
            st.text(max_size=5),
            st.sampled_from([[], {}, [0, 0], [[0, 0, 0]], "Concat", "null", "(3,", "1e400", "BatchNorm"]),
        )
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            net = sym.load_json(json.dumps(top))
        except FormatError:
            return
        assert net.list_outputs()


def test_a_small_file_is_read_in_little_memory(tmp_path):
    sym.Variable("data").save(tmp_path / "net.json")
    tracemalloc.start()
    try:
        sym.load(tmp_path / "net.json")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


# -- long graphs ---------------------------------------------------------------------------------


def test_a_long_chain_is_saved_and_loaded(tmp_path):
    x = sym.Variable("data")
    for _ in range(20_000):
        x = x + 1
    x.save(tmp_path / "long.json")
    assert sym.load(tmp_path / "long.json").tojson() == x.tojson()
