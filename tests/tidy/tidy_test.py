"""The project's rules, checked on every source: include direction, use of RocksDB and Thrift,
sizes, names in build files, no sleeps in tests, headers that compile alone. Every message says how
to fix its finding."""
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "fuzz"))
import include_graph  # noqa: E402
import mutants  # noqa: E402
import tap  # noqa: E402
import unity_names  # noqa: E402

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = sys.argv.pop() if len(sys.argv) > 1 and os.path.isdir(sys.argv[-1]) else None

TOP_LEVEL = {"Dockerfile", "meson.build", "meson_options.txt", "LICENSE", "README.md",
             "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "pyproject.toml", "common",
             "thrift", "storage", "ps_server", "worker", "tests", "examples"}
MAY_INCLUDE = {
    "common": {"common"},
    "thrift": {"thrift", "common"},
    "storage": {"storage", "common"},
    "ps_server": {"ps_server", "storage", "thrift", "common"},
    "worker": {"worker", "thrift", "common"},
    "examples": {"examples", "worker", "thrift", "common"},
}
# The composition root: it joins in-process servers and a worker.
MAY_NAME_SERVER = {"worker/trainer/run/in_process_server.cc", "worker/cluster/server.cc",
                   "worker/ctl/data_directory.cc"}
# cairnctl reads the files of a stopped server.
MAY_NAME_STORAGE = {"worker/ctl/data_directory.cc"}
# Besides thrift/: files that host a server or a connection.
MAY_NAME_THRIFT = {"ps_server/net/connection.cc", "ps_server/net/listener.cc",
                   "worker/client/links/remote_link.cc"}
# In tests: addresses without a listener, and a browser's own port, which the browser chooses.
MAY_NAME_SHARED_ADDRESSES = {
    "tests/common/config/cluster_config_test.cc",  # addresses are parsed
    "tests/common/http/http_server_test.cc",  # Host headers
    "tests/worker/ctl/certs_test.cc",  # hosts in certificates
    "tests/fuzz/player_tools.cc",  # addresses in requests
    "tests/examples/tour_test.py",  # the tour's addresses, which are replaced
    "tests/support/browser.py",
}
# Programs in tests/ that meson test does not run.
NO_TESTS = ("tests/bench/", "tests/golden/generators/", "tests/tidy/")
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_COLUMNS = 600, 70, 100


def tracked():
    """Files of the project: from git if there is git, otherwise from the directory."""
    git = subprocess.run(["git", "-C", TOP, "ls-files", "--cached", "--others",
                          "--exclude-standard"], capture_output=True, text=True)
    if git.returncode == 0:
        names = git.stdout.splitlines()
    else:
        names = [os.path.relpath(os.path.join(folder, f), TOP)
                 for folder, _, files in os.walk(TOP) for f in files
                 if not os.path.relpath(folder, TOP).startswith(("build", ".git"))]
    return sorted(n for n in names if os.path.isfile(os.path.join(TOP, n)))


FILES = tracked()
SOURCES = [f for f in FILES if f.endswith((".cc", ".h", ".cu", ".cuh"))]


