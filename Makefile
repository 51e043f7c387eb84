# Two commands for a fresh machine: `make demo` runs the main job, `make test` passes the tests.
# Each makes .venv from constraints.txt when it is not there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TRANSFORMERS := $(shell sed -n 's/^transformers==//p' constraints.txt)
COMMON := $(VENV)/share/transformers-tests-$(TRANSFORMERS)
# Python keeps what it compiles, whatever the shell says: else each of the many processes compiles the project again.
export PYTHONDONTWRITEBYTECODE :=
# One worker for each core; the tests of a file stay together, for they share what is slow to make. In their order: the slow
# files are those with few tests, which would come last otherwise, when there is nothing left for the other workers.
PYTEST := $(BIN)/python -m pytest -q -n logical --maxprocesses 8 --dist loadfile --no-loadscope-reorder

.PHONY: help demo demo-train test test-integration test-all test-slow lint format docs clean
help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.installed  ## plan three drugs with the model that comes with Weft, and train a small one (about two minutes on 2 cores)
	$(BIN)/weftformer demo

demo-train: $(VENV)/.installed  ## train a small model on the sample of recorded routes, evaluate it, plan one route (10 minutes on 2 cores)
	$(BIN)/weftformer routes train --output-dir runs/demo

test: lint  ## lint, check the order of the rooms and the types, run the fast tests
	$(PYTEST) -m "not slow and not integration"

test-integration: $(VENV)/.installed  ## run the tests that start processes, builds or browsers, and more cases of others
	$(PYTEST) -m "integration and not slow"

test-all: test test-integration  ## both, one after the other

test-slow: $(VENV)/.installed  ## run the tests that take minutes each
	$(PYTEST) -m slow

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/mypy

format: $(VENV)/.installed  ## let ruff rewrite the layout and the import order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed  ## build the documentation into runs/site
	$(BIN)/python docs/prepare.py
	$(BIN)/zensical build --strict

clean:  ## remove the environment and everything built
	rm -rf $(VENV) build dist *.egg-info

# torch first and alone: asked for by another package, pip would take the newest build with gigabytes of GPU packages.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[chem,syntheseus,train,parity,serve,ray,app,export,docs,test]"
	@# Its plain transformer is all the tests read; what it asks for (escnn) they do without.
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-deps symm-learning
	@# mypy does not see editable installs; it finds the package through this link instead.
	mkdir -p $(VENV)/types && ln -sfn ../.. $(VENV)/types/weftformer
	@# The tests that transformers holds its own models to are in its source distribution only.
	mkdir -p $(COMMON)
	$(BIN)/python -m pip download -q --disable-pip-version-check --no-deps --no-binary transformers -d $(COMMON) \
		transformers==$(TRANSFORMERS) && \
		tar -xzf $(COMMON)/transformers-$(TRANSFORMERS).tar.gz -C $(COMMON) --strip-components 2 \
		$(addprefix transformers-$(TRANSFORMERS)/tests/test_,modeling_common.py configuration_common.py) && \
		touch $(COMMON)/__init__.py || echo "transformers' common tests could not be had: tests/upstream skips them"
	rm -f $(COMMON)/*.tar.gz
	touch $@
