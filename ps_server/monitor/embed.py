#!/usr/bin/env python3
"""Writes page_files.cc: the status page's files as string literals.
usage: embed.py OUTPUT FILE..."""
import os
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
LITERAL_BYTES = 8000  # compilers limit the length of one literal


def literal(text):
    pieces = [text[i:i + LITERAL_BYTES] for i in range(0, len(text), LITERAL_BYTES)]
    return "\n".join(f'R"page({piece})page"' for piece in pieces) or '""'


def main():
    output, files = sys.argv[1], sys.argv[2:]
    entries = []
    for path in files:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        name = os.path.basename(path)
        url = "/" if name == "index.html" else f"/{name}"
        kind = TYPES[os.path.splitext(name)[1]]
        entries.append(f'    {{"{url}", "{kind}",\n{literal(text)}}},\n')
    with open(output, "w", encoding="utf-8") as out:
        out.write('#include "ps_server/monitor/page_files.h"\n\nnamespace cairn {\n\n'
                  "absl::Span<const PageFile> PageFiles() {\n"
                  "  static constexpr PageFile kFiles[] = {\n" + "".join(entries) +
                  "  };\n  return kFiles;\n}\n\n}  // namespace cairn\n")


if __name__ == "__main__":
    main()
