"""Starts programs as ranks of a group, as a launcher would. Used by group_program_test and communicator_program_test."""

import os
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from run_tests import run_tests  # noqa: E402,F401

LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "PENSTOCK_GROUP", "PENSTOCK_GROUP_ADDR",
             "PENSTOCK_GROUP_SECRET", "PENSTOCK_GROUP_STARTS", "MASTER_ADDR", "MASTER_PORT")


class RanksTest(unittest.TestCase):
    program = ""

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-test-")
        self.folder = self._folder.name
        self.environment = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
        self.environment.update(XDG_RUNTIME_DIR=self.folder)
        self.running = []

    def tearDown(self):
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self._folder.cleanup()

    def start(self, *command, **environment):
        process = subprocess.Popen([str(one) for one in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=dict(self.environment, **environment), cwd=self.folder)
        self.running.append(process)
        return process

    def start_rank(self, rank, ranks, *arguments, starts=0, **environment):
        return self.start(self.program, *arguments, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank),
                          LOCAL_WORLD_SIZE=str(ranks), PENSTOCK_GROUP="test-%d" % os.getpid(),
                          PENSTOCK_GROUP_STARTS=str(starts), **environment)

    def start_all(self, ranks, *arguments):
        return [self.start_rank(rank, ranks, *arguments) for rank in range(ranks)]

    def end(self, process, code=None, seconds=60):
        out, err = process.communicate(timeout=seconds)
        if code is not None:
            self.assertEqual(process.returncode, code, out + err)
        return out, err

    def wait_for(self, file, processes, seconds=60):
        """Waits for a file in the folder; fails if a program ends first."""
        end = time.monotonic() + seconds
        while not os.path.exists(os.path.join(self.folder, file)):
            for one in processes:
                if one.poll() is not None:
                    self.fail("a program has ended: " + "".join(one.communicate()))
            self.assertLess(time.monotonic(), end, "no %s after %d s" % (file, seconds))
            time.sleep(0.01)
