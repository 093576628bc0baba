"""Two trees that must agree: random networks run by fast kernels in planned memory, and by the oracle.

draw.py         a seed -> a network and how it is to be run; its motifs are in motifs_*.py
network.py      a network as data: variables and calls, from which symbols are made
setting.py      how it is run: backend, types, budget, engine, threads, gradients, update
run.py          runs it and brings back every number that a user can see
agreement.py    the oracle, and how far from it a result may be
rewrites.py     which rewrites of the pipelines had something to do
shrink.py       a failing case with as few nodes and numbers as still fail
program.py      a case as a short Python program
torch_peer.py   the same network in PyTorch, for the operators that both have
"""
