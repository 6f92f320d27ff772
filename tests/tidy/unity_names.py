"""Names that two sources of one library define in their anonymous namespaces: in a unity build, which
joins sources, they clash. Constants, types, and functions with the same parameters are looked at."""
import collections
import json
import os
import re

ANONYMOUS = re.compile(r"\nnamespace \{\n(.*?)\n\}  // namespace\n", re.S)
CONSTANT = re.compile(r"^(?:inline |static )*(?:constexpr|const) [\w:<>,* ]+?\b(k\w+)(?=\[|\{|\(| =)",
                      re.M)
TYPE = re.compile(r"^(?:struct|class|enum class) (\w+)", re.M)
FUNCTION = re.compile(r"^(?!return\b|struct\b|class\b|using\b|template\b)[A-Za-z_][\w:<>,&* ]*? "
                      r"[&*]*(\w+)\(([^;{]*?)\)(?= \{|;)", re.M)
PARAMETER_NAME = re.compile(r" ?\b\w+(?=,|$)")


def names(text):
    found = set()
    for match in ANONYMOUS.finditer(text):
        body = match.group(1)
        found.update(CONSTANT.findall(body) + TYPE.findall(body))
        for name, parameters in FUNCTION.findall(body):
            types = PARAMETER_NAME.sub("", re.sub(r"\s+", " ", parameters))
            found.add(f"{name}({types})")
    return found


def sources_of(group, build):
    """Sources of a target, also those that Meson has joined."""
    for path in group.get("sources", []) + group.get("generated_sources", []):
        if "-unity" not in path:
            yield path
        elif os.path.isfile(path):
            with open(path, encoding="utf-8") as f:
                for joined in re.findall(r'#include\s*[<"]([^>"]+)', f.read()):
                    yield os.path.join(build, joined)


def clashes(top, build):
    """"LIBRARY: NAME in a.cc, b.cc" for every clash. `build` is a Meson build directory."""
    with open(os.path.join(build, "meson-info", "intro-targets.json"), encoding="utf-8") as f:
        targets = json.load(f)
    found = set()
    for target in targets:
        where = collections.defaultdict(set)
        for group in target["target_sources"]:
            for path in sources_of(group, build):
                path = os.path.relpath(path, top)
                if path.endswith(".cc") and os.path.isfile(os.path.join(top, path)):
                    with open(os.path.join(top, path), encoding="utf-8") as f:
                        for name in names(f.read()):
                            where[name].add(path)
        found.update(f"{target['name']}: {name} in {', '.join(sorted(paths))}"
                     for name, paths in where.items() if len(paths) > 1)
    return sorted(found)
