"""A suspended job of `penstock launch FILE`: the whole job, only the launcher, only one rank, or one in a debugger; and ranks that hang.
A suspended session of `penstock run`. Processes are suspended by SIGSTOP, and by the kernel's freezer where this process may use it.

With PENSTOCK_TEST_PAUSES=N: N pauses of 5 to 60 s with the usual time limits (the soak).
"""

from harness import *

RANKS = 4
LOST_AFTER = 2.0
PAUSES = int(os.environ.get("PENSTOCK_TEST_PAUSES", "0"))


class Freezer:
    """A cgroup whose processes can be frozen, as container engines and Slurm do it. Raises OSError where that is not possible."""

    def __init__(self):
        first = os.path.isdir("/sys/fs/cgroup/freezer")  # cgroup v1
        self.folder = "/sys/fs/cgroup/%spenstock-test-%d" % ("freezer/" if first else "", os.getpid())
        self.control, self.frozen, self.thawed = ("freezer.state", "FROZEN", "THAWED") if first else ("cgroup.freeze", "1", "0")
        self.state, self.complete = (self.control, "FROZEN") if first else ("cgroup.events", "frozen 1")
        os.mkdir(self.folder)

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(text)

    def is_frozen(self):
        with open(os.path.join(self.folder, self.state)) as file:
            return self.complete in file.read()

    def join(self):
        self.write("cgroup.procs", str(os.getpid()))

    def pause(self, seconds):
        self.write(self.control, self.frozen)
        try:
            while not self.is_frozen():
                time.sleep(0.002)
            time.sleep(seconds)  # real time: the pause that is tested
        finally:
            self.write(self.control, self.thawed)


