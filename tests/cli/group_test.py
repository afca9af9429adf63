"""Sessions as ranks of a group: `penstock run` under a launcher's environment. They agree, end together and stop at one step."""

from harness import *

import socket

WORLD = 4
ENDS_WITHIN = 5  # seconds that a group which cannot start or has lost a rank may take


class GroupTest(PenstockTest):
    def setUp(self):
        super().setUp()
        self.file = self.write("stamps.toml", """
[dataset]
type = "synthetic"
samples = 403
bytes_per_sample = "1KiB"
[sampler]
batch_size = 8
epochs = 2
[loader]
workers = 1
[gpu]
device = "host"
""")

    def place(self, rank, world=WORLD, **more):
        """torchrun's environment, on one host."""
        return dict(self.environment, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
                    MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", PENSTOCK_GROUP="test-%d" % os.getpid(), **more)

    def start_rank(self, rank, *options, world=WORLD, file=None, **more):
        return self.start("run", file or self.file, "--json", "--quiet", "--digest", *options, env=self.place(rank, world, **more))

    def end(self, process, timeout=60):
        out, err = process.communicate(timeout=timeout)
        err = err.decode("utf-8", "replace")
        text = out.decode("utf-8", "replace").strip()
        return process.returncode, json.loads(text) if text.startswith("{") else text, err

    def run_group(self, *options, of_rank=None, world=WORLD, expect=EXIT_OK):
        """Every rank's report. `of_rank`: options of single ranks. self.took: seconds since all were started."""
        ranks = [self.start_rank(r, *options, *(of_rank or {}).get(r, []), world=world) for r in range(world)]
        reports, begin = [], time.monotonic()
        for rank, process in enumerate(ranks):
            code, report, err = self.end(process)
            self.assertEqual(code, expect, "rank %d: %s%s" % (rank, err, report))
            reports.append(report)
        self.took = time.monotonic() - begin
        return reports

    def status_of(self, name):
        code, out, _ = self.penstock("status", "--session", name, "--json", timeout=20)
        try:
            status = json.loads(out) if code == EXIT_OK else {}
        except ValueError:
            return {}
        return status

    def first_cause(self, reports):
        """The cause that all ranks report."""
        causes = [report["group"]["first_cause"] for report in reports]
        for report in reports:
            self.assertEqual(report["outcome"], "failed")
            self.assertEqual(report["group"]["outcome"], "failed")
        for cause in causes[1:]:
            self.assertEqual(cause, causes[0])
        return causes[0]

    def test_ranks_of_a_group_deliver_what_they_would_have_delivered_alone(self):
        grouped = self.run_group()
        for rank, report in enumerate(grouped):
            self.check_sums(report)
            self.assertEqual((report["rank"], report["world_size"]), (rank, WORLD))
            self.assertEqual(report["session"], "stamps-rank%d" % rank)
            self.assertEqual(report["outcome"], "finished")
            self.assertEqual(report["group"]["world_size"], WORLD)
            self.assertEqual(report["group"]["generation"], 1)
            alone = self.run_json(self.file, "--digest", "--set", "group.join=never", "--set", "sampler.rank=auto",
                                  env=self.place(rank))
            self.assertNotIn("group", alone)
            self.assertEqual([e["digest"] for e in report["epochs"]], [e["digest"] for e in alone["epochs"]])

    def test_an_owner_inside_the_session_delivers_the_same_batches(self):
        apart, inside = self.run_group(world=2), self.run_group("--set", "gpu.placement=embedded", world=2)
        self.assertEqual([[e["digest"] for e in r["epochs"]] for r in apart], [[e["digest"] for e in r["epochs"]] for r in inside])

    def test_ranks_that_differ_all_fail_and_name_both_values(self):
        for key, values in (("sampler.seed", (1234, 99)), ("sampler.batch_size", (8, 4)), ("dataset.samples", (403, 400))):
            with self.subTest(key):
                reports = self.run_group(of_rank={2: ["--set", "%s=%d" % (key, values[1])]}, expect=EXIT_FAILED)
                self.assertLess(self.took, ENDS_WITHIN)
                cause = self.first_cause(reports)["cause"]
                self.assertIn(key, cause)
                for value in values:
                    self.assertIn(" is %d at " % value if " is %d at " % value in cause else " but %d at " % value, cause)
                for report in reports:
                    self.assertIn(cause, report["error"])
                    self.assertEqual(report["error_kind"], "group_failed")

    def test_ranks_that_resume_at_different_steps_all_fail(self):
        states = []
        for rank, batches in ((0, 3), (1, 4)):
            states.append(os.path.join(self.folder, "rank%d.state" % rank))
            self.run_json(self.file, "--batches", batches, "--state", states[-1], "--set", "group.join=never",
                          "--set", "sampler.rank=auto", env=self.place(rank, 2))
        reports = self.run_group(of_rank={rank: ["--state", state] for rank, state in enumerate(states)}, world=2, expect=EXIT_FAILED)
        self.assertLess(self.took, ENDS_WITHIN)
        cause = self.first_cause(reports)["cause"]
        self.assertIn("from position 48 of epoch 0 at rank 0", cause)
        self.assertIn("from position 64 of epoch 0 at rank 1", cause)

    def test_if_world_sizes_differ_both_are_named(self):
        first, second = self.start_rank(0, world=2), self.start_rank(1, world=3)
        reports, begin = [], time.monotonic()
        for process in (first, second):
            code, report, err = self.end(process)
            self.assertEqual(code, EXIT_FAILED, err)
            reports.append(report)
        self.assertLess(time.monotonic() - begin, ENDS_WITHIN)
        cause = self.first_cause(reports)["cause"]
        self.assertRegex(cause, "the world size is [23] at rank [01] .*, but [23] at rank [01]")

    def test_a_rank_that_is_started_twice_is_named_with_both_processes(self):
        """One of the two has the rank, the group fails, and the other one is refused."""
        options = ("--set", "group.lost_after=2s")
        twins = [self.start_rank(1, *options, world=3) for _ in range(2)]
        first = self.start_rank(0, *options, world=3)
        code, report, err = self.end(first)
        self.assertEqual(code, EXIT_FAILED, err)
        cause = report["group"]["first_cause"]["cause"]
        self.assertIn("rank 1 was started twice", cause)
        for twin in twins:
            self.assertIn("pid %d" % twin.pid, cause)
            code, _, err = self.end(twin)
            self.assertEqual(code, EXIT_FAILED, err)

    def test_a_missing_rank_is_named_with_those_that_have_arrived(self):
        options = ("--set", "group.join_timeout=2s")
        reports = []
        for process in [self.start_rank(r, *options, world=3) for r in (0, 2)]:
            code, report, err = self.end(process)
            self.assertEqual(code, EXIT_FAILED, err)
            reports.append(report)
        cause = self.first_cause(reports)
        self.assertEqual(cause["rank"], 1)
        self.assertIn("rank 1 did not arrive within 2s; arrived: rank 0", cause["cause"])
        self.assertIn("rank 2", cause["cause"])

    def test_status_and_events_name_the_missing_ranks(self):
        waiting = self.start_rank(0, world=2)
        status = self.wait_until(lambda: (lambda s: s if (s.get("group") or {}).get("missing") == [1] else None)(
            self.status_of("stamps-rank0")), "the status names rank 1")
        self.assertEqual(status["group"]["waits_for"], "rank 1 to arrive")
        self.assertEqual(status["group"]["phase"], "joining")
        self.assertEqual(self.workers_of(waiting), [])
        _, out, _ = self.penstock("status", "--session", "stamps-rank0")
        self.assertIn("waits for rank 1 to arrive", out)
        code, out, err = self.penstock("events", "--session", "stamps-rank0", "--json")
        self.assertEqual(code, EXIT_OK, err)
        kinds = [json.loads(line)["kind"] for line in out.splitlines()]
        self.assertLess(kinds.index("device_opened"), kinds.index("group_joining"))
        self.assertNotIn("worker_started", kinds)
        waiting.send_signal(signal.SIGTERM)
        code, report, err = self.end(waiting)
        self.assertEqual((code, report["outcome"]), (EXIT_TERMINATED, "stopped"), err)

    def endless(self):
        return ["--set", "sampler.epochs=100000", "--set", "dataset.wait=1ms"]

    def wait_for_steps(self, steps, ranks=range(WORLD)):
        for rank in ranks:
            self.wait_until(lambda: self.status_of("stamps-rank%d" % rank).get("batches_delivered", 0) >= steps, "rank %d delivers" % rank)

    def test_the_death_of_a_rank_ends_all_ranks_within_five_seconds(self):
        ranks = [self.start_rank(r, *self.endless()) for r in range(WORLD)]
        self.wait_for_steps(3)
        ranks[2].kill()
        begin = time.monotonic()
        reports = []
        for rank, process in enumerate(ranks):
            if rank == 2:
                continue
            code, report, err = self.end(process)
            self.assertEqual(code, EXIT_FAILED, err)
            reports.append(report)
        self.assertLess(time.monotonic() - begin, 5)
        cause = self.first_cause(reports)
        self.assertEqual((cause["rank"], cause["pid"], cause["cause"]), (2, ranks[2].pid, "its process has ended"))

    def test_the_loss_of_rank_0_ends_all_ranks_within_five_seconds(self):
        ranks = [self.start_rank(r, *self.endless(), world=3) for r in range(3)]
        self.wait_for_steps(3, range(3))
        ranks[0].kill()
        begin = time.monotonic()
        for process in ranks[1:]:
            code, report, err = self.end(process)
            self.assertEqual(code, EXIT_FAILED, err)
            cause = report["group"]["first_cause"]
            self.assertEqual((cause["rank"], cause["host"], cause["pid"]), (0, socket.gethostname(), ranks[0].pid))
        self.assertLess(time.monotonic() - begin, 5)

    def test_a_rank_that_fails_at_its_start_ends_all_ranks_with_its_own_error(self):
        reports = self.run_group(of_rank={1: ["--set", "loader.command=[\"/nowhere/worker\"]"]}, expect=EXIT_FAILED)
        self.assertLess(self.took, ENDS_WITHIN)
        cause = self.first_cause(reports)
        self.assertEqual(cause["rank"], 1)
        self.assertIn("/nowhere/worker", cause["cause"])
        self.assertEqual(reports[1]["error_kind"], "worker_program")
        self.assertEqual(reports[0]["error_kind"], "group_failed")

    def test_ranks_that_all_fail_before_they_meet_report_the_same_first_cause(self):
        nowhere = self.write("nowhere.toml", """
[dataset]
type = "npy"
path = "nowhere"
[gpu]
device = "host"
""")
        ranks, begin = [self.start_rank(rank, file=nowhere) for rank in range(WORLD)], time.monotonic()
        reports = []
        for process in ranks:
            code, report, err = self.end(process)
            self.assertEqual(code, EXIT_FAILED, err)
            reports.append(report)
        self.assertLess(time.monotonic() - begin, ENDS_WITHIN)
        self.assertIn("does not exist", self.first_cause(reports)["cause"])

    def test_a_rank_that_cannot_start_joins_to_report_why(self):
        damaged = self.write("damaged.state", "no state at all")
        for rank, options, words in ((1, ["--state", damaged], "damaged.state': this is not a saved state"),
                                     (0, ["--sink", "plugin:/nowhere.so"], "/nowhere.so")):
            with self.subTest(words):
                reports = self.run_group(of_rank={rank: options}, expect=EXIT_FAILED)
                self.assertLess(self.took, ENDS_WITHIN)
                cause = self.first_cause(reports)
                self.assertEqual(cause["rank"], rank)
                self.assertIn(words, cause["cause"])
                self.assertIn(words, reports[rank]["error"])

    def test_a_signal_to_one_rank_stops_all_ranks_at_the_same_step(self):
        for placement in ("process", "embedded"):
            with self.subTest(placement):
                ranks = [self.start_rank(r, *self.endless(), "--set", "gpu.placement=" + placement) for r in range(WORLD)]
                self.wait_for_steps(3)
                ranks[3].send_signal(signal.SIGTERM)
                batches = set()
                for rank, process in enumerate(ranks):
                    code, report, err = self.end(process)
                    self.assertEqual(code, EXIT_TERMINATED if rank == 3 else EXIT_OK, err)
                    self.assertEqual((report["outcome"], report["group"]["outcome"]), ("stopped", "stopped"))
                    self.assertEqual(report["totals"]["batches"], report["group"]["stop_at"])
                    batches.add(report["totals"]["batches"])
                self.assertEqual(len(batches), 1)

    def test_wait_and_trace_take_all_ranks_of_a_group(self):
        ranks = [self.start_rank(rank, *self.endless(), world=2) for rank in range(2)]
        code, out, err = self.penstock("wait", "--group", "stamps", "--timeout", "60s", "--json")
        self.assertEqual(code, EXIT_OK, err)
        told = json.loads(out)
        self.assertEqual((told["schema"], told["waited_for"], [r["rank"] for r in told["ranks"]]), ("penstock.wait/1", "ready", [0, 1]))
        code, out, err = self.penstock("trace", "--group", "stamps", "--seconds", "500ms", "--out", "t.json", "--json")
        self.assertEqual(code, EXIT_OK, err)
        with open(os.path.join(self.folder, "t.json")) as file:
            events = json.load(file)["traceEvents"]
        names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        self.assertEqual(names, {1: "penstock stamps-rank0", 2: "penstock stamps-rank1"})
        for pid in names:
            self.assertTrue([e for e in events if e["pid"] == pid and e["ph"] == "X"], "no batch of %s" % names[pid])
        code, _, err = self.penstock("wait", "--group", "stamps", "--for", "finished", "--timeout", "1s")
        self.assertEqual(code, EXIT_TIMED_OUT, err)
        waiting = self.start("wait", "--group", "stamps", "--for", "finished", "--timeout", "60s")
        self.wait_until(lambda: is_asking(waiting.pid, sockets=2), "it waits for both")
        self.assertEqual(self.penstock("stop", "--group", "stamps")[0], EXIT_OK)
        self.assertEqual(waiting.wait(timeout=70), EXIT_NOT_MET)
        for process in ranks:
            self.assertEqual(self.end(process)[0], EXIT_OK)

    def test_penstock_stop_stops_all_ranks(self):
        ranks = [self.start_rank(r, *self.endless(), world=2) for r in range(2)]
        self.wait_for_steps(3, range(2))
        self.penstock("stop", "--session", "stamps-rank1")
        totals = [self.end(process)[1]["totals"]["batches"] for process in ranks]
        self.assertEqual(totals[0], totals[1])

    def test_a_paused_rank_stops_with_the_others(self):
        ranks = [self.start_rank(r, *self.endless(), world=2) for r in range(2)]
        self.wait_for_steps(3, range(2))
        self.penstock("pause", "--session", "stamps-rank1")
        before = self.status_of("stamps-rank0")["batches_delivered"]
        self.wait_for_steps(before + 100, [0])  # the paused rank is behind now
        ranks[0].send_signal(signal.SIGTERM)
        totals = [self.end(process)[1]["totals"]["batches"] for process in ranks]
        self.assertEqual(totals[0], totals[1])

    def test_after_a_second_signal_a_rank_does_not_wait_for_the_others(self):
        ranks = [self.start_rank(r, *self.endless(), world=2) for r in range(2)]
        self.wait_for_steps(3, range(2))
        ranks[0].send_signal(signal.SIGSTOP)  # the suspended rank cannot agree on a step
        self.wait_until(lambda: state_and_parent(ranks[0].pid)[0] == "T", "a suspended rank")
        self.assertRegex(self.penstock("status", "--group", "stamps")[1], r" 0 +no answer .*`kill -CONT %d` resumes it" % ranks[0].pid)
        ranks[1].send_signal(signal.SIGTERM)
        self.wait_until(lambda: self.status_of("stamps-rank1").get("state") == "stopping", "rank 1 stops")
        self.signal_again(ranks[1], signal.SIGTERM)
        begin = time.monotonic()
        code, left, err = self.end(ranks[1])
        self.assertEqual((code, left["outcome"]), (EXIT_TERMINATED, "stopped"), err)
        self.assertLess(time.monotonic() - begin, 6)
        ranks[0].send_signal(signal.SIGCONT)
        code, report, err = self.end(ranks[0])
        if code == EXIT_OK:  # rank 1 was ahead, so rank 0 could still reach its step
            self.assertEqual(report["totals"]["batches"], left["totals"]["batches"], err)
        else:
            self.assertEqual(code, EXIT_FAILED, err)
            self.assertEqual(report["group"]["first_cause"]["rank"], 1)

    def test_a_variable_that_the_launcher_did_not_set_is_named(self):
        environment = dict(self.environment, RANK="0")
        code, _, err = self.penstock("run", self.file, "--quiet", env=environment)
        self.assertEqual(code, EXIT_CONFIG)
        self.assertIn("RANK is set, but WORLD_SIZE is not: torchrun sets both", err)
        code, _, err = self.penstock("run", self.file, "--quiet", env=dict(self.environment, PENSTOCK_GROUP="x"))
        self.assertEqual(code, EXIT_CONFIG)
        self.assertIn("the environment has no rank from a launcher", err)

    def test_a_rank_in_the_file_that_differs_from_the_one_of_the_launcher_is_refused(self):
        code, _, err = self.penstock("run", self.file, "--quiet", "--set", "sampler.rank=1", "--set", "sampler.world_size=2", env=self.place(0, 2))
        self.assertEqual(code, EXIT_CONFIG)
        self.assertIn("the config says rank 1 of 2", err)
        self.assertIn("rank 0 of 2 according to torchrun", err)

    def test_under_a_launcher_a_session_that_does_not_join_a_group_is_alone(self):
        report = self.run_json(self.file, "--set", "group.join=never", env=self.place(1, 2))
        self.assertNotIn("group", report)
        self.assertEqual(sum(e["delivered"] for e in report["epochs"]), 806)


if __name__ == "__main__":
    main()
