#!/usr/bin/env bash
# Installs the packages that Cairn needs and that are missing; does nothing where all are there.
# Debian 12, and Ubuntu 24.04 with its component "universe", have them under these names.
# usage: examples/install_packages.sh [--tests | --list]
#   --tests  also what the tests need
#   --list   only prints the names of what building needs, one a line
set -euo pipefail

# To build and run. "a|b": the first that the release has.
packages=(
  g++ meson ninja-build pkg-config python3 libboost-dev          # Thrift's headers need Boost's
  libthrift-dev thrift-compiler libabsl-dev librocksdb-dev libgoogle-glog-dev
  libgloo-dev libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libopenblas-dev libhwy-dev
  zlib1g-dev libxxhash-dev libdlpack-dev libssl-dev libsystemd-dev prometheus-cpp-dev
  libcivetweb-dev
  # RocksDB's .pc names these privately; a static link of it would need them.
  libsnappy-dev liblz4-dev libzstd-dev libbz2-dev
)
# To test: frameworks, the stock Python client, formatting and static analysis.
test_packages=(
  libgtest-dev libgmock-dev libbenchmark-dev
  prometheus "chromium|chromium-browser" python3-websocket            # promtool; the status page
  python3-torch python3-tqdm mypy                  # the package cairn
  python3-thrift python3-numpy clang-format clang-tidy ccache cmake
  slurm-wlm python3-venv python3-yaml xxhash zstd
  debhelper help2man lintian mmdebstrap
  fish zsh                                         # their completion of cairnctl
)
case "${1:-}" in
  "") ;;
  --tests) packages+=("${test_packages[@]}") ;;
  --list) printf '%s\n' "${packages[@]}"; exit 0 ;;
  *) echo "unknown word '$1'; usage: examples/install_packages.sh [--tests | --list]" >&2; exit 2 ;;
esac

installed() {
  dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed
}

command -v apt-get >/dev/null && command -v dpkg-query >/dev/null || {
  echo "apt-get not found: Cairn is built on Debian 12 or Ubuntu 24.04 (Linux only); elsewhere install the equivalents of:" >&2
  echo "  ${packages[*]}" >&2
  exit 1
}
missing=()
for choice in "${packages[@]}"; do
  found=
  for package in ${choice//|/ }; do
    if installed "$package"; then found=yes; fi
  done
  [ -n "$found" ] || missing+=("$choice")
done
[ ${#missing[@]} -eq 0 ] && exit 0

# Of a program that sudo starts the environment is sudo's: apt-get would ask questions.
as_root=(env DEBIAN_FRONTEND=noninteractive)
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || {
    echo "missing packages: ${missing[*]}" >&2
    echo "neither root nor sudo here: ask an administrator for 'apt-get install' of them" >&2
    exit 1
  }
  as_root=(sudo "${as_root[@]}")
fi
echo "installing: ${missing[*]}" >&2
updated=yes
"${as_root[@]}" apt-get update -qq >&2 || {
  updated=
  echo "apt-get update failed, above is why (a source that is gone? no network?);" \
    "going on with the package lists that are here" >&2
}
chosen=()
unknown=()
for choice in "${missing[@]}"; do
  name=
  for package in ${choice//|/ }; do
    if [ -z "$name" ] && apt-cache show --no-all-versions "$package" >/dev/null 2>&1; then
      name=$package
    fi
  done
  if [ -n "$name" ]; then chosen+=("$name"); else unknown+=("$choice"); fi
done
if [ ${#unknown[@]} -gt 0 ]; then
  echo "this release's package lists do not have: ${unknown[*]}" >&2
  if [ -z "$updated" ]; then
    echo "mend the source that apt-get update names (/etc/apt/sources.list*), then run this again" >&2
  else
    echo "Debian 12 and Ubuntu 24.04 have them; on Ubuntu: sudo add-apt-repository universe" >&2
  fi
  exit 1
fi
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${chosen[@]}" >&2 || {
  echo "apt-get install failed, above is why; nothing else was changed" >&2
  exit 1
}
