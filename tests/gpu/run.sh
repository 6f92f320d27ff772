#!/usr/bin/env bash
# Tests Cairn on this machine's GPU: a line a part, and RESULTS/summary.json.
#
#   run.sh [RESULTS]     RESULTS is "results" beside this file by default
#
# Parts come in the order of their value; each has a time limit, and a part that fails, hangs or crashes
# does not stop the next one. CAIRN_GPU_SECONDS limits the whole (600), CAIRN_GPU_PART_SECONDS each
# part, CAIRN_GPU_PARTS="models bench" runs these alone. The exit status is 1 if a part failed. Made by
# tests/gpu.sh.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
results=${1:-$here/results}
mkdir -p "$results"
results=$(cd "$results" && pwd)
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT
# A C library older than the bundle's cannot run its programs: those bring their own.
wanted=$(cat "$here/zstd/libc_version")
own=$(getconf GNU_LIBC_VERSION 2>/dev/null | awk '{print $2}')
old_libc=
[ -z "$own" ] || [ "$(printf '%s\n%s\n' "$wanted" "$own" | sort -V | head -1)" != "$wanted" ] && old_libc=1
unpack() {
  local loader=()
  [ -n "$old_libc" ] && loader=("$here/zstd/ld-linux-x86-64.so.2" --library-path "$here/zstd")
  env LD_LIBRARY_PATH="$at/zstd" ${loader[@]+"${loader[@]}"} "$here/zstd/zstd" -dcq --long=27 \
    "$here/payload.tar.zst" | tar -xf - -C "$at"
}
# Without the C library's files, which only its own loader can use.
mkdir "$at/zstd" && cp "$here"/zstd/lib{z,lzma,lz4}.so.* "$at/zstd/"
if ! unpack; then
  echo "run.sh: cannot unpack $here/payload.tar.zst" >&2
  exit 1
fi

# cuBLAS and NCCL of a toolkit or of PyTorch, wherever that is installed.
libraries=$at/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [ ! -e "$at/lib/libfake_cudart.so" ]; then
  for name in libcublas.so.13 libcublasLt.so.13 libnccl.so.2; do
    found=$(timeout 30 find /usr/local /usr/lib /opt /home /root -name "$name" -print -quit 2>/dev/null)
    [ -n "$found" ] && libraries+=:$(dirname "$found")
  done
  # The driver, where the loader's cache does not list it.
  if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1 '; then
    for folder in /usr/local/nvidia/lib64 /usr/lib/x86_64-linux-gnu /usr/lib/wsl/lib; do
      [ -e "$folder/libcuda.so.1" ] && libraries+=:$folder
    done
  fi
fi
loader=()
[ -n "$old_libc" ] && loader=("$at/libc/ld-linux-x86-64.so.2" --library-path "$at/libc:$libraries")
export CAIRN_SOURCE_ROOT=$at/data CAIRN_TEST_DEVICES=gpu OPENBLAS_NUM_THREADS=1

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1)
begin=$(date +%s)
failed=0
json= last=
# Text for a JSON string: one line, without quotes, backslashes and control characters.
text() { tr -d '"\\' | tr -cd '[:print:]' | cut -c1-300; }

# The last line of a Google Test log that counts tests which $1 (PASSED, FAILED, SKIPPED).
count() { grep -E "^\[ +$1 +\] [0-9]+ tests?" "$2" | tail -1 | sed -E 's/^\[[^]]*\] ([0-9]+).*/\1/'; }

