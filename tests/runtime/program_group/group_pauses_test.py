"""Programs as ranks of a group (penstock/group.hpp) with suspended processes: all of them, as with `scontrol suspend`, a container's
freezer or a suspended machine, one of them, or one that a debugger holds. A running rank is never blamed."""

import ctypes
import json
import os
import signal
import time

from program_ranks import RanksTest, run_tests

PROGRAM = os.environ.get("PENSTOCK_GROUP_PROGRAM", "")
RANKS = 4
ROUNDS = 300
LOST_AFTER = 0.8
LONG = 3 * LOST_AFTER

PTRACE_ATTACH, PTRACE_DETACH = 16, 17
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class Held:
    """A process that is stopped in a debugger."""

    def __init__(self, process):
        self.threads = []
        self.process = process

    def ptrace(self, what, thread):
        if libc.ptrace(what, thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace(%d) of thread %d" % (what, thread))

    def __enter__(self):
        self.threads = [int(name) for name in os.listdir("/proc/%d/task" % self.process.pid)]
        for thread in self.threads:
            self.ptrace(PTRACE_ATTACH, thread)
        for thread in self.threads:
            os.waitpid(thread, 0x40000000)  # __WALL
        return self

    def __exit__(self, *exception):
        for thread in self.threads:
            self.ptrace(PTRACE_DETACH, thread)


class GroupPausesTest(RanksTest):
    program = PROGRAM

    def begin(self, *options):
        """All ranks, after a few rounds."""
        state = "state-%d" % len(self.running)  # a file for these ranks, not for earlier ones
        ranks = self.start_all(RANKS, ROUNDS, "--pause", 5, "--state", os.path.join(self.folder, state), "--lost-after",
                               int(LOST_AFTER * 1000), *options)
        for rank in range(RANKS):
            self.wait_for("%s.%d" % (state, rank), ranks)
        return ranks

    def stop(self, *ranks):
        for one in ranks:
            one.send_signal(signal.SIGSTOP)

    def go_on(self, *ranks):
        for one in ranks:
            one.send_signal(signal.SIGCONT)

    def check_all_finished(self, ranks):
        told = [json.loads(self.end(one, 0)[0]) for one in ranks]
        self.assertEqual({one["collectives"] for one in told}, {ROUNDS})
        self.assertEqual(len({one["digest"] for one in told}), 1)

    def check_all_name(self, lost, ranks):
        """The running ranks have ended; the suspended rank ends when it continues."""
        words = "group_failed: rank %d (%s, pid %d): nothing heard from it for %dms" % (
            lost, os.uname().nodename, ranks[lost].pid, LOST_AFTER * 1000)
        others = [one for number, one in enumerate(ranks) if number != lost]
        for one in others:
            self.assertIn(words, self.end(one, 3)[1])
        self.go_on(ranks[lost])
        self.assertIn(words, self.end(ranks[lost], 3)[1])

    def test_no_rank_loses_its_place_during_a_pause_of_all_ranks(self):
        ranks = self.begin("--deadline", int(LONG * 600))
        for _ in range(2):
            self.stop(*ranks)
            time.sleep(LONG)
            self.go_on(*ranks)
            time.sleep(0.2)
        self.check_all_finished(ranks)

    def test_ranks_that_wake_up_one_after_the_other_blame_no_rank(self):
        ranks = self.begin()
        for order in (ranks, ranks[::-1]):
            self.stop(*ranks)
            time.sleep(LONG)
            for one in order:
                self.go_on(one)
                time.sleep(LOST_AFTER / 10)
        self.check_all_finished(ranks)

    def test_all_ranks_name_rank_0_if_only_it_is_suspended(self):
        ranks = self.begin()
        self.stop(ranks[0])
        self.check_all_name(0, ranks)

    def test_all_ranks_name_another_rank_if_only_it_is_suspended(self):
        ranks = self.begin()
        self.stop(ranks[2])
        self.check_all_name(2, ranks)

    def test_no_rank_loses_its_place_during_a_short_pause_of_one_rank(self):
        ranks = self.begin()
        for one in ranks:
            self.stop(one)
            time.sleep(LOST_AFTER / 2)
            self.go_on(one)
        self.check_all_finished(ranks)

    def test_under_wait_no_rank_loses_its_place_during_a_long_pause_of_one_rank(self):
        for lost in (0, 2):
            with self.subTest(lost):
                ranks = self.begin("--wait")
                self.stop(ranks[lost])
                time.sleep(LONG)
                self.go_on(ranks[lost])
                self.check_all_finished(ranks)

    def test_a_rank_that_is_stopped_in_a_debugger_is_not_lost(self):
        for held in (0, 2):
            with self.subTest(held):
                ranks = self.begin()
                with Held(ranks[held]):
                    time.sleep(LONG)
                self.check_all_finished(ranks)


if __name__ == "__main__":
    run_tests()
