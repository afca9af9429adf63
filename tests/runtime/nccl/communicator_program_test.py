"""Programs as ranks of a group with a communicator (penstock/group.hpp, penstock/nccl.hpp); one is killed, keeps a use open, or
NCCL has an error or hangs.

On host memory with the stand-in of tests/fake_nccl; with PENSTOCK_TEST_GPUS=N it is NCCL on N GPUs.
"""

import json
import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "program_group"))
from program_ranks import RanksTest, run_tests

GPUS = int(os.environ.get("PENSTOCK_TEST_GPUS", "0"))
RANKS = GPUS or 3
LAST = RANKS - 1
STEPS = 400


class CommunicatorRanks(RanksTest):
    program = os.environ.get("PENSTOCK_COMMUNICATOR_PROGRAM", "")

    def setUp(self):
        super().setUp()
        self.environment.update(NCCL_NVLS_ENABLE="0")
        if not GPUS:
            self.environment["PENSTOCK_NCCL"] = os.environ["PENSTOCK_FAKE_NCCL_LIBRARY"]

    def start_all(self, *arguments):
        return super().start_all(RANKS, *arguments, "--log", self.folder)

    def start_again(self, rank, *arguments):
        return self.start_rank(rank, RANKS, *arguments, "--log", self.folder, starts=1)

    def results(self, processes):
        """All have taken all steps, with the value of an undisturbed run. Returns their other output, by rank."""
        told = []
        for one in processes:
            out, _ = self.end(one, 0, 90)
            told.append(json.loads(out.splitlines()[-1]))
        self.assertEqual([one["rank"] for one in told], list(range(RANKS)))
        for one in told:
            self.assertEqual(one["steps"], STEPS)
            self.assertEqual(float.fromhex(one["value"]), self.expected(), told)
        return told

    @staticmethod
    def expected():
        value = 1.0
        for step in range(STEPS):
            value = sum(value * 0.25 + step * (rank + 1) % 97 for rank in range(RANKS)) / RANKS
        return value

    def numbers(self, rank):
        with open(os.path.join(self.folder, "numbers-%d" % rank)) as file:
            return [int(line) for line in file]


class CommunicatorTest(CommunicatorRanks):
    def test_all_ranks_get_the_same_sums_over_one_communicator(self):
        for selects in ({}, {"COMMUNICATOR_PROGRAM_SELECTS": "1"}) if GPUS else ({},):
            self.environment.update(selects)
            for one in self.results(self.start_all(STEPS)):
                self.assertEqual((one["losses"], one["communicators"]), (0, 1))

    def test_a_killed_rank_ends_the_operation_of_the_others_with_the_first_cause(self):
        begin = time.monotonic()
        ranks = self.start_all(STEPS, "--die", "%d:50" % LAST)
        for number, one in enumerate(ranks):
            _, err = self.end(one)
            if number == LAST:
                self.assertEqual(one.returncode, -signal.SIGKILL)
                continue
            self.assertEqual(one.returncode, 3, err)
            self.assertIn("group_failed: rank %d (" % LAST, err)
            self.assertIn("pid %d): its process has ended" % ranks[LAST].pid, err)
        print("ended %.2f s after the start" % (time.monotonic() - begin))

    def test_a_restarted_rank_continues_with_the_others_over_a_new_communicator(self):
        for lost in (LAST, 0):
            arguments = (STEPS, "--wait", "--die", "%d:40" % lost)
            ranks = self.start_all(*arguments)
            self.assertEqual(ranks[lost].wait(timeout=60), -signal.SIGKILL)
            begin = time.monotonic()
            ranks[lost] = self.start_again(lost, *arguments)
            told = self.results(ranks)
            print("rank %d was started again, all ended %.2f s later" % (lost, time.monotonic() - begin))
            for rank in range(RANKS):
                if rank != lost:
                    self.assertEqual((told[rank]["losses"], told[rank]["communicators"]), (1, 2))
                    self.assertGreater(self.numbers(rank)[1], self.numbers(rank)[0])
                os.remove(os.path.join(self.folder, "numbers-%d" % rank))

    def test_an_abort_waits_for_an_open_use(self):
        arguments = (STEPS, "--wait", "--die", "%d:40" % LAST, "--odd", "0:returns:40")
        ranks = self.start_all(*arguments)
        self.assertEqual(ranks[LAST].wait(timeout=60), -signal.SIGKILL)
        ranks[LAST] = self.start_again(LAST, *arguments)
        self.wait_for("lost-0", ranks)
        self.assertEqual(len(self.numbers(0)), 1)
        with open(os.path.join(self.folder, "go"), "w"):
            pass
        for one in self.results(ranks)[:LAST]:
            self.assertEqual((one["losses"], one["communicators"]), (1, 2))

    def test_a_use_that_stays_open_for_abort_timeout_ends_the_group_and_says_so(self):
        ranks = self.start_all(STEPS, "--wait", "--abort-timeout", 500, "--die", "%d:40" % LAST, "--odd", "0:holds:40")
        self.assertEqual(ranks[LAST].wait(timeout=60), -signal.SIGKILL)
        for rank in range(LAST):
            _, err = self.end(ranks[rank], 3)
            self.assertIn("group_failed: rank 0 (", err)
            self.assertIn("pid %d): communicator 1 cannot be aborted: the program has kept 1 use open for 500ms" %
                          ranks[0].pid, err)

    @unittest.skipIf(GPUS, "it waits for timeouts, and says nothing of NCCL that the others do not")
    def test_a_rank_that_leaves_too_early_ends_the_operations_that_wait_for_it(self):
        ranks = self.start_all(STEPS, "--patience", 3000, "--odd", "%d:leaves:20" % LAST)
        told = "".join(self.end(one, 3)[1] for one in ranks[:LAST])
        self.assertIn("timed_out: the ranks have had no communicator for 6s", told)
        self.end(ranks[LAST], 0)


