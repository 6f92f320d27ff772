"""Runs the unittest cases of __main__ and reports each result in TAP, which Meson counts one by
one, including skips with their reasons (meson: protocol : 'tap')."""
import sys
import unittest


class _Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.count = 0

    def _say(self, test, ok, directive="", detail=""):
        self.count += 1
        name = test.id().split(".", 1)[-1].replace("#", "")
        print(f"{'ok' if ok else 'not ok'} {self.count} - {name}{directive}", flush=True)
        for line in detail.splitlines():
            print("#", line, flush=True)
            print(line, file=sys.stderr, flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self._say(test, True)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._say(test, True, f" # SKIP {reason}")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._say(test, False, detail=self._exc_info_to_string(err, test))

    def addError(self, test, err):
        super().addError(test, err)
        self._say(test, False, detail=self._exc_info_to_string(err, test))


def main():
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    result = _Result()
    suite.run(result)
    print(f"1..{result.count}", flush=True)
    sys.exit(0 if result.wasSuccessful() and result.count else 1)
