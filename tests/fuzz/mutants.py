#!/usr/bin/python3
"""Reinserts known bugs, one at a time, into a copy of the sources, and reports whether the fuzzer
finds each within five minutes. Usage: mutants.py COPY [NAME...]. COPY is the directory of the copy,
which is created, configured and built if it does not exist."""
import os
import shutil
import subprocess
import sys
import time

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
LIMIT_SECONDS = 300
FUZZER = "tests/fuzz/rpc_fuzzer"

# Name: file, original text, replacement; and flags of the fuzzer, if needed.
MUTANTS = {
    "zero_width": ("ps_server/rows/dense_stripe.cc",
                   "  if (layout_.width == 0) return;  // a shape such as [3, 0]: rows without "
                   "elements\n", ""),
    "through_of_any_boot": ("ps_server/jobs/order_rules.h", "return boot_id == 0 ? 0 : through;",
                            "return through;"),
    "repeated_is_applied_twice": (
        "ps_server/rows/stripe.cc", "  if (origin.worker < 0) return false;\n  if (origin.applied",
        "  if (origin.worker >= 0) return false;\n  if (origin.applied"),
    "sequence_not_persisted": (
        "ps_server/jobs/session.cc", "            .sequence = applied_,\n",
        "            .sequence = durable_.sequence,\n"),
    "assign_ignores_slot": ("ps_server/calls/assign.cc", "          .slot = item.slot,\n", ""),
    "held_copy_misses_a_change": (
        "ps_server/rows/hosted_dense.cc", "      stripe.changed().Note(now, row);\n",
        "      (void)now, (void)row;\n"),
    "scan_skips_a_bucket": (
        "ps_server/calls/scan.cc", "  while (cursor.bucket < table_.bucket_count() &&",
        "  while (cursor.bucket + 1 < table_.bucket_count() &&"),
    "row_past_the_end": (
        "ps_server/core/request_items.cc", "if (id >= first && id - first < rows) continue;",
        "if (id >= first && id - first <= rows) continue;"),
    "admitted_a_push_late": (
        "ps_server/rows/embedding_stripe.h", "layout_.admit_after_pushes",
        "layout_.admit_after_pushes + 1"),
    "checkpoint_omits_a_variable": (
        "ps_server/calls/checkpoint_calls.cc", "    reply.variables.push_back(std::move(info));\n",
        "    if (!reply.variables.empty()) continue;\n"
        "    reply.variables.push_back(std::move(info));\n"),
    "no_incarnation_fence": (
        "ps_server/jobs/order_rules.h",
        "return incarnation < known ? IncarnationState::kFenced : IncarnationState::kUnknown;",
        "return incarnation < known ? IncarnationState::kCurrent : IncarnationState::kUnknown;"),
    "after_is_not_looked_at": (
        "ps_server/jobs/order_rules.h", "return after > applied;", "return false && after > applied;"),
    "first_item_of_a_refused_push": (
        "ps_server/calls/gradient_update.cc",
        "  for (size_t i = 0; i < items_.size(); ++i) RETURN_IF_ERROR(Prepare(variables, i));\n",
        "  for (size_t i = 0; i < items_.size(); ++i) {\n"
        "    const absl::Status status = Prepare(variables, i);\n"
        "    if (!status.ok() && i > 0) break;\n"
        "    RETURN_IF_ERROR(status);\n"
        "  }\n"),
    "turn_taken_for_good": (
        "ps_server/base/exclusive_slot.cc",
        "  what_ = std::string(what);  // may throw, so it comes before the lock is taken\n"
        "  taken_ = true;\n",
        "  taken_ = true;\n  what_ = std::string(what);\n", "--failing_allocations"),
    "decided_of_an_unknown_job": (
        "ps_server/calls/move_calls.cc",
        '    if (admitted_.job == nullptr) return absl::NotFoundError("this server has no such job");\n',
        ""),
    "decisions_of_an_unknown_job": (
        "ps_server/calls/push.cc", "may_close && admitted.job != nullptr", "may_close"),
    "worker_without_a_place": (
        "ps_server/jobs/cohort.cc",
        "  ++places_[static_cast<size_t>(state)][step];\n"
        "  if (member.placed) {\n"
        "    Steps& before = places_[static_cast<size_t>(member.state)];\n"
        "    const auto found = before.find(member.step);\n"
        "    if (--found->second == 0) before.erase(found);\n"
        "  }\n",
        "  if (member.placed) {\n"
        "    Steps& before = places_[static_cast<size_t>(member.state)];\n"
        "    const auto found = before.find(member.step);\n"
        "    if (--found->second == 0) before.erase(found);\n"
        "  }\n"
        "  ++places_[static_cast<size_t>(state)][step];\n", "--failing_allocations"),
}


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def prepare(copy):
    """Makes a copy of the sources with a build directory in it."""
    files = subprocess.run(["git", "-C", TOP, "ls-files"], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    for name in files:
        to = os.path.join(copy, name)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy2(os.path.join(TOP, name), to)
    if not os.path.isdir(os.path.join(copy, "build")):
        subprocess.run(["meson", "setup", "build", "-Dtests=enabled", "-Dcuda=disabled"], cwd=copy,
                       check=True, stdout=subprocess.DEVNULL)


def build(copy):
    made = subprocess.run(["ninja", "-C", "build", FUZZER], cwd=copy, capture_output=True,
                          text=True)
    if made.returncode != 0:
        sys.exit("mutants.py: the build failed:\n" + made.stdout[-3000:])


def run(copy, flags):
    """Runs the fuzzer. Returns the finding and the seconds it took; None: no finding."""
    begin = time.monotonic()
    ran = subprocess.run([os.path.join("build", FUZZER), f"--seconds={LIMIT_SECONDS}",
                          "--shrink_seconds=0", "--call_seconds=20", *flags],
                         cwd=copy, capture_output=True, text=True)
    seconds = time.monotonic() - begin
    found = [line for line in ran.stdout.splitlines() if line.startswith("FINDING")]
    return (found[0] if found else None), seconds


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    copy, names = os.path.abspath(sys.argv[1]), sys.argv[2:] or list(MUTANTS)
    prepare(copy)
    missed = 0
    for name in names:
        path, good, bad, *flags = MUTANTS[name]
        path = os.path.join(copy, path)
        with open(path, encoding="utf-8") as f:
            source = f.read()
        if source.count(good) < 1:
            sys.exit(f"mutants.py: {name}: {path} has no longer the text that the mutant changes: "
                     f"{good!r}; bring the mutant up to date")
        write(path, source.replace(good, bad, 1))
        try:
            build(copy)
            finding, seconds = run(copy, flags)
        finally:
            write(path, source)
        missed += finding is None
        print(f"{name}: {'found after' if finding else 'NOT FOUND in'} {seconds:.1f} s"
              f"{': ' + finding if finding else ''}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
