# The chores of this project; `make` lists them.

PYTHON ?= python3
DEMO   ?= sample_logs/host-oom-cache-of-rank-2
# Set this where the default index holds only torch with CUDA: make test PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu"
PIP_FLAGS ?=
# What development installs, each file by its hash. `make test LOCK=` goes by the bounds of pyproject.toml instead, for
# an index that lacks a file of the lock.
LOCK ?= requirements-dev.lock

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet $(PIP_FLAGS)

.DEFAULT_GOAL := help
.PHONY: help demo test check soak bench docs examples lock dist clean

help:  ## list these targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; try: make PYTHON=python3.12 …"; exit 1; }
	@echo "making .venv"
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "this Python has no venv; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@touch $@

# The stamps keep a second run fast: pip runs again only after pyproject.toml has changed.
.venv/.core: pyproject.toml | .venv/.made
	@echo "installing postmortem into .venv"
	@$(PIP) --editable .
	@touch $@

# Three steps, because one version of torch has other files on each index, so that it has no place in a lock. What builds
# postmortem itself (hatchling) is in the lock too.
.venv/.dev: pyproject.toml constraints.txt requirements-dev.lock | .venv/.made
	@echo "installing postmortem and its development extras into .venv (torch: some minutes the first time)"
ifeq ($(strip $(LOCK)),)
	@$(PIP) --constraint constraints.txt --editable '.[dev]'
else
	@$(PIP) --require-hashes --only-binary :all: --requirement $(LOCK) || { echo "not installed as locked; without the lock: make test LOCK="; exit 1; }
	@$(PIP) --constraint constraints.txt torch
	@$(PIP) --no-deps --no-build-isolation --editable .
endif
	@touch $@ .venv/.core

demo: .venv/.core  ## analyze one incident of sample_logs/ and print the path of the report
	@echo "postmortem analyze $(DEMO)/logs"
	@$(BIN)/postmortem analyze $(DEMO)/logs
	@echo "on your own logs: $(BIN)/postmortem analyze YOUR/LOGS"

# One more than cores: jobs, signals and servers make many of the tests wait.
WORKERS ?= $(shell echo $$(($$(nproc) + 1)))
SUITE := $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: .venv/.dev  ## the suite on all cores; tests that cannot run here are listed with the reason
	@$(SUITE) -rs -m 'not release' --durations 20

check: .venv/.dev  ## the fast part of the suite
	@$(SUITE) -m 'not slow and not release'

# A piece of it: make soak ONLY=tests/test_replay_run.py
soak: .venv/.dev  ## before a release: the same jobs with and without us, every replay scenario for real; 75 minutes on two cores
	@$(BIN)/python -m pytest -v -rs -o console_output_style=count -m release $(or $(ONLY),tests)

bench: .venv/.dev  ## speed against ripgrep, and the table of it in docs/performance.md; some minutes
	@$(BIN)/python benchmarks/analyze_scale.py --scale 0.1 --runs 3 --json benchmarks/ratios.json
	@$(BIN)/python scripts/reference.py

examples: .venv/.dev  ## render reports/examples/ anew, and the picture in the README
	@$(BIN)/python scripts/examples.py
	@$(BIN)/python scripts/screenshot.py reports/examples/oom-on-second-host.html docs/report.png --height 720

docs: .venv/.dev  ## the documentation site, into build/site; a dead link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "to read it, with its search: build/site/index.html"

# Bad releases are mostly found and withdrawn within a week. Torch and the parts of its CUDA builds are left out, see
# [tool.uv.pip] of pyproject.toml.
UV := UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/python -m uv pip compile pyproject.toml --quiet --exclude-newer "7 days"

lock: .venv/.dev  ## write requirements-dev.lock and requirements-min.lock anew; UPGRADE=1 takes newer releases
	@$(UV) $(if $(UPGRADE),--upgrade) --extra dev --constraint constraints.txt --universal --output-file requirements-dev.lock
	@$(UV) $(if $(UPGRADE),--upgrade) --resolution lowest-direct --python-platform linux --output-file requirements-min.lock

dist: .venv/.dev  ## sdist, wheel and bill of materials (CycloneDX) into dist/, and the demo from the wheel
	@rm -rf dist build
	@$(BIN)/python -m hatchling build -t sdist -t wheel -d dist 2>&1 | tail -2
	@$(BIN)/python scripts/sbom.py --wheel dist/*.whl
	@echo "installing the wheel into an environment of its own"
	@$(PYTHON) -m venv build/clean
	@build/clean/bin/python -m pip --disable-pip-version-check install --quiet $(PIP_FLAGS) dist/*.whl
	@cd build && clean/bin/postmortem analyze ../$(DEMO)/logs --output report.html

clean:  ## remove .venv, caches and build products
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis postmortem-report.html
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
