#!/usr/bin/env bash
# Installs the Debian packages that Cairn needs and that are missing; does nothing where all are
# there. usage: examples/install_packages.sh [--tests]
set -euo pipefail

# To build and run.
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
  prometheus chromium python3-websocket            # promtool; the status page
  python3-thrift python3-numpy clang-format clang-tidy ccache cmake
  slurm-wlm python3-venv python3-yaml xxhash
  debhelper help2man lintian mmdebstrap
  fish zsh                                         # their completion of cairnctl
)
[ "${1:-}" = "--tests" ] && packages+=("${test_packages[@]}")

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
    missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || {
    echo "missing packages: ${missing[*]}" >&2
    echo "neither root nor sudo here: ask an administrator for 'apt-get install' of them" >&2
    exit 1
  }
  as_root=(sudo)
fi
command -v apt-get >/dev/null || {
  echo "apt-get not found: Cairn is built on Debian 12; install the equivalents of:" >&2
  echo "  ${missing[*]}" >&2
  exit 1
}
echo "installing: ${missing[*]}" >&2
"${as_root[@]}" apt-get update -qq >&2
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends \
  "${missing[@]}" >&2
