"""Shared by the tests of the Python package: a session's config in a temporary folder, programs as subprocesses.

Run by ctest with PYTHONPATH, PENSTOCK_BIN and PENSTOCK_LIBEXEC set. Only the standard library is needed here.
"""

import faulthandler
import importlib.util
import os
import subprocess
import sys
import textwrap
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "cli"))

from harness import *  # noqa: E402,F401,F403
from harness import PenstockTest, children_of  # noqa: E402


class PackageTest(PenstockTest):
    def __str__(self):
        return self._testMethodName.removeprefix("test_").replace("_", " ")

    def run(self, result=None):
        """Runs tests in one process; a test that takes too long prints its stack and ends the run."""
        limit = float(os.environ.get("PENSTOCK_TEST_LIMIT", "0"))
        if limit:
            faulthandler.dump_traceback_later(limit, exit=True)
        try:
            return super().run(result)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def setUp(self):
        super().setUp()
        self.addCleanup(self._restore_runtime_folder, os.environ.get("XDG_RUNTIME_DIR"))
        os.environ["XDG_RUNTIME_DIR"] = self.folder

    @staticmethod
    def _restore_runtime_folder(runtime_folder):
        if runtime_folder is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = runtime_folder

    def need_torch(self):
        if importlib.util.find_spec("torch") is None:
            self.skipTest("torch is not installed")

    def program(self, text, *arguments):
        """Starts a Python program; its stdout and stderr are pipes of text."""
        process = subprocess.Popen([sys.executable, "-B", "-c", textwrap.dedent(text), *map(str, arguments)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=self.environment, cwd=self.folder)
        self._running.append(process)
        return process

    def ran(self, text, *arguments, expect=0, timeout=100):
        """Runs a program to its end; returns its stdout."""
        process = self.program(text, *arguments)
        out, err = process.communicate(timeout=timeout)
        self.assertEqual(process.returncode, expect, out + err)
        return out

    def said(self, process, word):
        """Reads a program's lines up to the one that begins with this word; returns the rest of that line."""
        for line in process.stdout:
            if line.startswith(word):
                return line[len(word):].strip()
        err = process.stderr.read()
        self.fail("it ended with %s without saying %s: %s" % (process.wait(10), word, err))

    def no_children_left(self, but=frozenset):
        self.wait_until(lambda: set(children_of(os.getpid())) <= but(), "the end of all workers", seconds=3)


def main():
    run_tests()
