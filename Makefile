# Everything a contributor needs, in a virtual environment of its own. `make` alone lists the targets.

PYTHON ?= python3
JOBS ?= 2
CASES ?= 10000
LOCKED ?= 1
LOWEST := tests/dataset tests/cli tests/fuzz tests/images tests/inference tests/metrics tests/scenes \
	tests/curation/test_server.py tests/training/test_run.py
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported, since most of the many that are installed never are; without their
# bytecode on disk, each of the hundreds of processes that tests start would compile them again.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile

# Test workers are processes; a thread of torch's own in each would only make them wait for one another. Each begins with
# a stretch of neighbouring tests, so that what a module's tests share is made once, and takes from another's when done.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-all fuzz attack build pythons minimal lock audit format lint types bench bench-voc bench-coco numbers notebooks docs

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

venv: $(VENV)/.installed ## create .venv with Tagfill and the tools to work on it

# Only files whose hashes are in requirements/ are installed. `make LOCKED= venv` installs by version instead, for builds
# of torch that the lock does not know.
$(VENV)/.installed: pyproject.toml constraints.txt requirements/lock.txt requirements/lock-cpu.txt \
		requirements/lock-cuda.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tagfill needs Python 3.11 or newer; name one with: make PYTHON=python3.11" >&2; exit 1; }
	@echo "Installing into $(VENV) (the first time takes some minutes)" >&2
	@$(PYTHON) -m venv $(VENV)
ifneq ($(LOCKED),)
	@$(PIP) --no-deps --require-hashes --requirement requirements/lock-cpu.txt 2>/dev/null || true  # not offered here
	@$(PIP) --no-deps --require-hashes --requirement requirements/lock.txt
	@$(BIN)/python -c 'from importlib.metadata import requires; raise SystemExit("nvidia" in str(requires("torch")))' || \
		$(PIP) --no-deps --require-hashes --requirement requirements/lock-cuda.txt
	@$(PIP) --no-deps --no-build-isolation --no-index --editable .
	@$(BIN)/python -m pip check >&2
else
	@$(PIP) --constraint constraints.txt --editable ".[dev,pretrained]"
endif
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@$(if $(LOCKED),,$(PIP) --constraint constraints.txt --editable ".[docs]")
	@touch $@

demo: venv ## train and evaluate on the embedded scenes
	$(BIN)/tagfill demo

test: venv ## run the tests, without those of long matrices
	$(PYTEST) -m "not long"

test-all: venv ## run every test
	$(PYTEST)

fuzz: venv ## run CASES damaged files (10,000) through the reader of each format
	FUZZ_CASES=$(CASES) $(PYTEST) tests/fuzz

attack: venv ## attack servers and kill commands on this machine, and print what was noticed
	@set -e; for script in attacks/serve.py attacks/kill.py; do echo "$$script"; $(BIN)/python "$$script"; done

build: venv ## build the source archive and the wheel into dist/
	@$(BIN)/python -m build --no-isolation --outdir dist .

pythons: venv ## run part of the tests with every Python of this machine that Tagfill supports, in .venv-3.*
	@$(BIN)/python tests/pythons.py $(PYTHONS)

# Old versions may warn of what newer libraries beside them deprecate.
minimal: ## run part of the tests with the lowest versions of dependencies, in .venv-minimal
	$(PYTHON) -m venv .venv-minimal
	$(PYTHON) tests/lowest_versions.py > .venv-minimal/constraints.txt
	.venv-minimal/bin/python -m pip install -qq --disable-pip-version-check --constraint .venv-minimal/constraints.txt \
		--editable ".[pretrained,tensorboard,export,serve,pandas]" pytest pytest-xdist hypothesis httpx scikit-learn playwright
	OMP_NUM_THREADS=1 .venv-minimal/bin/python -m pytest --numprocesses $(JOBS) -m "not long" \
		-W default::DeprecationWarning $(LOWEST)

lock: $(VENV)/.installed-docs ## pin what .venv holds: constraints.txt, and requirements/*.txt with hashes
	$(BIN)/python requirements/make_lock.py

audit: ## look up known vulnerabilities of all pinned packages, in .venv-audit
	@$(PYTHON) -m venv .venv-audit
	@.venv-audit/bin/python -m pip install -qq --disable-pip-version-check pip-audit==2.10.1
	@.venv-audit/bin/python requirements/audit.py

format: venv ## format the code, and mend what can be mended
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

lint: venv ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv ## check types
	$(BIN)/mypy

bench: venv ## run every benchmark, benchmarks/*/run.py, but those that need photos, an accelerator or a folder to work in
	@set -e; found=; \
	for script in benchmarks/*/run.py; do \
		[ -f "$$script" ] || continue; \
		case "$$script" in benchmarks/voc12/*|benchmarks/coco14/*|benchmarks/effects/*|benchmarks/label_errors/*) continue;; \
			benchmarks/accelerator/*|benchmarks/cluster/*|benchmarks/torchrun/*|benchmarks/scale/*) continue;; esac; \
		found=yes; echo "$$script"; $(BIN)/python "$$script"; \
	done; \
	[ -n "$$found" ] || echo "There is no benchmark yet: benchmarks/*/run.py matches no file."

bench-voc: venv ## run tables of VOC 2012: make bench-voc VOC=voc2012.tar TABLE=A, or QUICK=1 for a first picture
	@[ -n "$(VOC)" ] || { echo "Name PASCAL VOC 2012, its folder or a tar of it: make bench-voc VOC=voc2012.tar" >&2; exit 2; }
	$(BIN)/python benchmarks/voc12/run.py "$(VOC)" --table $(or $(TABLE),all) $(if $(QUICK),--quick) $(if $(WORK),--work "$(WORK)")

bench-coco: venv ## run tables of COCO 2014: make bench-coco LABELS=labels.csv.gz PHOTOS=train2017 TABLE=A, or QUICK=1
	@[ -n "$(LABELS)" ] && [ -n "$(PHOTOS)" ] || { echo "Name labels and photos: make bench-coco LABELS=labels.csv.gz PHOTOS=train2017" >&2; exit 2; }
	$(BIN)/python benchmarks/coco14/run.py "$(LABELS)" "$(PHOTOS)" --table $(or $(TABLE),all) $(if $(QUICK),--quick) $(if $(WORK),--work "$(WORK)")

numbers: venv ## update the numbers in the documentation from results of benchmarks
	$(BIN)/python benchmarks/fill_in.py

notebooks: venv ## run the notebooks of the documentation and store their outputs
	OMP_NUM_THREADS=1 $(BIN)/python docs/notebooks/execute.py

docs: $(VENV)/.installed-docs ## build the documentation into docs/_build/html
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"
