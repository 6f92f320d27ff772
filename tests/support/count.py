"""Counts the test cases of a Meson JUnit file: every skip with its reason, every failure by name,
and last the line "N passed, N failed, N skipped". Exit status 1 if any failed or none ran."""
import sys
import xml.etree.ElementTree as ElementTree


def main(path):
    passed, failed, skipped = 0, [], []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f'{case.get("classname", "")}.{case.get("name", "")}'
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif skip is not None or case.get("status") == "notrun":
            reason = ((skip.get("message") or skip.text or "") if skip is not None else "").strip()
            skipped.append(f"{name}: {reason or 'no reason given'}")
        else:
            passed += 1
    for line in skipped:
        print("skipped", line)
    for name in failed:
        print("FAILED", name)
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped", flush=True)
    return 1 if failed or passed == 0 else 0


sys.exit(main(sys.argv[1]))
