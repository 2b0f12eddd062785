# Two commands matter: `make demo` and `make test`. Both make .venv first, from pinned and hashed requirements.
# `make check` is for the inner loop, `make test-full` for statistical tests at full size.
PYTHON ?= python3
BIN := .venv/bin
FAST := not slow and not network and not network_slow
# Three workers for two processors: some tests wait. Each loads all tests, which takes a third of the time where bytecode is kept.
WORKERS := -n 3 --dist loadgroup
SELECTED := $(WORKERS) --ignore tests/audit --ignore tests/browser
RUN := $(BIN)/pytest -q $(SELECTED)
LONG := $(if $(BRIEF), and not long)
unexport PYTHONDONTWRITEBYTECODE
# Temporary files lie in memory where there is room: ledgers wait for the disk at every debit.
MEMORY := $(shell test -w /dev/shm && test $$(df -k --output=avail /dev/shm | tail -1) -gt 4000000 && echo /dev/shm)
ifneq ($(MEMORY),)
export TMPDIR := $(MEMORY)
endif

.PHONY: demo check test compiled test-slow audit mutants test-full test-network browser test-pythons r r-full lint papers papers-full docs bench peers wheel lock clean

demo: .venv/core.stamp
	@$(BIN)/unpooled demo

# Under a minute, also the first time: ruff, and unit tests of what changed since main, by the imports; where many need it, the quickest of all, as far as
# the time goes. Those that failed last come first.
check: .venv/dev.stamp
	$(BIN)/ruff check -q .
	$(BIN)/pytest -q -n 2 --ff --no-header --until 45 -m "not minutes and $(FAST)" $$($(BIN)/python tests/changed.py)

# Minutes: everything but attacks, statistics, the network engine and full sizes. COVERAGE=1, as in CI, holds that privacy/, protocol/ and all that acts for
# a party is covered fully by branch, by the tests marked `guarantee` alone.
test: .venv/dev.stamp
ifdef COVERAGE
	$(BIN)/python tests/coverage_floor.py $(WORKERS) -m "guarantee and $(FAST)"
	$(RUN) -m "not guarantee and $(FAST)"
else
	$(RUN) -m "$(FAST)"
endif

# Bytecode of package and tests, and the kernels that take longest to compile: the workers would otherwise each make them for themselves.
compiled: .venv/dev.stamp
	$(BIN)/pytest -q --collect-only > /dev/null
	-$(BIN)/pytest -q -m "$(FAST)" tests/unit/test_hadamard.py tests/unit/test_frank_wolfe.py > /dev/null # the lane says what fails

# Minutes: statistics, wild messages, crashes and kernels of many shapes, at reduced size. BRIEF=1, as in CI, leaves out the longest (marked `long`), here
# and in the audit.
test-slow: .venv/dev.stamp
	$(RUN) -m "slow and not network and not network_slow$(LONG)"

# Minutes: every model attacked, and everything that is broken on purpose caught.
audit: .venv/dev.stamp
	$(BIN)/pytest -q $(WORKERS) -m "not network_slow$(LONG)" tests/audit

# So many small faults in what the guarantee rests on, each of which a test should notice; ends after so many minutes. The first run measures
# which test runs which line (half an hour), into build/mutants. docs/audit.md has what came of it.
COUNT ?= 400
MINUTES ?= 60
mutants: .venv/dev.stamp
	$(BIN)/python tests/mutation --count $(COUNT) --minutes $(MINUTES)

# Audits, mutated replies, deaths, random plans and properties, and statistical tests at full size (`sized` in tests/world.py).
test-full: .venv/dev.stamp
	UNPOOLED_FULL=1 $(BIN)/pytest -q $(WORKERS) -m "" --timeout 3600

# The tests that start the network engine; walks the registry of models. CI runs those that start it once and wait for no time-outs.
NETWORK ?= network or network_slow
test-network: .venv/dev.stamp
	$(BIN)/pytest -q $(WORKERS) -m "$(NETWORK)" tests/network

# The pages of the console in a headless Chromium, by the real command; skipped by name where chromium or chromedriver is missing. Screenshots of
# every page stay in build/console.
browser: .venv/dev.stamp
	$(BIN)/pytest -q tests/browser

