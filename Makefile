# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint types tests test-exports bench bench-series clean help

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(VENV)/base: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e '.[report]'
	@touch $@

$(VENV)/dev: $(VENV)/base
	$(PIP) -e '.[dev]'
	@touch $@

demo: $(VENV)/base  ## caption, fit and explain a real table; writes demo-report.html
	$(BIN)/kitt demo

test: $(VENV)/dev  ## lint, types and tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-exports: $(VENV)/dev  ## the GPflow and GPJax exports, in environments of their own
	tests/export/environments/run.sh

bench-series: $(VENV)/dev  ## forecasts by statsforecast, in an environment of its own; DATA is an atlas, OUT its lines
	benchmarks/series/run.sh $(or $(DATA),../shared/data/atlas) $(or $(OUT),runs/series.jsonl)

clean:  ## remove everything that the other targets made
	rm -rf $(VENV) .venvs demo-report.html demo-model.json
