"""The parts of the torture: each module here is one.

Its docstring's first line says what is done, for the table. It has

    CASES: int                               how many cases a full run has
    SMALL: int                               how many of them `make test` runs, in 5 seconds at most
    def run(allowance: Allowance) -> Outcome
"""