def lines(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read().splitlines()


def includes(path):
    for number, line in enumerate(lines(path), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if match:
            yield number, match.group(1), match.group(2)


def without_literals(text):
    """The text with comments, strings and characters blanked, line breaks kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'
                         r"(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'", re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def long_functions(path):
    """(first line, lines) of every function body longer than the limit. A body is an outermost
    block that follows a ')' and is not a namespace, class or other container."""
    text = without_literals("\n".join(lines(path)))
    containers, start, depth, head = [], None, 0, ""
    line = 1
    for char in text:
        if char == "\n":
            line += 1
        if char == "{":
            is_container = start is None and re.search(
                r"\b(namespace|class|struct|union|enum|extern)\b[^()]*$|^\s*$|=\s*$", head)
            if start is None and not is_container and ")" in head:
                start, depth = line, len(containers)
            containers.append(char)
            head = ""
        elif char == "}":
            if containers:
                containers.pop()
            if start is not None and len(containers) == depth:
                if line - start + 1 > MAX_FUNCTION_LINES:
                    yield start, line - start + 1
                start = None
            head = ""
        elif char == ";":
            head = ""
        else:
            head += char


class Tidy(unittest.TestCase):
    maxDiff = None

    def check(self, found, fix):
        self.assertFalse(found, "\n" + "\n".join(found) + "\n-> " + fix)

    def test_top_level_is_fixed(self):
        found = sorted({f.split("/")[0] for f in FILES} - TOP_LEVEL)
        self.check([f for f in found if not f.startswith(".")],
                   "the top level is fixed: move it into the folder that it explains")

    def test_includes_point_downward(self):
        found = []
        for path in SOURCES:
            floor = path.split("/")[0]
            for number, quote, name in includes(path):
                target = name.split("/")[0]
                if quote != '"' or target not in MAY_INCLUDE or floor not in MAY_INCLUDE:
                    continue
                if target == "ps_server" and path in MAY_NAME_SERVER:
                    continue
                if target == "storage" and path in MAY_NAME_STORAGE:
                    continue
                if target not in MAY_INCLUDE[floor]:
                    found.append(f"{path}:{number}: {floor}/ must not include {name}")
        self.check(found, "move what is shared down to common/, or turn the dependency round")

    def test_directories_include_only_those_below_them(self):
        self.check(include_graph.breaches(include_graph.read_graph(TOP)),
                   "move what is shared down, or let the lower unit return what the upper one does; "
                   "tests/tidy/include_graph.py prints directories, order and arrows")

    def test_exceptions_name_files_that_exist(self):
        named = (MAY_NAME_SERVER | MAY_NAME_STORAGE | MAY_NAME_THRIFT | MAY_NAME_SHARED_ADDRESSES)
        self.check(sorted(named - set(FILES)), "take it out of the list of exceptions")
        used = {(path, floor) for path in SOURCES for _, quote, name in includes(path)
                for floor in [name.split("/")[0]] if quote == '"' or floor == "thrift"}
        idle = [p for p in MAY_NAME_SERVER if (p, "ps_server") not in used]
        idle += [p for p in MAY_NAME_STORAGE if (p, "storage") not in used]
        idle += [p for p in MAY_NAME_THRIFT if (p, "thrift") not in used]
        self.check(sorted(idle), "it needs no exception any more: take it out of the list")

    def test_build_files_are_no_wider_than_sources(self):
        found = [f"{p}:{n}: {len(line)} columns, at most {MAX_COLUMNS}" for p in FILES
                 if os.path.basename(p) == "meson.build"
                 for n, line in enumerate(lines(p), 1) if len(line) > MAX_COLUMNS]
        self.check(found, "one source a line, sorted")

    def test_only_storage_names_rocksdb(self):
        found = [f"{p}:{n}: {name}" for p in SOURCES for n, _, name in includes(p)
                 if name.startswith("rocksdb/") and
                 not p.startswith(("storage/", "tests/storage/", "tests/bench/"))]
        found += [f"{p}:{n}: {name} in a header" for p in SOURCES for n, _, name in includes(p)
                  if name.startswith("rocksdb/") and p == "storage/stripe_store.h"]
        self.check(found, "go through storage/stripe_store.h")

    def test_only_the_wire_names_thrift(self):
        found = [f"{p}:{n}: {name}" for p in SOURCES for n, quote, name in includes(p)
                 if quote == "<" and name.startswith("thrift/") and
                 not p.startswith(("thrift/", "tests/")) and p not in MAY_NAME_THRIFT]
        self.check(found, "use the interfaces of thrift/ (payload.h, wire_client.h, errors.h)")

    def test_sizes(self):
        found = []
        for path in SOURCES:
            text = lines(path)
            if len(text) > MAX_FILE_LINES:
                found.append(f"{path}: {len(text)} lines, at most {MAX_FILE_LINES}")
            for number, line in enumerate(text, 1):
                if len(line) > MAX_COLUMNS:
                    found.append(f"{path}:{number}: {len(line)} columns, at most {MAX_COLUMNS}")
            for number, count in long_functions(path):
                found.append(f"{path}:{number}: a function of {count} lines, "
                             f"at most {MAX_FUNCTION_LINES}")
        self.check(found, "split by meaning: one concept a file, one step a function")

    def test_every_source_is_built(self):
        builds = {}
        for path in FILES:
            if os.path.basename(path) == "meson.build":
                builds[os.path.dirname(path)] = "\n".join(lines(path))
        found = []
        for path in SOURCES:
            if not path.endswith((".cc", ".cu")):
                continue
            folder, named = os.path.dirname(path), False
            while True:
                name = os.path.relpath(path, folder) if folder else path
                named = named or (folder in builds and f"'{name}'" in builds[folder])
                if not folder:
                    break
                folder = os.path.dirname(folder)
            stem = os.path.splitext(os.path.basename(path))[0]
            near = builds.get(os.path.dirname(path), "")
            # Test lists name their sources without the suffix.
            named = named or f"'{stem}'" in near or f"'{stem.removesuffix('_test')}'" in near
            # A test that another directory builds.
            named = named or any(f"/{path.removeprefix('tests/')}'" in text
                                 for text in builds.values())
            if not named:
                found.append(path)
        self.check(found, "name it in the meson.build of its folder, or delete it")

    def test_no_sleeps_in_tests(self):
        found = [f"{p}:{n}: {line.strip()}" for p in FILES
                 if p.startswith("tests/") and p.endswith((".cc", ".h", ".py")) and
                 not p.startswith("tests/golden/generators/") and
                 p != "tests/tidy/tidy_test.py" and
                 # Fake devices take time, as devices do.
                 p != "tests/support/fake_cuda/fake_calls.cc"
                 for n, line in enumerate(lines(p), 1)
                 if re.search(r"sleep_for|SleepFor|usleep\(|nanosleep|time\.sleep", line)]
        self.check(found, "wait for the condition itself, with a deadline")

    def test_tests_listen_on_their_own_addresses(self):
        shared = re.compile(
            r"""0\.0\.0\.0:0|(127\.0\.0\.1|localhost)(:\d|:\{|:", |", \d)|INADDR_(LOOPBACK|ANY)|"""
            r"""http_port(=|", ")0\b|(Listener|HttpServer)::Start\((.*, )?\{|ControlServer::Start\(\"""")
        found = [f"{p}:{n}: {line.strip()}" for p in FILES
                 if p.startswith("tests/") and p.endswith((".cc", ".h", ".py")) and
                 not p.startswith(NO_TESTS) and
                 p not in MAY_NAME_SHARED_ADDRESSES
                 for n, line in enumerate(lines(p), 1) if shared.search(line)]
        self.check(found, "a test beside it may take that port: use OwnAddress() or OnOwnAddress() "
                   "of tests/support/addresses.h, or own_address() of addresses.py")

    def test_messages_call_epochs_of_storage_snapshots(self):
        # A literal that is the word alone is a name in code: of a wait, of a counter.
        named = re.compile(r'"(?!epochs?")(?:[^"\\]|\\.)*\bepochs?\b(?:[^"\\]|\\.)*"', re.I)
        found = [f"{p}:{n}: {line.strip()}" for p in SOURCES
                 if p.startswith(("ps_server/", "storage/", "thrift/", "worker/ctl/"))
                 for n, line in enumerate(lines(p), 1)
                 if named.search(line) and "CAIRN_CRASH_POINT" not in line]
        self.check(found, "users read 'snapshot'; an epoch is a pass over the training data")

    def test_the_page_of_waits_names_tests_that_exist(self):
        text = "\n".join(lines("ps_server/WAITS.md"))
        bodies = {os.path.basename(f)[:-3]: "\n".join(lines(f)) for f in SOURCES
                  if f.endswith("_test.cc")}
        found = [f"{file} {name}" for file, name in re.findall(r"`(\w+_test)` \*(\w+)\*", text)
                 if not re.search(rf"TEST\w*\(\w+, {name}\)", bodies.get(file, ""))]
        self.check(found, "give the wait a test in which it expires, and name that one")

    def test_the_fuzzers_mutants_change_existing_text(self):
        found = [f"{name}: {path}" for name, (path, good, *_) in mutants.MUTANTS.items()
                 if path not in FILES or good not in "\n".join(lines(path)) + "\n"]
        self.check(found, "bring the mutant in tests/fuzz/mutants.py up to date: its file no longer "
                   "has the text that it changes")

    def test_the_fuzzer_calls_every_method(self):
        service = re.search(r"^service ParameterServer \{(.*?)^\}",
                            "\n".join(lines("thrift/cairn.thrift")), re.M | re.S).group(1)
        methods = re.findall(r"^  \w+ (\w+)\(", service, re.M)
        self.assertIn("push", methods)
        sources = "\n".join("\n".join(lines(p)) for p in FILES
                            if re.fullmatch(r"tests/fuzz/player\w*\.cc", p))
        sent = set(re.findall(r"\bSend\([^;]*&Service::(\w+)\)", sources))
        # create_variables is called without Send, because it has two arguments.
        sent |= set(re.findall(r"\bservice\.(\w+)\(", sources))
        found = [m for m in methods if m not in sent]
        self.check(found, "add a case to tests/fuzz/player*.cc that sends the method")

    def test_include_guards(self):
        # Highway's -inl.h are meant to be included once for each instruction set.
        found = [p for p in SOURCES if p.endswith(".h") and not p.endswith("-inl.h") and
                 "#pragma once" not in lines(p)]
        self.check(found, "begin the header, after its comment, with #pragma once")

    def test_formatting(self):
        if subprocess.run(["clang-format", "--version"], capture_output=True).returncode != 0:
            self.skipTest("clang-format is not installed")
        run = subprocess.run(["clang-format", "--dry-run", "--Werror", *SOURCES], cwd=TOP,
                             capture_output=True, text=True)
        found = sorted({line.split(":")[0] for line in run.stderr.splitlines() if "error:" in line})
        self.check(found, "run clang-format -i on them")

    def test_sources_of_a_library_can_be_joined(self):
        if BUILD is None:
            self.skipTest("needs the build folder as its last argument")
        self.check(unity_names.clashes(TOP, BUILD), "rename one: unity builds join these sources")

    def test_headers_compile_alone(self):
        # A source that includes its own header first proves that the header compiles; the others
        # are compiled here.
        proved = set()
        for path in SOURCES:
            first = next(includes(path), None)
            if path.endswith(".cc") and first and first[2] == path[:-3] + ".h":
                proved.add(first[2])
        headers = [p for p in SOURCES if p.endswith(".h") and not p.endswith("-inl.h") and
                   p not in proved]
        if BUILD is None:
            self.skipTest("needs the build folder as its last argument")
        with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as f:
            commands = json.load(f)
        flags = {}
        for entry in commands:
            source = os.path.relpath(os.path.join(entry["directory"], entry["file"]), TOP)
            if "-unity" in source:  # BUILD/ps_server/libcairn_engine.a.p/cairn_engine-unity0.cpp
                source = os.path.dirname(os.path.relpath(os.path.join(TOP, source), BUILD))
            kept = [a for a in shlex.split(entry["command"])
                    if a.startswith(("-I", "-isystem", "-D", "-std", "-pthread", "-m"))]
            flags.setdefault(os.path.dirname(source), kept)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            results = pool.map(lambda h: self.compiles(h, flags), headers)
        self.check([r for r in results if r], "include in the header what it names")

    def compiles(self, header, flags):
        folder = os.path.dirname(header)
        while folder and folder not in flags:
            # Flags of a source below the directory, otherwise of a directory above.
            below = [f for f in flags if f.startswith(folder + "/")]
            folder = min(below) if below else os.path.dirname(folder)
        with tempfile.NamedTemporaryFile("w", suffix=".cc") as source:
            source.write(f'#include "{header}"\n')
            source.flush()
            run = subprocess.run(["g++", "-fsyntax-only", *flags.get(folder, []), "-I", TOP,
                                  source.name], cwd=BUILD, capture_output=True, text=True,
                                 timeout=300)
        return "" if run.returncode == 0 else f"{header}: {run.stderr.splitlines()[0:4]}"


if __name__ == "__main__":
    tap.main()
