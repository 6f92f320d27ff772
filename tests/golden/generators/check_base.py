"""Runs conformance cases by id: @case(id) registers a check, run_all() reports which ones pass."""

import sys
import traceback

import numpy as np

registered = {}


def case(*ids):
    def register(function):
        for identifier in ids:
            registered[identifier] = function
        return function
    return register


def equal(found, expected):
    """Compares numbers, arrays and nests of lists."""
    np.testing.assert_allclose(np.asarray(found, dtype=np.float64),
                               np.asarray(expected, dtype=np.float64), rtol=1e-5, atol=1e-6)


def same(found, expected):
    if found != expected:
        raise AssertionError(f"found {found!r}, expected {expected!r}")


def refuses(kinds, text, action):
    try:
        result = action()
    except kinds as error:
        if text not in str(error):
            raise AssertionError(f"{type(error).__name__} without {text!r}: {str(error)[:300]}")
        return
    raise AssertionError(f"no error; returned {result!r}")


def run_all(only=None):
    failed = []
    for identifier, function in registered.items():
        if only and identifier not in only:
            continue
        try:
            function()
        except Exception as error:  # a check that fails in any way is reported
            failed.append(identifier)
            where = traceback.extract_tb(error.__traceback__)
            line = next((f.lineno for f in reversed(where) if "check_" in f.filename
                         and "check_base" not in f.filename), 0)
            print(f"{identifier} FAILED line {line}: {type(error).__name__}: {str(error)[:400]}")
    held = [i for i in registered if i not in failed and (not only or i in only)]
    print("held:", " ".join(held))
    sys.stdout.flush()
    return failed
