"""Golden tests read a set by the contents of its files: other sections, counts, records and
operations run as far as possible and are otherwise skipped by name, and wrong numbers are found."""
import copy
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "support"))
import tap  # noqa: E402

OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
PROGRAMS = sys.argv[1:]
del sys.argv[1:]
# Fields that determine the action of a record.
ACTIONS = ("op", "call", "function", "rule", "pipeline", "strategy", "place", "construct", "schedule",
           "partitioner")
SECONDS = 300


def sections(file):
    return [name for name, value in file.items() if isinstance(value, list)]


class OtherSet(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.files = {}
        for name in sorted(os.listdir(OWN)):
            if name.endswith(".json"):
                with open(os.path.join(OWN, name), encoding="utf-8") as f:
                    self.files[name] = json.load(f)

    def run_all(self, programs=None):
        """{program: (exit status, output)} with the current files."""
        for name, content in self.files.items():
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as f:
                json.dump(content, f)
        environment = {**os.environ, "CAIRN_GOLDEN": self.folder}
        found = {}
        for program in programs or PROGRAMS:
            done = subprocess.run([program, "--gtest_filter=*Golden*:*Recorded*", "--gtest_brief=0"],
                                  env=environment, capture_output=True, text=True,
                                  timeout=SECONDS, check=False)
            found[os.path.basename(program)] = done.returncode, done.stdout + done.stderr
        return found

    def expect_passed(self, found):
        for program, (status, output) in found.items():
            failed = [line for line in output.splitlines() if "Failure" in line or "FAILED" in line]
            self.assertEqual(status, 0, f"{program}: {failed[:5]}\n{output[-3000:]}")

    def test_records_may_be_fewer_or_repeated_and_have_other_names(self):
        for file in self.files.values():
            for section in sections(file):
                records = file[section]
                more = copy.deepcopy(records[: len(records) // 2 + 1])
                for record in more:
                    for field in ("id", "name"):
                        if field in record and "function" not in record and "op" not in record \
                                and isinstance(record[field], str) and section != "cases":
                            record[field] += "-again"
                file[section] = more + more[:1]
        found = self.run_all()
        self.expect_passed(found)
        self.assertIn("reduce.json reduce: ran 13 of 13 records",
                      found["strategy_golden_test"][1])

    def test_missing_sections_are_skipped_by_name(self):
        for name, file in self.files.items():
            for section in sections(file):
                file["other_" + section] = file.pop(section)
        del self.files["packing.json"]
        found = self.run_all([p for p in PROGRAMS if "optimizer" not in p and "math" not in p])
        self.expect_passed(found)
        self.assertIn("has no section 'reduce'", found["strategy_golden_test"][1])
        self.assertIn("no packing.json in", found["packing_golden_test"][1])
        self.assertNotIn("[       OK ]", found["packing_golden_test"][1])

    def test_unknown_records_are_skipped_by_name(self):
        changed = 0
        for file in self.files.values():
            for section in sections(file):
                strange = copy.deepcopy(file[section][0])
                action = next((field for field in ACTIONS if field in strange), None)
                if action is None:
                    continue
                strange[action] = "unheard of"
                strange["id"] = "strange"
                file[section] = file[section][:3] + [strange]
                changed += 1
        self.assertGreater(changed, 10)
        found = self.run_all()
        self.expect_passed(found)
        skipped = sum(output.count('skipped "strange"') for _, output in found.values())
        self.assertGreater(skipped, 8)

    def test_a_wrong_number_is_found(self):
        self.files["schedules.json"]["cases"][0]["expected"][0] += 0.5
        self.files["packing.json"]["options"][0]["options"]["bytes_per_pack"] = 12345
        found = self.run_all([p for p in PROGRAMS if "math_" in p or "packing" in p])
        for program, (status, output) in found.items():
            self.assertEqual(status, 1, program + output[-1000:])

    def test_a_file_without_its_records_is_a_failure(self):
        self.files["packing.json"]["options"] = []
        found = self.run_all([p for p in PROGRAMS if "packing" in p])
        self.assertEqual(found["packing_golden_test"][0], 1)
        self.assertIn("no record ran", found["packing_golden_test"][1])


if __name__ == "__main__":
    tap.main()
