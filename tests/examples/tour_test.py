"""The tours of README.md and examples/TOUR.md: their blocks, pasted into one shell, print what the
pages show, except for the numbers. Runs the long tour on click logs, as readers type it, and its
cluster part on a9a too."""
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop()) if len(sys.argv) > 1 else os.path.join(processes.TOP, "build")
FOLDER = "/tmp/tour"
COMMAND_SECONDS = 240
LOOK_SECONDS = 60
# Commands that only inspect may be repeated until they print what the transcript shows.
LOOKS = "cairnctl status", "cairnctl why", "grep"
PROGRAMS = ("worker/cairn-worker", "worker/ctl/cairnctl", "examples/clicks/cairn-make-clicks")


def transcript(page, *parts):
    """[commands, lines of output] of each block in these sections of a page."""
    with open(os.path.join(processes.TOP, page), encoding="utf-8") as f:
        text = f.read()
    steps = []
    for part in parts:
        (section,) = re.findall(rf"^## {part}\n(.*?)^## ", text, re.M | re.S)
        for kind, block in re.findall(r"^```(sh|text)\n(.*?)^```$", section, re.M | re.S):
            if kind == "sh":
                steps.append((block.rstrip("\n"), []))
            else:
                steps[-1][1].extend(block.splitlines())
    return steps


def pattern(line, folder):
    """A line without its numbers, random names, hosts and column widths."""
    line = line.replace(folder, FOLDER)
    line = re.sub(r"[\w.-]+/\d+\b", "HOST/PID", line)
    line = re.sub(r"cairn-launch\.\w+", "cairn-launch.XXXXXX", line)
    line = re.sub(r"\bkept-\w+-[0-9a-f]+", "kept-NAME", line)
    line = re.sub(r"\d+(,\d{3})*(\.\d+)?", "0", line)
    line = re.sub(r"0 ([KMG]i)?B\b", "0 B", line)
    line = re.sub(r"0(us|ms|s|m|h|d)\b", "0s", line)
    # The progress and remaining time appear once the worker knows its speed.
    line = re.sub(r"(Training: step 0), 0 % done(, 0 (s|min|h) left)?", r"\1", line)
    # If a worker is stopped after it has sent its step to one server, only the other server misses
    # it.
    line = re.sub(r"(ps:0 \(0\.0:0\))(, ps:0 \(0\.0:0\))+", r"\1", line)
    line = re.sub(r"\b0 calls? waits?\b", "0 calls wait", line)
    return " ".join(line.split())


class Shell:
    """One bash, which starts all its programs in a separate process group."""

    def __init__(self):
        self.process = subprocess.Popen(
            ["/bin/bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, cwd=processes.TOP, start_new_session=True)

    def run(self, command):
        """Runs commands and returns their output. The shell prints a marker at the end."""
        end = f"done-{os.urandom(8).hex()}"
        self.process.stdin.write(f"{command}\necho; echo {end}\n".encode())
        self.process.stdin.flush()
        deadline = time.monotonic() + COMMAND_SECONDS
        out = b""
        while f"\n{end}\n".encode() not in out:
            ready, _, _ = select.select([self.process.stdout], [], [],
                                        max(0, deadline - time.monotonic()))
            chunk = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not chunk:
                raise AssertionError(f"{command}\ndid not end; it printed\n{out.decode()}")
            out += chunk
        lines = out.decode().split(f"\n{end}\n")[0].rstrip("\n")
        return lines.splitlines()

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
            os.killpg(self.process.pid, signal.SIGCONT)
            self.process.communicate(timeout=COMMAND_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
        finally:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait(60)


class Tour(scene.FolderTest):
    def setUp(self):
        super().setUp()
        self.shell = Shell()
        self.addCleanup(self.shell.close)

    def follow(self, page, parts, replaced):
        """Pastes every block of these sections; returns all output."""
        replaced = [*replaced, ("$PWD/build", BUILD), (FOLDER, self.folder)]
        replaced += [(f"build/{program}", os.path.join(BUILD, program)) for program in PROGRAMS]
        replaced += zip(("127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7101", "127.0.0.1:7102"),
                        addresses.own_addresses(4))
        printed = []
        for command, wanted in transcript(page, *parts):
            for old, new in replaced:
                command = command.replace(old, new)
                wanted = [line.replace(old, new) for line in wanted]
            got = self.type_command(command, [pattern(line, self.folder) for line in wanted])
            printed += got
        return "\n".join(printed)

    def type_command(self, command, wanted):
        # A reader waits until there is something to see; the test repeats what follows the wait
        # instead.
        *before, command = re.split(r"^sleep \d+\n", command, flags=re.M)
        for one in filter(None, before):
            self.assertEqual(self.shell.run(one), [], one)
        left_out = wanted[:1] == ["[...]"]
        wanted = wanted[1:] if left_out else wanted
        deadline = time.monotonic() + LOOK_SECONDS
        seen = []
        while True:
            got = self.shell.run(command)
            shown = [pattern(line, self.folder) for line in got]
            if (shown[len(shown) - len(wanted):] if left_out else shown) == wanted:
                return got
            if got not in seen:
                seen.append(got)
            if not command.startswith(LOOKS) or time.monotonic() >= deadline:
                break
        self.fail(f"$ {command}\nwanted, but for numbers:\n" + "\n".join(wanted) +
                  "".join("\nprinted:\n" + "\n".join(got) for got in seen[:5] + seen[5:][-2:]))

    def test_of_the_readme(self):
        printed = self.follow("README.md", ("A short tour",),
                              [("--data_root examples/data", f"--data_root {processes.DATA}")])
        aucs = [float(auc) for auc in re.findall(r"auc\W+([\d.]+)", printed)]
        self.assertEqual(len(aucs), 3, printed)  # the report, the summary, the cluster
        self.assertGreaterEqual(min(aucs), 0.900)

    def test_of_click_logs(self):
        self.follow("examples/TOUR.md", ("1. One process", "2. A cluster"),
                    [("--rows 200000", "--rows 20000"),
                     ("--rows 20000 --seed 2", "--rows 4000 --seed 2")])

    def test_of_a9a(self):
        printed = self.follow(
            "examples/TOUR.md", ("2. A cluster",),
            [("examples/clicks/clicks.yaml", "examples/a9a.yaml"),
             ("--data_root /tmp/tour", f"--data_root {processes.DATA}"),
             ("clicks", "a9a")])
        auc = float(re.search(r'"auc":([\d.]+)', printed).group(1))
        print(f"# a9a: AUC {auc}")
        self.assertGreaterEqual(auc, 0.900)


if __name__ == "__main__":
    tap.main()
