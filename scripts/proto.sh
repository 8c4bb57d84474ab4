#!/usr/bin/env bash
# Makes the gRPC stubs beside the .proto file.
#
#   proto.sh PYTHON [OUT_DIR]      OUT_DIR: where the tree of stubs goes; left out: here
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:?usage: proto.sh PYTHON [OUT_DIR]}
out=${2:-.}
"$python" -m grpc_tools.protoc -I . --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" \
  serve_app/api/proto/poolserve.proto
