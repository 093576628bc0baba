"""Calls of generated functions: on one thread or a team, one by one or several as one."""
