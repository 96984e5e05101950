# make demo, make test: the two commands of the README. Everything lives in .venv.
PYTHON := $(shell sh scripts/find_python.sh)
STAMP  := .venv/.setup-stamp
BIN    := .venv/bin
# Else every worker compiles every test again.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal --reruns 1

.PHONY: setup demo test test-all test-rest test-real test-browser test-ray test-container test-install test-recorded test-core test-portable lint docs bench golden plugin seed-coverage clean dist/assay.pyz

setup: $(STAMP)

$(STAMP): pyproject.toml scripts/setup.sh scripts/find_python.sh
	@sh scripts/setup.sh "$(PYTHON)" && touch $(STAMP)

demo: setup
	@$(BIN)/assay demo

# Every test that needs no agent, browser, cluster, container or second environment.
test: setup
	@$(PYTEST) -m "not real and not browser and not ray and not container and not install and not recorded"

# Ray's tests have a process of their own, because what Ray loads breaks the forks of others there.
# They mostly wait, so they run beside the rest.
test-all: setup
	@$(MAKE) --no-print-directory -j2 test-ray test-rest

test-rest: setup
	@$(PYTEST) -m "not ray" $(ARGS)

test-ray: setup
	@$(PYTEST) -m ray -n 1

# One part by its marker: make test-real, test-browser, test-ray, test-container, test-install, test-recorded.
test-real test-browser test-container test-install test-recorded: setup
	@$(PYTEST) -m $(@:test-%=%)

test-core: setup
	@scripts/test_core.sh -n auto --maxprocesses 4 --dist loadfile --reruns 1

# The core tests as they would run on a Mac: without anything that only Linux has.
test-portable: setup
	@ASSAY_PORTABLE=1 $(PYTEST) -m "not real and not browser and not ray and not container and not install and not recorded" $(ARGS)

lint: setup
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

# The pages as a site, in site/VERSION/, with a list of all versions there.
docs: setup
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group docs && NO_MKDOCS_2_WARNING=1 $(BIN)/python scripts/docs_site.py

bench: setup
	@$(BIN)/python -m benchmarks

golden: setup
	@scripts/golden.sh

plugin: setup
	@$(BIN)/python scripts/write_plugin.py

seed-coverage: setup
	@$(BIN)/python scripts/seed_coverage.py

# Assay's core in one file, for this Python and platform; see docs/without-installing.md.
dist/assay.pyz: setup
	@$(BIN)/python scripts/build_zipapp.py $@

clean:
	rm -rf .venv demo-out .mypy_cache .ruff_cache .pytest_cache
