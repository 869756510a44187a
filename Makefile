# The verbs of this project. Each sets up what it needs in .venv, from nothing but python3; a second call does no work twice.
#
#   make install       the .venv with the development tools, and nothing else
#   make run           the API server on this machine (ARGS="..." is passed to `pykueue up`); installs the runtime only
#   make test          the tests, without a cluster (ARGS="tests/api -k quantity" for some of them)
#   make test-cluster  the tests against a real kube-apiserver and etcd, built once from Go modules
#                      (OPERATORS=all or names: with the operators of all job kinds, too)
#   make test-matrix   the tests under each Python of VERSIONS that this machine has (ARGS as for make test)
#   make coverage      the tests once more, with the share of executed lines by package
#   make soak          the simulation over many seeds (ARGS="--seeds 0-9999")
#   make check         format, lint, types, layers, generated files
#   make bench         the measurements (ARGS="decode" for one)
#   make docs          the generated reference pages and manifests, then the site
#   make format        rewrite the code as `make check` expects it
#   make lock          write uv.lock from pyproject.toml (needs uv)

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SHELL  := /bin/sh
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
VERSIONS ?= 3.11 3.12 3.13 3.14
ARGS   ?=
OPERATORS ?=
# Byte code is kept also where the environment forbids it: the tests start several hundred Python processes, and each would compile
# the package again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install run test test-cluster test-matrix coverage soak check bench docs format lock

help:
	@sed -n 's/^#   /  /p' Makefile

# A stamp is newer than pyproject.toml once that part of it is installed. The runtime has its own, so that `make run` fetches no
# development tool.
RUNTIME_STAMP := $(VENV)/.installed-runtime
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
DOCS_STAMP := $(VENV)/.installed-docs

$(RUNTIME_STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo "make: $(PYTHON) was not found; install Python 3.11 or later, or set PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is older than 3.11; set PYTHON=/path/to/python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "make: $(PYTHON) lacks the venv module; on Debian it is the package python3-venv" >&2; exit 2; }
	@echo "installing into $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# An environment that uv made has no pip.
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@$(PIP) --editable .
	@touch $@

# pip reads [dependency-groups] from version 25.1 on.
$(STAMP): $(RUNTIME_STAMP)
	@$(PIP) 'pip>=25.1'
	@$(PIP) --group dev
	@touch $@

$(BENCH_STAMP): $(STAMP)
	@$(PIP) --group bench
	@touch $@

$(DOCS_STAMP): $(STAMP)
	@$(PIP) --group docs
	@touch $@

install: $(STAMP)

run: $(RUNTIME_STAMP)
	@$(BIN)/pykueue up $(ARGS)

test: $(STAMP)
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not cluster" $(ARGS)

test-cluster: $(STAMP)
	@export PYKUEUE_OPERATORS="$(OPERATORS)"; \
	assets=$$(cd tests && ../$(BIN)/python -m cluster.assets) || exit $$?; \
	KUBEBUILDER_ASSETS="$$assets" $(BIN)/python -m pytest -m cluster $(ARGS)

# An interpreter counts when it runs, is of that version and can make an environment: on PATH, of uv, or of pyenv.
test-matrix:
	@passed=; failed=; missing=; \
	for version in $(VERSIONS); do \
	  found=; \
	  for candidate in python$$version "$$(uv python find --no-project $$version 2>/dev/null)" $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python; do \
	    if "$$candidate" -c "import ensurepip, sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$$version')" >/dev/null 2>&1; then found=$$candidate; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then missing="$$missing $$version"; continue; fi; \
	  echo "Python $$version: $$found"; \
	  if $(MAKE) --no-print-directory test VENV=.cache/matrix/$$version PYTHON="$$found"; then passed="$$passed $$version"; else failed="$$failed $$version"; fi; \
	done; \
	echo "passed:$${passed:- none}; failed:$${failed:- none}; not on this machine:$${missing:- none}"; \
	[ -n "$$passed" ] && [ -z "$$failed" ]

# The table is printed for tests that fail, too.
coverage: $(STAMP)
	@rm -rf .cache/coverage && mkdir -p .cache/coverage
	@$(BIN)/python -m coverage run -m pytest -n 2 -m "not cluster" $(ARGS); status=$$?; \
	$(BIN)/python -m coverage combine --quiet && \
	$(BIN)/python -m coverage json --quiet -o .cache/coverage/report.json && \
	$(BIN)/python tools/coverage_by_package.py .cache/coverage/report.json && exit $$status

soak: $(STAMP)
	@cd tests && ../$(BIN)/python -m simulation.engine $(ARGS)

check: $(STAMP)
	@$(BIN)/ruff format --check --quiet src tests bench tools examples || { echo "make: the formatter would change these files; run make format" >&2; $(BIN)/ruff format --check src tests bench tools examples; exit 1; }
	@$(BIN)/ruff check --quiet src tests bench tools examples
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/project

bench: $(BENCH_STAMP)
	@$(BIN)/python -m bench $(ARGS)

docs: $(DOCS_STAMP)
	@$(BIN)/python tools/reference_pages.py
	@$(BIN)/zensical build --clean

format: $(STAMP)
	@$(BIN)/ruff format src tests bench tools examples
	@$(BIN)/ruff check --fix src tests bench tools examples

# The lock names the public index only, whatever index this machine is configured for.
lock:
	@uv lock --default-index https://pypi.org/simple
