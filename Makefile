# Everything a newcomer or a CI machine needs; wants Python 3.11 or later and make, and nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
WORKERS ?= 2

BIN := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint bench docs clean

help: ## say what there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

demo: $(INSTALLED) ## learn the Lorenz system in a few minutes: table, figures and report in runs/demo
	$(BIN)/stochflow demo

# A worker that crashes ends the run; one in its place might wait for ever.
test: $(INSTALLED) ## the tests, without those that take minutes
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --max-worker-restart 0

# Slow tests train or measure time: one at a time, or they would slow each other down.
test-all: test docs ## the tests, all of them
	$(BIN)/python -m pytest -q -m slow

lint: $(INSTALLED) ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: $(INSTALLED) ## time sampling, densities and training steps
	$(BIN)/python -m benchmarks.run

docs: $(INSTALLED) ## build the documentation into site/ and run its code; a broken link is an error
	$(BIN)/mkdocs build --strict
	$(BIN)/python -m pytest -q -n $(WORKERS) -m docs --max-worker-restart 0

clean: ## remove what was built; the environment and runs/ are kept
	rm -rf site build dist .pytest_cache .ruff_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable ".[plots,diffrax,frames,dev,docs]" --constraint constraints.txt
	touch $@
