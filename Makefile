SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
LIST  := requirements/cpu.txt

PIP_VERSION := 26.3
TORCH        = $(shell grep '^torch==' $(LIST))
NOTEBOOKS    = $(wildcard notebooks/*.ipynb recipes/*.ipynb)

# python3.11 where there is one; the pinned list was made with it.
PYTHON ?= $(shell for p in python3.11 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null \
	&& echo $$p && break; done)

# cpu or gpu; a working nvidia-smi means gpu.
WORKBENCH_EXTRA ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)

# More arguments for the command of a target, as in `make test ARGS="-k routing"`.
ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup system demo test check gpu format notebooks lab clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(STAMP)  ## make .venv and install everything (once)

system:  ## install chromium and prometheus, for tests, where that can be done
	@missing="$$(for p in chromium prometheus; do command -v $$p >/dev/null || echo $$p; done)"; \
	if [ -z "$$missing" ]; then true; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get update -q && apt-get install -qy --no-install-recommends $$missing; \
	else echo "not installed, so that their tests will be skipped:" $$missing >&2; fi

$(STAMP): $(LIST) pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed; set PYTHON=..." >&2; exit 1; }
	@$(MAKE) --no-print-directory system
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install pip==$(PIP_VERSION)
	$(MAKE) --no-print-directory install-$(WORKBENCH_EXTRA)
	@echo $(WORKBENCH_EXTRA) > $@

# torch first and with its dependencies: the +cpu build has a few small ones, all in the list. Where
# pip knows only the CUDA build, that cannot be imported without the CUDA packages it brings along.
.PHONY: install-cpu
install-cpu:
	$(BIN)/python -m pip install --constraint $(LIST) $(TORCH)
	$(BIN)/python -m pip install --no-deps --requirement $(LIST)
	$(BIN)/python -m pip install --no-deps --no-build-isolation --editable .

# Not tried: written without a GPU at hand.
.PHONY: install-gpu
install-gpu:
	$(BIN)/python -m pip install --editable '.[gpu,notebook,dev]'

demo: setup  ## a small pool, real rollouts, one report
	$(BIN)/workbench demo $(ARGS)

check: setup  ## ruff, mypy, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@$(MAKE) --no-print-directory --jobs=2 --output-sync types contracts

.PHONY: types contracts
types:
	$(BIN)/mypy

contracts:
	$(BIN)/lint-imports --no-cache

# What does not need the machine to itself has a process per core; the rest has one. Unit tests are
# never among the rest (conftest.py), so they are not collected again. With ARGS, which may name
# tests, one process runs what they choose of all.
test: check  ## check, then all tests and recipes
ifeq ($(strip $(ARGS)),)
	$(BIN)/pytest -m "not alone" --numprocesses=logical --maxprocesses=4 --dist=worksteal tests
	$(BIN)/pytest -m alone --ignore=tests/unit
else
	$(BIN)/pytest $(ARGS)
endif

gpu: setup  ## check on a machine with GPUs what needs them
	$(BIN)/python -m benchmarks.gpu $(ARGS)

format: setup  ## repair what ruff can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

notebooks: setup  ## run every notebook and keep its outputs
ifeq ($(NOTEBOOKS),)
	@echo "There are no notebooks."
else
	$(BIN)/jupyter nbconvert --to notebook --execute --inplace \
		--ExecutePreprocessor.store_widget_state=False $(NOTEBOOKS)
	$(BIN)/nbstripout --keep-output --keep-count $(NOTEBOOKS)
endif

lab: setup  ## JupyterLab in this folder
	$(BIN)/jupyter lab $(ARGS)

clean:  ## remove .venv, caches and builds; runs/ stays
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
