"""Counts the test cases of a run of "meson test": every skip with its reason, every failure by name,
and last the line "N passed, N failed, N skipped". Exit status 1 if any failed or none ran.

Meson's JUnit file says nothing of a test program that timed out, or that failed beside its cases;
its log in JSON does. Such a program counts as one more failure."""
import json
import sys
import xml.etree.ElementTree as ElementTree

GOOD = {"OK", "SKIP", "EXPECTEDFAIL"}


def programs(path):
    """The result of each test program by its name."""
    with open(path, encoding="utf-8") as log:
        return {entry["name"]: entry["result"] for entry in map(json.loads, log)}


def program_of(suite, case, names):
    """The program that ran a case; Meson names suites PROJECT.PROGRAM[.SUITE], or PROJECT."""
    rest = suite.partition(".")[2]
    parts = rest.split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in names:
            return ".".join(parts[:length])
    return case if case in names else None


def main(folder):
    bad = {name: result for name, result in programs(f"{folder}/testlog.json").items()
           if result not in GOOD}
    passed, failed, skipped, explained = 0, [], [], set()
    for suite in ElementTree.parse(f"{folder}/testlog.junit.xml").getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            name = f'{case.get("classname", "")}.{case.get("name", "")}'
            skip = case.find("skipped")
            program = program_of(suite.get("name", ""), case.get("name", ""), bad)
            if case.find("failure") is not None or case.find("error") is not None:
                failed.append(name)
                explained.add(program)
            elif skip is not None or case.get("status") == "notrun":
                reason = ((skip.get("message") or skip.text or "") if skip is not None else "").strip()
                skipped.append(f"{name}: {reason or 'no reason given'}")
            elif case.get("name") != program:
                passed += 1
    failed += [f"{name}: {result}" for name, result in bad.items() if name not in explained]
    for line in skipped:
        print("skipped", line)
    for name in failed:
        print("FAILED", name)
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped", flush=True)
    return 1 if failed or passed == 0 else 0


sys.exit(main(sys.argv[1]))
