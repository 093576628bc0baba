"""Checkpointing of PyTorch's own steps, planned here.

rehearsal.py   a step of a module without numbers: live bytes after each call, by submodule
workspace.py   bytes that kernels of PyTorch allocate inside of them
regions.py     the submodules that can be recomputed as a whole
problem.py     a rehearsed step as a problem for the planner
plan.py        the submodules to recompute within a budget
regional.py    classes of modules that are checkpointed
applied.py     a plan put into a module: its regions are checkpointed when PyTorch runs it
"""

from .applied import Applied as Applied, apply as apply
from .plan import CheckpointPlan as CheckpointPlan, plan_checkpoints as plan_checkpoints
