PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DOCS := build/docs-venv
DIST := build/dist-venv
WHEELS := manylinux_2_17_x86_64,manylinux_2_17_aarch64,any
INSTALL := -m pip install --quiet --disable-pip-version-check -c constraints.txt
PIP := $(BIN)/python $(INSTALL)
SOURCES := pyproject.toml constraints.txt hatch_build.py $(wildcard src/trustdoctor/kernels/_native/*.[ch])

# Tests start hundreds of processes; compiled once, each starts a third sooner.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test check soak lint docs dist bench clean

demo: $(VENV)/core.stamp
	$(BIN)/trustdoctor demo

# One worker per core, so one thread each.
test: $(VENV)/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n auto --dist worksteal -m "not soak and not more"

# The cases that `test` leaves out; then what takes long or kills, one after another.
soak: $(VENV)/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n auto --dist worksteal -m "more and not soak"
	$(BIN)/pytest -q -m soak
	$(BIN)/python -m tests.fuzz --cases 3000

check: lint test

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/lint-imports

# The documentation, strictly and offline: build/site/index.html opens from disk. It has
# an environment of its own, without frameworks.
docs: $(DOCS)/stamp
	$(DOCS)/bin/python docs/build.py

# What is released: an sdist and wheels, checked. release/matrix.sh tries them.
dist: $(DIST)/stamp
	$(DIST)/bin/python release/build.py --only $(WHEELS)

bench: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/perturbation.py
	$(BIN)/python benchmarks/export.py
	$(BIN)/python benchmarks/opinion.py
	$(BIN)/python benchmarks/labels.py
	$(BIN)/python benchmarks/scale.py --only files,fat,sketch,ray

clean:
	rm -rf $(VENV) build dist

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/core.stamp: $(SOURCES) | $(BIN)/python
	$(PIP) -e .
	touch $@

# torch goes first and by its exact version: a range would draw in CUDA packages.
$(VENV)/dev.stamp: $(SOURCES) | $(BIN)/python
	$(PIP) $(shell grep '^torch==' constraints.txt)
	$(PIP) -e '.[dev]'
	touch $@ $(VENV)/core.stamp

$(DOCS)/stamp: $(SOURCES)
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python $(INSTALL) --no-compile -e '.[docs]'
	touch $@

$(DIST)/stamp: Makefile
	$(PYTHON) -m venv $(DIST)
	$(DIST)/bin/python $(INSTALL) auditwheel build check-wheel-contents twine
	touch $@
