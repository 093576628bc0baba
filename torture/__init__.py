"""Long random checks of mxlite under load, faults and hostile input: `python -m torture --help`."""
