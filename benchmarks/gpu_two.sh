#!/usr/bin/env bash
# What a second GPU gives: a model with one engine beside the same with two engines on two GPUs, in alternating rounds.
#
#   benchmarks/gpu_two.sh OUT_DIR TOKENIZER_DIR [MORE OPTIONS OF `python -m benchmarks rerank`...]
#
# Needs what gpu_rerank.sh needs, two GPUs and 16 CPUs. All engines are up all the time; the one that has no load waits.
set -euo pipefail
out=${1:?usage: gpu_two.sh OUT_DIR TOKENIZER_DIR [OPTIONS]}
tokenizer=${2:?TOKENIZER_DIR}
shift 2
mkdir -p "$out" "${WORK:=/tmp/poolserve-benchmark}"
out=$(cd "$out" && pwd) tokenizer=$(realpath "$tokenizer")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONUNBUFFERED=1 VLLM_CACHE_ROOT=${VLLM_CACHE_ROOT:-$WORK/vllm_cache}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
model=$WORK/reranker-0.6b url=http://127.0.0.1:8000
[ -f "$model/config.json" ] || python3 -m benchmarks make-model --out "$model" --shape 0.6b --tokenizer "$tokenizer" --device cuda
sed -e "s|@MODEL_DIR@|$model|g" benchmarks/gpu_two.yaml > "$out/gpu_two.yaml"
python3 -m serve_app up "$out/gpu_two.yaml" > "$out/poolserve.log" 2>&1 &
server=$!
trap 'kill -INT $server; wait $server || true' EXIT
until curl -sf -o /dev/null -m 2 "$url/ready"; do
  kill -0 $server || { tail -20 "$out/poolserve.log"; exit 1; }
  sleep 1
done
nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv | tee "$out/engines.csv"
python3 -m benchmarks rerank --name gpu-two --results-dir "$out" --baseline one --dtype bfloat16 \
  --backend "one=$url,model=one,dtype=bfloat16" --backend "two=$url,model=two,dtype=bfloat16" \
  --reference "$model" --reference-dtype float32 --max-model-len 512 \
  --concurrency 1 16 64 --requests 40 320 640 --rounds 3 --clients "${CLIENTS:-4}" --warmup 120 --timeout 60 "$@"
