#!/usr/bin/env bash
# Installs missing packages, builds, runs every test, and ends with "N passed, N failed, N skipped".
#
#   tests/run.sh                      everything, release build in build/
#   tests/run.sh --sanitize address   unit and integration tests under AddressSanitizer and UBSan
#   tests/run.sh --sanitize thread    the same under ThreadSanitizer
#   tests/run.sh --suite unit         one suite: unit golden integration python tidy
#   tests/run.sh --werror             warnings are errors (CI)
set -euo pipefail
cd "$(dirname "$0")/.."

build=build
suites=()
# A unity build compiles all sources of a library at once and so parses their headers once. (Meson 1.0
# fails where the number of sources is a multiple of unity_size: no library has 100.)
setup=(-Dunity=on -Dunity_size=100)
while [ $# -gt 0 ]; do
  case "$1" in
    --sanitize)
      case "${2:-}" in
        # OpenBLAS and RocksDB are not built with sanitizers; lundef would refuse their symbols.
        address) setup+=(-Db_sanitize=address,undefined -Db_lundef=false) ;;
        thread) setup+=(-Db_sanitize=thread -Db_lundef=false) ;;
        *) echo "tests/run.sh: --sanitize takes address or thread, not '${2:-}'" >&2; exit 2 ;;
      esac
      # Compiles in half the time of -O2 -g, and reports still have files and lines.
      setup+=(-Doptimization=1 -Ddebug=true -Dcpp_args=-g1)
      build="build-$2"
      shift 2 ;;
    --suite) suites+=(--suite "${2:?--suite needs a name}"); shift 2 ;;
    --werror) setup+=(--werror); shift ;;
    -h|--help) sed -n '2,/^[^#]/s/^#\( \|$\)//p' "$0"; exit 0 ;;
    *) echo "tests/run.sh: unknown option '$1'; see the head of this file" >&2; exit 2 ;;
  esac
done

examples/install_packages.sh --tests
# Reconfigures a build directory that the quickstart made before the tests' packages were installed.
setup+=(-Dtests=enabled)
[ -f "$build/build.ninja" ] && setup+=(--reconfigure)
log=$(mktemp)
meson setup "$build" "${setup[@]}" >"$log" 2>&1 || { cat "$log"; rm -f "$log"; exit 1; }
rm -f "$log"
ninja -C "$build" --quiet

# halt_on_error makes a sanitizer's finding a failure; RocksDB and glog free nothing at exit. The
# quarantine counts as growth in memory tests. The programs themselves refuse allocation sizes that
# no machine has.
asan=abort_on_error=0:detect_leaks=1:quarantine_size_mb=16:allocator_may_return_null=1
export ASAN_OPTIONS=${ASAN_OPTIONS:-$asan}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
tsan=halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tests/support/tsan_suppressions.txt
export TSAN_OPTIONS=${TSAN_OPTIONS:-$tsan}
status=0
# Meson takes the results of an earlier run for those of a program that times out.
rm -f "$build"/*.xml
# More tests than cores, because most wait for each other's processes. Timeouts are those of an idle
# machine.
meson test -C "$build" --no-rebuild --print-errorlogs --num-processes 4 --timeout-multiplier 3 \
  ${suites[@]+"${suites[@]}"} || status=$?
/usr/bin/python3 tests/support/count.py "$build/meson-logs" || status=1
exit "$status"
