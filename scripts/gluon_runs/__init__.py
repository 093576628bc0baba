"""The parts of scripts/gluon_programs.py: which programs, their data, and one run of one of them."""
