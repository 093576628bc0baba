"""Parts of mxnet_suite.py: how a file of MXNet's tests runs, and the page of the outcomes.

A test's outcome is `passed`, `failed`, `late` (stopped at the time limit), `skipped`, or `left out`, if the
test concerns parts that mxlite does not have.
"""
