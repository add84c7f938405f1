# The two commands are `make reproduce` and `make test`; both do all their own set-up.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help install reproduce test lint types tests clean

help:
	@echo "make reproduce  index CSFCube, search every facet, evaluate, print the table"
	@echo "make test       lint, types, tests"
	@echo "make clean      remove the environment, indexes, runs and judgements"

install: $(VENV)/installed

$(VENV)/installed: setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(None if sys.version_info >= (3, 11) else "expected Python 3.11 or later, found " + v + "; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[cpu,train,dev]'
	@touch $@

reproduce: install
	PATH="$(abspath $(BIN)):$$PATH" bash scripts/reproduce.sh

test: lint types tests

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

tests: install
	$(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

clean:
	rm -rf $(VENV) indexes/*/ runs/*.trec runs/*.json qrels/*.qrels qrels/*.tsv qrels/*.json qrels/*.jsonl qrels/*/
