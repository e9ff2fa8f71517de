# Everything runs in .venv, which each command sets up by itself. The compilers for GPUs
# and TPUs lie beside it in .aot, so that they are found by tests alone.
PYTHON ?= python3
VENV := .venv
AOT := .aot
BIN = $(VENV)/bin
PYTEST = JAX_PLATFORMS=cpu PYTHONPATH=$(CURDIR)/$(AOT) $(BIN)/pytest --quiet

# JAX 0.11 and newer need Python 3.12. A pyenv shim may be on PATH and not run.
NEWEST ?= $(shell for v in 3.13 3.12; do \
  for p in "$$(command -v python$$v)" $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$v.*/bin/python; do \
    "$$p" -c 'import ensurepip, venv' 2>/dev/null && echo "$$p" && exit; done; done)

# Where the compiled program itself is the matter, tests compile as users do. All others
# compare to rounding, or with themselves, and compile in a third of the time.
AS_USERS_DO := $(wildcard tests/test_overlap_*.py) $(patsubst %,tests/test_%.py, \
  convolutions demo exchange forms hiding host buckets processes round timeline)
# XLA aborts at a flag that it does not know. JAX 0.12 can no longer turn these emitters
# off; it compiles about as fast without what they emit.
EMITTERS := --xla_cpu_use_fusion_emitters=false
QUICK = --xla_backend_optimization_level=0 $(shell XLA_FLAGS=$(EMITTERS) \
  JAX_PLATFORMS=cpu $(BIN)/python -c 'import jax; jax.devices()' >/dev/null 2>&1 \
  && echo $(EMITTERS) || echo --xla_disable_hlo_passes=fusion)

# What the newest JAX is not tested with: files, options, figures and reports, models of
# time and theory in NumPy, which it cannot break; and, for their time, experiments on
# shaped links and long runs, which are made of parts that are tested by themselves.
LEFT_TO_TEST := $(patsubst %,tests/test_%.py, \
  array_cache checkpoint_cost checkpoints cifar10 config data delay delay_hiding \
  delay_simulation demo discover distributed elastic exit_reason figures findings \
  kill_and_resume optimizers preemption full_disk fuzz guidance hiding language_report \
  launch layers loopback model_check network network_report options output paper_report \
  partition presets provenance race records report rooms scale soak stragglers sweep \
  theory_bound theory_limits theory_stability timeline train untrusted)

.PHONY: help demo test test-newest docs run-tests clean

help:
	@echo "make demo         train on the bundled digits, then hide a slow link; writes out/demo/report.html"
	@echo "make test         format, lint, types, tests"
	@echo "make test-newest  tests of all that touches JAX, with the newest JAX on Python 3.13 or 3.12"
	@echo "make docs         build the documentation; writes out/docs/index.html"
	@echo "make clean        remove all virtual environments and out"

demo: $(VENV)/installed
	$(BIN)/python -m experiments.demo

test: $(VENV)/installed-dev $(AOT)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(MAKE) run-tests

test-newest:
ifeq ($(strip $(NEWEST)),)
	@echo "test-newest is skipped: no Python 3.13 or 3.12 on PATH or in pyenv;" \
	  "set NEWEST=/path/to/python3.13"
else
	$(MAKE) run-tests PYTHON="$(NEWEST)" VENV=.venv-newest AOT=.aot-newest \
	  LEFT_OUT="$(LEFT_TO_TEST)"
endif

docs: $(VENV)/installed-docs
	JAX_PLATFORMS=cpu $(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going \
	  --fresh-env docs out/docs

run-tests: $(VENV)/installed-dev $(AOT)/installed
	@$(BIN)/python -VV
	@$(BIN)/pip freeze | grep '^jax'
	$(PYTEST) --numprocesses 3 --doctest-modules olsgd_jax
	$(PYTEST) --numprocesses 3 --dist worksteal $(filter-out $(LEFT_OUT),$(AS_USERS_DO))
	XLA_FLAGS="$(QUICK)" $(PYTEST) --numprocesses 3 --dist worksteal \
	  $(patsubst %,--ignore=%,$(sort $(AS_USERS_DO) $(LEFT_OUT)))

clean:
	rm -rf .venv .aot .venv-newest .aot-newest out

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable '.[experiments]'
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/pip install --quiet --editable '.[docs]'
	@touch $@

# The extra `aot` without what it shares with .venv.
$(AOT)/installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -c 'import tomllib; \
	  extras = tomllib.load(open("$<", "rb"))["project"]["optional-dependencies"]; \
	  print(*[x for x in extras["aot"] if "olsgd_jax" not in x], sep="\n")' | \
	$(BIN)/pip install --quiet --no-deps --upgrade --target $(AOT) \
	  --requirement /dev/stdin
	@touch $@
