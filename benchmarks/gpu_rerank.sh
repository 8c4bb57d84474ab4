#!/usr/bin/env bash
# Poolserve against vLLM's own server on one GPU, both up at the same time, in alternating rounds.
#
#   benchmarks/gpu_rerank.sh OUT_DIR CONFIG.yaml TOKENIZER_DIR [MORE OPTIONS OF `python -m benchmarks rerank`...]
#
# Needs python3 with torch, vLLM and Ray on its path; no console scripts. Results and logs go to OUT_DIR; checkpoint and
# compile cache to $WORK (default: /tmp/poolserve-benchmark), which should survive between runs.
# In CONFIG.yaml these words are replaced, so that both sides get the same numbers:
#   @MODEL_DIR@  @DTYPE@  @MAX_MODEL_LEN@  @MAX_NUM_SEQS@  @MAX_NUM_BATCHED_TOKENS@  @GPU_MEMORY@  @CUDA_GRAPH_SIZES@
# and one served model must be called `reranker`. TOKENIZER_DIR holds a BERT-style tokenizer.json.
#
# The load takes about four minutes after start-up: three rounds of c = 1, 16, 64 on both sides. CLIENTS=N load processes.
set -euo pipefail
out=${1:?usage: gpu_rerank.sh OUT_DIR CONFIG.yaml TOKENIZER_DIR [OPTIONS]}
config=${2:?CONFIG.yaml}
tokenizer=${3:?TOKENIZER_DIR}
shift 3
mkdir -p "$out" "${WORK:=/tmp/poolserve-benchmark}"
out=$(cd "$out" && pwd) config=$(realpath "$config") tokenizer=$(realpath "$tokenizer")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONUNBUFFERED=1 VLLM_CACHE_ROOT=${VLLM_CACHE_ROOT:-$WORK/vllm_cache}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

dtype=bfloat16 max_model_len=512 max_num_seqs=1024 max_num_batched_tokens=16384
# Each side's share of the GPU's memory. The 0.6B model needs about 2 GiB; the rest of a share is cache.
gpu_memory=${GPU_MEMORY:-0.35}
# A request of 20 pairs has about 1,900 tokens; by default vLLM captures up to 512 only. p50 at c = 1 was 54 ms with the
# default and 39 ms with these sizes (vLLM 0.26 on an H200).
sizes=$(python3 -c 'print([1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512, *range(640, 2049, 128), *range(2304, 4097, 256)])')

model=$WORK/reranker-0.6b
[ -f "$model/config.json" ] || python3 -m benchmarks make-model --out "$model" --shape 0.6b --tokenizer "$tokenizer" --device cuda

filled=$out/$(basename "$config")
[ "$filled" != "$config" ] || { echo "OUT_DIR must not be the folder of $config" >&2; exit 2; }
sed -e "s|@MODEL_DIR@|$model|g" -e "s|@DTYPE@|$dtype|g" -e "s|@MAX_MODEL_LEN@|$max_model_len|g" \
  -e "s|@MAX_NUM_SEQS@|$max_num_seqs|g" -e "s|@MAX_NUM_BATCHED_TOKENS@|$max_num_batched_tokens|g" \
  -e "s|@GPU_MEMORY@|$gpu_memory|g" -e "s|@CUDA_GRAPH_SIZES@|$sizes|g" "$config" > "$filled"
if grep -nE '@[A-Z_]+@' "$filled"; then echo "unknown placeholder in $config" >&2; exit 2; fi

exec python3 -m benchmarks rerank \
  --name gpu-rerank --results-dir "$out" --logs-dir "$out/logs" \
  --launch-poolserve "$filled" --launch-vllm "$model" --vllm-port 8011 --model reranker \
  --dtype "$dtype" --max-model-len "$max_model_len" \
  --max-num-seqs "$max_num_seqs" --max-num-batched-tokens "$max_num_batched_tokens" \
  --vllm-args "--gpu-memory-utilization $gpu_memory --compilation-config '{\"cudagraph_capture_sizes\":${sizes// /}}'" \
  --reference "$model" --reference-dtype float32 --return-documents poolserve \
  --concurrency 1 16 64 --requests 150 480 1280 --rounds 3 --clients "${CLIENTS:-4}" --warmup 120 --timeout 60 "$@"
