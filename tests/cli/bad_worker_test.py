"""Worker programs that violate the protocol: each is fenced, named and counted, other workers do its work, and the stream is the same as
without faults. The session's memory stays bounded."""

import os

from harness import *

SAMPLES, BYTES, BATCH = 300, 4096, 8
HERE = os.path.dirname(os.path.abspath(__file__))


class BadWorkerTest(PenstockTest):
    def setUp(self):
        super().setUp()
        self.plain = synthetic(samples=SAMPLES, bytes="%dB" % BYTES, batch=BATCH, epochs=2, dataset='wait = "1ms"')
        self.plain_config = self.write("plain.toml", self.plain)

    def fingerprint(self):
        code, out, err = self.penstock("run", self.plain_config, "--dry-run", "--json")
        self.assertEqual(code, EXIT_OK, err)
        return json.loads(out)["fingerprint"]

    def config_of(self, how, more=""):
        command = [sys.executable, os.path.join(HERE, "bad_worker.py"), how, os.path.join(self.folder, "turn-" + how), self.fingerprint(),
                   str(SAMPLES), str(BYTES), os.path.join(BIN, "penstock-worker")]
        return self.write("bad.toml", self.plain + "[loader]\ncommand = %s\n" % json.dumps(command) + more)

    def survived(self, how, more=""):
        """The only death of a run in which one of three workers misbehaves once."""
        process = self.start("run", self.config_of(how, more), "--workers", 3, "--json", "--quiet", "--digest")
        most = self.most_memory_of(process, 60)
        out, err = process.communicate(timeout=10)
        self.assertEqual(process.returncode, EXIT_OK, (how, err))
        self.assertLess(most, 200 << 20, how)
        report = json.loads(out)
        self.check_sums(report)
        self.assertEqual([e["digest"] for e in report["epochs"]], self.digests(self.plain_config), how)
        self.assertEqual(report["quarantine"], [], how)
        self.assertEqual(len(report["workers"]["deaths"]), 1, (how, report["workers"]["deaths"]))
        self.assertEqual(report["workers"]["restarts"], 1, how)
        return report["workers"]["deaths"][0], report, err.decode()

    def fenced(self, *ways):
        for how in ways:
            with self.subTest(how):
                death, report, err = self.survived(how)
                self.assertEqual((death["cause"], death["signal"]), ("protocol", "SIGKILL"))
                self.assertRegex(err, r"killing worker \d \(pid \d+\): |worker \d \(pid \d+\) was killed: it closed its link")

    def test_a_worker_that_sends_garbage_is_fenced(self):
        self.fenced("garbage", "garbage-after-the-introduction", "unknown-type")

    def test_a_header_that_announces_four_gigabytes_causes_no_allocation(self):
        self.fenced("four-gigabytes")

    def test_a_worker_that_lies_about_slots_generations_or_rows_is_fenced_and_counted(self):
        for how in ("foreign-slot", "foreign-generation", "too-many-rows", "failures-that-do-not-exist"):
            with self.subTest(how):
                death, report, err = self.survived(how)
                self.assertEqual(death["cause"], "protocol")
                self.assertGreaterEqual(report["workers"]["stale_dropped"], 1)
                self.assertIn("which matches none of its leases", err)

    def test_a_worker_that_speaks_out_of_turn_is_fenced(self):
        self.fenced("ready-before-its-time")

    def test_a_worker_that_floods_its_link_is_cut_off(self):
        self.fenced("flood-of-reports", "flood-of-ready", "flood-of-long-last-words")

    def test_a_worker_that_exits_0_with_work_outstanding_is_replaced(self):
        death, _, _ = self.survived("exits-0")
        self.assertEqual((death["cause"], death["code"]), ("exit", 0))

    def test_a_worker_that_dies_in_the_middle_of_a_message_is_replaced(self):
        death, _, _ = self.survived("truncated")
        self.assertEqual((death["cause"], death["code"]), ("exit", 0))

    def test_a_worker_that_closes_its_link_and_does_not_exit_is_killed(self):
        self.fenced("closes-its-link-and-lives")

    def test_a_worker_that_takes_leases_and_never_begins_is_found_by_the_item_timeout(self):
        death, _, err = self.survived("never-reads", '[loader.hang]\nitem_timeout = "1s"\n')
        self.assertEqual(death["cause"], "hang")

    def refused(self, how):
        code, out, err = self.penstock("run", self.config_of(how), "--workers", 2, "--json", "--quiet", timeout=30)
        self.assertEqual(code, EXIT_FAILED, how)
        return json.loads(out)["error"]

    def test_a_worker_whose_exit_code_says_that_a_restart_would_not_help_ends_the_run(self):
        for code in (77, 78, 82):
            with self.subTest(code):
                self.assertIn("ended with exit %d; restarting would not help" % code, self.refused("exits-%d" % code))

    def test_workers_of_another_version_program_or_dataset_end_the_run_and_are_named(self):
        self.assertRegex(self.refused("another-version"), r"it speaks protocol 999, but this session speaks \d+;")
        self.assertIn("it is not a penstock worker program", self.refused("another-program"))
        why = self.refused("another-dataset")
        self.assertIn("sees a different dataset than the session", why)
        self.assertIn("0123456789abcdef", why)
        self.assertIn(self.fingerprint(), why)

    def overrunning(self, options):
        return self.write("%s.toml" % options["sample"], """
[dataset]
type = "custom"
[dataset.options]
%s
[sampler]
batch_size = 8
[gpu]
device = "host"
[loader]
command = ["%s"]
""" % ("\n".join('%s = "%s"' % each for each in options.items()), os.path.join(BIN, "overrun_worker")))

    def test_a_worker_that_writes_past_its_slot_dies_and_its_sample_is_named(self):
        calm = self.digests(self.overrunning({"sample": 100000}))
        report = self.run_json(self.overrunning({"sample": 17}), "--workers", 2, "--digest")
        (death,) = report["workers"]["deaths"]
        self.assertEqual((death["signal"], death["sample"]), ("SIGSEGV", 17))
        self.assertEqual([e["digest"] for e in report["epochs"]], calm)

    def test_a_sample_whose_code_closes_the_link_of_its_worker_is_named_and_quarantined(self):
        code, out, err = self.penstock("run", self.overrunning({"sample": 17, "closes": "yes"}), "--workers", 2, "--json", "--quiet")
        self.assertEqual(code, EXIT_OK, err)
        report = json.loads(out)
        self.check_sums(report)
        self.assertEqual([each["sample"] for each in report["quarantine"]], [17])
        self.assertEqual([(each["sample"], each["signal"]) for each in report["workers"]["deaths"]], [(17, "SIGABRT")] * 3)
        self.assertRegex(err, r"loading sample 17 has closed or replaced descriptor \d+, this worker's link to its session")


if __name__ == "__main__":
    main()
