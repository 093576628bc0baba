"""Dense layers fused with activations, for every backend whose products have epilogues.

`operators` defines the operators; `passes.dense_epilogue` puts them into a graph.
"""
