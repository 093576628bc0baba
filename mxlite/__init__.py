"""mxlite: deep learning inside a named byte budget."""

__version__ = "0.1.0"
