"""Programs in the GPU owner's place that break the protocol: each is fenced, named, counted and replaced, its batches are uploaded again,
and the stream is the same as without faults. The session's memory stays bounded."""

import os
import signal
import time

from harness import *

HERE = os.path.dirname(os.path.abspath(__file__))


class BadOwnerTest(PenstockTest):
    def setUp(self):
        super().setUp()
        # Only its invalid messages may be detected, not its missing heartbeats.
        self.config = self.write("s.toml", synthetic(samples=300, more='[loader.hang]\nheartbeat_timeout = "5m"\n'))

    def start_with(self, how, *options):
        program = self.write("libexec/penstock-gpu", "#!/bin/sh\nexec %s -B %s %s %s %s\n" % (
            sys.executable, os.path.join(HERE, "bad_owner.py"), how, os.path.join(self.folder, "turn-" + how), os.path.join(BIN, "penstock-gpu")))
        os.chmod(program, 0o755)
        return self.start("run", self.config, "--workers", 2, "--json", "--quiet", *options,
                          env=dict(self.environment, PENSTOCK_LIBEXEC=os.path.dirname(program)))

    def end_of(self, process, how, code):
        most = self.most_memory_of(process, 20)
        if process.poll() is None:
            process.kill()
        out, err = process.communicate(timeout=10)
        self.assertEqual(process.returncode, code, (how, err))
        self.assertLess(most, 200 << 20, how)
        return json.loads(out), err.decode()

    def survived(self, how):
        """The only death of a run in which the first owner misbehaves."""
        report, err = self.end_of(self.start_with(how, "--digest"), how, EXIT_OK)
        self.check_sums(report)
        self.assertEqual([e["digest"] for e in report["epochs"]], self.digests(self.config), how)
        self.assertEqual(report["gpu"]["restarts"], 1, how)
        self.assertEqual(len(report["gpu"]["deaths"]), 1, (how, report["gpu"]["deaths"]))
        return report["gpu"]["deaths"][0], err

    def fenced(self, *ways):
        for how in ways:
            with self.subTest(how):
                death, err = self.survived(how)
                self.assertEqual((death["cause"], death["signal"]), ("protocol", "SIGKILL"), how)
                self.assertRegex(err, r"killing the GPU owner \(pid \d+\): |the GPU owner \(pid \d+\) was killed: it closed its link")

    def test_an_owner_that_sends_garbage_is_fenced(self):
        self.fenced("garbage", "garbage-after-the-introduction", "four-gigabytes", "unknown-type")

    def test_an_owner_that_speaks_out_of_turn_is_fenced(self):
        self.fenced("open-before-its-time", "opens-twice", "says-hello-twice")

    def test_an_owner_that_lies_about_batches_is_fenced(self):
        self.fenced("copies-what-it-never-got", "copies-twice", "delivers-what-it-never-got", "delivers-what-it-has-not-copied")

    def test_an_owner_that_closes_its_link_and_does_not_exit_is_killed(self):
        self.fenced("closes-its-link-and-lives")

    def test_an_owner_that_floods_its_link_is_cut_off(self):
        self.fenced("flood-of-processes", "flood-of-empty-deliveries", "flood-of-long-last-words")

    def test_an_owner_that_exits_0_with_batches_outstanding_is_replaced(self):
        for how in ("exits-0", "dies-in-the-middle-of-a-message"):
            with self.subTest(how):
                death, _ = self.survived(how)
                self.assertEqual((death["cause"], death["code"]), ("exit", 0))

    def test_the_next_owner_finishes_the_sink_of_one_that_died(self):
        for how in ("dies-when-all-is-delivered-76", "dies-when-told-to-go-76"):
            with self.subTest(how):
                report, err = self.end_of(self.start_with(how), how, EXIT_OK)
                self.assertEqual(report["outcome"], "finished")
                self.assertEqual(report["totals"]["batches"], 76)
                self.assertEqual([d["code"] for d in report["gpu"]["deaths"]], [1])

    def test_an_owner_is_not_replaced_if_its_exit_code_says_that_a_restart_would_not_help(self):
        for code, words in ((77, "ended with exit code 77; restarting would not help"),
                            (78, "ended with exit code 78; restarting would not help"),
                            (80, "broken hardware"), (82, "ended with exit code 82; restarting would not help")):
            with self.subTest(code):
                how = "exits-%d" % code
                report, _ = self.end_of(self.start_with(how), how, EXIT_FAILED)
                self.assertIn(words, report["error"])
                self.assertEqual((report["gpu"]["restarts"], [d["code"] for d in report["gpu"]["deaths"]]), (0, [code]))

    def test_a_stopped_owner_is_found_by_its_heartbeat_and_replaced_and_its_position_is_logged(self):
        config = self.write("slow.toml", synthetic(samples=2000, epochs=1, dataset='wait = "3ms"', more='[loader.hang]\nheartbeat_timeout = "1s"\n'))
        process = self.start("run", config, "--workers", 2, "--json", "--quiet", "--digest")
        status = lambda: json.loads(self.penstock("status", "--json")[1] or "{}")
        self.wait_until(lambda: status().get("batches_delivered", 0) > 3, "batches")
        signal_process(status()["gpu"]["pid"], signal.SIGSTOP)
        begin = time.monotonic()
        self.wait_until(lambda: status()["gpu"]["restarts"] == 1, "another owner")
        self.assertLess(time.monotonic() - begin, 15)
        self.assertIn("penstock-stack: signal 6", self.penstock("logs", "gpu", "--previous")[1])
        report, err = self.end_of(process, "stopped", EXIT_OK)
        (death,) = report["gpu"]["deaths"]
        self.assertEqual((death["cause"], death["signal"]), ("heartbeat", "SIGABRT"))
        self.assertIn("no heartbeat for 1", err)
        self.assertRegex(death["reason"], r"^no heartbeat for 1\S* s \(suspended\)$")
        for verb in ("deaths", "events"):
            self.assertIn(death["reason"], self.penstock(verb, "--last")[1])
        self.assertRegex(self.penstock("metrics")[1], r'ended_last_death_info\{.*of="gpu".*cause="heartbeat".*reason="no heartbeat for 1')
        self.assertEqual([e["digest"] for e in report["epochs"]], self.digests(config))

    def test_an_owner_that_cannot_be_replaced_is_not_restarted_and_its_death_ends_the_run(self):
        process = self.start_with("keeps-what-it-knows")
        status = lambda: json.loads(self.penstock("status", "--json")[1] or "{}")
        gpu = self.wait_until(lambda: (lambda g: g if g and g["state"] == "ready" else None)(status().get("gpu")), "an owner")
        code, _, err = self.penstock("restart", "gpu")
        self.assertEqual(code, EXIT_REFUSED)
        self.assertIn("keeps state and provides no snapshots", err)
        signal_process(gpu["pid"], signal.SIGKILL)
        report, _ = self.end_of(process, "keeps-what-it-knows", EXIT_FAILED)
        self.assertIn("died and took the device program's state with it", report["error"])
        self.assertEqual(report["gpu"]["restarts"], 0)

    def test_an_owner_of_another_version_or_of_another_program_ends_the_run_and_is_named(self):
        report, _ = self.end_of(self.start_with("another-version"), "another-version", EXIT_FAILED)
        self.assertRegex(report["error"], r"it speaks protocol 999, but this session speaks \d+;")
        report, _ = self.end_of(self.start_with("another-program"), "another-program", EXIT_FAILED)
        self.assertIn("it is not a penstock GPU owner", report["error"])


if __name__ == "__main__":
    main()
