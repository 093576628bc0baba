"""Networks of the zoo: names, shapes, sizes."""

import hashlib

import numpy as np
import pytest

import mxlite as mx
from mxlite import gluon
from mxlite.gluon.model_zoo import vision


@pytest.mark.parametrize(
    ("name", "size", "millions"),
    [("resnet18_v1", 32, 11.7), ("resnet50_v1", 32, 25.6), ("resnet18_v2", 32, 11.7),
     ("resnet50_v2", 32, 25.6), ("mobilenet0.25", 32, 0.47), ("alexnet", 224, 61.1),
     ("vgg11_bn", 224, 132.9), ("densenet121", 224, 7.98), ("densenet161", 224, 28.68),
     ("inceptionv3", 299, 23.83), ("mobilenetv2_1.0", 32, 3.50), ("mobilenetv2_0.25", 32, 1.52),
     ("squeezenet1.0", 224, 1.248), ("squeezenet1.1", 224, 1.235)],
)  # fmt: skip
def test_a_network_has_its_number_of_parameters(name, size, millions):
    net = vision.get_model(name)
    out = net(mx.sym.Variable("data"))
    shapes, outputs, _ = out.infer_shape(data=(1, 3, size, size))
    learnt, parameters = zip(out.list_arguments(), shapes), net.collect_params()
    total = sum(int(np.prod(s)) for n, s in learnt if n != "data" and parameters[n].grad_req != "null")
    assert outputs == [(1, 1000)] and total / 1e6 == pytest.approx(millions, rel=0.01)


def test_names_are_those_of_mxnet():
    with mx.name.NameManager():
        first, second = vision.resnet18_v1(), vision.resnet50_v2()
    names = list(first.collect_params())
    assert names[:2] == ["resnetv10_conv0_weight", "resnetv10_batchnorm0_gamma"]
    assert "resnetv10_stage2_conv2_weight" in names and names[-1] == "resnetv10_dense0_bias"
    assert "resnetv20_stage1_batchnorm0_gamma" in second.collect_params()
    assert "features.4.0.body.0.weight" in first._structured()


@pytest.mark.parametrize(
    ("name", "count", "middle", "last"),
    [("densenet121", 606, "densenet0_stage3_batchnorm21_running_var", "densenet0_dense0_bias"),
     ("inceptionv3", 472, "inception30_C2_batchnorm7_gamma", "inception30_dense0_bias"),
     ("mobilenetv2_1.0", 266, "mobilenetv20_features_linearbottleneck8_batchnorm1_running_mean",
      "mobilenetv20_output_pred_weight"),
     ("squeezenet1.0", 52, "squeezenet0_conv13_weight", "squeezenet0_conv25_bias")],
)  # fmt: skip
def test_arrays_have_the_names_that_the_wheel_gives_them(name, count, middle, last):
    with mx.name.NameManager():
        names = list(vision.get_model(name).collect_params())
    assert (len(names), names[count // 2], names[-1]) == (count, middle, last)


def test_a_resnet_trains_inside_a_budget():
    x, y = mx.nd.random.normal(shape=(16, 3, 16, 16)), mx.nd.array(np.arange(16) % 4)
    results, peak = [], 0
    for share in (1, 0.7):
        mx.random.seed(1)
        net = vision.ResNetV1(vision.BasicBlockV1, (2, 2), (8, 8, 16), classes=4, thumbnail=True)
        net.initialize(mx.init.Xavier())
        net.hybridize(memory_budget=int(peak * share) or None)
        with mx.autograd.record():
            loss = gluon.loss.SoftmaxCELoss()(net(x), y)
        loss.backward()
        peak = net.memory_plan.peak_bytes
        results.append(net.features[0].weight.grad().asnumpy())
        assert net.executor.measured_bytes == peak
    assert np.array_equal(*results)


def test_what_is_not_there_is_told(tmp_path):
    with pytest.raises(mx.UnknownNameError, match=r"no network 'resnet18'\. Did you mean 'resnet18_v"):
        vision.get_model("resnet18")
    with pytest.raises(FileNotFoundError, match="downloads nothing"):
        vision.get_model("resnet18_v1", pretrained=True, root=str(tmp_path))
    with pytest.raises(mx.RangeError, match="ResNet has 18, 34"):
        vision.get_resnet(1, 20)
    with pytest.raises(mx.RangeError, match="DenseNet has 121, 161"):
        vision.get_densenet(120)
    with pytest.raises(mx.RangeError, match=r"SqueezeNet has version 1\.0 and 1\.1"):
        vision.get_squeezenet("1.2")


def test_parameters_are_read_from_a_local_file(tmp_path):
    net = vision.get_model("mobilenet0.25", classes=3)
    net.initialize()
    x = mx.nd.ones((1, 3, 32, 32))
    out = net(x).asnumpy()
    net.save_parameters(str(tmp_path / "mobilenet0.25.params"))
    again = vision.get_model("mobilenet0.25", classes=3, pretrained=True, root=str(tmp_path))
    assert np.array_equal(again(x).asnumpy(), out)


def test_a_file_that_mxnet_has_left_is_found_by_its_checksum(tmp_path, monkeypatch):
    from mxlite.gluon.model_zoo import model_store

    old, other = tmp_path / "net-0123abcd.params", tmp_path / "netting-0123abcd.params"
    other.write_bytes(b"1")
    with pytest.raises(mx.MXLiteError, match=r"net\.params, which is not there, and mxlite"):
        model_store.get_model_file("net", str(tmp_path))
    old.write_bytes(b"2")
    assert model_store.get_model_file("net", str(tmp_path)) == str(old)
    monkeypatch.setitem(model_store._model_sha1, "net", hashlib.sha1(b"2").hexdigest())
    assert model_store.get_model_file("net", str(tmp_path)) == str(old)
    old.write_bytes(b"3")
    with pytest.raises(mx.MXLiteError, match=r"abcd\.params, which has another checksum than da4b9237"):
        model_store.get_model_file("net", str(tmp_path))
    assert model_store.short_hash("net") == "da4b9237"
    with pytest.raises(ValueError, match="no checksum of 'netting'"):
        model_store.short_hash("netting")
