#!/usr/bin/env bash
# The image benchmarks on one GPU, in bfloat16 with a random fusion ranker of ViT-L/14-336 shape: the engine alone
# (fusion-engine), then the whole HTTP path with 1, 2, 4 and 8 ImageLoaders (images-path). At most 520 s.
#
#   benchmarks/gpu_images.sh OUT_DIR [MORE OPTIONS OF BOTH, such as --commit ID]
#
# Needs python3 with torch, vLLM and Ray on its path; no console scripts, and Poolserve need not be installed. Results and
# logs go to OUT_DIR and are rewritten after every round, so that a step that runs out of time leaves what it measured.
# Checkpoint and compile cache go to $WORK (default: /tmp/poolserve-benchmark), which should survive between runs.
#
# STEPS="fusion-engine images-path" picks steps; ENGINE_S and PATH_S are their limits in seconds. EAGER=1 runs all engines
# without compilation and CUDA graphs: they start in half the time, and small steps are slower. With more time, run the steps
# apart: STEPS=fusion-engine ENGINE_S=520, then STEPS=images-path PATH_S=520; then an `images-path` has room for `--rounds 2`.
set -uo pipefail
out=${1:?usage: gpu_images.sh OUT_DIR [OPTIONS]}
shift
mkdir -p "$out" "${WORK:=/tmp/poolserve-benchmark}"
out=$(cd "$out" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONUNBUFFERED=1 VLLM_CACHE_ROOT=${VLLM_CACHE_ROOT:-$WORK/vllm_cache}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
: "${STEPS:=fusion-engine images-path}" "${ENGINE_S:=285}" "${PATH_S:=235}" "${EAGER:=0}"
began=$SECONDS
model=$WORK/fusion-vit-l-14-336
code=0

# step NAME LIMIT COMMAND...: SIGINT at the limit, for the command then writes what it has and stops its servers.
step() {
  local name=$1 limit=$2
  shift 2
  echo "== $name, at most $limit s, $((SECONDS - began)) s since the start"
  timeout --signal=INT --kill-after=12 "$limit" "$@" > >(tee -a "$out/$name.log") 2>&1
  local ended=$?
  echo "== $name ended with $ended, $((SECONDS - began)) s since the start"
  return $ended
}

if [[ $STEPS == *fusion-engine* ]]; then
  engine=(python3 -m benchmarks fusion-engine --name gpu-fusion-engine --results-dir "$out" --model-dir "$model"
    --shape vit-l-14-336 --device cuda --dtype bfloat16 --images 105 --concurrency 1 8 --rounds 3 --seconds 2.5)
  [[ $EAGER == 1 ]] && engine+=(--enforce-eager)
  limit=$ENGINE_S
  step fusion-engine "$limit" "${engine[@]}" --budget $((limit - 20)) "$@" || code=$?
fi

if [[ $STEPS == *images-path* ]]; then
  # The engine is not what is measured here: eager, it is there a minute earlier.
  sed -e "s|@MODEL_DIR@|$model|g" -e "s|@DTYPE@|bfloat16|g" -e "s|@GPU_MEMORY@|0.4|g" -e "s|@EAGER@|true|g" \
    benchmarks/gpu_images.yaml > "$out/gpu_images.yaml"
  [ -f "$model/config.json" ] || python3 -m benchmarks make-fusion-model --out "$model" --device cuda
  limit=$PATH_S
  # Ray's dashboard may be missing on such a host.
  python3 -m benchmarks.serve_rest 8266 > "$out/serve_rest.log" 2>&1 &
  trap 'kill %1 2>/dev/null' EXIT
  step images-path "$limit" python3 -m benchmarks images-path --name gpu-images-path --results-dir "$out" \
    --logs-dir "$out/logs" --launch-poolserve "$out/gpu_images.yaml" --loaders 1 2 4 8 --loader-cpus 1 \
    --dashboard http://127.0.0.1:8266 --concurrency 1 4 16 --rounds 1 --seconds 2.5 --start-limit $((limit - 60)) --budget $((limit - 30)) "$@" || code=$?
fi
exit $code
