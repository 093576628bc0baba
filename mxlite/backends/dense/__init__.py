"""Dense layers joined with activations, for every backend whose products do more than multiply.

`operators` says what is computed; `passes.dense_epilogue` puts it into a graph.
"""
