"""Programs as ranks of a group (penstock/group.hpp): processes that this test starts itself, under `penstock launch` and under
the real mpirun; one is killed, disagrees, leaves or is late."""

import contextlib
import json
import os
import shutil
import signal
import socket
import unittest

from program_ranks import RanksTest, run_tests

PROGRAM = os.environ.get("PENSTOCK_GROUP_PROGRAM", "")
PENSTOCK = os.path.join(os.environ.get("PENSTOCK_BIN", ""), "penstock")
MPIRUN = shutil.which("mpirun")


class GroupProgramTest(RanksTest):
    program = PROGRAM

    def check_digests(self, texts, ranks, rounds):
        told = [json.loads(line) for text in texts for line in text.splitlines() if line.startswith("{")]
        self.assertEqual(sorted(one["rank"] for one in told), list(range(ranks)))
        self.assertEqual({(one["world_size"], one["collectives"]) for one in told}, {(ranks, rounds)})
        self.assertEqual(len({one["digest"] for one in told}), 1)
        return told[0]["digest"]

    def test_four_programs_gather_the_same_bytes(self):
        ranks = self.start_all(4, 200)
        self.check_digests([self.end(one, 0)[0] for one in ranks], 4, 200)

    def test_all_gathers_up_to_the_limit_succeed_and_larger_ones_are_refused(self):
        ranks = self.start_all(4, 8, "--large", 65536)
        self.check_digests([self.end(one, 0)[0] for one in ranks], 4, 8)
        told = [self.end(one, 3)[1] for one in self.start_all(2, 8, "--large", 65537)]
        self.assertIn("65537 bytes, but at most 65536", "".join(told))

    def test_a_killed_rank_ends_the_others_with_the_first_cause(self):
        ranks = self.start_all(4, 100, "--die", "2:50")
        for number, one in enumerate(ranks):
            _, err = self.end(one)
            if number == 2:
                self.assertEqual(one.returncode, -signal.SIGKILL)
                continue
            self.assertEqual(one.returncode, 3, err)
            self.assertIn("group_failed: rank 2 (", err)
            self.assertIn("pid %d): its process has ended" % ranks[2].pid, err)

    def test_ranks_that_disagree_report_both_values(self):
        for one in self.start_all(3, 10, "--odd", "1:seed"):
            _, err = self.end(one, 3)
            self.assertIn("the seed is ", err)
            self.assertIn("is 7 at rank", err.replace("but 7 at", "but is 7 at"))
            self.assertIn("8 at rank 1", err)

    def test_a_rank_that_leaves_is_named_by_the_ranks_that_need_it(self):
        ranks = self.start_all(3, 10, "--odd", "1:leaves")
        self.end(ranks[1], 0)
        for one in (ranks[0], ranks[2]):
            _, err = self.end(one, 3)
            self.assertIn("rank 1: left the group after 2 collective operations", err)

    def test_a_rank_whose_program_throws_is_the_first_cause(self):
        ranks = self.start_all(3, 10, "--odd", "1:throws")
        _, err = self.end(ranks[1], 4)
        self.assertIn("out of ideas", err)
        for one in (ranks[0], ranks[2]):
            _, err = self.end(one, 3)
            self.assertIn("group_failed: rank 1 (", err)
            self.assertIn("an exception in the program ended its use of the group", err)

    def test_ranks_in_different_operations_report_that(self):
        for one in self.start_all(2, 10, "--odd", "1:kind"):
            _, err = self.end(one, 3)
            self.assertIn("collective operation 3", err)
            self.assertIn("a barrier", err)
            self.assertIn("an all_gather", err)

    def test_a_late_rank_is_named_at_the_deadline(self):
        ranks = self.start_all(2, 10, "--odd", "1:sleeps")
        _, err = self.end(ranks[0], 3)
        self.assertIn("timed_out: collective operation 3, an all_gather, of the group 'test' was not complete within 1s", err)

    def test_ranks_that_cannot_meet_report_the_reason_that_they_know(self):
        """Each rank is alone: there is no other rank to report to."""
        with socket.create_server(("127.0.0.1", 0)) as one:
            taken = one.getsockname()[1]
            with contextlib.ExitStack() as until_chosen:
                free, met, nowhere = (until_chosen.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(3))
            secret = {0: "of these ranks and no others", 1: "of another job altogether"}
            unreachable = r"rank 0: cannot be reached by rank 1 \(.*\) within 5s: "
            started = []
            for what, address, secret_of_1, of_0, of_1 in (
                ("an unknown host", "nobody-knows-this.invalid:%d" % nowhere, 0,
                 r"cannot connect to its own address, where the group meets, within 5s: looking up the address of 'nobody-knows-this.invalid'",
                 unreachable + "looking up the address of 'nobody-knows-this.invalid'"),
                ("a port that another program has", "127.0.0.1:%d" % taken, 0,
                 "cannot listen for the other ranks within 5s: .*:%d: Address already in use" % taken, None),
                ("no rank 0", "127.0.0.1:%d" % free, 0, None, unreachable + r".*Connection refused"),
                ("another secret", "127.0.0.1:%d" % met, 1,
                 r"rank 1 did not arrive within 5s; arrived: rank 0 \(.*\); refused: 127\.0\.0\.1:\d+ \(another secret\)",
                 unreachable + "the coordinator at 127.0.0.1:%d: .*secret" % met),
            ):
                started += [(what, words, self.start_rank(rank, 2, 1, "--join", 5000, PENSTOCK_GROUP_ADDR=address,
                                                          PENSTOCK_GROUP_SECRET=secret[secret_of_1 if rank == 1 else 0]))
                            for rank, words in ((0, of_0), (1, of_1)) if words]
            for what, words, process in started:
                with self.subTest(what):
                    self.assertRegex(self.end(process, 3)[1], words)

    def test_a_restarted_rank_takes_its_place(self):
        whole = [self.end(one, 0)[0] for one in self.start_all(4, 100)]
        expected = self.check_digests(whole, 4, 100)
        for lost in (2, 0):
            state = os.path.join(self.folder, "state%d" % lost)
            arguments = (100, "--wait", "--state", state, "--pause", 5, "--die", "%d:40" % lost)
            ranks = self.start_all(4, *arguments)
            self.assertEqual(ranks[lost].wait(timeout=60), -signal.SIGKILL)
            ranks[lost] = self.start_rank(lost, 4, *arguments, starts=1)
            self.assertEqual(self.check_digests([self.end(one, 0)[0] for one in ranks], 4, 100), expected)

    @unittest.skipUnless(os.path.exists(PENSTOCK), "the command is not built here")
    def test_two_groups_of_a_job_meet_at_one_port_or_in_one_socket(self):
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
        for address in ({"PENSTOCK_GROUP_ADDR": "127.0.0.1:%d" % port, "PENSTOCK_GROUP_SECRET": "of these ranks and no others"},
                        {"PENSTOCK_GROUP_ADDR": "@test-%d" % os.getpid()}):
            self.environment.update(address)
            ranks = self.start_all(2, 50, "--beside", "other")
            self.check_digests([self.end(one, 0)[0] for one in ranks], 2, 50)
        process = self.start(PENSTOCK, "launch", "--gpus", "host:2", "--", PROGRAM, 50, "--beside", "other")
        out, err = self.end(process, 0)

    @unittest.skipUnless(os.path.exists(PENSTOCK), "the command is not built here")
    def test_four_programs_run_under_launch(self):
        process = self.start(PENSTOCK, "launch", "--gpus", "host:4", "--json", "--", PROGRAM, 100)
        out, err = self.end(process, 0)
        lines = [line[line.index("{"):] for line in (out + err).splitlines() if '"digest"' in line]
        self.check_digests(["\n".join(lines)], 4, 100)

    @unittest.skipUnless(os.path.exists(PENSTOCK), "the command is not built here")
    def test_a_rank_killed_under_launch_is_named_by_all_ranks(self):
        report = os.path.join(self.folder, "report")
        process = self.start(PENSTOCK, "launch", "--gpus", "host:4", "--report", report, "--", PROGRAM, 10000, "--die", "1:30")
        out, err = self.end(process)
        self.assertNotEqual(process.returncode, 0)
        with open(report) as file:
            cause = json.load(file)["first_cause"]
        self.assertEqual(cause["rank"], 1)
        named = [line for line in (out + err).splitlines() if "group_failed: rank 1 (" in line]
        self.assertEqual(len(named), 3, out + err)
        for line in named:
            self.assertIn("pid %d): its process has ended" % cause["pid"], line)

    @unittest.skipUnless(MPIRUN, "there is no mpirun")
    def test_two_programs_run_under_mpirun(self):
        self.environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_plm="isolated",
                                OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_orte_tmpdir_base=self.folder,
                                TMPDIR=self.folder)
        out, _ = self.end(self.start(MPIRUN, "-n", 2, PROGRAM, 100), 0)
        self.check_digests([out], 2, 100)
        process = self.start(MPIRUN, "-n", 2, PROGRAM, 10000, "--die", "1:30")
        _, err = self.end(process)
        self.assertNotEqual(process.returncode, 0)
        # mpirun names what it sees first: the signal, or the other program, which learned of it and has ended.
        self.assertRegex(err, r"signal 9|group_failed: rank 1 \(.*its process has ended")


if __name__ == "__main__":
    run_tests()
