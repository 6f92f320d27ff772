#!/usr/bin/env bash
# Runs every benchmark of a build one after the other. Prints JSON lines with measurements, ratio,
# bar and whether the results were verified in the same run.
# usage: tests/bench/run.sh [build directory]
# Run it on an otherwise idle machine; the measured disk is that of TMPDIR (/tmp).
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/cairn-bench.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

run() {
  local program=$build/tests/bench/$1
  shift
  [ -x "$program" ] || { echo "$program is missing: tests/run.sh builds it" >&2; exit 1; }
  echo "== ${program##*/} $*" >&2
  "$program" "$@"
}
run optimizer_bench --benchmark_format=console
run model_bench
run reader_bench
run wire_bench
run connections_bench
run engine_bench
run client_bench
run delta_bench
run collective_bench
run straggler_bench
run moves_bench
run storage_bench --directory="$scratch"
run durability_bench --directory="$scratch"
