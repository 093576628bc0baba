# Every target sets up .venv by itself; a machine needs Python >= 3.11, make and a connection to a package index.
#
#   make test PYTHON=python3.13          choose the interpreter
#   make demo ARGS="--batch-size 64"     hand more arguments to the command behind demo or test (pytest)

ARGS ?=
PYTHON ?=
export PYTHON

.PHONY: help demo demo-ranks demo-gpt test check bench torture docs cudnn-plans clean
.NOTPARALLEL:

help:
	@echo "make demo    train a 1001-layer ResNet inside 32 MiB"
	@echo "make demo-ranks   two processes train together, 1.2 MiB for each"
	@echo "make demo-gpt     two processes train a GPT in 10 MiB each, which do not do for one"
	@echo "make test    everything CI runs: format, lint, types, layers, tests"
	@echo "make check   the same without the tests"
	@echo "make bench   every benchmark in benchmarks/"
	@echo "make torture every long random check, 30 minutes"
	@echo "make docs    the documentation, into docs/_build/html"
	@echo "make cudnn-plans   cuDNN plans every graph of ours, without a GPU; 1.3 GB to download, not part of CI"
	@echo "make clean   remove .venv, caches and everything that was built"

demo:
	@scripts/bootstrap examples
	.venv/bin/python examples/train_resnet.py --depth 1001 --budget 32MiB $(ARGS)

demo-ranks:
	@scripts/bootstrap dev
	.venv/bin/python -m mxlite.launch -n 2 examples/train_distributed.py --budget 1.2MiB $(ARGS)

demo-gpt:
	@scripts/bootstrap dev
	.venv/bin/python -m mxlite.launch -n 2 examples/train_gpt.py $(ARGS)

test:
	scripts/check $(ARGS)

check:
	scripts/check --no-tests

bench:
	@scripts/bootstrap viz
	@set -e; for file in benchmarks/*.py; do echo "== $$file"; .venv/bin/python "$$file"; done

torture:
	@scripts/bootstrap dev
	.venv/bin/python -m torture $(ARGS)

docs:
	@scripts/bootstrap docs
	.venv/bin/python -m sphinx -W --keep-going docs docs/_build/html

cudnn-plans:
	@scripts/bootstrap gpu
	.venv/bin/python scripts/check_cudnn_plans.py $(ARGS)

clean:
	rm -rf .venv build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name .git -prune -o -type d \( -name __pycache__ -o -name '*.egg-info' \) -exec rm -rf {} +
