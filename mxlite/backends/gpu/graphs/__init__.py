"""Steps as CUDA graphs: streams, inputs and numbers of a replay, calls joined to one launch."""
