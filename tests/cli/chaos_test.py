"""penstock chaos: under random faults the stream stays the same, and a checker that is no part of the runtime says so."""

from harness import *

FAST = '[loader.hang]\nitem_timeout = "1s"\nheartbeat_timeout = "1s"\n'


class ChaosTest(PenstockTest):
    def chaos(self, text, *options, expect=EXIT_OK):
        code, out, err = self.penstock("chaos", self.write("c.toml", text), "--json", "--quiet", *options)
        self.assertEqual(code, expect, err + out)
        return json.loads(out)

    def test_workers_that_are_struck_by_every_kind_of_fault_cost_the_stream_nothing(self):
        text = synthetic(samples=1500, batch=8, dataset='wait = "3ms"', epochs=1, more=FAST)
        v = self.chaos(text, "--workers", 4, "--faults", 21, "--rate", 8, "--seed", 3)
        self.assertEqual((v["lost"], v["duplicated"], v["out_of_order"], v["stale_accepted"], v["wrongly_quarantined"]), (0,) * 5)
        self.assertTrue(v["ok"] and v["digests_equal"])
        self.assertEqual(v["faults"], 21)
        self.assertEqual(sum(kind["faults"] for kind in v["kinds"].values()), 21)
        self.assertGreaterEqual(v["deaths"], 15, v)
        self.assertGreater(v["restarts"], 0)
        self.assertGreater(v["detection_seconds"]["n"], 0)
        self.assertGreater(v["recovery_seconds"]["n"], 0)

    def test_faults_that_do_not_exist_are_usage(self):
        config = self.write("u.toml", synthetic())
        for options in (["--kinds", "kill,dance"], ["--rate", "0"], ["--kinds", "owner-kill", "--set", 'gpu.placement="embedded"'], ["--seconds", "soon"]):
            self.assertEqual(self.penstock("chaos", config, *options)[0], EXIT_USAGE, options)

    def test_a_stream_that_differs_under_fire_is_told_and_is_exit_1(self):
        # With a single attempt allowed, a sample that an outside hand hits once is quarantined: wrongly.
        text = synthetic(samples=600, batch=4, dataset='wait = "6ms"', epochs=1, more=FAST + "[quarantine]\nmax_attempts = 1\n")
        v = self.chaos(text, "--workers", 2, "--kinds", "kill", "--faults", 6, "--rate", 10, expect=EXIT_FAILED)
        self.assertGreater(v["wrongly_quarantined"], 0)
        self.assertGreater(v["lost"], 0)
        self.assertFalse(v["digests_equal"])
        self.assertFalse(v["ok"])


if __name__ == "__main__":
    main()
