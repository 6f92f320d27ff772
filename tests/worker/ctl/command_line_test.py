"""cairnctl's command line: every command has help, and a misspelt word is refused with status 2, the
nearest name and a pointer to the help."""
import json
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "support"))
import processes  # noqa: E402
import tap  # noqa: E402

CTL, PS, WORKER = (os.environ[name] for name in ("CAIRNCTL", "CAIRN_PS", "CAIRN_WORKER"))


def ctl(*arguments):
    return subprocess.run([CTL, *arguments], capture_output=True, text=True, timeout=30,
                          check=False)


def commands(*path):
    """The names in the help of a command with subcommands."""
    text = ctl(*path, "--help").stdout
    found = text.split("Commands:\n", 1)
    return [line.split()[0] for line in found[1].split("\n\n")[0].splitlines()
            if line.startswith("  ") and line[2] != " "] if len(found) > 1 else []


class CommandLine(unittest.TestCase):
    def test_every_command_has_help_with_an_example_and_json(self):
        paths = [(name,) for name in commands()]
        self.assertIn(("launch",), paths)
        while paths:
            path = paths.pop()
            below = commands(*path)
            if below:
                paths += [(*path, name) for name in below]
                continue
            done = ctl(*path, "--help")
            self.assertEqual(done.returncode, 0, path)
            self.assertIn(f"Usage: cairnctl {' '.join(path)}", done.stdout)
            self.assertIn("\nExample:\n  cairnctl", done.stdout, path)
            self.assertIn("--json", done.stdout, path)
            self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100, path)

    def test_the_usage_brackets_only_words_that_may_be_left_out(self):
        for usage in ("certs [flags] DIR", "export [flags] FILE", "get [flags] VARIABLE [KEY...]",
                      "checkpoint verify [flags] DIR", "checkpoint restore [flags] DIR",
                      "checkpoint create [flags] [DIR]", "servers add [flags] ps:N",
                      "servers remove [flags] ps:N", "completion [flags] SHELL",
                      "drain [flags] [ps:N...]", "logs [flags] [TASK...]", "why [flags]"):
            path = usage.split(" [flags]")[0].split()
            self.assertIn(f"Usage: cairnctl {usage}\n", ctl(*path, "--help").stdout)

    def refused(self, *arguments):
        done = ctl(*arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        return done.stderr

    def test_misspelt_names_are_answered_with_the_nearest(self):
        self.assertIn("unknown word 'lanch' (did you mean 'launch'?); cairnctl --help",
                      self.refused("lanch"))
        self.assertIn("cairnctl launch: unknown flag --jbo (did you mean '--job'?)",
                      self.refused("launch", "--jbo", "x"))

    def test_values_that_are_missing_or_wrong(self):
        self.assertIn("one of launch", self.refused())
        self.assertIn("--ps", self.refused("launch", "--ps"))
        self.assertIn("--ps", self.refused("launch", "--ps", "many"))
        self.assertIn("'sometimes'; there are never and on-failure",
                      self.refused("launch", "--restart", "sometimes"))
        self.assertIn("--cluster", self.refused("launch", "--ps", "1", "--cluster", "x"))

    def in_bash(self, *words):
        script = ('source <("$0" completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                  '_cairnctl; printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["/bin/bash", "-c", script, CTL, *words], capture_output=True,
                              text=True, timeout=30, check=True)
        return done.stdout.split()

    def in_fish(self, *words):
        script = 'source ($argv[1] completion fish | psub); complete -C "$argv[2]"'
        done = subprocess.run(["fish", "--no-config", "-c", script, CTL, " ".join(words)],
                              capture_output=True, text=True, timeout=30, check=True)
        return [line.split("\t")[0] for line in done.stdout.splitlines()]

    def in_zsh(self, *words):
        # The state of zsh during completion: the words, and the index of the last.
        script = ('compdef() { : }; compadd() { shift; offered_here=($@); [ $# -gt 0 ] }; '
                  '_files() { : }; source <("$0" completion zsh); words=($@); CURRENT=$#; '
                  '_cairnctl; print -l -- ${(M)offered_here:#${words[-1]}*}')
        done = subprocess.run(["zsh", "-f", "-c", script, CTL, *words], capture_output=True,
                              text=True, timeout=30, check=True)
        return done.stdout.split()

    def test_the_other_programs_complete_their_flags(self):
        for program, typed, flags in ((PS, "--memory_b", ["--memory_budget_bytes"]),
                                      (WORKER, "--metr", ["--metrics_file"])):
            name = os.path.basename(program)
            script = ('source <("$0" --completion bash); COMP_WORDS=("$@"); COMP_CWORD=1; '
                      f'_{name.replace("-", "_")}; printf "%s\\n" "${{COMPREPLY[@]}}"')
            done = subprocess.run(["/bin/bash", "-c", script, program, name, typed],
                                  capture_output=True, text=True, timeout=30, check=True)
            self.assertEqual(done.stdout.split(), flags, program)

    def check_completion(self, complete):
        self.assertEqual(complete("cairnctl", "insp"), ["inspect"])
        self.assertEqual(complete("cairnctl", "checkpoint", "ver"), ["verify"])
        self.assertEqual(complete("cairnctl", "checkpoint", "restore", "--rep"), ["--replace"])
        self.assertEqual(complete("cairnctl", "status", "--job", "x", "--wa"), ["--watch"])
        self.assertEqual(complete("cairnctl", "status", "no-flag"), [])

    def test_bash_completes_commands_and_their_flags(self):
        self.check_completion(self.in_bash)

    @unittest.skipIf(shutil.which("fish") is None, "fish is not installed")
    def test_fish_does(self):
        self.check_completion(self.in_fish)

    @unittest.skipIf(shutil.which("zsh") is None, "zsh is not installed")
    def test_zsh_does(self):
        self.check_completion(self.in_zsh)

    def test_other_shells_are_refused_by_name(self):
        done = ctl("completion", "tcsh")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'tcsh' is none of the shells: bash, fish, zsh", done.stderr)

    def test_help_that_cannot_be_printed_is_a_failure(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            self.assertEqual(subprocess.run([CTL, "--help"], stdout=full, timeout=30,
                                            check=False).returncode, 1)

    def test_a_name_that_is_no_text_is_answered_under_watch_too(self):
        command = [CTL, "status", "--json", "--servers", "10.0.0.1:1", "--job", b"\xff"]
        once = subprocess.run(command, capture_output=True, timeout=30, check=False)
        with subprocess.Popen([*command, "--watch", "0.01"], stdout=subprocess.PIPE) as watch:
            lines = [processes.read_line(watch, watch.stdout) for _ in range(2)]
            watch.kill()
        self.assertEqual(lines, [once.stdout] * 2)
        self.assertEqual(json.loads(lines[0])["job"], "\ufffd")

    def test_with_json_an_error_is_an_object_too(self):
        done = ctl("launch", "--json")
        self.assertEqual(done.returncode, 2)
        answer = json.loads(done.stdout)
        self.assertIn("--job FILE is needed", answer["error"])
        self.assertEqual(answer["code"], "Invalid argument")
        self.assertIn("--job FILE is needed", done.stderr)


if __name__ == "__main__":
    tap.main()
