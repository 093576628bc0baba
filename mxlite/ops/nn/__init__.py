"""Layers of networks: convolution, pooling, dense layers, attention, dropout."""
