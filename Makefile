# make demo    see continual learning happen
# make test    lint, types, imports, tests
# make docs    the documentation as a site
#
# Each sets up its own environment in .venv the first time; nothing but Python >= 3.11 and make is needed.
# PYTHON=... chooses the interpreter, ARGS=... goes to the command behind the target.

PYTHON ?=
ARGS ?=
BIN := .venv/bin

# More threads than this only get in each other's way on models this small.
ifndef OMP_NUM_THREADS
export OMP_NUM_THREADS := $(shell n=`nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2`; \
	if [ "$$n" -gt 8 ]; then echo 8; else echo "$$n"; fi)
endif

.PHONY: help demo test test-lowest docs lint format setup clean

help:
	@echo 'make demo    SAFE on an embedded stream with an embedded backbone: a table, and a page to open'
	@echo 'make test    lint, types, imports and tests'
	@echo 'make docs    the documentation as a site, in build/site'
	@echo 'make lint    lint, types and imports only'
	@echo 'make format  format the code'
	@echo 'make setup   only make the environment in .venv'
	@echo 'make clean   remove the environment and every cache'

demo: setup
	@$(BIN)/safecl demo $(ARGS)

# All tests in parallel, some of them in one process.
test: lint
	$(BIN)/python -m pytest $(if $(ARGS),$(ARGS),-n auto --maxprocesses 4 --dist worksteal)

# With the oldest versions that pyproject.toml allows.
test-lowest: setup
	@$(BIN)/python -c 'import os, venv; os.path.isdir(".venv-lowest") or venv.create(".venv-lowest", with_pip=True)'
	.venv-lowest/bin/python -m pip install --disable-pip-version-check -q -c constraints-lowest.txt -e '.[dev]'
	.venv-lowest/bin/python -m pytest $(if $(ARGS),$(ARGS),-n auto --maxprocesses 4 --dist worksteal)

# Strict: a link that leads nowhere is an error. "make test" builds the site as well, into a temporary folder.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(ARGS)
	@echo 'build/site/index.html; with its search: $(BIN)/python -m http.server --directory build/site'

lint: setup
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: setup
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

# Any Python that starts will do here: tools/setup.py looks for a fitting one itself.
setup:
	@for python in "$(PYTHON)" python3 python python3.14 python3.13 python3.12 python3.11; do \
		if [ -n "$$python" ] && "$$python" -c '' >/dev/null 2>&1; then \
			exec "$$python" tools/setup.py "$(PYTHON)"; \
		elif [ "$$python" = "$(PYTHON)" ] && [ -n "$$python" ]; then \
			echo "PYTHON=$$python does not start; name a Python 3.11 or newer." >&2; exit 2; \
		fi; \
	done; \
	echo "No Python found; install Python 3.11 or newer, or name one: make PYTHON=/path/to/python." >&2; exit 2

clean:
	rm -rf .venv .venv-lowest .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find src tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +
