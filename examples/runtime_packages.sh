#!/usr/bin/env bash
# Prints the Debian packages that own the shared libraries of programs, one a line.
# usage: examples/runtime_packages.sh PROGRAM...
set -euo pipefail
[ $# -gt 0 ] || { sed -n '3s/^# //p' "$0" >&2; exit 2; }
ldd "$@" | awk '$2 == "=>" {print $3 == "not" ? $1 : $3}' | sort -u | while read -r library; do
  [ -e "$library" ] || { echo "$library is not found" >&2; exit 1; }
  # /lib is a link to /usr/lib, and a package may know a file by either name; what an alternative
  # stands for is found behind its links.
  file=$(realpath "$library")
  dpkg-query -S "$file" 2>/dev/null || dpkg-query -S "${file#/usr}" 2>/dev/null || {
    echo "no package has $library" >&2
    exit 1
  }
done | cut -d: -f1 | sort -u