# The fast unit tests under each of these Pythons that is installed, each in an environment of its own.
PYTHONS ?= 3.11 3.12 3.13
UNIT ?= tests/unit
test-pythons:
	for v in $(PYTHONS); do \
	  python$$v --version || { echo "no python$$v here: left out"; continue; }; \
	  test -x .venv-$$v/bin/python || python$$v -m venv .venv-$$v || exit; \
	  .venv-$$v/bin/pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt || exit; \
	  .venv-$$v/bin/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e . || exit; \
	  .venv-$$v/bin/pytest -q -n 2 --no-header -m "not minutes and $(FAST)" $(UNIT) || exit; \
	done

# The R package, built and checked with the command of .venv; left out by name where R or a package that it needs is not here. r-full also builds
# the vignettes, and holds every formula against R. R looks for no index of packages: the check works without a network.
R_NEEDS := generics jsonlite knitr rmarkdown survival testthat broom
R_CHECK := _R_CHECK_FORCE_SUGGESTS_=false UNPOOLED_COMMAND=$(abspath $(BIN)/unpooled) UNPOOLED_PYTHON=$(abspath $(BIN)/python) R_PROFILE=$(CURDIR)/build/r/profile
r r-full: .venv/core.stamp
	@if ! command -v R > /dev/null; then echo "no R here: the R package is left out"; exit 0; fi; \
	for p in $(R_NEEDS); do Rscript -e "stopifnot(requireNamespace('$$p', quietly = TRUE))" > /dev/null 2>&1 || { echo "no R package $$p here: the R package is left out"; exit 0; }; done; \
	rm -rf build/r && mkdir -p build/r/index/src/contrib && touch build/r/index/src/contrib/PACKAGES && \
	echo 'options(repos = c(CRAN = "file://$(CURDIR)/build/r/index"))' > build/r/profile && cd build/r && $(R_CHECK) R CMD build $(if $(findstring full,$@),,--no-build-vignettes) ../../r && \
	$(R_CHECK) $(if $(findstring full,$@),UNPOOLED_FULL=1) R CMD check --no-manual $(if $(findstring full,$@),,--ignore-vignettes) unpooled_*.tar.gz && \
	! grep -E "[.]{3} *(WARNING|NOTE|ERROR)" unpooled.Rcheck/00check.log | grep -vE "future file timestamps|installed package size"

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Every figure and table of the five papers; real data come from UNPOOLED_DATA. The reduced size takes minutes, the papers' own hours.
papers: .venv/dev.stamp
	$(BIN)/python -m experiments.all_papers

papers-full: .venv/dev.stamp
	$(BIN)/python -m experiments.all_papers --full

docs: .venv/dev.stamp
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build

wheel: .venv/dev.stamp
	rm -rf build/wheel && $(BIN)/python -m build -q --wheel --no-isolation --outdir build/wheel
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --target build/wheel/site build/wheel/*.whl
	test -s build/wheel/site/unpooled/models/bayes/THEORY.md -a -s build/wheel/site/unpooled/privacy/mechanisms/blocks.md # the proofs travel along
	cd build/wheel && PYTHONPATH=site ../../$(BIN)/python -c "import unpooled; assert 'site' in unpooled.__file__; from unpooled.cli.main import main; main()" demo > demo.txt

# Every benchmark and peer, one table of ratios, docs/benchmarks.md; under half an hour. `make peers` first, or peers that are not here are left out.
bench: .venv/dev.stamp
	$(BIN)/python -m benchmarks

# Environments of the peers: those that need an older scikit-learn, their own protobuf, or nothing of ours but the kernels.
PEERS := .peers
peers: $(PEERS)/old/stamp $(PEERS)/psi/stamp $(PEERS)/new/stamp

$(PEERS)/%/stamp: requirements/peers-%.txt requirements/core.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install -q --disable-pip-version-check -r requirements/peers-$*.txt
	test $* != new || $(@D)/bin/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Two installs: everything pinned and hashed, then this checkout itself with the pinned build backend.
.venv/core.stamp: requirements/core.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/core.txt
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.venv/dev.stamp: .venv/core.stamp requirements/dev.txt
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

# Needs uv. Writes versions and hashes only, no addresses.
lock:
	for part in core network psi sql dask console dev; do uv pip compile --quiet --upgrade --python-version 3.11 --generate-hashes --no-header --no-annotate --no-strip-extras requirements/$$part.in -o requirements/$$part.txt; done

clean:
	rm -rf .venv .venv-* build dist docs/_build .mypy_cache .ruff_cache .import_linter_cache .coverage
