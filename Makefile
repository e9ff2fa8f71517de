# Everything runs in .venv, which each command sets up by itself.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo test clean

help:
	@echo "make demo   train on the bundled digits with 4 workers; writes out/demo/report.html"
	@echo "make test   format, lint, types, tests"
	@echo "make clean  remove .venv and out"

demo: .venv/installed
	$(BIN)/python -m experiments.demo

test: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	JAX_PLATFORMS=cpu $(BIN)/pytest --quiet --doctest-modules olsgd_jax
	JAX_PLATFORMS=cpu $(BIN)/pytest --quiet --numprocesses auto

clean:
	rm -rf .venv out

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
