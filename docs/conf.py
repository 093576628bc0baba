"""Sphinx configuration: `make docs` builds docs/_build/html, with warnings as errors."""

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
