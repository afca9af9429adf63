"""[loader] workers = "auto": the number of workers follows the consumer's rate, and every step is explained."""

from harness import *

# A worker sleeps most of the time, so cores are idle on any machine.
SLEEPY = synthetic(samples=100000, batch=2, epochs=1, dataset='wait = "100ms"', more="[loader.limits]\nmax = 6\n")


class TuningTest(PenstockTest):
    def ok(self, *arguments):
        code, out, err = self.penstock(*arguments)
        self.assertEqual(code, EXIT_OK, "%s: %s%s" % (arguments, out, err))
        return out

    def status(self):
        return json.loads(self.ok("status", "--json"))

    def test_the_pool_grows_while_the_consumer_waits_and_the_reason_is_shown(self):
        run = self.start("run", self.write("sleepy.toml", SLEEPY), "--quiet", "--set", 'loader.workers="auto"')
        self.ok("wait", "--for=ready", "--timeout", "20s")
        self.assertIn(self.status()["tuning"]["state"], ("searching", "settled"))

        self.ok("scale", "1")
        tuning = self.status()["tuning"]
        self.assertEqual((tuning["state"], tuning["workers"]), ("off", None))
        self.assertEqual(tuning["why"], "1 worker was requested; `penstock scale auto` resumes tuning")

        self.ok("scale", "auto")
        tuning = self.wait_until(lambda: next((t for t in [self.status()["tuning"]] if t["workers"] >= 4), None), "4 workers", 60)
        grown = [step for step in tuning["steps"] if (step["from"], step["to"]) == (1, 2)]
        self.assertRegex(grown[-1]["why"], r"^the consumer waited \d+ % of the time, and [0-9.]+ of [0-9.]+ cores were idle$")
        self.assertRegex(self.ok("status"), r"(looking for the best number, now|tuned to) [456] workers: ")
        texts = [json.loads(line)["text"] for line in self.ok("events", "--json").splitlines()]
        self.assertIn("the number of workers is tuned from now on", texts)
        self.assertTrue(any(text.startswith("2 workers instead of 1: the consumer waited ") for text in texts), texts)
        run.kill()
        self.assertIn(b"2 workers instead of 1: the consumer waited ", run.communicate()[1])

    def test_draining_a_worker_ends_the_tuning(self):
        self.start("run", self.write("sleepy.toml", SLEEPY), "--quiet", "--set", 'loader.workers="auto"')
        self.ok("wait", "--for=ready", "--timeout", "20s")
        self.ok("drain", "worker/0")
        self.assertEqual(self.status()["tuning"]["why"], "worker/0 was drained; `penstock scale auto` resumes tuning")

    def test_a_number_in_the_config_stays_until_an_operator_sets_auto(self):
        self.start("run", self.write("sleepy.toml", SLEEPY), "--quiet", "--workers", 1)
        self.ok("wait", "--for=ready", "--timeout", "20s")
        self.assertEqual(self.status()["tuning"], {"state": "off", "workers": None, "why": "[loader] workers is a number", "steps": []})
        self.ok("scale", "auto")
        self.wait_until(lambda: self.status()["tuning"]["steps"], "a step", 60)

    def test_the_stream_is_the_same_while_the_number_changes(self):
        config = self.write("short.toml", synthetic(samples=2000, batch=4, epochs=1, dataset='wait = "10ms"', more="[loader.limits]\nmax = 6\n"))
        expected = self.digests(config, "--workers", 6)
        run = self.start("run", config, "--quiet", "--digest", "--json", "--workers", 1)
        self.ok("wait", "--for=ready", "--timeout", "20s")
        self.ok("scale", "auto")
        out, err = run.communicate(timeout=100)
        self.assertEqual(run.returncode, EXIT_OK, err)
        self.assertEqual([epoch["digest"] for epoch in json.loads(out)["epochs"]], expected)

    def test_in_a_cgroup_with_half_a_core_auto_is_one_worker_and_stays_one(self):
        enter = self.in_cgroup("cpu", {"cpu.cfs_quota_us": "50000"}, {"cpu.max": "50000 100000"})
        run = self.start("run", self.write("half.toml", synthetic(samples=6000, batch=8, epochs=1, dataset='work = "1ms"')), "--quiet", "--json",
                         preexec_fn=enter)
        self.ok("wait", "--for=ready", "--timeout", "60s")
        status = self.status()
        self.assertEqual((len(status["workers"]), status["tuning"]["workers"]), (1, 1))
        # The search has ended when the tuner has measured the one worker, which uses its whole quota.
        tuning = self.wait_until(lambda: next((t for t in [self.status()["tuning"]] if t["state"] == "settled"), None), "the end of the search", 60)
        self.assertEqual((tuning["workers"], tuning["steps"]), (1, []), tuning)
        self.assertIn("of 0.5 cores were idle", tuning["why"])
        out, err = run.communicate(timeout=100)
        self.assertEqual(run.returncode, EXIT_OK, err)
        report = json.loads(out)
        self.check_sums(report)
        self.assertEqual(report["epochs"][0]["delivered"], 6000)

    def test_a_pool_of_jobs_refuses_tuning(self):
        self.start("map", "--command", "sleep", "--input", self.write("in", "1000.5\n"), "--output", "out.jsonl", "--workers", 1, "--quiet")
        self.wait_until(lambda: self.penstock("status")[0] == EXIT_OK, "the pool")
        code, _, err = self.penstock("scale", "auto")
        self.assertEqual(code, EXIT_REFUSED)
        self.assertIn("the number of workers of a pool is not tuned: give a number", err)


if __name__ == "__main__":
    main()
