#!/usr/bin/env bash
# Makes a folder that shows, on a machine with a GPU, what tests without one cannot.
#
#   tests/gpu.sh --bundle OUT               builds into build/ and writes OUT, below 64 MiB
#   tests/gpu.sh --bundle OUT --build DIR   with another build directory
#   ... --fakes                             with programs for fake GPUs, to test the bundle itself
#   ... --no-build                          the programs are there already
#
# The machine needs an NVIDIA driver for the toolkit's version of CUDA, bash and tar. cuBLAS and
# NCCL are the machine's, from a CUDA toolkit or PyTorch. Copy OUT there and call OUT/run.sh: it takes
# ten minutes at most, prints a line a part, and writes OUT/results/summary.json.
set -euo pipefail
cd "$(dirname "$0")/.."

out= build=build fakes= compile=1
while [ $# -gt 0 ]; do
  case "$1" in
    --bundle) out=${2:?--bundle needs a folder}; shift 2 ;;
    --build) build=${2:?--build needs a directory}; shift 2 ;;
    --fakes) fakes=1; shift ;;
    --no-build) compile=; shift ;;
    *) echo "tests/gpu.sh: unknown option '$1'; see the head of this file" >&2; exit 2 ;;
  esac
done
[ -n "$out" ] || { echo "tests/gpu.sh: --bundle OUT names the folder to make" >&2; exit 2; }

# The name in the bundle, the program on GPUs, and the one on fake GPUs.
programs=(
  "models worker/models/models_test worker/models/cuda_step_test"
  "tensors worker/ops/ops_test worker/ops/ops_fake_gpus_test"
  "optimizers worker/ops/optimizer_kernels_test worker/ops/optimizer_kernels_fake_gpus_test"
  "golden worker/strategy/strategy_golden_test worker/strategy/strategy_golden_fake_gpus_test"
  "golden_optimizers worker/strategy/variable_optimizer_golden_test worker/strategy/variable_optimizer_golden_fake_gpus_test"
  "strategies worker/strategy/strategy_test worker/strategy/strategy_fake_gpus_test"
  "generated worker/strategy/strategy_generated_test worker/strategy/strategy_generated_fake_gpus_test"
  "nccl worker/collective/nccl_device_test worker/collective/nccl_fake_gpus_test"
  "resident worker/trainer/resident_steps_test worker/trainer/trainer_fake_gpus_test"
  "bench bench/gpu_bench bench/gpu_bench_fake_gpus"
  "cairn-worker ../worker/cairn-worker ../worker/cairn-worker"
  "cairnctl ../worker/ctl/cairnctl ../worker/ctl/cairnctl"
  "cairn-ps ../ps_server/cairn-ps ../ps_server/cairn-ps"
  "libcairn_client.so.0 ../worker/capi/libcairn_client.so.0.2.0 ../worker/capi/libcairn_client.so.0.2.0"
)
targets=()
for line in "${programs[@]}"; do
  read -r name real fake <<<"$line"
  target=tests/$real
  [ -n "$fakes" ] && target=tests/$fake
  targets+=("${target#tests/../}")
done
if [ -n "$compile" ]; then
  [ -f "$build/build.ninja" ] || meson setup "$build" -Dtests=enabled -Dcuda=enabled >/dev/null
  ninja -C "$build" --quiet "${targets[@]}"
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/bin" "$stage/lib" "$stage/libc" "$stage/data/tests/golden" "$stage/data/examples"
# The libraries that a program needs, the C library's in a folder of their own: a machine with a newer
# one uses its own, which the driver's libraries expect.
copy_libraries() {  # PROGRAM FOLDER LIBC_FOLDER
  ldd "$1" | awk '$3 ~ /^\// {print $3} $1 ~ /^\/.*ld-linux/ {print $1}' | while read -r library; do
    case "$(basename "$library")" in
      ld-linux* | libc.so* | libm.so* | libpthread.so* | libdl.so* | librt.so*)
        cp -L "$library" "$3/" ;;
      *) cp -L "$library" "$2/" ;;
    esac
  done
}
build=$(cd "$build" && pwd)
for i in "${!targets[@]}"; do
  program=$build/${targets[i]}
  if [ ! -x "$program" ]; then
    echo "tests/gpu.sh: $program is missing; was $build set up where nvcc is (-Dcuda=enabled)?" >&2
    exit 1
  fi
  read -r name _ <<<"${programs[i]}"
  strip -o "$stage/bin/$name" "$program"
  copy_libraries "$program" "$stage/lib" "$stage/libc"
done
# Programs load these by name.
if [ -n "$fakes" ]; then
  cp -L "$build"/tests/support/fake_cuda/lib{cublas.so.13,cuda.so.1,nccl.so.2} "$stage/lib/"
fi
cp -r tests/golden/data "$stage/data/tests/golden/data"
cp -r examples/data examples/*.yaml "$stage/data/examples/"
cp tests/gpu/{torch_steps,nccl_workers,dense_job,table_job,worker_job}.py "$stage/"
mkdir -p "$stage/data/tests/python" "$stage/data/tests/support" "$stage/data/worker/python"
cp tests/python/torch_test.py "$stage/data/tests/python/"
cp tests/support/{addresses,processes,tap}.py "$stage/data/tests/support/"
cp -r worker/python/cairn "$stage/data/worker/python/"
cp -r examples/python "$stage/data/examples/"

# The programs have most of their code in common, which only a long window of compression finds. The
# machine may lack zstd.
mkdir -p "$out/zstd"
cp -L "$(command -v zstd)" "$out/zstd/zstd"
copy_libraries "$out/zstd/zstd" "$out/zstd" "$out/zstd"
ldd --version | awk 'NR == 1 {print $NF}' >"$out/zstd/libc_version"
tar -cf - -C "$stage" . | zstd -q -f -9 -T0 --long=27 -o "$out/payload.tar.zst"
install -m 755 tests/gpu/run.sh "$out/run.sh"
size=$(du -sk "$out" | awk '{print $1}')
if [ "$size" -gt $((64 * 1024)) ]; then
  echo "tests/gpu.sh: $out has $((size / 1024)) MiB, at most 64 are allowed" >&2
  exit 1
fi
echo "$out: $((size / 1024)) MiB; call $out/run.sh on the machine with a GPU"
