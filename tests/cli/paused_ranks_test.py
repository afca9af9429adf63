"""Sessions as ranks of a group, under a launcher that replaces none (torchrun, mpirun): all ranks, or one of them, are suspended. A
running rank is never blamed. pause_test.py has the same under `penstock launch`, group_pauses_test.py (tests/runtime/program_group) for
programs."""

from harness import *

import random
import socket

RANKS = 3
LOST_AFTER = 1.2
LONG = 2.5 * LOST_AFTER


class PausedRanksTest(PenstockTest):
    def setUp(self):
        super().setUp()
        self.file = self.write("slow.toml", synthetic(900, "64B", 10, 3, dataset='wait = "6ms"',
                                                      more="[loader]\nworkers = 1\n[log]\nlevel = \"warn\"\n"))

    def start_ranks(self, *options, **more):
        place = dict(self.environment, WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT="29500",
                     PENSTOCK_GROUP="test-%d" % os.getpid(), **more)
        return [self.start("run", self.file, "--json", "--quiet", "--digest", "--set", "group.lost_after=%gs" % LOST_AFTER, *options,
                           env=dict(place, RANK=str(rank), LOCAL_RANK=str(rank))) for rank in range(RANKS)]

    def delivered_by(self, rank):
        code, out, _ = self.penstock("status", "--session", "slow-rank%d" % rank, "--json")
        return json.loads(out)["batches_delivered"] if code == EXIT_OK else 0

    def begin(self, *options, **more):
        ranks = self.start_ranks(*options, **more)
        self.wait_until(lambda: all(self.delivered_by(rank) > 0 for rank in range(RANKS)), "all ranks deliver", 60)
        return ranks

    def end(self, process, expect):
        out, err = process.communicate(timeout=90)
        self.assertEqual(process.returncode, expect, err + out)
        return json.loads(out)

    def check_all_finish(self, ranks):
        reports = [self.end(one, EXIT_OK) for one in ranks]
        for report in reports:
            self.check_sums(report)
        return [[epoch["digest"] for epoch in report["epochs"]] for report in reports]

    def expected(self):
        return self.check_all_finish(self.start_ranks("--set", "dataset.wait=0s"))

    def signal(self, ranks, number):
        """Sends the signal to each session, its workers and its GPU owner, in any order."""
        pids = [pid for one in ranks for pid in (one.pid, *descendants_of(one.pid))]
        for pid in random.sample(pids, len(pids)):
            signal_process(pid, number)

    def pause(self, ranks, seconds):
        self.signal(ranks, signal.SIGSTOP)
        time.sleep(seconds)  # real time: the pause that is tested
        self.signal(ranks, signal.SIGCONT)

    def check_all_name(self, lost, ranks):
        self.signal([ranks[lost]], signal.SIGSTOP)
        reports = [self.end(one, EXIT_FAILED) for rank, one in enumerate(ranks) if rank != lost]
        self.signal([ranks[lost]], signal.SIGCONT)
        reports.append(self.end(ranks[lost], EXIT_FAILED))
        for report in reports:
            cause = report["group"]["first_cause"]
            self.assertEqual((cause["rank"], cause["pid"], cause["cause"]), (lost, ranks[lost].pid, "nothing heard from it for 1200ms"))

    def test_suspending_all_ranks_loses_none_and_they_deliver_the_same_batches(self):
        for placement in ("process", "embedded"):
            with self.subTest(placement):
                ranks = self.begin("--set", "gpu.placement=" + placement)
                for _ in range(2):
                    self.pause(ranks, LONG)
                    time.sleep(0.3)  # the ranks run between two pauses
                self.assertEqual(self.check_all_finish(ranks), self.expected())

    def test_a_permission_that_lapses_during_a_pause_and_is_extended_at_once_stops_no_rank(self):
        """Rank 0 continues first, so its answers arrive before the other ranks have noticed that their permission has lapsed."""
        self.file = self.write("slow.toml", synthetic(10**7, "64B", 5, 1, dataset='wait = "2ms"', more="[loader]\nworkers = 1\n[log]\nlevel = \"warn\"\n"))
        lost_after = 2 * LOST_AFTER
        ranks = self.begin("--set", "gpu.placement=process", "--set", "group.lost_after=%gs" % lost_after)
        pids = [pid for one in ranks for pid in (one.pid, *descendants_of(one.pid))]  # the answers of rank 0 come first
        for _ in range(8):
            for pid in pids:
                signal_process(pid, signal.SIGSTOP)
            time.sleep(random.uniform(0.72, 0.98) * lost_after)  # real time: the pause that is tested
            for pid in pids:
                signal_process(pid, signal.SIGCONT)
            time.sleep(0.2 * lost_after)  # long enough for the permission granted before the pause to lapse
            before = [self.delivered_by(rank) for rank in range(RANKS)]
            self.wait_until(lambda: all(self.delivered_by(rank) > before[rank] for rank in range(RANKS)), "all ranks deliver again", 60)
        for one in ranks:
            one.send_signal(signal.SIGTERM)
        for one in ranks:
            self.assertIsNone(self.end(one, EXIT_TERMINATED)["group"]["first_cause"])

    def test_suspending_ranks_that_meet_at_a_port_loses_none(self):
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
        ranks = self.begin(PENSTOCK_GROUP_ADDR="127.0.0.1:%d" % port, PENSTOCK_GROUP_SECRET="of these ranks and no others")
        self.pause(ranks, LONG)
        self.assertEqual(self.check_all_finish(ranks), self.expected())

    def test_all_ranks_name_rank_0_if_only_it_is_suspended(self):
        self.check_all_name(0, self.begin())

    def test_all_ranks_name_another_rank_if_only_it_is_suspended(self):
        self.check_all_name(1, self.begin())

    def test_all_ranks_name_the_suspended_one_at_a_port_too(self):
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
        for lost in (0, 2):
            with self.subTest(lost):
                self.check_all_name(lost, self.begin(PENSTOCK_GROUP_ADDR="127.0.0.1:%d" % port,
                                                     PENSTOCK_GROUP_SECRET="of these ranks and no others"))

    def test_under_wait_a_pause_of_one_rank_loses_no_batch(self):
        for lost in (0, 1):
            with self.subTest(lost):
                ranks = self.begin("--set", "group.on_lost_rank=wait")
                self.pause([ranks[lost]], LONG)
                self.assertEqual(self.check_all_finish(ranks), self.expected())


if __name__ == "__main__":
    main()
