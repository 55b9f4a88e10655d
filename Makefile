# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

SUPPLY = test -x .venvs/supply/bin/pip-audit || { $(PYTHON) -m venv .venvs/supply && .venvs/supply/bin/python -m pip install \
	--quiet --disable-pip-version-check pip-audit==2.10.1 pip-licenses==5.5.5 cyclonedx-bom==7.5.0; }

.PHONY: audit supply clusters-check demo docs test test-slow test-all test-exports wheel-test bench-series test-hosts results clean help

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(VENV)/base: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e '.[report]'
	@touch $@

$(VENV)/dev: $(VENV)/base lab/pyproject.toml
	$(PIP) -e '.[dev]' -e lab
	@touch $@

$(VENV)/docs: $(VENV)/base
	$(PIP) -e '.[docs]'
	@touch $@

demo: $(VENV)/base  ## the whole job on two real data sets; writes demo.png and demo-engel.html
	$(BIN)/kitt demo

test: $(VENV)/dev  ## lint, types, and all tests but the slow ones
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup -m 'not slow'

test-slow: $(VENV)/dev  ## the tests that `make test` leaves out
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup -m slow

test-all: test test-slow  ## lint, types and all tests

docs: $(VENV)/docs  ## the documentation as a site, build/site/index.html, with its examples executed
	OMP_NUM_THREADS=1 $(BIN)/python docs/gallery/build.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --clean

test-exports: $(VENV)/dev  ## the GPflow and GPJax exports, in environments of their own
	tests/export/environments/run.sh

wheel-test:  ## the wheel in an empty environment: caption, fit and predict a small file there
	PYTHON=$(PYTHON) tests/wheel/run.sh

bench-series: $(VENV)/dev  ## forecasts by statsforecast, in an environment of its own; DATA is an atlas, OUT its lines
	lab/kitt_lab/bench/rivals/run.sh $(or $(DATA),$(error set DATA to the folder of an atlas)) $(or $(OUT),runs/series.jsonl)

supply: $(VENV)/dev  ## licences of all packages, and their list (an SBOM of CycloneDX), build/sbom.json
	$(SUPPLY)
	.venvs/supply/bin/pip-licenses --python $(BIN)/python --partial-match --fail-on='GPL;General Public;UNKNOWN' > /dev/null
	@mkdir -p build
	.venvs/supply/bin/cyclonedx-py environment $(BIN)/python --output-file build/sbom.json

audit:  ## known vulnerabilities of the pinned packages; needs the network beyond the package index
	$(SUPPLY)
	.venvs/supply/bin/pip-audit -r constraints.txt --no-deps --disable-pip

clusters-check:  ## the configuration of docs/many-machines.md, read by dask-jobqueue, dask-kubernetes and Ray
	test -x .venvs/clusters/bin/python || $(PYTHON) -m venv .venvs/clusters
	.venvs/clusters/bin/python -m pip install --quiet --disable-pip-version-check \
		'dask[array,dataframe,distributed]==2026.8.0' dask-jobqueue==0.9.0 dask-kubernetes==2026.3.0 ray==2.60.0 jsonschema
	.venvs/clusters/bin/python tests/clusters/check.py

results: $(VENV)/dev  ## the published numbers again, from this commit; resumable, about sixteen hours on one core; ARGS=--list shows the steps
	OMP_NUM_THREADS=1 $(BIN)/python -m kitt_lab.bench.results $(if $(DATA),--data $(DATA)) $(ARGS)

test-hosts:  ## KITT inside Ax, BayBE, BoFire and others, in environments of their own (about 10 GB); HOSTS="ax smt" for some
	PYTHON=$(PYTHON) tests/interop/hosts/run.sh $(HOSTS)

clean:  ## remove everything that the other targets made
	rm -rf $(VENV) .venvs build demo.png demo-engel.* docs/gallery/*.md docs/gallery/*.png
