#!/usr/bin/env python3
"""Writes the public part of the library, given the list of public headers:

FOLDER  the installed headers: cairn/cairn.h, cairn/common/..., cairn/worker/... In the source tree
        they include each other from the top ("common/tensor.h"); installed headers include
        "cairn/common/tensor.h", so that a user's include path gains a single name, cairn.
MAP     the linker's version script: exports the names that these headers declare in namespace
        cairn, and nothing of dependencies, whose templates and inline functions are in the library.
STAMP   a header that changes whenever another one changes.

Refuses a header that includes a header of a dependency that users need not have.
"""
import argparse
import os
import re
import sys

# Headers that users have: the standard library, POSIX and Abseil.
USERS_HAVE = re.compile(r"absl/|[a-z_]+$")
UMBRELLA = "worker/library/cairn.h"


def installed_text(name, top, included):
    """The header with its includes rewritten for installation; adds its project headers."""
    lines = []
    with open(os.path.join(top, name), encoding="utf-8") as f:
        text = f.read()
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'(\s*#\s*include\s*)(["<])([^">]+)[">](.*)', line)
        if match:
            before, quote, header, after = match.groups()
            if quote == '"' and os.path.exists(os.path.join(top, header)):
                included.append(header)
                line = f'{before}"cairn/{header}"{after}'
            elif not USERS_HAVE.match(header):
                sys.exit(f"{name}:{number}: a public header includes {header}, which users need "
                         "not have: use forward declarations, or include it in a source file")
        lines.append(line)
    return "\n".join(lines)


def declared_names(text):
    """Classes, and functions and variables, that a header declares directly in namespace cairn."""
    text = re.sub(r'//[^\n]*|/\*.*?\*/|^\s*#(?:[^\n]|\\\n)*|"(?:\\.|[^"\\\n])*"', " ", text,
                  flags=re.S | re.M)
    classes, others, head = set(), set(), ""
    blocks = []  # for each open brace: whether names inside belong to the namespace
    for char in text:
        own = all(blocks)
        if char in "{;":
            if own and blocks:
                type_name = re.search(r"\b(?:class|struct|enum(?:\s+class)?)\s+"
                                      r"(?:\[\[.*?\]\]\s*)?(\w+)\s*(?:final\s*)?(?::[^:].*)?$",
                                      head, re.S)
                if type_name and "(" not in head[:type_name.start()]:
                    if char == "{":
                        classes.add(type_name.group(1))
                elif not re.match(r"\s*(using|friend|static_assert)\b", head):
                    others.update(re.findall(r"\b(k?[A-Z]\w*)\s*(?=[(=]|$)", head))
                    if "operator" in head:
                        others.add("operator")
            if char == "{":
                blocks.append(own and bool(re.search(r"\bnamespace\s+(cairn)?\s*$", head)))
            head = ""
        elif char == "}":
            if blocks:
                blocks.pop()
            head = ""
        else:
            head += char
    return classes, others


def version_script(version, classes, others):
    patterns = []
    for name in sorted(classes):
        patterns.append(f"cairn::{name}::*")
        for table in ("typeinfo", "typeinfo?name", "vtable", "VTT"):
            patterns.append(f"{table}?for?cairn::{name}")
        for thunk in ("non-virtual?thunk", "virtual?thunk"):
            patterns.append(f"{thunk}?to?cairn::{name}::*")
    for name in sorted(others - classes):
        if name == "operator":
            patterns.append("cairn::operator*")
        else:
            # A function, possibly with an ABI tag after its name, or a variable.
            patterns += [f"cairn::{name}[!a-zA-Z0-9_]*", f"cairn::{name}"]
    lines = "\n".join(f"      {pattern};" for pattern in patterns)
    return f"CAIRN_{version} {{\n  global:\n    extern \"C++\" {{\n{lines}\n    }};\n" \
           "  local:\n    *;\n};\n"


def write_if_changed(path, text):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            if f.read() == text:
                return
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("--top", "--out", "--stamp", "--map", "--depfile", "--version"):
        parser.add_argument(flag, required=True)
    parser.add_argument("--public", nargs="+", required=True)
    options = parser.parse_args()
    expected, classes, others = set(), set(), set()
    waiting, public = [UMBRELLA, *options.public], set()
    while waiting:
        name = waiting.pop()
        if name in public:
            continue
        public.add(name)
        text = installed_text(name, options.top, waiting)
        path = os.path.join(options.out, "cairn.h" if name == UMBRELLA else name)
        write_if_changed(path, text)
        expected.add(os.path.abspath(path))
        found = declared_names(text)
        classes |= found[0]
        others |= found[1]
    # Removes headers that are no longer public.
    for folder, _, files in os.walk(options.out):
        for file in files:
            path = os.path.abspath(os.path.join(folder, file))
            if path not in expected:
                os.unlink(path)
    os.utime(options.out)
    with open(options.map, "w", encoding="utf-8") as f:
        f.write(version_script(options.version, classes, others))
    with open(options.depfile, "w", encoding="utf-8") as f:
        f.write(f"{options.out}: " + " ".join(os.path.join(options.top, n) for n in sorted(public)))
    with open(options.stamp, "w", encoding="utf-8") as f:
        f.write("// Changes with the public headers.\n")


if __name__ == "__main__":
    main()
