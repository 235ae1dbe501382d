# What people type. Each target sets up .venv if it is missing or outdated.

# the first of these that is Python 3.11 or newer
PYTHON ?= $(shell for python in python3.11 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$python; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
LOGDIR ?= logs
# arguments for the demo (make demo ARGS="--cell lstm"), pytest or a bench of one kind
ARGS ?=
# most of the tests' time on JAX goes to the compiler; `test-all` has it optimize
QUICKLY_COMPILED = --xla_backend_optimization_level=0
PYTEST = $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

# TensorFlow logs what it does without a GPU as errors; what fails still raises
export TF_CPP_MIN_LOG_LEVEL ?= 3

.DEFAULT_GOAL := help
.PHONY: help demo tensorboard test test-all check bench bench-recurrence \
	bench-attention bench-transformer bench-generation clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) \
		| awk -F ':.*## ' '{printf "make %-17s%s\n", $$1, $$2}'

demo: $(VENV)/demo-installed ## Train a model that pronounces English words (5 minutes)
	KERAS_BACKEND=tensorflow $(BIN)/python examples/train_g2p.py $(ARGS)

tensorboard: $(VENV)/demo-installed ## Show the curves and pictures of LOGDIR (logs)
	$(BIN)/tensorboard --logdir $(LOGDIR)

test: $(VENV)/dev-installed ## Run the fast tests on TensorFlow, then on JAX
	KERAS_BACKEND=tensorflow $(PYTEST) $(ARGS)
	KERAS_BACKEND=jax XLA_FLAGS=$(QUICKLY_COMPILED) $(PYTEST) $(ARGS)

test-all: $(VENV)/dev-installed ## Run all tests, the slow ones and the examples too
	KERAS_BACKEND=tensorflow $(PYTEST) -m "" $(ARGS)
	KERAS_BACKEND=jax $(PYTEST) -m "" $(ARGS)

check: $(VENV)/dev-installed ## Check format, lint and types
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

bench: $(VENV)/dev-installed ## Time kseq against its peers, on a quiet machine
	for file in tests/benchmarks/bench_*.py; do \
		KERAS_BACKEND=tensorflow $(BIN)/python $$file || exit 1; done

bench-recurrence: $(VENV)/bench-installed ## Time the recurrent layers on TensorFlow, then on JAX
	KERAS_BACKEND=tensorflow $(BIN)/python tests/benchmarks/bench_recurrence.py $(ARGS)
	KERAS_BACKEND=jax $(BIN)/python tests/benchmarks/bench_recurrence.py $(ARGS)

bench-attention: $(VENV)/bench-installed ## Time attention on TensorFlow, then on JAX
	KERAS_BACKEND=tensorflow $(BIN)/python tests/benchmarks/bench_attention.py $(ARGS)
	KERAS_BACKEND=jax $(BIN)/python tests/benchmarks/bench_attention.py $(ARGS)

bench-transformer: $(VENV)/bench-installed ## Time a Transformer's training step, and a large vocabulary's loss
	KERAS_BACKEND=tensorflow $(BIN)/python tests/benchmarks/bench_transformer.py $(ARGS)

bench-generation: $(VENV)/bench-installed ## Time generation with a GPT-2, greedily and with beams
	KERAS_BACKEND=tensorflow $(BIN)/python tests/benchmarks/bench_generation.py $(ARGS)

clean: ## Remove .venv and the caches; logs stay
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache

$(VENV)/demo-installed: EXTRAS := tensorflow,tensorboard,examples
$(VENV)/dev-installed: EXTRAS := tensorflow,jax,tensorboard,examples,test
$(VENV)/bench-installed: EXTRAS := tensorflow,jax,benchmark
$(VENV)/%-installed: setup.cfg pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "kseq needs Python 3.11 or newer, and neither python3.11 nor python3 is." \
			"Install it, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; fi
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--editable ".[$(EXTRAS)]"
	@touch $@
