#!/usr/bin/env bash
# Everything that needs a CUDA GPU, in ten to twelve minutes on an H100 or H200: the kernels' checks and bandwidth, profiles of Llama-2-7B,
# Llama-2-13B and Llama-3.1-8B, and the replay. Usage: profiler/on_a_gpu.sh FOLDER. Needs torch with CUDA, triton and simlora's own
# dependencies; every step is told apart in FOLDER/log.txt, and one that fails does not stop the next.
set -uo pipefail
out=${1:?usage: profiler/on_a_gpu.sh FOLDER}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1
PYTHON=${PYTHON:-python3}
failed=0

step() { # NAME SECONDS COMMAND...: run it, at most so long
  local name=$1 most=$2 began=$SECONDS
  shift 2
  echo "== $name: $*" | tee -a "$out/log.txt"
  timeout "$most" "$@" 2>&1 | tee -a "$out/log.txt"
  local rc=${PIPESTATUS[0]}
  echo "== $name: status $rc after $((SECONDS - began)) s" | tee -a "$out/log.txt"
  ((rc == 0)) || failed=1
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv | tee "$out/gpu.txt"
step checks 90 "$PYTHON" -m pytest -q tests/profiler/test_on_gpu.py -p no:cacheprovider
step speed 40 "$PYTHON" -m profiler.kernels.speed --device cuda
step speed_mixed 40 "$PYTHON" -m profiler.kernels.speed --device cuda --ranks 8 16 32 64 128
step profile_7b 200 "$PYTHON" -m profiler.command device=cuda model=llama_2_7b plan=quick "out=$out/llama_2_7b"
step long_7b 150 "$PYTHON" -m profiler.command device=cuda model=llama_2_7b plan=long "out=$out/llama_2_7b" \
  "kernels=[bgmv,mbgmv]"
step replay_7b 150 "$PYTHON" -m profiler.replay --device cuda --rounds 1 --out "$out/replay" \
  --calibration "$(ls "$out"/llama_2_7b/*-tp1.yaml)" model=llama_2_7b
step profile_13b 240 "$PYTHON" -m profiler.command device=cuda model=llama_2_13b plan=quick "out=$out/llama_2_13b"
step profile_8b 150 "$PYTHON" -m profiler.command device=cuda model=llama_3_1_8b plan=quick "out=$out/llama_3_1_8b" \
  "kernels=[bgmv,mbgmv]"
exit $failed
