"""mx.contrib.text: words, their numbers, and their vectors, read from files."""

from . import embedding as embedding, utils as utils, vocab as vocab
