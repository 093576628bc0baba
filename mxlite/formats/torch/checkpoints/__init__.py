"""Steps of a module as PyTorch runs them: their memory plan, and the checkpoints that keep it in a budget.

rehearsal.py   a step of a module without numbers: its calls, and live bytes after each, by submodule
rates.py       seconds of these calls
workspace.py   bytes that kernels of PyTorch allocate inside of them
regions.py     the submodules that can be recomputed as a whole
problem.py     a rehearsed step as a problem for the planner
search.py      the fastest choice within a budget
plan.py        the plan of a step
imported.py    the plan of the same step where mxlite runs it
regional.py    classes of modules that are checkpointed
selective.py   checkpoints that keep some results
applied.py     a plan put into a module: its regions are checkpointed when PyTorch runs it
"""

from .applied import Applied as Applied, apply as apply
from .plan import plan as plan, StepPlan as StepPlan
