"""penstock chaos: under random faults the stream stays the same, which is checked independently of the runtime."""

import re

from harness import *

FAST = '[loader.hang]\nitem_timeout = "1s"\nheartbeat_timeout = "1s"\n'


class ChaosTest(PenstockTest):
    def chaos(self, text, *options, expect=EXIT_OK):
        code, out, err = self.penstock("chaos", self.write("c.toml", text), "--json", "--quiet", *options)
        self.assertEqual(code, expect, err + out)
        return json.loads(out)

    def check_nothing_is_lost(self, v):
        self.assertEqual((v["lost"], v["duplicated"], v["out_of_order"], v["stale_accepted"], v["wrongly_quarantined"]), (0,) * 5)
        self.assertTrue(v["ok"] and v["digests_equal"])

    def test_every_kind_of_fault_in_workers_leaves_the_stream_unchanged(self):
        text = synthetic(samples=1500, batch=8, dataset='wait = "3ms"', epochs=1, more=FAST)
        v = self.chaos(text, "--workers", 4, "--faults", 21, "--rate", 8, "--seed", 3, "--set", "gpu.placement=embedded")
        self.check_nothing_is_lost(v)
        self.assertNotIn("owner-kill", v["kinds"])
        self.assertEqual((v["placement"], v["owner"]["deaths"], v["replayed_batches"]), ("embedded", 0, 0))
        self.assertEqual(v["faults"], 21)
        self.assertEqual(sum(kind["faults"] for kind in v["kinds"].values()), 21)
        self.assertGreaterEqual(v["deaths"], 15, v)
        self.assertGreater(v["restarts"], 0)
        self.assertGreater(v["detection_seconds"]["n"], 0)
        self.assertGreater(v["recovery_seconds"]["n"], 0)

    def test_faults_of_an_owner_in_its_own_process_leave_the_stream_unchanged(self):
        text = synthetic(samples=1500, batch=8, dataset='wait = "3ms"', epochs=1, more=FAST)
        v = self.chaos(text, "--workers", 4, "--faults", 24, "--rate", 8, "--seed", 5)
        self.check_nothing_is_lost(v)
        self.assertEqual(v["placement"], "process")
        self.assertEqual(v["faults"], 24)
        self.assertEqual(sum(kind["faults"] for kind in v["kinds"].values()), 24)
        self.assertGreater(v["kinds"]["owner-kill"]["faults"], 0)
        self.assertEqual(v["owner"]["faults"], v["kinds"]["owner-kill"]["faults"])
        self.assertEqual(v["workers"]["faults"] + v["owner"]["faults"], 24)
        self.assertEqual((v["deaths"], v["restarts"]),
                         (v["workers"]["deaths"] + v["owner"]["deaths"], v["workers"]["restarts"] + v["owner"]["restarts"]))

    def test_forty_owners_killed_in_a_row_are_all_noticed_and_replaced(self):
        text = synthetic(samples=2000, batch=4, bytes="64KiB", dataset='wait = "1ms"', epochs=2, more=FAST)
        v = self.chaos(text, "--workers", 2, "--kinds", "owner-kill", "--faults", 40, "--rate", 200, "--seed", 6)
        self.check_nothing_is_lost(v)
        self.assertEqual(list(v["kinds"]), ["owner-kill"])
        owner = v["owner"]
        self.assertEqual((v["faults"], owner["faults"]), (40, 40))
        # An owner whose last batch is acknowledged may have exited before the fault is injected.
        self.assertGreaterEqual(owner["deaths"], 40 - v["rounds"])
        self.assertGreaterEqual(owner["restarts"], 40 - v["rounds"])
        self.assertGreaterEqual(owner["detection_seconds"]["n"], 40 - v["rounds"])
        self.assertGreaterEqual(owner["recovery_seconds"]["n"], 40 - v["rounds"])
        self.assertEqual(v["workers"]["deaths"], 0)

    def test_the_fault_schedule_continues_between_short_runs_and_kills_are_named(self):
        config = self.write("s.toml", synthetic(samples=100, batch=8, dataset='wait = "1ms"', epochs=1, more=FAST))
        began = time.monotonic()
        code, out, err = self.penstock("chaos", config, "--workers", 2, "--kinds", "kill,owner-kill", "--rate", 20, "--seconds", "2s", "--seed", 8)
        self.assertEqual(code, EXIT_OK, err + out)
        self.assertLess(time.monotonic() - began, 20)  # --seconds includes the time between runs, so faults can hit such short runs only briefly
        self.assertGreater(int(re.search(r"(\d+) faults in", out)[1]), 4, out)
        self.assertIn("SIGKILL (sent by penstock chaos)", err)
        self.assertNotIn("sent by another process", err)

    def test_an_owner_inside_the_program_cannot_be_killed(self):
        config = self.write("e.toml", synthetic(more='placement = "embedded"'))
        code, _, err = self.penstock("chaos", config, "--kinds", "kill,owner-kill")
        self.assertEqual(code, EXIT_USAGE)
        self.assertIn('owner-kill needs [gpu] placement = "process"', err)

    def test_the_terminal_shows_the_goal_the_timeouts_and_the_expected_duration(self):
        config = self.write("g.toml", synthetic(samples=100, batch=8, dataset='wait = "2ms"', epochs=1))
        chaos = ("chaos", config, "--workers", 2, "--kinds", "kill", "--rate", 20)
        process = self.start(*chaos, "--faults", 1000)  # several runs, however slow the machine is
        err = ""
        while not re.search(r"\nrun \d+: \d+ of 1000 faults; about \d.* left\n", err):
            line = process.stderr.readline().decode()
            self.assertTrue(line, err)
            err += line
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, EXIT_INTERRUPTED)
        self.assertTrue(err.startswith("goal: 1000 faults of kill, 20 a second on average; seed 1\n"), err)
        self.assertRegex(err, r"timeouts for this test: item_timeout \S+ s \(of 30\S* s\), heartbeat_timeout \S+ s \(of 10\S* s\)")
        code, out, err = self.penstock(*chaos, "--faults", 3)
        self.assertEqual(code, EXIT_OK, err + out)
        self.assertRegex(err, r"\nrun \d+: 3 of 3 faults\n")  # the last line names no time that is left
        self.assertRegex(out, r"3 faults in \d+ runs? of the stream; seed 1")

    def test_help_manual_and_completion_list_the_kinds_of_faults(self):
        for arguments in (("chaos", "--help"), ("help", "--man"), ("help", "chaos")):
            code, out, _ = self.penstock(*arguments)
            self.assertEqual(code, EXIT_OK)
            self.assertRegex(out.replace("\\", ""), r"leak,\s+owner-kill")

    def test_unknown_faults_are_usage_errors(self):
        config = self.write("u.toml", synthetic())
        for options in (["--kinds", "kill,dance"], ["--rate", "0"], ["--kinds", "owner-kill", "--set", 'gpu.placement="embedded"'], ["--seconds", "soon"]):
            self.assertEqual(self.penstock("chaos", config, *options)[0], EXIT_USAGE, options)

    def test_a_stream_that_changes_under_faults_is_reported_with_exit_code_1(self):
        # With only one attempt allowed, a kill from outside quarantines a sample, which is wrong.
        text = synthetic(samples=600, batch=4, dataset='wait = "6ms"', epochs=1, more=FAST + "[quarantine]\nmax_attempts = 1\n")
        v = self.chaos(text, "--workers", 2, "--kinds", "kill", "--faults", 6, "--rate", 10, expect=EXIT_FAILED)
        self.assertGreater(v["wrongly_quarantined"], 0)
        self.assertGreater(v["lost"], 0)
        self.assertFalse(v["digests_equal"])
        self.assertFalse(v["ok"])


if __name__ == "__main__":
    main()
