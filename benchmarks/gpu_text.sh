#!/usr/bin/env bash
# Aspect-based sentiment and embeddings on one GPU, each against a library in the same run and against `vllm serve`:
#   absa   a BERT-base shaped token classifier, texts of 40-60 tokens, bfloat16; Transformers one by one (single-request
#          p50) and in batches with fixed, dynamic and length-sorted padding
#   embed  a model of all-MiniLM-L6-v2's shape, texts of about 21 tokens; sentence-transformers at batch 32, 128, 512
#
#   benchmarks/gpu_text.sh OUT_DIR [MORE OPTIONS OF BOTH, such as --commit ID]
#
# Needs python3 with torch, vLLM and Ray on its path; no console scripts, and Poolserve need not be installed. Results and
# logs go to OUT_DIR and are rewritten after every round, so that a step that runs out of time leaves what it measured.
# Checkpoints and compile cache go to $WORK (default: /tmp/poolserve-benchmark), which should survive between runs.
#
#   STEPS="absa embed"        which steps
#   ABSA_S=200 EMBED_S=200    their limits in seconds, start and stop included
#   DTYPE=bfloat16            of all sides
#   ENGINES=1                 engines (replicas) of Poolserve; PROCESSORS=2, GATEWAYS=1
#   VLLM=1                    0: without `vllm serve`, 30-40 s more for measuring
#   TUNED=0                   1: a second `vllm serve` with CUDA graphs up to 4,096 tokens and two API servers
#   EMBED_KIND=torch          Poolserve's engine for `embed`: torch, or vllm
#   EAGER=0                   1: no compilation and no CUDA graphs on any side; starts faster
#   TOKENIZER=                folder with a BERT-style tokenizer.json; default: a small one is made
#   CLIENTS=4                 load processes
#   DEVICE=cuda               cpu: tiny shapes in float32, to try the script
set -uo pipefail
out=${1:?usage: gpu_text.sh OUT_DIR [OPTIONS]}
shift
mkdir -p "$out" "${WORK:=/tmp/poolserve-benchmark}"
out=$(cd "$out" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${STEPS:=absa embed}" "${ABSA_S:=200}" "${EMBED_S:=200}" "${DEVICE:=cuda}" "${PYTHON:=python3}"
: "${ENGINES:=1}" "${GATEWAYS:=1}" "${VLLM:=1}" "${TUNED:=0}" "${EAGER:=0}" "${TOKENIZER:=}"
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false VLLM_CACHE_ROOT=${VLLM_CACHE_ROOT:-$WORK/vllm_cache}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
if [[ $DEVICE == cuda ]]; then
  : "${DTYPE:=bfloat16}" "${CLIENTS:=4}" "${PROCESSORS:=2}" "${SECONDS_A_TURN:=2}" "${ROUNDS:=3}"
  cpus=1 seqs=1024 tokens=16384 window=512 shapes="absa:bert-base embed:minilm"
  num_gpus=$("$PYTHON" -c "print(round(0.9 / $ENGINES, 3))")
  # The engines of one side share 0.3 of the memory; the library needs about 3 GiB.
  memory=${GPU_MEMORY:-0.25} share=$("$PYTHON" -c "print(round(0.3 / $ENGINES, 3))")
else
  EAGER=1
  : "${DTYPE:=float32}" "${CLIENTS:=1}" "${PROCESSORS:=1}" "${SECONDS_A_TURN:=1}" "${ROUNDS:=2}"
  cpus=0.2 seqs=128 tokens=4096 window=512 shapes="absa:tiny embed:tiny" num_gpus=0 memory=0.25 share=0.25
fi
eager=false
[[ $EAGER == 1 ]] && eager=true
graph_tokens=4096
began=$SECONDS
code=0

# step NAME LIMIT COMMAND...: SIGINT at the limit, for the command then writes what it has and stops its servers.
step() {
  local name=$1 limit=$2
  shift 2
  echo "== $name, at most $limit s, $((SECONDS - began)) s since the start"
  timeout --signal=INT --kill-after=30 "$limit" "$@" > >(tee -a "$out/$name.log") 2>&1
  local ended=$?
  echo "== $name ended with $ended, $((SECONDS - began)) s since the start"
  return $ended
}

# measure TASK LIMIT OPTIONS...
measure() {
  local task=$1 limit=$2 started=$SECONDS shape left kind
  shift 2
  kind=vllm
  [[ $task == embed ]] && kind=${EMBED_KIND:-torch}
  shape=${shapes#*"$task":} shape=${shape%% *}
  local model=$WORK/$task-$shape
  if [ ! -f "$model/tokenizer_config.json" ] || [ ! -f "$model/model.safetensors" ]; then
    step "make-$task" 120 "$PYTHON" -m benchmarks make-text-model --out "$model" --task "$task" --shape "$shape" \
      --device "$DEVICE" ${TOKENIZER:+--tokenizer "$TOKENIZER"} || return
  fi
  sed -e "s|@TASK@|$task|g" -e "s|@MODEL_DIR@|$model|g" -e "s|@DTYPE@|$DTYPE|g" -e "s|@DEVICE@|$DEVICE|g" \
    -e "s|@MAX_MODEL_LEN@|$window|g" -e "s|@MAX_NUM_SEQS@|$seqs|g" -e "s|@MAX_NUM_BATCHED_TOKENS@|$tokens|g" \
    -e "s|@GPU_MEMORY@|$share|g" -e "s|@EAGER@|$eager|g" -e "s|@GRAPH_TOKENS@|$graph_tokens|g" -e "s|@CPUS@|$cpus|g" \
    -e "s|@ENGINES@|$ENGINES|g" -e "s|@PROCESSORS@|$PROCESSORS|g" -e "s|@GATEWAYS@|$GATEWAYS|g" \
    -e "s|@NUM_GPUS@|$num_gpus|g" -e "s|@KIND@|$kind|g" benchmarks/gpu_text.yaml > "$out/$task.yaml"
  local servers=(--launch-poolserve "$out/$task.yaml") vllm_args="--gpu-memory-utilization $memory"
  [[ $DEVICE == cpu ]] && vllm_args=""
  [[ $EAGER == 1 ]] && vllm_args+=" --enforce-eager"
  # On CPU vLLM's encoders refuse chunked prefill and prefix caching by themselves, as on GPU.
  [[ $VLLM == 1 ]] && servers+=(--launch-vllm "$model" --vllm-args "$vllm_args" --max-num-seqs "$seqs"
    --max-num-batched-tokens "$tokens")
  if [[ $VLLM == 1 && $TUNED == 1 ]]; then
    local sizes
    sizes=$("$PYTHON" -c "print([1, 2, 4, *range(8, 256, 8), *range(256, 512, 16), *range(512, $graph_tokens + 1, 128)])")
    servers+=(--vllm-tuned-args "$vllm_args --api-server-count 2 --compilation-config '{\"cudagraph_capture_sizes\":${sizes// /}}'")
  fi
  # Stopping takes up to 20 s: no turn is begun later than that before the end, results are written before it.
  left=$((limit - (SECONDS - started)))
  step "$task" "$left" "$PYTHON" -m benchmarks "$task" --name "gpu-$task" --results-dir "$out" --logs-dir "$out/logs" \
    "${servers[@]}" --model-dir "$model" --model "$task" --dtype "$DTYPE" --device "$DEVICE" --max-model-len "$window" \
    --rounds "$ROUNDS" --seconds "$SECONDS_A_TURN" --clients "$CLIENTS" --start-limit "$left" --budget $((left - 20)) "$@"
}

if [[ $STEPS == *absa* ]]; then
  measure absa "$ABSA_S" --concurrency 1 16 --inputs 1 --batches 32 --warmup 40 --parity-texts 60 "$@" || code=$?
fi
if [[ $STEPS == *embed* ]]; then
  measure embed "$EMBED_S" --concurrency 16 64 --inputs 1 32 --batches 32 128 512 --warmup 60 --parity-texts 60 "$@" || code=$?
fi
exit $code
