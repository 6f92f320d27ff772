"""The pages name files, functions and tests that exist. In a table row whose first cell is a file,
names in backquotes in the second cell are functions of that file. Programs that pages run are
executable."""
import glob
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import include_graph  # noqa: E402
import tap  # noqa: E402

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
FINDINGS = "tests/FINDINGS.md"
PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md", FINDINGS]
PRODUCT = ("common", "thrift", "storage", "ps_server", "worker")
FLOORS = PRODUCT + ("tests", "examples")


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as file:
        return file.read()


def defines(path, function):
    return re.search(rf"\b{re.escape(function)}\(", read(path)) is not None


def tracked(*patterns):
    """The paths that git tracks, or None without git."""
    listed = subprocess.run(["git", "-C", TOP, "ls-files", "--cached", "--others",
                             "--exclude-standard", *patterns], capture_output=True, text=True)
    return listed.stdout.splitlines() if listed.returncode == 0 else None


def begins_with_interpreter(path):
    with open(os.path.join(TOP, path), "rb") as file:
        return file.read(2) == b"#!"


def commands(page):
    """The first word of every command in a block of code, and of every code span with arguments."""
    fenced = False
    for line in read(page).split("\n"):
        if line.startswith("```"):
            fenced = not fenced
            continue
        parts = re.split(r"&&|[|;]", line) if fenced or line.startswith("    ") else [
            span for span in re.findall(r"`([^`]+)`", line) if " " in span]
        for part in parts:
            command = re.match(r"\s*(?:[A-Z_]+=\S+\s+)*(\S+)", part)
            if command:
                yield command[1]


def has_test(path, name):
    """Whether the file has the test, in the notation that tests/FINDINGS.md describes."""
    text = read(path)
    if path.endswith(".cc"):
        return re.search(r"^(TYPED_)?TEST(_F|_P)?\(\s*" + re.escape(name).replace(r"\.", r",\s*") +
                         r"\)", text, re.M) is not None
    if path.endswith(".py"):
        return re.search(rf"^ +def {re.escape(name)}\(self\b", text, re.M) is not None
    # A loop joins the beginning of a name and a word of its list: test('rpc_fuzzer_' + seed, ...
    return f"test('{name}'," in text or any(
        f"test('{name[:i]}' + " in text and f"'{name[i:]}'" in text for i in range(1, len(name)))


