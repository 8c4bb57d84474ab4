# `make serve` and `make test` do everything on a fresh machine. Locally and in CI the same targets run.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
CONFIG ?= serve_config.yaml
BENCH_ARGS ?= --name cpu-rerank --launch-poolserve benchmarks/cpu_rerank.yaml --launch-vllm model_zoo/ce-mini --model ce-mini \
  --dtype float32 --max-model-len 512 --max-num-seqs 128 --max-num-batched-tokens 4096 --vllm-args "--enforce-eager" \
  --reference model_zoo/ce-mini --return-documents poolserve --requests 40 96 192 --warmup 32

.PHONY: serve test check lint typecheck format bench proto models setup clean

serve: setup            ## start the configuration and stay until Ctrl-C
	@exec $(BIN)/python -m serve_app up $(CONFIG)

test: setup             ## all tests that run without a GPU, or those that PYTEST_ARGS names
ifdef PYTEST_ARGS
	@$(BIN)/python -m pytest $(PYTEST_ARGS)
else
	@status=0; \
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not gate" tests/unit tests/app || status=1; \
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/parity || status=1; \
	$(BIN)/python -m pytest -m "gate or not (unit or app or parity)" || status=1; \
	exit $$status
endif

check: lint typecheck test ## what CI runs

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

typecheck: setup
	@$(BIN)/mypy

format: setup
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

bench: setup            ## /rerank against `vllm serve` on this machine; see benchmarks/README.md
	@$(BIN)/python -m benchmarks rerank $(BENCH_ARGS)

proto: setup            ## make the gRPC stubs again after a change of the .proto
	@scripts/proto.sh $(BIN)/python

models: setup           ## train the small models of model_zoo/ again
	@$(BIN)/python -m model_zoo.train_ce_mini
	@$(BIN)/python -m model_zoo.train_intent_mini
	@$(BIN)/python -m model_zoo.train_clip_mini
	@$(BIN)/python -m model_zoo.train_fusion_mini
	@$(BIN)/python -m model_zoo.train_absa_mini
	@$(BIN)/python -m model_zoo.check

setup:                  ## the virtual environment, from the locks
	@PYTHON=$(PYTHON) scripts/setup.sh $(VENV)

clean:
	@rm -rf $(VENV) .run
