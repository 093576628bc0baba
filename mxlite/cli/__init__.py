"""`python -m mxlite`: memory plans of a model file from the command line, without running or allocating
anything.

A command is one file here: `add(commands)` says what it takes, `run(arguments)` does it and returns the exit
code.

    0   done; a plan fits its budget
    1   no plan that mxlite can find fits
    2   bad usage, a file that cannot be read, an operator or shape that cannot be planned: one line says what
"""

from .main import main as main
