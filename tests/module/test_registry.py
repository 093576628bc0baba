"""mx.registry, by which other libraries name their classes."""

import pytest

import mxlite as mx


class Base:
    def __init__(self, parts=1):
        self.parts = parts


class Split(Base):
    pass


def test_classes_are_made_by_name():
    register, alias = (
        mx.registry.get_register_func(Base, "sampler"),
        mx.registry.get_alias_func(Base, "sampler"),
    )
    create = mx.registry.get_create_func(Base, "sampler")
    assert register(Split) is alias("cut", "Halve")(Split) is Split
    assert mx.registry.get_registry(Base) == {"split": Split, "cut": Split, "halve": Split}
    one = create("SPLIT", parts=4)
    assert type(one) is Split and one.parts == 4 and create(one) is one
    for made in (
        create('["split", {"parts": 3}]'),
        create(sampler="halve", parts=3),
        create({"sampler": "cut", "parts": 3}),
    ):
        assert type(made) is Split and made.parts == 3
    with pytest.raises(mx.UnknownNameError, match=r"no sampler 'slit'\. Did you mean 'split'"):
        create("slit")
    with pytest.raises(TypeError, match=r"Which sampler\? Give its name: cut, halve, split"):
        create(parts=3)
    with pytest.raises(TypeError, match="Only a subclass of Base can be registered"):
        register(int)


def test_the_registry_of_a_base_class_is_one():
    assert mx.registry.get_registry(mx.init.Initializer)["xavier"] is mx.init.Xavier
    assert type(mx.registry.get_create_func(mx.optimizer.Optimizer, "optimizer")("adam")) is mx.optimizer.Adam
