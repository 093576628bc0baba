"""Views of a memory plan for people: a page, a picture, text in a terminal, a notebook cell, a trace.

Nothing here plans, and no planner imports this.
"""

from .budgets import along_budgets as along_budgets, budgets_between as budgets_between
from .certificate import certificate_of as certificate_of
from .curve import curve_of as curve_of
from .image import form_of as form_of, image_of as image_of, write_image as write_image
from .notebook import cell as cell
from .page import page_of as page_of, write_html as write_html
from .terminal import drawn as drawn
from .trace import trace_of as trace_of, write_trace as write_trace
