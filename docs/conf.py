"""Sphinx configuration: `make docs` builds docs/_build/html, with warnings as errors."""

import re

from mxlite import __version__

project = "mxlite"
copyright = "The mxlite contributors"
release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"

autodoc_member_order = "bysource"  # a file is written to be read from top to bottom
autodoc_typehints = "description"
myst_heading_anchors = 3


def _as_downloads(app, docname, source):
    """Makes a link to a file outside docs/, which is no page here, a download of that file."""
    source[0] = re.sub(r"\]\((\.\./[^)#\s]+)(?:#[^)]*)?\)", r"](path:\1)", source[0])


def setup(app):
    app.connect("source-read", _as_downloads)
