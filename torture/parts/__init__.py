"""The parts of the torture, one per module.

The first line of a module's docstring describes it in the table. It has

    CASES: int                               number of cases of a full run
    SMALL: int                               number of cases in `make test`, in 5 seconds at most
    def run(allowance: Allowance) -> Outcome
"""