# part NAME SECONDS COMMAND...: runs a part. "skipped" says that it tested nothing here.
part() {
  local name=$1 limit=$2 log=$results/$1.log left status=passed note= rc start took passed skipped bad
  shift 2
  left=$((${CAIRN_GPU_SECONDS:-600} - ($(date +%s) - begin)))
  [ "$limit" -gt "${CAIRN_GPU_PART_SECONDS:-$limit}" ] && limit=$CAIRN_GPU_PART_SECONDS
  [ "$limit" -gt "$left" ] && limit=$left
  start=$(date +%s%N)
  if [ "$limit" -le 0 ]; then
    status=skipped note="no time is left of ${CAIRN_GPU_SECONDS:-600} s"
    : >"$log"
  else
    LD_LIBRARY_PATH=$libraries timeout --kill-after=5 "$limit" "$@" >"$log" 2>&1
    rc=$?
    case $rc in
      0) ;;
      3) status=skipped note=$(tail -1 "$log" | text) ;;
      124 | 137) status=failed note="not done in $limit s" ;;
      *) status=failed note="exit status $rc: $(grep -vE '^ *$' "$log" | tail -1 | text)" ;;
    esac
  fi
  took=$((($(date +%s%N) - start) / 1000000))
  passed=$(count PASSED "$log") skipped=$(count SKIPPED "$log") bad=$(count FAILED "$log")
  if [ "$status" = passed ] && [ -n "$passed" ] && [ "$passed" -eq 0 ]; then
    status=skipped note=$(grep -m1 -A1 -E 'Skipped$' "$log" | tail -1 | text)
  fi
  last=$status last_note=$note
  [ $status = failed ] && failed=$((failed + 1))
  printf '%-18s %-8s %8d ms  %s\n' "$name" "$status" "$took" \
    "${passed:+$passed passed, ${bad:-0} failed, ${skipped:-0} skipped }$note"
  json+="${json:+,}
    {\"part\": \"$name\", \"status\": \"$status\", \"ms\": $took, \"passed\": ${passed:-0},"
  json+=" \"failed\": ${bad:-0}, \"skipped\": ${skipped:-0}, \"note\": \"$note\"}"
}

