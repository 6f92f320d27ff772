#!/usr/bin/env bash
# From a fresh Debian 12 (or Ubuntu 24.04) to a trained model: installs missing packages, builds, makes
# click logs with a known ground truth, trains on two servers and two workers of this machine, and
# shows the AUC beside the best that any model could reach. The first run takes about 8 minutes on two
# cores, 5 of them for the build; later runs take one. usage: examples/quickstart.sh [rows]
set -euo pipefail
cd "$(dirname "$0")/.."
rows=${1:-400000}
build=build

step() { printf '\n== %s\n' "$*" >&2; }

step "1/4 packages"
examples/install_packages.sh

step "2/4 build (the first time about 5 minutes on two cores)"
# Kernels for GPUs take minutes to compile, and run where there is an NVIDIA GPU.
cuda=disabled
[ -e /dev/nvidiactl ] && cuda=auto
# A unity build compiles all sources of a library at once and so parses their headers once. (Meson 1.0
# fails where the number of sources is a multiple of unity_size: no library has 100.)
[ -f "$build/build.ninja" ] || meson setup "$build" -Dunity=on -Dunity_size=100 -Dcuda=$cuda >/dev/null
ninja -C "$build" ps_server/cairn-ps worker/cairn-worker worker/ctl/cairnctl \
  examples/clicks/cairn-make-clicks

step "3/4 click logs in Criteo's format: $rows rows to train, a tenth to evaluate"
work=$(mktemp -d "${TMPDIR:-/tmp}/cairn-quickstart.XXXXXX")
trap 'rm -rf "$work"' EXIT
"$build/examples/clicks/cairn-make-clicks" --rows "$rows" --seed 1 --out "$work/train.tsv" \
  >"$work/train.json"
"$build/examples/clicks/cairn-make-clicks" --rows "$((rows / 10))" --seed 2 \
  --out "$work/eval.tsv" >"$work/eval.json"
cat "$work/eval.json" >&2

step "4/4 training: 2 cairn-ps and 2 cairn-worker processes"
"$build/worker/ctl/cairnctl" launch --ps 2 --worker 2 --job examples/clicks/clicks.yaml \
  --data_root "$work" | tee "$work/reports.jsonl"

python3 - "$work/reports.jsonl" "$work/eval.json" <<'PYTHON'
import json
import sys

reports = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")]
best = json.loads(open(sys.argv[2]).read().splitlines()[-1])["bayes_auc"]
chief = next(r for r in reports if r.get("eval"))
auc = chief["eval"]["auc"]
share = (auc - 0.5) / (best - 0.5)
print(f"""
trained on {sum(r["examples"] for r in reports):,} examples at \
{sum(r["examples_per_second"] for r in reports):,.0f} a second
AUC {auc:.4f}; the best possible on these rows is {best:.4f}: {100 * share:.1f} % of the way from 0.5
""".strip())
sys.exit(0 if share >= 0.95 else "the model reached less than 95 % of the best: see worker/ctl/TROUBLESHOOTING.md")
PYTHON
