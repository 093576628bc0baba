"""What binding costs for each node, in calls of functions: a number that no load of the machine changes."""

from __future__ import annotations

import cProfile
import pstats

import mxlite as mx

MOST = 1000
"""Calls for each node of a chain, of Python's and of built-in functions, lambdas and generators counted."""


def calls_of_bind(nodes):
    net = mx.sym.Variable("x")
    for _ in range(nodes):
        net = net * 1.001
    net.simple_bind(mx.cpu(), x=(4,))  # what is made once does not count
    profile = cProfile.Profile()
    profile.runcall(net.simple_bind, mx.cpu(), x=(4,))
    return pstats.Stats(profile).total_calls


def test_a_bind_makes_few_calls_for_each_node_and_as_many_for_more_nodes():
    few, many = calls_of_bind(100), calls_of_bind(400)
    assert (many - few) / 300 <= MOST
    assert many <= 4.2 * few