run() { local program=$1; shift; ${loader[@]+"${loader[@]}"} "$at/bin/$program" "$@"; }
sanitize() {
  local tool=$1 program=$2
  shift 2
  if [ -z "$sanitizer" ]; then echo "compute-sanitizer is not installed"; return 3; fi
  "$sanitizer" --tool "$tool" --error-exitcode 9 ${loader[@]+"${loader[@]}"} "$at/bin/$program" "$@"
}
gpu() {
  if ! command -v nvidia-smi >/dev/null; then echo "nvidia-smi is not installed"; return 3; fi
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
}
# Benchmarks print JSON lines; a line that is not verified is a failure.
bench() {
  run bench "$@" || return
  ! grep -q '"verified":false' "$results/bench.log"
}
# Trains JOB with a server in the process, on the CPU and on the GPU: both reach the same METRIC.
job() {  # JOB METRIC ...
  local job=$1 metric=$2 device reports=() values=()
  shift 2
  for device in cpu:0 gpu:0; do
    report=$(run cairn-worker --job "$at/data/examples/$job.yaml" --data_root "$at/data/examples/data" \
      --set "storage.directory=$(mktemp -d -p "$at")" --set strategy.type=one_device \
      --set "strategy.devices=[$device]" "$@") || return
    echo "$report"
    reports+=("$report")
    values+=("$(sed -E 's/.*"'"$metric"'":([-+.e0-9]+).*/\1/' <<<"$report")")
  done
  echo "$job: $metric ${values[0]} on the CPU, ${values[1]} on the GPU"
  [[ "${reports[1]}" == *'"gpu":{'* ]] || { echo "$job: no step ran on the GPU"; return 1; }
  awk -v a="${values[0]}" -v b="${values[1]}" 'BEGIN {exit !((a - b) ^ 2 < (0.01 * a) ^ 2)}'
}
jobs() {
  if [ -e "$at/lib/libfake_cudart.so" ]; then echo "cairn-worker uses real GPUs alone"; return 3; fi
  job abalone rmse && job dna accuracy && job criteo_sample auc --set model.type=dlrm
}
# Python scripts with this machine's Python and libraries; they call cairn-worker with the bundle's.
script() {  # NAME ARGUMENTS...
  if [ -e "$at/lib/libfake_cudart.so" ]; then echo "cairn-worker uses real GPUs alone"; return 3; fi
  if ! command -v python3 >/dev/null; then echo "python3 is not installed"; return 3; fi
  local name=$1
  shift
  CAIRN_LIBRARIES=$LD_LIBRARY_PATH LD_LIBRARY_PATH=$system_libraries \
    python3 "$at/$name.py" "$@" ${loader[@]+"${loader[@]}"} "$at/bin/cairn-worker"
}
# The package cairn beside this machine's PyTorch, which uses this machine's libraries: the bundle's
# serve what the machine lacks.
package() {
  if [ -e "$at/lib/libfake_cudart.so" ]; then echo "the package's test is for real GPUs"; return 3; fi
  if [ -n "$old_libc" ]; then echo "the package needs a newer C library"; return 3; fi
  if ! python3 -c 'import numpy, torch'; then echo "Python, NumPy or PyTorch is not installed"; return 3; fi
  local library name
  mkdir -p "$at/lacking"
  for library in "$at"/lib/*; do
    name=$(basename "$library")
    ldconfig -p | grep -qF "$name (" || ln -sf "$library" "$at/lacking/$name"
  done
  LD_LIBRARY_PATH=$at/lacking${system_libraries:+:$system_libraries} \
    PYTHONPATH=$at/data/worker/python CAIRN_LIBRARY=$at/bin/libcairn_client.so.0 CAIRN_BIN=$at/bin \
    CAIRN_PS=$at/bin/cairn-ps python3 "$at/data/tests/python/torch_test.py"
}
# The same steps in PyTorch, which is the machine's.
torch() {
  if ! command -v python3 >/dev/null; then echo "python3 is not installed"; return 3; fi
  LD_LIBRARY_PATH=$system_libraries python3 "$at/torch_steps.py" "$results/bench.log"
}
# timeout runs programs, not functions.
export -f run sanitize gpu bench job jobs script package torch
export at sanitizer results old_libc
export system_libraries=${LD_LIBRARY_PATH-}
call() {
  local name=$1 limit=$2
  last=
  shift 2
  [[ " ${CAIRN_GPU_PARTS-$name} " == *" $name "* ]] || return 0
  part "$name" "$limit" bash -c "loader=(${loader[*]-}); $(printf '%q ' "$@")"
}

call gpu 30 gpu
call models 120 run models --gtest_filter='DeviceStepOnGpu.*:DeviceStepErrors.*:CudaStepCounts.*'
if [ "$last" = skipped ]; then
  echo "run.sh: the programs find no GPU that they can use: $last_note" >&2
  failed=1
else
  call optimizers 120 run optimizers --gtest_filter='*Gpu*:*gpu*'
  call tensors 120 run tensors --gtest_filter='*/gpu*:DeviceTensors*'
  call golden 120 run golden
  call golden_optimizers 120 run golden_optimizers
  call strategies 120 run strategies
  call nccl 120 run nccl
  call resident 120 run resident --gtest_filter='*ResidentSteps*'
  call doctor 30 run cairnctl doctor
  call jobs 120 jobs
  call workers 120 script nccl_workers "$at/data/examples"
  call package 120 package
  call bench 180 bench ${CAIRN_GPU_BENCH-}
  call torch 60 torch
  call dense_job 120 script dense_job
  call table_job 120 script table_job
  call generated 120 run generated
  call memcheck 120 sanitize memcheck models --gtest_filter='DeviceStepOnGpu.*'
  call memcheck_tensors 120 sanitize memcheck tensors --gtest_filter='*/gpu*'
  call memcheck_resident 120 sanitize memcheck resident --gtest_filter='*ResidentSteps*gpu'
  call racecheck 120 sanitize racecheck models --gtest_filter='DeviceStepOnGpu.*'
  call initcheck 120 sanitize initcheck models --gtest_filter='DeviceStepOnGpu.*'
fi

card=$(head -1 "$results/gpu.log" 2>/dev/null | text)
benches=$(cat "$results"/{bench,torch,dense_job,table_job}.log 2>/dev/null | grep '^{' | sed 's/^/    /; $!s/$/,/')
cat >"$results/summary.json" <<END
{
  "gpu": "$card",
  "host": "$(uname -n | text)",
  "date": "$(date -u +%Y-%m-%dT%H:%M:%SZ)",
  "failed_parts": $failed,
  "parts": [$json
  ],
  "bench": [
$benches
  ]
}
END
echo "summary: $results/summary.json"
[ "$failed" -eq 0 ]
