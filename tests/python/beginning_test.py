"""The first of a loader's workers begins before the others, whatever becomes of it. Needs no torch: what would import it is a stand-in."""

import unittest

from package import *
from penstock import _beginning

POLL = 7  # as /proc/PID/syscall has it, on x86-64


class BeginningTest(PackageTest):
    def setUp(self):
        super().setUp()
        self.gate = _beginning.Gate()
        self.addCleanup(self.gate.close)
        self.marks = os.memfd_create("marks")
        self.addCleanup(os.close, self.marks)

    def worker(self, first=1):
        """One that imports until it is told that this is enough."""
        return self.program("""
            import gc, sys, types
            from penstock import _beginning
            stand_in = types.ModuleType("penstock._loading")
            def prepare(marks):
                print("begins", gc.isenabled(), flush=True)
                sys.stdin = open(sys.argv[4])
                sys.stdin.readline()
            stand_in.prepare = prepare
            sys.modules["penstock._loading"] = stand_in
            import penstock
            penstock._loading = stand_in
            _beginning.prepare(sys.argv[1], sys.argv[2], int(sys.argv[3]))
            print("ready", gc.isenabled(), flush=True)
            """, "/proc/%d/fd/%d" % (os.getpid(), self.marks), self.gate.path, first, self.enough())

    def enough(self):
        path = os.path.join(self.folder, "enough")
        if not os.path.exists(path):
            os.mkfifo(path)
        return path

    def say_enough(self):
        with open(self.enough(), "w") as file:
            file.write("\n")

    def waits(self, process):
        def in_poll():
            try:
                with open("/proc/%d/syscall" % process.pid) as file:
                    return file.read().split()[0] == str(POLL)
            except OSError:
                return False
        self.wait_until(in_poll, "a worker that waits for its turn")

    def test_a_worker_waits_until_another_one_is_ready(self):
        first = self.worker()
        self.assertEqual(self.said(first, "begins"), "False")  # no collections meanwhile
        second = self.worker()
        self.waits(second)
        self.say_enough()
        self.assertEqual(self.said(first, "ready"), "True")
        self.said(second, "begins")
        late = self.worker()
        self.said(late, "begins")  # at once: somebody is ready

    def test_as_many_begin_as_may(self):
        self.said(self.worker(2), "begins")
        self.said(self.worker(2), "begins")
        self.waits(self.worker(2))

    def test_the_replacement_of_a_worker_that_died_takes_its_turn(self):
        first = self.worker()
        self.said(first, "begins")
        first.kill()
        first.wait()
        self.said(self.worker(), "begins")


if __name__ == "__main__":
    main()
