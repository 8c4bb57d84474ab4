#!/usr/bin/env bash
# Poolserve against vLLM's own server on one GPU host, all up at the same time, in alternating rounds.
#
#   benchmarks/gpu_rerank.sh OUT_DIR TOKENIZER_DIR [MORE OPTIONS OF `python -m benchmarks rerank`...]
#
# Needs python3 with torch, vLLM and Ray on its path; no console scripts. Results and logs go to OUT_DIR; checkpoint and
# compile cache to $WORK (default: /tmp/poolserve-benchmark), which should survive between runs. TOKENIZER_DIR holds a
# BERT-style tokenizer.json.
#
#   CONFIG=benchmarks/gpu_rerank.yaml  Poolserve's; the words between @ are replaced, one model must be called `reranker`
#   ENGINES=4    Poolserve's engines on each GPU
#   GPUS=1       GPUs of Poolserve; `vllm serve` has one
#   TUNED=1      a second `vllm serve`: four API servers, CUDA graphs to 4,096 tokens, Poolserve's limits of a step
#   MPS=0        1: NVIDIA's Multi-Process Service for Poolserve's engines, where the driver brings it
#   CLIENTS=4    load processes
#
# Servers start together (each has a named share of the memory) and take about two minutes; the load takes about three:
# three rounds of c = 1, 16, 64 on all sides.
set -euo pipefail
out=${1:?usage: gpu_rerank.sh OUT_DIR TOKENIZER_DIR [OPTIONS]}
tokenizer=${2:?TOKENIZER_DIR}
shift 2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$out" "${WORK:=/tmp/poolserve-benchmark}"
out=$(cd "$out" && pwd) tokenizer=$(realpath "$tokenizer") config=$(realpath "${CONFIG:-$here/gpu_rerank.yaml}")
cd "$here/.."
: "${ENGINES:=4}" "${GPUS:=1}" "${TUNED:=1}" "${MPS:=0}"
export PYTHONUNBUFFERED=1 VLLM_CACHE_ROOT=${VLLM_CACHE_ROOT:-$WORK/vllm_cache}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

dtype=bfloat16 max_model_len=512 max_num_seqs=256 max_num_batched_tokens=16384
gpu_memory=${GPU_MEMORY:-0.4} # of Poolserve's engines on a GPU together
model=$WORK/reranker-0.6b
[ -f "$model/config.json" ] || python3 -m benchmarks make-model --out "$model" --shape 0.6b --tokenizer "$tokenizer" --device cuda

filled=$out/$(basename "$config")
[ "$filled" != "$config" ] || { echo "OUT_DIR must not be the folder of $config" >&2; exit 2; }
sed -e "s|@MODEL_DIR@|$model|g" -e "s|@DTYPE@|$dtype|g" -e "s|@MAX_MODEL_LEN@|$max_model_len|g" \
  -e "s|@MAX_NUM_SEQS@|$max_num_seqs|g" -e "s|@MAX_NUM_BATCHED_TOKENS@|$max_num_batched_tokens|g" \
  -e "s|@GPU_MEMORY@|$gpu_memory|g" -e "s|@GPUS@|$GPUS|g" -e "s|@ENGINES@|$ENGINES|g" "$config" > "$filled"
if grep -nE '@[A-Z_]+@' "$filled"; then echo "unknown placeholder in $config" >&2; exit 2; fi

command="python3 -m serve_app up"
if [[ $MPS == 1 ]]; then
  export CUDA_MPS_PIPE_DIRECTORY=$WORK/mps CUDA_MPS_LOG_DIRECTORY=$WORK/mps-log
  mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  nvidia-cuda-mps-control -d
  trap 'echo quit | CUDA_MPS_PIPE_DIRECTORY=$WORK/mps nvidia-cuda-mps-control' EXIT
  command="env CUDA_MPS_PIPE_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY $command"
  unset CUDA_MPS_PIPE_DIRECTORY # vLLM's own servers have one engine each and go without
fi

# A request of 20 pairs has about 1,900 tokens; by default vLLM captures up to 512 only.
sizes=$(python3 -c 'print([1, 2, 4, *range(8, 256, 8), *range(256, 512, 16), *range(512, 4097, 128)])')
memory="--gpu-memory-utilization 0.2 --kv-cache-memory-bytes 12884901888"
tuned=()
[[ $TUNED == 1 ]] && tuned=(--vllm-tuned-args "$memory --api-server-count 4 --max-num-seqs $max_num_seqs \
  --max-num-batched-tokens $max_num_batched_tokens --compilation-config '{\"cudagraph_capture_sizes\":${sizes// /}}'")

python3 -m benchmarks rerank \
  --name gpu-rerank --results-dir "$out" --logs-dir "$out/logs" --together \
  --launch-poolserve "$filled" --poolserve-command "$command" --launch-vllm "$model" --vllm-port 8011 --model reranker \
  --dtype "$dtype" --max-model-len "$max_model_len" --vllm-args "$memory" "${tuned[@]}" \
  --reference "$model" --reference-dtype float32 --return-documents poolserve \
  --concurrency 1 16 64 --requests 40 320 640 --rounds 3 --clients "${CLIENTS:-4}" --warmup 120 --timeout 60 "$@"
