# Everything runs in .venv, which each command sets up by itself. The compilers for GPUs
# and TPUs lie beside it in .aot, so that they are found by tests alone.
PYTHON ?= python3
BIN := .venv/bin
# Where the compiled program itself is the matter, tests compile as users do. All others
# compare to rounding, or with themselves, and compile in a third of the time.
AS_USERS_DO := $(wildcard tests/test_overlap_*.py) $(patsubst %,tests/test_%.py, \
  convolutions demo exchange forms hiding host parcels processes round timeline)
QUICK := --xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0
PYTEST := JAX_PLATFORMS=cpu PYTHONPATH=$(CURDIR)/.aot $(BIN)/pytest --quiet

.PHONY: help demo test clean

help:
	@echo "make demo   train on the bundled digits with 4 workers; writes out/demo/report.html"
	@echo "make test   format, lint, types, tests"
	@echo "make clean  remove .venv, .aot and out"

demo: .venv/installed
	$(BIN)/python -m experiments.demo

test: .venv/installed-dev .aot/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(PYTEST) --doctest-modules olsgd_jax
	$(PYTEST) --numprocesses auto $(AS_USERS_DO)
	XLA_FLAGS="$(QUICK)" $(PYTEST) --numprocesses auto $(AS_USERS_DO:%=--ignore %)

clean:
	rm -rf .venv .aot out

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed: requirements.txt pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --editable .
	@touch $@

.venv/installed-dev: requirements-dev.txt .venv/installed
	$(BIN)/pip install --quiet --requirement requirements-dev.txt
	@touch $@

.aot/installed: requirements-aot.txt | .venv/bin/python
	$(BIN)/pip install --quiet --no-deps --upgrade --target .aot --requirement $<
	@touch $@
