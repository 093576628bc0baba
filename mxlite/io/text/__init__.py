"""mx.contrib.text: words, their numbers, and vectors for them out of files."""

from . import embedding as embedding, utils as utils, vocab as vocab
