"""The first of a loader's workers starts before the others, however it ends. Needs no torch: a stand-in replaces the code that imports it."""

import unittest

from package import *
from penstock import _beginning

POLL = 7  # in the format of /proc/PID/syscall on x86-64


class BeginningTest(PackageTest):
    def setUp(self):
        super().setUp()
        self.gate = _beginning.Gate()
        self.addCleanup(self.gate.close)
        self.enough = os.path.join(self.folder, "enough")
        os.mkfifo(self.enough)

    def worker(self, number, first=1):
        """A worker that keeps importing until the test stops it."""
        self.environment["PENSTOCK_WORKER"] = str(number)
        return self.program("""
            import gc, os, sys, types
            import penstock
            from penstock import _beginning
            stand_in = types.ModuleType("penstock._loading")
            def prepare(marks):
                print("begins", gc.isenabled(), flush=True)
                open(sys.argv[3]).readline()
            stand_in.prepare = prepare
            sys.modules["penstock._loading"] = penstock._loading = stand_in
            _beginning.prepare("the marks", sys.argv[1], int(sys.argv[2]))
            print("ready", gc.isenabled(), "PENSTOCK_WORKER" in os.environ, flush=True)
            """, self.gate.path, first, self.enough)

    def waits(self, process):
        def in_poll():
            try:
                with open("/proc/%d/syscall" % process.pid) as file:
                    return file.read().split()[0] == str(POLL)
            except OSError:
                return False
        self.wait_until(in_poll, "a worker that waits for its turn")

    def test_a_worker_waits_until_the_first_one_is_ready(self):
        second = self.worker(1)
        self.waits(second)
        first = self.worker(0)
        self.assertEqual(self.said(first, "begins"), "False")  # no garbage collection meanwhile
        with open(self.enough, "w") as file:
            file.write("\n")
        self.assertEqual(self.said(first, "ready"), "True False")
        self.said(second, "begins")
        self.said(self.worker(2), "begins")  # at once, because a worker is ready

    def test_the_allowed_number_of_workers_starts_at_once(self):
        self.said(self.worker(1, 2), "begins")
        self.said(self.worker(0, 2), "begins")
        self.waits(self.worker(2, 2))

    def test_the_replacement_of_a_worker_that_died_waits_for_its_turn(self):
        first = self.worker(0)
        self.said(first, "begins")
        first.kill()
        first.wait()
        self.said(self.worker(0), "begins")


if __name__ == "__main__":
    main()
