"""joblib's own tests of Parallel, on the backend "penstock".

    joblib_parallel.py [PYTEST OPTION ...]

Needs joblib and pytest. The tests of the installed joblib are run as they are, with our backend in place of "loky", which
is also the default one. A test counts if it ran jobs on our backend, or failed. Prints the share that passes; fails below
90 %.
"""

import collections
import importlib.util
import os
import re
import sys

BAR = 0.90

# Why a test does not apply to our backend, by patterns of test names.
EXCLUDED = {
    "test_auto_memmap|test_memmapping_leaks": "is about files that loky and multiprocessing map large arrays from; ours are in slots",
    "test_initializer_reused|test_loky_reuse_workers": "is about loky's executor, which outlives a Parallel call; a pool ends with it",
    "test_multiple_generator_call_separated_gc.*loky": "demands that the end of one call breaks another one, whose executor loky shares; each of ours has its own",
    "test_nested_parallel_warnings.*loky.*True": "demands that nested calls are refused with a warning; ours run",
}


class Ours:
    """A plugin of pytest that installs our backend and counts tests."""

    def __init__(self):
        import joblib._parallel_backends
        import joblib.parallel
        import penstock.joblib

        self.used = 0
        configure = penstock.joblib.PenstockBackend.configure

        def counted(backend, *arguments, **named):
            self.used += 1
            return configure(backend, *arguments, **named)
        penstock.joblib.PenstockBackend.configure = counted
        # Register our backend under loky's names, which the tests use.
        joblib.parallel.BACKENDS["loky"] = joblib._parallel_backends.LokyBackend = penstock.joblib.PenstockBackend
        penstock.joblib.PenstockBackend.__name__ = "LokyBackend"
        joblib.parallel.BACKENDS.pop("penstock")
        self.outcomes = collections.defaultdict(set)
        self.left_out = collections.Counter()

    def pytest_collection_modifyitems(self, config, items):
        kept = []
        for item in items:
            why = next((why for pattern, why in EXCLUDED.items() if re.search(pattern, item.name)), None)
            if why is None:
                kept.append(item)
            else:
                self.left_out[why] += 1
        items[:] = kept

    def pytest_runtest_setup(self, item):
        self.used = 0

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.outcomes[report.nodeid].add("failed")
        elif report.when == "call" and self.used:
            self.outcomes[report.nodeid].add("skipped" if report.skipped else "passed")


def main():
    if importlib.util.find_spec("joblib") is None or importlib.util.find_spec("pytest") is None:
        print("skipped: needs joblib and pytest")
        return 77
    import joblib
    import pytest

    ours = Ours()
    tests = os.path.join(os.path.dirname(joblib.__file__), "test", "test_parallel.py")
    code = pytest.main([tests, "-q", "-p", "no:cacheprovider", "-W", "ignore", "--tb=short", *sys.argv[1:]], plugins=[ours])
    failed = sum("failed" in each for each in ours.outcomes.values())
    passed = sum(each == {"passed"} for each in ours.outcomes.values())
    for why, count in sorted(ours.left_out.items()):
        print("left out: %d: %s" % (count, why))
    print("joblib %s: %d of %d tests that use the backend pass (%.1f %%); %d left out" % (
        joblib.__version__, passed, passed + failed, 100 * passed / max(passed + failed, 1), sum(ours.left_out.values())))
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return 1
    return 0 if passed and passed / (passed + failed) >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
