#!/usr/bin/env bash
# Trains a job with several cairn-ps and cairn-worker processes of this machine, on ports that are
# free, and ends whatever it started. Logs go to stderr with the task in front; the workers' reports
# are stdout.
# usage: launch.sh --job FILE [--build DIR] [--data_root DIR] [--ps 2] [--workers 2] [--state DIR]
#                  [-- flags for every worker]
#   --build   the build folder (build)
#   --state   where the servers keep their data, for a later run to go on from; else a temporary
#             folder that is removed
# exit status: 0, or that of the first process to fail
set -euo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
build=$top/build job="" data_root="" servers=2 workers=2 state=""
usage() { sed -n '5,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  [ "$1" = -- ] && { shift; break; }
  [ $# -ge 2 ] || usage
  case $1 in
    --build) build=$2 ;;
    --job) job=$2 ;;
    --data_root) data_root=$2 ;;
    --ps) servers=$2 ;;
    --workers) workers=$2 ;;
    --state) state=$2 ;;
    *) echo "launch.sh: unknown flag $1" >&2; usage ;;
  esac
  shift 2
done
worker_flags=("$@")
[ -n "$job" ] || { echo "launch.sh: --job FILE is required" >&2; usage; }
[[ $servers =~ ^[1-9][0-9]*$ && $workers =~ ^[1-9][0-9]*$ ]] ||
  { echo "launch.sh: --ps and --workers are numbers of at least 1" >&2; usage; }
for program in ps_server/cairn-ps worker/cairn-worker; do
  [ -x "$build/$program" ] ||
    { echo "launch.sh: $build/$program is missing: meson setup build && ninja -C build" >&2; exit 2; }
done
[ -n "$data_root" ] && worker_flags=(--data_root "$data_root" "${worker_flags[@]}")

work=$(mktemp -d "${TMPDIR:-/tmp}/cairn-launch.XXXXXX")
declare -A task_of=()  # pid -> task, of what runs

stop_all() {
  trap - EXIT INT TERM
  local pid deadline=$((SECONDS + 30))
  kill -TERM "${!task_of[@]}" 2>/dev/null || true
  # A server flushes before it ends.
  for pid in "${!task_of[@]}"; do
    while kill -0 "$pid" 2>/dev/null && [ $SECONDS -lt $deadline ]; do sleep 0.05; done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap stop_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# All ports are held at once, so that they differ.
python3 - "$servers" "$workers" >"$work/cluster.yaml" <<'PYTHON'
import socket
import sys

counts = {"ps": int(sys.argv[1]), "worker": int(sys.argv[2])}
held = []
print("cluster:")
for job, count in counts.items():
    addresses = []
    for _ in range(count):
        held.append(socket.socket())
        held[-1].bind(("127.0.0.1", 0))
        addresses.append('"127.0.0.1:%d"' % held[-1].getsockname()[1])
    print("  %s: [%s]" % (job, ", ".join(addresses)))
PYTHON
echo "launch.sh: $servers ps, $workers workers:" $(sed 1d "$work/cluster.yaml") >&2

# start TASK OUTPUT COMMAND…: in the background, its stderr with the task in front of every line.
start() {
  local task=$1 output=$2
  shift 2
  "$@" >"$output" 2> >(sed -u "s/^/[$task] /" >&2) &
  task_of[$!]=$task
}
for ((i = 0; i < servers; ++i)); do
  start "ps:$i" /dev/null "$build/ps_server/cairn-ps" --cluster "$work/cluster.yaml" \
    --task_index "$i" --data_dir "${state:-$work}/ps$i" --port_file "$work/port$i"
done
# A worker would wait for a server too, but say that it is gone.
for pid in "${!task_of[@]}"; do
  i=${task_of[$pid]#ps:}
  while [ ! -s "$work/port$i" ] && kill -0 "$pid" 2>/dev/null && [ $SECONDS -lt 60 ]; do
    sleep 0.02
  done
done
for ((i = 0; i < workers; ++i)); do
  start "worker:$i" "$work/report$i" "$build/worker/cairn-worker" --job "$job" \
    --cluster "$work/cluster.yaml" --task_type worker --task_index "$i" \
    ${worker_flags[@]+"${worker_flags[@]}"}
done

# Until every worker has ended; a process that fails, or a server that ends, ends the run.
running=$workers
while [ "$running" -gt 0 ]; do
  status=0
  wait -n -p ended "${!task_of[@]}" || status=$?
  task=${task_of[$ended]}
  unset "task_of[$ended]"
  if [ "$status" -ne 0 ] || [[ $task == ps:* ]]; then
    echo "launch.sh: $task ended with status $status; ending the others" >&2
    [ "$status" -ne 0 ] || status=1
    exit "$status"
  fi
  running=$((running - 1))
done
for ((i = 0; i < workers; ++i)); do cat "$work/report$i"; done