class PauseTest(PenstockTest):
    def freezer(self):
        """A cgroup that can be frozen; None where none can be made. It is removed at the end, when its processes have
        ended."""
        try:
            made = Freezer()
            subprocess.run(["true"], check=True, preexec_fn=made.join)
        except (OSError, subprocess.SubprocessError):
            return None
        self.addCleanup(lambda: self.wait_until(lambda: self.removed(made.folder), "an empty cgroup"))
        return made

    @staticmethod
    def removed(folder):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
        return not os.path.exists(folder)

    def stream(self, samples=1200, wait="4ms"):
        return self.write("slow.toml", synthetic(samples, "64B", 10, 3, dataset='wait = "%s"' % wait,
                                                 more="[loader]\nworkers = 1\n[log]\nlevel = \"warn\"\n"))

    def start_group(self, config, *options, lost_after=LOST_AFTER, **popen):
        return self.start("launch", config, "--gpus", "host:%d" % RANKS, "--json", "--digest",
                          "--set", "group.lost_after=%gs" % lost_after, *options, **popen)

    def report_of(self, process):
        out, err = process.communicate(timeout=150)
        self.assertEqual(process.returncode, EXIT_OK, err + out)
        report = json.loads(out)
        for rank in report["ranks"]:
            self.check_sums(rank)
        return report, err.decode()

    @staticmethod
    def digests_in(report):
        return [[epoch["digest"] for epoch in rank["epochs"]] for rank in report["ranks"]]

    def expected(self, config):
        return self.digests_in(self.report_of(self.start_group(config, "--set", "dataset.wait=0s"))[0])

    def delivered_by(self, rank):
        code, out, _ = self.penstock("status", "--session", "slow-rank%d" % rank, "--json")
        return json.loads(out)["batches_delivered"] if code == EXIT_OK else 0

    def wait_for_batches(self):
        self.wait_until(lambda: all(self.delivered_by(rank) > 0 for rank in range(RANKS)), "all ranks deliver", 60)

    def pause(self, pids, seconds):
        """SIGSTOP and, after this time, SIGCONT, in any order."""
        for pid in random.sample(pids, len(pids)):
            signal_process(pid, signal.SIGSTOP)
        time.sleep(seconds)  # real time: the pause that is tested
        for pid in random.sample(pids, len(pids)):
            signal_process(pid, signal.SIGCONT)

    def tree_of(self, process):
        return [process.pid, *descendants_of(process.pid)]

    def check_nobody_lost(self, process, ranks, config):
        self.assertLessEqual(self.rank_pids(process).items(), ranks.items())  # some ranks may have finished
        report, _ = self.report_of(process)
        self.assertEqual((report["restarts"], report["first_cause"]), (0, None))
        self.assertEqual([rank["process"]["pid"] for rank in report["ranks"]], [ranks[rank] for rank in range(RANKS)])
        self.assertEqual(self.digests_in(report), self.expected(config))

    def check_pauses(self, pids_of, pauses, samples=1200, lost_after=LOST_AFTER):
        config = self.stream(samples=samples)
        process = self.start_group(config, lost_after=lost_after)
        self.wait_for_batches()
        ranks = self.rank_pids(process)
        for seconds in pauses:
            self.pause(pids_of(process), seconds)
            time.sleep(0.3)  # the job runs between two pauses
        self.check_nobody_lost(process, ranks, config)

    def test_suspending_the_whole_job_loses_no_rank(self):
        self.check_pauses(self.tree_of, [1.5 * LOST_AFTER, 0.6 * LOST_AFTER, 3 * LOST_AFTER])

    def test_suspending_only_the_launcher_loses_no_rank(self):
        self.check_pauses(lambda process: [process.pid], [1.5 * LOST_AFTER, 0.6 * LOST_AFTER, 2 * LOST_AFTER],
                          samples=4000)  # the ranks continue meanwhile

    def test_ranks_that_are_all_suspended_for_less_than_twice_their_time_are_not_lost(self):
        self.check_pauses(lambda process: list(self.rank_pids(process).values()), [2.6 * LOST_AFTER], lost_after=2 * LOST_AFTER)

    def test_freezing_the_whole_job_loses_no_rank(self):
        freezer = self.freezer() or self.skipTest("this process may not use the freezer")
        config = self.stream()
        process = self.start_group(config, preexec_fn=freezer.join)
        self.wait_for_batches()
        ranks = self.rank_pids(process)
        for seconds in (1.5 * LOST_AFTER, 3 * LOST_AFTER):
            freezer.pause(seconds)
            time.sleep(0.3)  # the job runs between two pauses
        self.check_nobody_lost(process, ranks, config)

    def test_suspending_a_session_with_or_without_its_processes_loses_none(self):
        limit = 10 if PAUSES else 1.2
        freezer = self.freezer()
        config = self.write("alone.toml", synthetic(300, "64B", 10, 10**6, dataset='wait = "4ms"', more='[loader]\nworkers = 2\n[loader.hang]\n'
                                                    'heartbeat_timeout = "%gs"\nitem_timeout = "%gs"\n' % (limit, limit)))
        process = self.start("run", config, "--json", "--quiet", "--digest", "--set", "gpu.placement=process", preexec_fn=freezer and freezer.join)
        self.wait_until(lambda: (self.live_status("alone") or {}).get("batches_delivered"), "a batch", 60)
        below = set(descendants_of(process.pid))
        kinds = [lambda seconds: self.pause(self.tree_of(process), seconds), lambda seconds: self.pause([process.pid], seconds),
                 *([freezer.pause] if freezer else [])]
        for turn in range(PAUSES or 4):
            kinds[turn % len(kinds)](random.uniform(5, 60) if PAUSES else 2.5 * limit)
            time.sleep(0.3)  # the session runs between two pauses
            self.assertEqual(set(descendants_of(process.pid)), below)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, EXIT_TERMINATED, err)
        report = json.loads(out)
        self.assertEqual([(report[kind]["deaths"], report[kind]["restarts"]) for kind in ("workers", "gpu")], [([], 0)] * 2, err)
        digests = [epoch["digest"] for epoch in report["epochs"] if epoch["complete"]]
        self.assertGreater(len(digests), 0)
        self.assertEqual(self.digests(config, "--set", "dataset.wait=0s", "--set", "sampler.epochs=%d" % len(digests)), digests)

    def check_replaced(self, process, config, lost, why):
        """This rank was replaced once and named; the others were not affected."""
        ranks = self.rank_pids(process)
        report, err = self.report_of(process)
        self.assertEqual((report["restarts"], report["outcome"]), (1, "finished"))
        self.assertEqual([rank["process"]["starts"] for rank in report["ranks"]], [1 + (rank == lost) for rank in range(RANKS)])
        self.assertRegex(err, r"rank %d \(pid \d+\) ended: %s.*; starting it again" % (lost, why))
        self.assertEqual(err.count("starting it again"), 1, err)
        self.assertEqual(self.digests_in(report), self.expected(config))
        return ranks

    def test_a_single_suspended_rank_is_named_and_replaced_and_the_others_are_not(self):
        config = self.stream()
        process = self.start_group(config)
        self.wait_for_batches()
        before = self.rank_pids(process)
        signal_process(before[2], signal.SIGSTOP)
        self.wait_until(lambda: self.rank_pids(process).get(2, before[2]) != before[2], "rank 2 is replaced", 30)
        after = self.check_replaced(process, config, 2, "silent for")
        self.assertEqual({rank: pid for rank, pid in after.items() if rank != 2}, {rank: pid for rank, pid in before.items() if rank != 2})

    def test_a_rank_that_a_debugger_holds_is_not_killed(self):
        config = self.stream()
        process = self.start_group(config)
        self.wait_for_batches()
        ranks = self.rank_pids(process)
        with debugger(ranks[1]):
            time.sleep(2 * LOST_AFTER)  # real time: how long the debugger holds it
        self.check_nobody_lost(process, ranks, config)

    def stuck(self, rank, place):
        return dict(self.environment, LD_PRELOAD=os.path.join(BIN, "stuck_rank.so"), PENSTOCK_TEST_STUCK_RANK=str(rank),
                    PENSTOCK_TEST_STUCK_AT=place, PENSTOCK_TEST_STUCK_FILE=os.path.join(self.folder, "now"))

    def test_a_rank_that_hangs_before_its_first_line_is_replaced(self):
        config = self.stream()
        process = self.start_group(config, "--set", "group.join_timeout=20s", env=self.stuck(3, "start"))
        self.check_replaced(process, config, 3, "sent nothing for 5")

    def test_a_rank_whose_actors_hang_is_replaced_even_if_its_other_threads_run(self):
        config = self.stream(samples=2400)
        process = self.start_group(config, env=self.stuck(1, "actors"))
        self.wait_for_batches()
        self.write("now", "")
        self.check_replaced(process, config, 1, "silent for")

    def test_a_step_that_takes_longer_than_lost_after_loses_no_rank(self):
        config = self.write("slow.toml", synthetic(RANKS * 2, "64B", 1, 1, dataset='wait = "%gs"' % (1.5 * LOST_AFTER), more="[loader]\nworkers = 1\n"))
        report, _ = self.report_of(self.start_group(config))
        self.assertEqual((report["restarts"], report["first_cause"]), (0, None))
        config = self.write("slow.toml", synthetic(RANKS * 2, "64B", 1, 1, more="[loader]\nworkers = 1\n"))
        program = "plugin:" + os.path.join(BIN, "dying_program.so")
        for placement in ("embedded", "process"):
            report, _ = self.report_of(self.start_group(config, "--set", "gpu.placement=" + placement, "--sink", program,
                                                        env=dict(self.environment, PENSTOCK_TEST_STEP=str(int(1.5 * LOST_AFTER)))))
            self.assertEqual((report["restarts"], report["first_cause"]), (0, None))

    @unittest.skipUnless(PAUSES, "the soak")
    def test_in_pauses_of_5_to_60_seconds_only_a_rank_suspended_alone_is_replaced(self):
        seed = random.randrange(1 << 32)
        random.seed(seed)
        print("seed", seed)
        config = self.stream(samples=60000 * PAUSES)  # the job must not end before the last pause
        freezer = self.freezer()
        process = self.start_group(config, lost_after=10, preexec_fn=freezer and freezer.join)
        self.wait_for_batches()
        ranks, replaced = self.rank_pids(process), 0
        for _ in range(PAUSES):
            kind = random.choice(["all", "launcher", "rank", *(["frozen"] if freezer else [])])
            seconds = random.uniform(5, 60)
            print("%s for %.1f s" % (kind, seconds), flush=True)
            if kind == "rank":
                lost = random.choice(sorted(ranks))
                signal_process(ranks[lost], signal.SIGSTOP)
                self.wait_until(lambda: self.rank_pids(process).get(lost, ranks[lost]) != ranks[lost], "rank %d is replaced" % lost, 40)
                after = self.rank_pids(process)
                self.assertEqual({**ranks, lost: after[lost]}, after)
                ranks, replaced = after, replaced + 1
            else:
                if kind == "frozen":
                    freezer.pause(seconds)
                else:
                    self.pause(self.tree_of(process) if kind == "all" else [process.pid], seconds)
                time.sleep(1)
                self.assertEqual(self.rank_pids(process), ranks)
            self.wait_for_batches()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, EXIT_TERMINATED, err)
        report = json.loads(out)
        self.assertEqual((report["outcome"], report["restarts"], report["first_cause"]), ("stopped", replaced, None))


if __name__ == "__main__":
    main()
