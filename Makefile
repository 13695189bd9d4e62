PYTHON ?=
ARGS ?=
# A process that compiles the platform's modules anew, as this variable asks, starts half a second later.
unexport PYTHONDONTWRITEBYTECODE

# Files with tests of whole runs, and of systems: to collect all others takes every worker half a minute.
RUNS = $(shell grep -rlw whole_runs upsert_platform_tests --include='test_*.py')
SYSTEMS = $(shell grep -rlw systems upsert_platform_tests --include='test_*.py')
TESTED = --dist loadfile --no-loadscope-reorder --max-worker-restart 2 --durations=40 --durations-min=4 $(ARGS)

.PHONY: setup demo ui test test-runs test-systems lint bench soak docs lock

setup: .venv/.installed ## Python environment and jars; quick when nothing changed

.venv/.installed: requirements.lock pyproject.toml
	@PYTHON="$(PYTHON)" scripts/setup

demo: setup ## local servers, two waves of users, a run after each, both tables read back
	.venv/bin/upsert-platform demo $(ARGS)

ui: setup ## the Dagster UI
	.venv/bin/upsert-platform ui $(ARGS)

# Three workers for two cores: a test waits longer for brokers, leases and servers than it computes.
test: setup ## each rule, but what the next three run; ARGS="-k name -n 1" are given to pytest
	.venv/bin/pytest -m "not soak and not systems and not whole_runs" -n 3 $(TESTED)

test-runs: setup ## whole jobs of Dagster, replays, repairs, proofs, destinations and random histories
	.venv/bin/pytest -m "whole_runs and not soak and not systems" -n 3 $(TESTED) $(if $(findstring .py,$(ARGS)),,$(RUNS))

test-systems: setup ## tests with S3Proxy, MariaDB, MySQL and Chromium, which it installs, and of whole processes that are killed
	scripts/setup-systems
	.venv/bin/pytest -m "systems and not soak" -n 3 -o timeout=900 -o faulthandler_timeout=1500 $(TESTED) $(if $(findstring .py,$(ARGS)),,$(SYSTEMS))

soak: setup ## the long tests, of further servers too
	scripts/setup-systems
	.venv/bin/pytest -m soak -n 2 --dist loadfile -o faulthandler_timeout=3600 $(ARGS)

lint: setup ## format, rules, types
	.venv/bin/ruff format --check . && .venv/bin/ruff check . && .venv/bin/python scripts/language.py && .venv/bin/mypy

bench: setup ## measurements on this machine
	.venv/bin/python -m upsert_platform_tests.bench $(ARGS)

docs: setup ## docs/options.md, from the options in the code, and the site, in site/
	.venv/bin/python -m upsert_platform.reference.markdown
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet

lock: ## renews requirements.lock; needs pip-compile on PATH
	scripts/lock
