#!/usr/bin/env bash
# Makes the Debian packages cairn, libcairn-worker0.2, libcairn-client0 and libcairn-dev from this tree.
# usage: examples/debian/build.sh [--prebuilt BUILD] OUT
#   OUT          directory that gets the packages
#   --prebuilt   a build directory that is up to date: its programs are packaged, nothing is compiled
# Needs dpkg-dev, debhelper and help2man; compiling also needs examples/install_packages.sh.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
if [ "${1:-}" = --prebuilt ]; then
  CAIRN_BUILD=$(realpath "${2:?a build directory}")
  export CAIRN_BUILD
  shift 2
fi
[ $# = 1 ] || { sed -n '3,6s/^# //p' "$0" >&2; exit 2; }
missing=()
for tool in dpkg-buildpackage:dpkg-dev dh:debhelper help2man:help2man; do
  command -v "${tool%:*}" >/dev/null || missing+=("${tool#*:}")
done
[ ${#missing[@]} -eq 0 ] || {
  echo "missing packages: ${missing[*]}; install them: sudo apt install ${missing[*]}" >&2
  exit 1
}
mkdir -p "$1"
out=$(realpath "$1")
tree=$out/cairn-src
rm -rf "$tree"
mkdir "$tree"
# What git tracks, or all that lies here but builds; debian/ and the unit are where dpkg looks for them.
if git -C "$top" rev-parse >/dev/null 2>&1; then
  git -C "$top" ls-files -z | (cd "$top" && tar --null -cf - -T -) | tar -xf - -C "$tree"
else
  tar -C "$top" --exclude='./build*' -cf - . | tar -xf - -C "$tree"
fi
cp -r "$tree/examples/debian/debian" "$tree/debian"
cp "$tree/examples/systemd/cairn-ps@.service" "$tree/debian/cairn.cairn-ps@.service"
cd "$tree"
# -d: what is missing of Build-Depends is said by meson, which also takes what was not packaged.
# Debug symbols are in no prebuilt programs.
[ -z "${CAIRN_BUILD:-}" ] || export DEB_BUILD_OPTIONS=noautodbgsym
dpkg-buildpackage -b -d -us -uc
rm -rf "$tree"
