# Everything lives in .venv, which is set up from nothing on first use: `make` lists what there is to make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

MAX_FILE_LINES := 300
# Parallel test processes; each keeps to one thread, so that they don't fight over the cores.
TEST_PROCESSES ?= 2

##@ Use it

.PHONY: demo
demo: $(VENV)/.demo ## Watch the engine work: set up what the demo needs, then run it
	$(BIN)/nanovllm demo

.PHONY: bench
bench: $(VENV)/.demo ## Measure how fast the engine and the simulator are on this machine
	$(BIN)/python -m sim.benchmarks

##@ Work on it

.PHONY: test
test: $(VENV)/.dev ## Run the whole test suite
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses=$(TEST_PROCESSES)

.PHONY: lint
lint: $(VENV)/.dev ## Check style, format, who imports whom, and the length of files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	@git ls-files -z '*.py' | xargs -0 wc -l | awk -v max=$(MAX_FILE_LINES) \
	  '$$2 != "total" && $$1 > max { print "error: " $$2 " has " $$1 " lines, at most " max " are allowed"; bad = 1 } \
	  END { exit bad }'

.PHONY: types
types: $(VENV)/.dev ## Check the types of all that needs no torch, strictly
	$(BIN)/mypy

.PHONY: format
format: $(VENV)/.dev ## Put imports and layout of the code in order
	$(BIN)/ruff check --fix-only --select I .
	$(BIN)/ruff format .

.PHONY: notebooks
notebooks: $(VENV)/.dev ## Run the notebooks and store what they show
	$(BIN)/python -m tests.notebooks

.PHONY: docs
docs: $(VENV)/.docs ## Build the documentation into docs/_build/html
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going docs docs/_build/html
	@echo "The site is in docs/_build/html: open docs/_build/html/index.html"

.PHONY: constraints
constraints: $(VENV)/.dev ## Pin the newest releases that fit pyproject.toml in constraints.txt
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 --no-annotate \
	  --extra engine --extra viz --extra cluster --extra notebooks --extra docs --extra dev \
	  --custom-compile-command 'make constraints' --output-file constraints.txt pyproject.toml

.PHONY: clean
clean: ## Remove .venv and everything else that was made
	rm -rf $(VENV) build dist docs/_build .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## "; print "make TARGET [PYTHON=" "$(PYTHON)" "]" } \
	  /^##@ / { print "\n" substr($$0, 5) } \
	  /^[a-z]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# A stamp per set of extras; newer than its sources means nothing to install. The documentation needs no torch.

$(VENV)/.demo: EXTRAS := engine,viz
$(VENV)/.dev: EXTRAS := cluster,notebooks,dev
$(VENV)/.docs: EXTRAS := viz,docs

$(VENV)/.dev: $(VENV)/.demo

$(VENV)/.demo $(VENV)/.dev $(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing nanovllm-lab[$(EXTRAS)] into $(VENV); the first time takes a few minutes"
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 10) and "error: Python 3.10 or newer is needed, $(PYTHON) is %d.%d: name a newer one, as in make PYTHON=python3.12" % v[:2])'
	$(PYTHON) -m venv $(VENV)
