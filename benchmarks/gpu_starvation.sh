#!/usr/bin/env bash
# Texts at a steady rate and a flood of images beside them on one GPU: Poolserve beside a server that decodes in its own
# process, with real engines (a reranker of Qwen3-Reranker-0.6B's shape, a fusion ranker of ViT-L/14-336 shape, bfloat16).
#
#   benchmarks/gpu_starvation.sh OUT_DIR TOKENIZER_DIR [MORE OPTIONS OF `python -m benchmarks starvation`...]
#
# Needs what gpu_rerank.sh needs. With CUDA_MPS_PIPE_DIRECTORY in the environment the engines of both run under NVIDIA's
# Multi-Process Service, whose daemon must be up. LOADERS=2 ImageLoaders of one core each; RATE=30 text requests/s of 20 documents.
# Servers are up one at a time and take one to two minutes to start; a pass takes PHASES="15 25 10" seconds.
set -euo pipefail
out=${1:?usage: gpu_starvation.sh OUT_DIR TOKENIZER_DIR [OPTIONS]}
tokenizer=${2:?TOKENIZER_DIR}
shift 2
mkdir -p "$out" "${WORK:=/tmp/poolserve-benchmark}"
out=$(cd "$out" && pwd) tokenizer=$(realpath "$tokenizer")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONUNBUFFERED=1 VLLM_CACHE_ROOT=${VLLM_CACHE_ROOT:-$WORK/vllm_cache}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
reranker=$WORK/reranker-0.6b fusion=$WORK/fusion-vit-l-14-336
[ -f "$reranker/config.json" ] || python3 -m benchmarks make-model --out "$reranker" --shape 0.6b --tokenizer "$tokenizer" --device cuda
[ -f "$fusion/config.json" ] || python3 -m benchmarks make-fusion-model --out "$fusion" --device cuda
sed -e "s|@RERANKER@|$reranker|g" -e "s|@FUSION@|$fusion|g" benchmarks/gpu_starvation.yaml > "$out/gpu_starvation.yaml"
read -ra phases <<< "${PHASES:-15 25 10}"
python3 -m benchmarks starvation --name gpu-starvation --results-dir "$out" --logs-dir "$out/logs" \
  --launch-poolserve "$out/gpu_starvation.yaml" --poolserve-command "python3 -m serve_app up" \
  --loaders "${LOADERS:-2}" --loader-cpus 1 --rate "${RATE:-30}" --phases "${phases[@]}" --clients 2 "$@"
