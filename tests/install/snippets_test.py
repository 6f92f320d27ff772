"""Every C++ snippet of every page (.md) compiles against the public headers, as a user's program
would. A snippet is

- a block between ```cpp and ```;
- a code span, outside a table's column with the heading TensorFlow, that calls a public name with
  arguments: it begins with an object of OBJECTS (`strategy->Run(fn, args)`), a class and ::
  (`MirroredStrategy::Create(devices)`), a function of the library's namespace, or ASSIGN_OR_RETURN.

In spans, a bare `.name` stands for `.name = {}`, and so does `.name = …`: the fields are checked.
All snippets are compiled at once, each in its own function, with #line at the page and line. The
names that snippets assume are declared below, for all pages or for one."""
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import tap  # noqa: E402

HEADERS = os.path.abspath(sys.argv.pop())
OBJECTS = ("strategy", "variable", "v", "sharded", "optimizer", "coordinator")
GIVEN = """
#include "cairn/cairn.h"
#include "cairn/common/status.h"
#include "cairn/worker/trainer/files/saved_variables.h"
namespace cairn {
extern std::vector<Device> devices;
extern Device device;
extern ReplicaFn fn;
extern std::vector<Value> args;
extern Value arg, value, gradient, x;
extern VariablePtr variable, v;
extern std::vector<VariablePtr> variables;
extern IndexedSlices slices;
extern std::string path, name;
extern Dataset dataset;
extern DatasetInputFunction function;
extern InputOptions options;
extern std::vector<Element> step;
extern ClusterSpec cluster;
extern std::shared_ptr<VariableHost> host;
extern std::shared_ptr<PsClient> client;
extern StrategyFactory factory;
extern StrategyArguments arguments;
extern std::unique_ptr<VariableOptimizer> optimizer;
}
"""
# Additional declarations for the snippets of a page.
GIVEN_BY_PAGE = {
    "examples/README.md": "extern std::unique_ptr<ParameterServerStrategy> strategy;",
    "worker/strategy/README.md":
        "extern ShardedVariable& sharded; extern ParameterServerStrategy& strategy;",
    "worker/input/dataset/README.md":
        "absl::StatusOr<Element> Parse(Element); extern ElementSpec kParsed; "
        "extern std::unique_ptr<Strategy> strategy;",
}


def public_functions():
    """Functions that the public headers declare directly in namespace cairn."""
    names = set()
    for folder, _, files in os.walk(os.path.join(HEADERS, "cairn")):
        for file in files:
            with open(os.path.join(folder, file), encoding="utf-8") as f:
                names.update(re.findall(r"^\w[\w:<>,&* ]*[ &*>](\w+)\(", f.read(), re.M))
    return names


def spans(line):
    """Code spans of a line, without those of a table's first column."""
    cells = line.split("|")
    if line.startswith("|") and len(cells) > 2:
        line = "|".join(cells[2:])
    return re.findall(r"`([^`]+)`", line)


def is_snippet(span, functions):
    if not re.search(r"\([^)]", span) and not span.endswith(";"):
        return False
    head = re.match(r"(const )?(\w+)(->|\.|::|\(| )", span)
    if not head:
        return False
    name, after = head.group(2), head.group(3)
    if after in ("->", "."):
        return name in OBJECTS
    if after == "::":
        return name[0].isupper()
    return name in ("ASSIGN_OR_RETURN", "Scope") or (after == "(" and name in functions)


def completed(span):
    """The span as a statement."""
    span = re.sub(r"(\.\w+) = …", r"\1", span)
    span = re.sub(r"([{,]\s*\.\w+)(?=\s*[,}])", r"\1 = {}", span)
    return span if span.endswith(";") else span + ";"


def snippets(page, functions):
    """(line, statements) of each snippet."""
    with open(os.path.join(processes.TOP, page), encoding="utf-8") as f:
        lines = f.read().split("\n")
    found, block, language, in_tensorflow_table = [], None, "", False
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            if block is None:
                block, language, start = [], line[3:].strip(), number + 1
            else:
                if language == "cpp":
                    found.append((start, "\n".join(block)))
                block = None
        elif block is not None:
            block.append(line)
        else:
            if not line.startswith("|"):
                in_tensorflow_table = False
            elif re.match(r"\|\s*TensorFlow", line):
                in_tensorflow_table = True
            shown = spans(line) if in_tensorflow_table else re.findall(r"`([^`]+)`", line)
            found += [(number, completed(s)) for s in shown if is_snippet(s, functions)]
    return found


def pages():
    listed = []
    for folder, folders, files in os.walk(processes.TOP):
        folders[:] = [f for f in folders if not f.startswith((".", "build"))]
        listed += [os.path.relpath(os.path.join(folder, f), processes.TOP)
                   for f in files if f.endswith(".md")]
    return sorted(listed)


def program(of_pages):
    text = [GIVEN, '#pragma GCC diagnostic ignored "-Wunused"\n'
                   '#pragma GCC diagnostic ignored "-Wunused-result"\n']
    for page, found in of_pages.items():
        scope = "page_" + re.sub(r"\W", "_", page)
        text.append(f"namespace cairn::{scope} {{\n{GIVEN_BY_PAGE.get(page, '')}\n")
        for i, (line, statements) in enumerate(found):
            # The macros return from the function; a [[nodiscard]] result is only mentioned.
            text.append(f'absl::Status Snippet{i}() {{\n#line {line} "{page}"\n{statements}\n'
                        "return absl::OkStatus();\n}\n")
        text.append("}\n")
    return "".join(text)


def compiled(text):
    return subprocess.run(
        ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{HEADERS}",
         "-x", "c++", "-"], input=text, capture_output=True, text=True, timeout=300).stderr


class Snippets(unittest.TestCase):
    def test_of_every_page_compile(self):
        functions = public_functions()
        of_pages = {page: found for page in pages() if (found := snippets(page, functions))}
        self.assertGreater(sum(map(len, of_pages.values())), 30)
        for page in GIVEN_BY_PAGE:
            self.assertIn(page, of_pages)
        errors = compiled(program(of_pages))
        wrong = [line for line in errors.split("\n") if ": error:" in line]
        self.assertFalse(errors, "\n".join(wrong[:20]) or errors[:2000])

    def test_that_are_wrong_are_named_by_page_and_line(self):
        page = "examples/README.md"
        errors = compiled(program({page: [(81, "strategy->Reduce(ReduceOp::kSum, value, 7, 8);")]}))
        self.assertIn(f"{page}:81:", errors)
        for span, statement in (("Create({.a, .b = …})", "Create({.a = {}, .b = {}});"),
                                ("v->Read();", "v->Read();")):
            self.assertEqual(completed(span), statement)
        self.assertTrue(is_snippet("MirroredStrategy::Create(devices)", set()))
        self.assertTrue(is_snippet("Cpu(0)", {"Cpu"}))
        self.assertFalse(is_snippet("Cpu(0)", set()))
        self.assertFalse(is_snippet("tf.Variable(value)", set()))


if __name__ == "__main__":
    tap.main()