class Pages(unittest.TestCase):
    def test_files_exist(self):
        found = []
        for page in PAGES:
            for name in re.findall(r"`([\w./-]+)`", read(page)):
                if name.split("/")[0] in FLOORS and "/" in name and \
                        not os.path.exists(os.path.join(TOP, name)):
                    found.append(f"{page}: {name}")
        self.assertEqual(found, [], "files that do not exist")

    def test_links_lead_somewhere(self):
        found, checked = [], 0
        pages = tracked("*.md")
        if pages is None:
            self.skipTest("no git")
        for page in pages:
            text = read(page)
            anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
                       for title in re.findall(r"^#+ (.*)$", text, re.M)}
            for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
                if target.startswith(("http:", "https:", "mailto:")):
                    continue
                checked += 1
                file, _, anchor = target.partition("#")
                if file and not os.path.exists(os.path.join(TOP, os.path.dirname(page), file)):
                    found.append(f"{page}: {target}")
                if not file and anchor not in anchors:
                    found.append(f"{page}: {target}")
        self.assertEqual(found, [], "links to nothing")
        self.assertGreater(checked, 100)

    def test_programs_that_pages_run_are_executable(self):
        found, checked = [], 0
        pages = tracked("*.md")
        if pages is None:
            self.skipTest("no git")
        files = set(tracked())
        for page in pages:
            for path in files.intersection(commands(page)):
                checked += 1
                if not os.access(os.path.join(TOP, path), os.X_OK):
                    found.append(f"{page} runs {path}, which is not executable")
                if not begins_with_interpreter(path):
                    found.append(f"{page} runs {path}, whose first line is not #!")
        self.assertGreater(checked, 20)
        # dpkg and sbatch read the mode of their files from elsewhere.
        for path in tracked("examples/*.py", "examples/*.sh", "tests/*.py", "tests/*.sh"):
            if begins_with_interpreter(path) and not os.access(os.path.join(TOP, path), os.X_OK):
                found.append(f"{path} begins with #! and is not executable")
        self.assertEqual(found, [], "chmod +x, or a first line that names the interpreter")

    def test_pages_of_directories_name_files_that_exist(self):
        found, checked = [], 0
        for page in sorted(glob.glob("**/README.md", root_dir=TOP, recursive=True)):
            directory = os.path.dirname(page)
            if page.split("/")[0] not in PRODUCT:
                continue
            for name in re.findall(r"`([\w./-]+\.(?:h|cc|md|py|thrift))`", read(page)):
                checked += 1
                # Installed headers are in include/cairn/, with some of worker/library/ and the C
                # interface at its top.
                installed = re.sub(r"^(include/)?cairn/", "", name)
                places = [name, installed, os.path.join(directory, name)]
                if installed != name:
                    places += [f"worker/library/{installed}", f"worker/capi/{installed}"]
                places += glob.glob(f"{directory}/*/{name}", root_dir=TOP)
                if not any(os.path.isfile(os.path.join(TOP, place)) for place in places):
                    found.append(f"{page}: {name}")
        self.assertEqual(found, [], "files that do not exist")
        self.assertGreater(checked, 200)

    def test_directories_have_pages(self):
        rooms = {os.path.join(*room.split("/")[:2]) if room.startswith(("ps_server/", "worker/"))
                 else room.split("/")[0] for room in include_graph.ROOMS} - {"ps_server", "worker"}
        missing = [room for room in sorted(rooms)
                   if not os.path.isfile(os.path.join(TOP, room, "README.md"))]
        self.assertEqual(missing, [], "directories without README.md")

    def test_functions_exist(self):
        found, checked = [], 0
        for page in PAGES:
            for file, cell in re.findall(r"^\| `([\w./-]+)` \| ([^|]*`[^|]*) \|", read(page), re.M):
                if not os.path.isfile(os.path.join(TOP, file)):
                    continue
                for function in re.findall(r"`(\w+)`", cell):
                    checked += 1
                    if not defines(file, function):
                        found.append(f"{page}: {file} has no {function}()")
        self.assertEqual(found, [], "functions that do not exist")
        self.assertGreater(checked, 20)

    def test_functions_named_with_their_file_exist(self):
        found = []
        for page in PAGES:
            for function, file in re.findall(r"`(?:\w+::)?(\w+)`\s+in\s+`([\w./-]+\.(?:cc|h))`",
                                             read(page)):
                if not defines(file, function):
                    found.append(f"{page}: {file} has no {function}()")
        self.assertEqual(found, [], "functions that do not exist")

    def test_findings_name_tests_that_exist(self):
        found, checked = [], 0
        for row in re.findall(r"^\| .*", read(FINDINGS).partition("\n## ")[2], re.M):
            finding, cell, *others = row[2:].split(" | ")
            if finding == "finding":
                continue
            references = re.findall(r"(document: |decided: )?`([\w./-]+)(?:: ([\w., ]+))?`", cell)
            written = ", ".join(f"{kind}`{path}{': ' if names else ''}{names}`"
                                for kind, path, names in references)
            if cell != (written or "none") or len(others) != 1:
                found.append(f"{finding}: not the notation of the page's beginning: {cell}")
            for kind, path, names in references:
                if not os.path.isfile(os.path.join(TOP, path)) or bool(kind) == bool(names):
                    found.append(f"{finding}: {path} is no file, or lacks names of tests")
                    continue
                for name in names.split(", ") if names else []:
                    checked += 1
                    if not has_test(path, name):
                        found.append(f"{finding}: {path} has no test {name}")
        self.assertEqual(found, [], "name the file, then its tests, as the page's beginning says")
        self.assertGreater(checked, 200)


if __name__ == "__main__":
    tap.main()
