# The commands of this repository. They install Python packages into .venv. If a Debian package is missing, they install
# it when run as root, and print its name otherwise.

PYTHON ?= python3
ARGS ?=
PYTEST_ARGS ?=
SCALE ?= 7.5

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/pytest -n 3 --dist worksteal
# A test that hangs ends its process after ten minutes: it fails, and the others go on. The longest takes one.
HANGS := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true
WITH_POSTGRES := $(BIN)/python tools/with_postgres.py

# Without bytecode, every process that a test starts would compile the package again: a quarter of the run time.
unexport PYTHONDONTWRITEBYTECODE

# Stamps: an install runs again only when pyproject.toml is newer than its stamp.
DEMO_INSTALLED := $(VENV)/.demo-installed
DEV_INSTALLED := $(VENV)/.dev-installed

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install lint types test test-fast test-long test-planted fix reference bench-quick bench-limits bench-reads bench-broker try-deploy demo clean

help: ## List these targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(DEV_INSTALLED) ## Make .venv with the package (editable) and the tools to develop it.

lint: install ## Check the code's rules and format with ruff.
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: install ## Check the types with mypy.
	$(BIN)/mypy

test: install lint types ## Lint, check types and run all tests; PYTEST_ARGS goes to pytest.
	$(PYTEST) $(HANGS) $(PYTEST_ARGS)

test-fast: install ## Run the tests that need no server and do not wait, in under a minute; for use while writing code.
	WINDLASS_TEST_NO_SERVERS=1 $(PYTEST) -m 'not slow and not postgres and not rabbitmq and not redis' $(PYTEST_ARGS)

test-long: install ## Run the fault and model suites in their large sizes; takes about an hour.
	WINDLASS_TEST_SCALE=$(SCALE) $(PYTEST) -m long $(PYTEST_ARGS)

test-planted: install ## Check that the tests notice faults in claim, finish, rescue, limits, joins and schedules.
	$(BIN)/python tools/plant_faults.py

fix: install ## Fix what ruff can fix, and format the code.
	$(BIN)/ruff check --fix --exit-zero
	$(BIN)/ruff format

reference: install ## Write docs/reference.md from the signatures and docstrings.
	$(BIN)/python tools/reference.py

bench-quick: install ## Run the quick benchmark, with a private PostgreSQL that keeps fsync on; ARGS goes to it.
	$(WITH_POSTGRES) --durable -- $(BIN)/python benchmarks/quick.py $(ARGS)

bench-limits: install ## Measure what limits cost, on a private PostgreSQL that keeps fsync on; ARGS goes to it.
	$(WITH_POSTGRES) --durable -- $(BIN)/python benchmarks/limits.py $(ARGS)

bench-reads: install ## Measure what lists cost with a million jobs, on a private PostgreSQL; ARGS goes to it.
	$(WITH_POSTGRES) -- $(BIN)/python benchmarks/reads.py $(ARGS)

bench-broker: install ## Measure Windlass beside Celery on a private RabbitMQ; Celery goes into a temporary environment.
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && $(PYTHON) -m venv "$$folder" && \
	"$$folder/bin/pip" install --quiet celery && \
	$(BIN)/python tools/with_rabbitmq.py -- $(WITH_POSTGRES) --durable -- \
	$(BIN)/python benchmarks/broker.py --celery "$$folder/bin" $(ARGS)

try-deploy: ## Validate deploy/'s manifests, build its images, run its units under a systemd; as root on Debian.
	bash tools/try_deploy.sh $(ARGS)

demo: $(DEMO_INSTALLED) ## Run four systems and their dashboard on SQLite, until Ctrl-C; ARGS=--once ends by itself.
	$(BIN)/python examples/demo/demo.py $(ARGS)

clean: ## Remove .venv, caches and built packages.
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pip understands dependency groups since 25.1.
$(DEMO_INSTALLED): pyproject.toml
	sh tools/venv.sh $(PYTHON) $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[web]' --group examples
	touch $@

$(DEV_INSTALLED): pyproject.toml
	sh tools/venv.sh $(PYTHON) $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[web]' --group dev
	touch $@ $(DEMO_INSTALLED)