@unittest.skipIf(GPUS, "NCCL itself does not fail on request")
class TroubledLibraryTest(CommunicatorRanks):
    def setUp(self):
        super().setUp()
        self.once = os.path.join(self.folder, "once")
        with open(self.once, "w"):
            pass
        self.environment["PENSTOCK_FAKE_NCCL_ONCE"] = self.once

    def test_an_asynchronous_error_in_one_rank_makes_all_ranks_make_another_communicator(self):
        self.environment["PENSTOCK_FAKE_NCCL"] = "error-at:50"
        told = self.results(self.start_all(STEPS))
        self.assertEqual(len({one["communicators"] for one in told}), 1)
        self.assertGreaterEqual(told[0]["communicators"], 2)
        self.assertFalse(os.path.exists(self.once))

    def test_an_abort_that_hangs_ends_the_group_and_the_program_can_still_exit(self):
        self.environment["PENSTOCK_FAKE_NCCL"] = "abort-hangs"
        ranks = self.start_all(STEPS, "--wait", "--abort-timeout", 500, "--die", "%d:40" % LAST)
        self.assertEqual(ranks[LAST].wait(timeout=60), -signal.SIGKILL)
        for rank in range(LAST):
            _, err = self.end(ranks[rank], 3)
            self.assertIn("communicator 1 cannot be aborted: the abort has not returned for 500ms", err)

    def test_a_communicator_that_cannot_be_made_ends_the_group_and_says_so(self):
        self.environment["PENSTOCK_FAKE_NCCL"] = "init-hangs"
        del self.environment["PENSTOCK_FAKE_NCCL_ONCE"]
        told = "".join(self.end(one, 3)[1] for one in self.start_all(STEPS, "--patience", 3000))
        self.assertIn("timed_out: the ranks have had no communicator for 6s", told)
        self.assertIn("communicator 1: it was not made within 3s", told)


@unittest.skipIf(GPUS, "there are GPUs here")
class WithoutGpuTest(CommunicatorRanks):
    def test_a_communicator_without_a_gpu_is_refused_with_an_explanation(self):
        del self.environment["PENSTOCK_NCCL"]
        self.environment["CUDA_VISIBLE_DEVICES"] = ""
        _, err = self.end(self.start_rank(0, 1, STEPS), 3)
        self.assertIn("group.communicator: \"nccl\" needs a GPU for each rank, but this process has none (", err)

    def test_ranks_that_disagree_about_the_communicator_are_refused(self):
        other = self.start_rank(1, 2, STEPS, "--none")
        ranks = [self.start_rank(0, 2, STEPS), other]
        for one in ranks:
            _, err = self.end(one, 3)
            self.assertIn("group.communicator", err)


if __name__ == "__main__":
    run_tests()
