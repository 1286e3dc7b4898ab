# simlora's developer menu. `make demo` and `make test` need git, make and python3 (3.11 to 3.13, with its venv module;
# on Debian and Ubuntu that is the package python3-venv), nothing else.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
TORCH  := $(VENV)/.torch-ready
PIP    := $(BIN)/python -m pip -qq --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup compiled interpreted wheels demo test check lint format-check types arrows format bench torture mutants notebooks site wheel-test clean

help:  ## this list
	@echo "simlora: make <target>"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  %-14s %s\n", $$1, $$2}'

setup: $(READY)  ## create .venv and install simlora with its tools

# Touches the network only when the dependencies have changed.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "simlora needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1); name another one with: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 14))' || \
	  echo "constraints.txt is for Python 3.11 to 3.13, and $(PYTHON) is $$($(PYTHON) -V 2>&1), which is untested" >&2
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { echo "Creating $(VENV)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "Installing simlora into $(VENV) (a minute or two, once)"
	@$(PIP) install -c constraints.txt editables hatchling setuptools
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

# What profiler/ and its tests need besides: torch and triton, on Linux with CUDA's libraries several GB (constraints.txt
# says why), none of which simulating needs.
$(TORCH): $(READY)
	@echo "Installing torch for the tests of profiler/ (several GB on Linux, once)"
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[dev,profiler]'
	@touch $@

compiled: $(READY)  ## compile the hot rooms with mypyc and a C compiler: a minute or two, 4 to 7 times as fast
	@command -v $${CC:-cc} >/dev/null || { \
	  echo "make compiled needs a C compiler, such as gcc, as cc; without one simlora runs interpreted" >&2; exit 1; }
	@echo "Compiling; a minute or two on two cores"
	@HATCH_BUILD_HOOK_ENABLE_CUSTOM=true $(PIP) install --no-build-isolation --no-deps -e .
	@$(BIN)/simlora --version
	@$(BIN)/python -c 'import sys, simlora; sys.exit(simlora.WHY_INTERPRETED)'

interpreted: $(READY)  ## remove what `make compiled` has made
	@$(BIN)/python hatch_build.py clean
	@$(BIN)/simlora --version

wheels: $(READY)  ## compiled wheels for this kind of machine, each Python in a container (needs docker, or macOS)
	@$(PIP) install 'cibuildwheel>=3,<5'
	@$(BIN)/python -m cibuildwheel --output-dir dist

demo: $(READY)  ## run the demonstration and say where its report is
	@$(BIN)/python -m experiments.demo

test: $(TORCH)  ## run the tests (the first time it installs torch), e.g. make test ARGS="-k memory -x"
	@$(BIN)/python -m pytest -n 2 $(ARGS)

check: lint format-check types arrows  ## everything below that reads code, without running it

lint: $(READY)  ## ruff: likely mistakes
	@$(BIN)/ruff check .

format-check: $(READY)  ## ruff: is everything formatted?
	@$(BIN)/ruff format --check .

types: $(TORCH)  ## mypy: strict types in simlora/ and profiler/
	@$(BIN)/mypy

arrows: $(READY)  ## import-linter: do the rooms import one way?
	@$(BIN)/lint-imports --no-logo

format: $(READY)  ## fix what ruff can fix, then format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY)  ## measure the simulator's speed
	@$(BIN)/python -m experiments.speed $(ARGS)

torture: $(READY)  ## random scenarios under observation for an hour, or e.g. make torture ARGS="--minutes 5 --seed 1"
	@$(BIN)/python -m experiments.torture $(ARGS)

mutants: $(READY)  ## small mistakes in the code, to see whether tests notice, e.g. make mutants ARGS="--rooms memory --mutants 20"
	@$(BIN)/python -m experiments.mutation $(ARGS)

notebooks: $(TORCH)  ## execute notebooks/*.py and write their .ipynb, e.g. make notebooks ARGS="own_trace"
	@$(BIN)/python -m notebooks.run $(ARGS)

site: $(READY)  ## the documentation as a site, in build/site; a broken link is an error
	@$(BIN)/properdocs build --quiet --strict --config-file mkdocs.yml
	@echo "build/site/index.html"

wheel-test: $(TORCH)  ## install the wheel into an empty environment and run simlora from another folder
	@set -e; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(BIN)/python -m build --wheel --no-isolation --outdir "$$tmp/dist" . >/dev/null; \
	$(PYTHON) -m venv "$$tmp/venv"; \
	"$$tmp/venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$tmp"/dist/*.whl; \
	mkdir "$$tmp/elsewhere"; cd "$$tmp/elsewhere"; \
	"$$tmp/venv/bin/simlora" hydra.run.dir=out; \
	test -s out/summary.json && test -s out/requests.parquet && test -s out/report.html; \
	echo "The wheel runs on its own."

clean:  ## remove .venv, build products, caches and outputs/
	rm -rf $(VENV) build dist outputs multirun .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	rm -f simlora/compiled.json
	find simlora -name '*.so' -delete
	find simlora profiler tests experiments -name __pycache__ -type d -prune -exec rm -rf {} +
