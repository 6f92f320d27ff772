#!/usr/bin/env python3
"""Generates the IDL's C++ code: generate.py THRIFT_COMPILER OUTPUT_FOLDER IDL.

Thrift's enumerations have no underlying type, so a number from the wire that is not one of their
values would be undefined behaviour before it could be refused. This script gives them one.
"""
import pathlib
import re
import subprocess
import sys


def main():
    compiler, folder, idl = sys.argv[1:]
    subprocess.run(
        [compiler, "--gen", "cpp:templates,moveable_types,no_skeleton", "-out", folder, idl],
        check=True)
    header = pathlib.Path(folder) / (pathlib.Path(idl).stem + "_types.h")
    text, count = re.subn(r"\benum type \{", "enum type : int32_t {", header.read_text())
    if count == 0:
        sys.exit(f"{header}: no enumeration as this script knows them; look at what {compiler} writes")
    header.write_text(text)


if __name__ == "__main__":
    main()
