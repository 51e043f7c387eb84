# Two commands for a fresh machine: `make demo` runs the main job, `make test` passes the tests.
# Each makes .venv from constraints.txt when it is not there; `make test` adds what the tests need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python keeps what it compiles, whatever the shell says: else each of the many processes compiles the project again.
export PYTHONDONTWRITEBYTECODE :=
# One worker for each core; the tests of a file stay together, for they share what is slow to make. In their order: the slow
# files are those with few tests, which would come last otherwise, when there is nothing left for the other workers.
PYTEST := $(BIN)/python -m pytest -q -n logical --maxprocesses 8 --dist loadfile --no-loadscope-reorder

# The requirements of each environment of `make test-versions`. All other packages have their versions from constraints.txt;
# with `PINS=` they are the newest.
VERSIONS := oldest newest-but-one newest
oldest := torch==2.11.* transformers==5.17.*
newest-but-one := torch==2.13.* transformers==5.23.*
newest := torch transformers
PINS := -c $(VENV)/versions/constraints.txt
TESTS_OF_VERSIONS := tests/modeling tests/generation tests/hub tests/conversion tests/training tests/upstream

# The tests that transformers and PEFT run on models are in their source distributions only. $(1) is an environment, $(2) the
# package and $(3) the files.
define add_tests_of
version=$$($(1)/bin/python -c "from importlib.metadata import version; print(version('$(2)'))"); \
folder=$(1)/share/$(2)-tests-$$version; mkdir -p $$folder; \
{ $(1)/bin/python -m pip download -q --disable-pip-version-check --no-deps --no-binary $(2) -d $$folder $(2)==$$version && \
tar -xzf $$folder/$(2)-$$version.tar.gz -C $$folder --strip-components 2 $(addprefix $(2)-$$version/tests/,$(3)) && \
touch $$folder/__init__.py; } || echo "the tests of $(2) could not be downloaded: tests/upstream skips them"; \
rm -f $$folder/*.tar.gz
endef
COMMON_TESTS := test_modeling_common.py test_configuration_common.py
PEFT_TESTS := test_encoder_decoder_models.py testing_common.py testing_utils.py

.PHONY: help demo demo-train test test-integration test-all test-slow test-versions lint format docs clean
help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.demo  ## plan three drugs, and learn 300 dates, with the included models (two minutes of CPU time)
	mkdir -p runs/demo-output
	$(BIN)/weftformer routes plan --input-file docs/drugs.smi --html runs/demo-output/routes.html --show 1 --num-routes 5
	$(BIN)/weftformer train --train-file docs/dates.csv --source-column date --target-column iso --output-dir runs/demo-output/model --overwrite-output-dir
	$(BIN)/weftformer generate --model runs/demo-output/model 'February 27, 1985' '15/04/1996' '18.7.1974' '8.3.1972' 'Mar 27 1984'

demo-train: $(VENV)/.demo  ## train a small model on the sample of recorded routes, evaluate it, plan one route (eight minutes of one core)
	$(BIN)/weftformer routes train --output-dir runs/demo

test: lint  ## lint, check the order of the packages and the types, run the fast tests
	$(PYTEST) -m "not slow and not integration"

test-integration: $(VENV)/.installed $(VENV)/moto/.installed  ## run the tests that start processes, builds or browsers, and more cases of others
	$(PYTEST) -m "integration and not slow"

test-all: test test-integration  ## both, one after the other

test-slow: $(VENV)/.installed  ## run the tests that take minutes each
	$(PYTEST) -m slow

test-versions: $(VERSIONS:%=test-with-%)  ## run the tests that depend on torch and transformers with the oldest, the newest but one and the newest

test-with-%: $(VENV)/versions/%/.installed
	$(VENV)/versions/$*/bin/python -c "import torch, transformers; print('$*: torch', torch.__version__, 'and transformers', transformers.__version__)"
	$(VENV)/versions/$*/bin/$(subst $(BIN)/,,$(PYTEST)) -m "not slow and not integration or versions" $(TESTS_OF_VERSIONS)

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

$(VENV)/versions/%/.installed: pyproject.toml constraints.txt Makefile
	$(PYTHON) -m venv --clear $(@D)
	grep -vE '^(torch|setuptools|transformers|huggingface_hub|tokenizers|safetensors|accelerate)==' constraints.txt > $(VENV)/versions/constraints.txt
	$(@D)/bin/python -m pip install -q --disable-pip-version-check --upgrade $(PINS) $($*) -e ".[chem,train,parity,test]"
	$(@D)/bin/python -m pip install -q --disable-pip-version-check $(PINS) --no-deps symm-learning annalog
	@$(call add_tests_of,$(@D),transformers,$(COMMON_TESTS))
	touch $@

# What the demos need. torch first and alone: asked for by another package, pip would take the newest build with gigabytes of
# GPU packages.
$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[chem,train]"
	touch $@

# An S3 server for tests. It needs an older python-dateutil than constraints.txt has, so its environment is its own.
$(VENV)/moto/.installed: Makefile
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -q --disable-pip-version-check "moto[s3]==5.2.5" flask==3.1.3 flask-cors==6.0.5 \
		|| echo "moto could not be installed: the tests of S3 are skipped"
	touch $@

# And what the tests, the lint and the pages need.
$(VENV)/.installed: $(VENV)/.demo
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[chem,syntheseus,aizynthfinder,train,parity,serve,ray,export,docs,test]"
	@# Their transformers are all the tests read; what they ask for (escnn, and 60 MB of chembl-gen-check) they do without.
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-deps symm-learning annalog
	@# mypy does not see editable installs; it finds the package through this link instead.
	mkdir -p $(VENV)/types && ln -sfn ../.. $(VENV)/types/weftformer
	@$(call add_tests_of,$(VENV),transformers,$(COMMON_TESTS))
	@$(call add_tests_of,$(VENV),peft,$(PEFT_TESTS))
	touch $@
