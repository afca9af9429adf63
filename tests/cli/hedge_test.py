"""[loader] hedge: a batch whose worker is late is loaded by a second one too; the stream is the same as without hedging."""

from harness import *

CONFIG = """
name = "h"
[dataset]
type = "custom"
[dataset.options]
folder = "%s"
samples = "%d"
wait_us = "500"
%s
[sampler]
kind = "sequential"
batch_size = 8
epochs = %d
[loader]
command = ["%s"]
hedge = %s
[loader.hang]
item_timeout = "60s"
heartbeat_timeout = "60s"
[gpu]
device = "host"
%s
"""
SAMPLES = 640
# The limits of lateness are known after 128 samples; the other 240 fill a few batches of each worker.
STALLED = 401


class HedgeTest(PenstockTest):
    def config(self, options="", hedge=True, more="", epochs=1, samples=SAMPLES):
        folder = tempfile.mkdtemp(dir=self.folder)
        program = os.path.join(BIN, "stalling_worker")
        return self.write("h-%s.toml" % os.path.basename(folder),
                          CONFIG % (folder, samples, options, epochs, program, "true" if hedge else "false", more))

    def digests_of(self, options="", epochs=1, more=""):
        """The digests of a run without stalls and hedges."""
        return self.digests(self.config(options, hedge=False, epochs=epochs, more=more), "--workers", 3)

    STALL = 'stall_every = "%d"\nstall = "%%s"' % STALLED

    def status(self):
        code, out, _ = self.penstock("status", "--json", "--session", "h")
        return json.loads(out) if code == EXIT_OK else {}

    def begin(self, *arguments):
        return self.start("run", *arguments, "--workers", 3, "--digest", "--json", "--quiet")

    def wait_for_hedge(self):
        return self.wait_until(lambda: (self.status().get("hedges") or {}).get("started", 0) > 0, "a hedge")

    def loading(self, sample):
        """The processes that load the sample, the longest first."""
        found = [w for w in self.status().get("workers", []) if w.get("current_sample") == str(sample) or
                 (w.get("current_sample") or "").endswith("sample %d" % sample)]
        return [w["pid"] for w in sorted(found, key=lambda w: -(w["current_sample_seconds"] or 0))]

    def both_loading(self, sample):
        return self.wait_until(lambda: len(self.loading(sample)) == 2 and self.loading(sample), lambda: "two workers at sample %d: %s" % (
            sample, self.status().get("workers")))

    def report_of(self, process):
        out, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, EXIT_OK, err)
        report = json.loads(out)
        self.check_sums(report)
        return report

    def test_a_second_read_overtakes_a_stalled_one_and_the_digest_is_the_same(self):
        for more in ("", '[scheduler]\norder = "relaxed"\nwindow = 2'):
            with self.subTest(more=more):
                report = self.run_json(self.config(self.STALL % 8, more=more), "--workers", 3, "--digest")
                self.check_sums(report)
                self.assertEqual([e["digest"] for e in report["epochs"]], self.digests_of(more=more))
                self.assertGreaterEqual(report["hedges"]["won"], 1)
                self.assertLess(report["totals"]["seconds"], 7)
                self.assertEqual(report["failures"], [])

    def test_a_custom_collate_gets_the_whole_batch(self):
        options = 'collate = "yes"\n'
        report = self.run_json(self.config(options + self.STALL % 3), "--workers", 3, "--digest")
        self.assertEqual([e["digest"] for e in report["epochs"]], self.digests_of(options))
        self.assertGreaterEqual(report["hedges"]["won"], 1)

    def test_without_hedge_no_batch_is_loaded_twice(self):
        report = self.run_json(self.config(self.STALL % 0.3, hedge=False), "--workers", 3)
        self.assertEqual(report["hedges"], {"started": 0, "won": 0})

    def test_a_stopped_worker_is_overtaken_too(self):
        process = self.begin(self.config('slow_every = "%d"\nslow_factor = "4000"' % STALLED))
        pid = self.both_loading(STALLED - 1)[0]
        signal_process(pid, signal.SIGSTOP)
        self.wait_until(lambda: self.status().get("hedges", {}).get("won", 0) > 0 or process.poll() is not None, "the second worker")
        signal_process(pid, signal.SIGCONT)
        self.assertEqual([e["digest"] for e in self.report_of(process)["epochs"]], self.digests_of())

    def test_either_of_the_two_workers_can_be_killed(self):
        expected = self.digests_of()
        for which in (0, 1):
            with self.subTest(which=("the first", "the second")[which]):
                process = self.begin(self.config(self.STALL % 3 + '\nstall_reads = "2"'))
                signal_process(self.both_loading(STALLED - 1)[which], signal.SIGKILL)
                report = self.report_of(process)
                self.assertEqual([e["digest"] for e in report["epochs"]], expected)
                self.assertEqual(report["workers"]["ended_unexpectedly"], 1)
                self.assertEqual(report["quarantine"], [])

    def test_a_death_of_both_workers_counts_as_one_attempt_of_their_sample(self):
        poison = 'kill = "%d"\nkill_after = "%s"'
        process = self.begin(self.config(poison % (STALLED - 1, 2)))
        self.wait_for_hedge()
        report = self.report_of(process)
        self.assertEqual([(q["sample"], q["attempts"]) for q in report["quarantine"]], [(STALLED - 1, 3)])
        self.assertEqual(len(report["workers"]["deaths"]), 4)  # two in the first attempt, one in each other attempt
        self.assertEqual([e["digest"] for e in report["epochs"]], self.digests_of(poison % (STALLED - 1, 0)))

    def test_a_run_that_is_paused_and_resumed_while_two_workers_load_a_batch_continues(self):
        process = self.begin(self.config(self.STALL % 2 + '\nstall_reads = "2"'))
        self.wait_for_hedge()
        self.assertEqual(self.penstock("pause", "--session", "h")[0], EXIT_OK)
        self.assertEqual(self.penstock("resume", "--session", "h")[0], EXIT_OK)
        self.assertEqual([e["digest"] for e in self.report_of(process)["epochs"]], self.digests_of())

    def test_a_late_worker_can_be_drained(self):
        process = self.begin(self.config(self.STALL % 2 + '\nstall_reads = "2"'))
        pid = self.both_loading(STALLED - 1)[0]
        late = next(w["id"] for w in self.status()["workers"] if w["pid"] == pid)
        self.assertEqual(self.penstock("drain", "worker/%d" % late, "--session", "h")[0], EXIT_OK)
        report = self.report_of(process)
        self.assertEqual([e["digest"] for e in report["epochs"]], self.digests_of())
        self.assertEqual(report["workers"]["ended_unexpectedly"], 0)

    def test_a_run_that_is_stopped_during_a_hedge_resumes_where_it_stopped(self):
        config, state = self.config(self.STALL % 2 + '\nstall_reads = "2"', epochs=2), os.path.join(self.folder, "h.state")
        process = self.begin(config, "--state", state)
        self.wait_for_hedge()
        signal_process(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)
        report = self.run_json(config, "--workers", 3, "--digest", "--state", state)
        self.assertEqual([e["digest"] for e in report["epochs"] if e["complete"]], self.digests_of(epochs=2)[-len(report["epochs"]):])

    def test_random_stalls_and_deaths_change_no_digest(self):
        for _ in range(int(os.environ.get("PENSTOCK_TEST_ROUNDS", "3"))):
            faults = 'kill_once_every = "%d"\n' % random.randrange(60, 200)
            stalls = 'stall_every = "%d"\nstall = "%s"\nstall_reads = "%d"' % (random.randrange(70, 300), random.choice((0.2, 0.5, 1)),
                                                                              random.choice((1, 1, 2)))
            with self.subTest(faults=faults, stalls=stalls):
                report = self.run_json(self.config(faults + stalls, epochs=2), "--workers", random.randrange(2, 6), "--digest")
                self.check_sums(report)
                self.assertEqual(report["quarantine"], [])
                self.assertEqual([e["digest"] for e in report["epochs"]], self.digests_of(epochs=2))

    def test_a_pool_refuses_hedging(self):
        code, _, err = self.penstock("check-config", self.write("pool.toml", "[jobs]\n[loader]\nhedge = true\n"))
        self.assertEqual(code, EXIT_CONFIG, err)
        self.assertIn("'hedge' in [loader] starts late batches a second time, but a pool runs jobs", err)

    def test_hedging_with_one_worker_causes_a_warning(self):
        code, _, err = self.penstock("check-config", self.write("one.toml", synthetic() + "[loader]\nworkers = 1\nhedge = true\n"))
        self.assertEqual(code, EXIT_OK, err)
        self.assertIn("'hedge' in [loader] has no effect with one worker", err)


if __name__ == "__main__":
    main()
