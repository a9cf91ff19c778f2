# Everything runs in .venv, which `make setup` makes; nothing is installed outside this folder but Spark's jars (~/.ivy2.5.2).
.DEFAULT_GOAL := help
.PHONY: help setup demo up test test-quick test-whole test-long test-turn fuzz durations conformance matrix bench docs lint lock sbom clean uninstall

VENV := .venv
BIN := $(VENV)/bin
# What runs is ready; and so is what tests and checks need beside it.
READY := $(VENV)/.ready
STAMP := $(VENV)/.ready-to-test

# The first Python on the PATH that Spark 4.0 supports and that can make virtual environments. PYTHON=... overrides.
FIND_PYTHON = for candidate in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
	if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; \
	then echo "$$candidate"; exit 0; fi; done; \
	echo 'No Python 3.11, 3.12 or 3.13 with its venv module was found (Debian: python3-venv). Name one: make setup PYTHON=/path/to/python3.11' >&2; \
	exit 1

help: ## show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(READY) ## make .venv with pinned packages, and fetch Spark's jars (done once)

$(READY): requirements.txt pyproject.toml spark_jobs/spark/jvm.py
	@set -e; python=$$($(FIND_PYTHON)); "$$python" -m spark_jobs.spark.java; \
	[ -x $(BIN)/python ] && $(BIN)/python -c '' 2>/dev/null || "$$python" -m venv --clear $(VENV)
	@echo 'Step 1 of 3: Python packages, pinned (about a minute)'
	@$(BIN)/python -m tests.tools.packages requirements.txt
	@echo 'Step 2 of 3: Rewindow itself'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@echo 'Step 3 of 3: a Kafka broker, the jars of Spark, and a first run (one to two minutes)'
	@$(BIN)/python -m tests.tools.setup
	@touch $@

$(STAMP): $(READY) requirements-dev.txt
	@echo 'Packages that only tests and checks need'
	@$(BIN)/python -m tests.tools.packages requirements-dev.txt
	@touch $@

demo: $(READY) ## backfill and reconcile real flights through a real Airflow; compare with what Flink emitted
	$(BIN)/rewindow demo

up: $(READY) ## the same Airflow, to look at and to click in, until Ctrl-C; PORT=8080 names its port
	@echo 'The documents are built as a site (a few seconds; the first time half a minute)'
	@$(MAKE) --no-print-directory docs >/dev/null 2>&1 || echo 'The documents could not be built as a site: see make docs.'
	@exec $(BIN)/rewindow up $(if $(PORT),--port $(PORT))

# tests/tiers.py says which tests run when, and in which order.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadscope --no-loadscope-reorder --durations 25
WITHOUT_JAVA := tests/test_documents.py tests/test_imports.py tests/test_settings.py tests/definition tests/eventtime \
	tests/golden/test_naive.py tests/golden/test_sequential.py tests/golden/test_structured_streaming.py tests/orchestration/test_form.py

test: $(STAMP) ## run all quick tests, and of the others what the last day's change touches, then those whose turn it is (20 to 40 minutes)
	REWINDOW_TESTS=short $(PYTEST)

test-whole: $(STAMP) ## run every guarantee once, with real parts, in two processes (an hour)
	REWINDOW_TESTS=whole $(PYTEST)

test-quick: $(STAMP) ## run what needs no Java: definitions, event-time core, laws, recorded cases (under a minute)
	$(PYTEST) $(WITHOUT_JAVA)

test-long: $(STAMP) ## run all tests, and in full what is sampled elsewhere: kills, random nights, laws (for a night)
	REWINDOW_TESTS=long $(PYTEST) --timeout 14400

test-turn: $(STAMP) ## run of what `make test` leaves out what the change touches, then those whose turn it is, for MINUTES (30)
	REWINDOW_TESTS=turn REWINDOW_TESTS_MINUTES=$(or $(MINUTES),30) $(PYTEST)

fuzz: $(STAMP) ## try inputs that nobody would write, for MINUTES (30); SEED and KIND repeat what was found
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED)) $(if $(KIND),--kind $(KIND))

durations: ## keep what each file of tests took in the last run: the next run begins with the longest
	cp build/durations.json tests/durations.json

conformance: $(STAMP) ## run recorded cases: DIR=tests/golden/flink, ENGINE=sequential or spark
	@$(BIN)/python -m tests.conformance $(or $(DIR),tests/golden/flink) --engine $(or $(ENGINE),sequential)

matrix: $(STAMP) ## try the built wheel with several versions of Python, Airflow and Spark (needs uv)
	$(BIN)/python -m tests.tools.matrix

bench: $(STAMP) ## measure the engine against plain Spark and Structured Streaming (takes long)
	$(BIN)/python -m tests.bench

# MkDocs has an environment of its own: no other command needs it.
DOCS := .venv-docs

$(DOCS)/.ready: requirements-docs.txt
	@set -e; python=$$($(FIND_PYTHON)); "$$python" -m venv --clear $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-docs.txt
	@touch $@

docs: $(DOCS)/.ready ## build the pages of docs/ as a site in build/site
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict

# CycloneDX has an environment of its own, too.
SBOM := .venv-sbom

$(SBOM)/.ready: requirements-sbom.txt
	@set -e; python=$$($(FIND_PYTHON)); "$$python" -m venv --clear $(SBOM)
	$(SBOM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-sbom.txt
	@touch $@

sbom: $(READY) $(SBOM)/.ready ## write build/sbom.json (CycloneDX): the packages and jars that run, with their licences
	@mkdir -p build
	$(SBOM)/bin/cyclonedx-py environment $(BIN)/python --output-reproducible --output-file build/sbom-packages.json
	$(BIN)/python -m tests.sbom build/sbom-packages.json requirements.txt build/sbom.json

lint: $(STAMP) ## check style, types and what each folder imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/basedpyright

# The locks are made with uv, for every supported Python at once. requirements.txt has what runs; requirements-dev.txt has
# what tests and checks need beside it, and what runs only on platforms where nobody installs it (sys_platform == 'never').
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --quiet \
	--custom-compile-command 'make lock'

lock: ## renew requirements*.txt from pyproject.toml (needs uv)
	$(COMPILE) pyproject.toml --upgrade --extra all --extra openlineage --extra build --output-file requirements.txt
	$(COMPILE) pyproject.toml --upgrade --extra dev --constraint requirements.txt --output-file requirements-dev.txt \
		$$(sed -n "/sys_platform == 'never'/d; s/^\([A-Za-z0-9._-]*\)==.*/--no-emit-package \1/p" requirements.txt)
	echo mkdocs-material | $(COMPILE) - --upgrade --output-file requirements-docs.txt
	echo cyclonedx-bom | $(COMPILE) - --upgrade --output-file requirements-sbom.txt

clean: ## remove .venv, .venv-docs, .venv-sbom, caches and the local tables (.rewindow)
	rm -rf $(VENV) $(DOCS) $(SBOM) .rewindow .pytest_cache .ruff_cache .hypothesis build dist *.egg-info spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The archive of the package for clusters, and the jars; other Spark programs that use ~/.ivy2.5.2 fetch theirs again.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rewindow

uninstall: clean ## the same, and remove ~/.cache/rewindow and Spark's jars (~/.ivy2.5.2); your catalog and runs elsewhere stay
	rm -rf "$(CACHE)" "$(HOME)/.ivy2.5.2"
