"""A session's whole life, controlled only from the command line, and the resulting stream."""

import signal

from harness import *

# Sample 77 prints a line and kills every worker that loads it, so that there is a death to examine.
LIFE = synthetic(samples=3000, batch=8, epochs=1,
                 dataset='wait = "4ms"\nfaults = [{sample = 77, kind = "abort", times = 0}]')


class LifeTest(PenstockTest):
    def ok(self, *arguments):
        code, out, err = self.penstock(*arguments)
        self.assertEqual(code, EXIT_OK, "%s: %s%s" % (arguments, out, err))
        return out

    def answer(self, *arguments):
        return json.loads(self.ok(*arguments, "--json"))

    def workers(self):
        return self.answer("status")["workers"]

    def ready(self, count):
        self.wait_until(lambda: len([w for w in self.workers() if w["state"] == "ready"]) == count, "%d ready workers" % count)

    def test_operations_during_a_session_do_not_change_its_stream(self):
        config = self.write("life.toml", LIFE)
        undisturbed = self.run_json(config, "--workers", 3, "--digest")
        self.check_sums(undisturbed)

        run = self.start("run", config, "--workers", 2, "--digest", "--json", "--quiet")
        self.ok("wait", "--for=ready", "--timeout", "20s")
        self.assertIn("worker/1", self.ok("status"))
        self.ok("scale", "6")
        self.ready(6)
        victim = self.workers()[3]
        signal_process(victim["pid"], signal.SIGKILL)
        self.wait_until(lambda: self.workers()[3]["restarts"] >= 1 and self.workers()[3]["state"] == "ready", "its replacement")
        deaths = self.answer("deaths")["deaths"]
        self.assertIn(victim["pid"], [d["pid"] for d in deaths])
        self.assertIn("SIGKILL", self.ok("deaths"))
        self.ok("logs", "worker/3", "--previous")
        self.ok("drain", "worker/5")
        self.wait_until(lambda: self.workers()[5]["state"] == "stopped", "worker/5 to stop")
        self.ok("pause")
        self.assertEqual(self.answer("status")["state"], "paused")
        self.ok("resume")
        self.ok("scale", "1")
        self.ready(1)
        self.wait_until(lambda: self.answer("quarantine", "list")["quarantine"], "sample 77 to be quarantined", 60)
        self.assertEqual([q["sample"] for q in self.answer("quarantine", "list")["quarantine"]], [77])
        self.assertIn("waits_for", self.answer("describe", "scheduler")["scheduler"])
        kinds = {json.loads(line)["kind"] for line in self.ok("events", "--json").splitlines()}
        self.assertTrue({"scaled", "worker_died", "paused", "resumed", "sample_quarantined"} <= kinds, kinds)
        self.ok("scale", "4")
        self.ok("restart", "workers")
        self.ok("wait", "--for=finished", "--timeout", "60s")
        out, err = run.communicate(timeout=30)
        self.assertEqual(run.returncode, EXIT_OK, err)
        report = json.loads(out)
        self.check_sums(report)
        self.assertEqual(report["outcome"], "finished")
        self.assertEqual(report["epochs"][0]["digest"], undisturbed["epochs"][0]["digest"])
        self.assertEqual([q["sample"] for q in report["quarantine"]], [77])
        # The victim, and the workers killed by sample 77; the others were drained, scaled down or restarted on request.
        self.assertEqual(report["workers"]["ended_unexpectedly"],
                         len([d for d in report["workers"]["deaths"] if d["cause"] != "stopped"]))
        self.assertLess(report["workers"]["ended_unexpectedly"], len(report["workers"]["deaths"]))
        self.assertEqual(self.penstock("status")[0], EXIT_NO_SESSION)

    def test_a_session_ended_by_stop_has_delivered_a_prefix_of_the_same_stream(self):
        text = synthetic(samples=100000, batch=8, epochs=1, dataset='wait = "2ms"')
        config = self.write("short.toml", text)
        run = self.start("run", config, "--workers", 2, "--sink", "npy", "--out", "some", "--json", "--quiet")
        self.ok("wait", "--timeout", "20s")
        self.wait_until(lambda: self.answer("status")["batches_delivered"] > 10, "ten batches")
        self.ok("stop")
        out, err = run.communicate(timeout=30)
        self.assertEqual(run.returncode, EXIT_OK, err)
        report = json.loads(out)
        self.assertEqual(report["outcome"], "stopped")
        batches = report["totals"]["batches"]
        self.ok("run", config, "--workers", 1, "--batches", str(batches), "--sink", "npy", "--out", "whole", "--quiet")
        names = sorted(os.listdir(os.path.join(self.folder, "some")))
        self.assertEqual(names, sorted(os.listdir(os.path.join(self.folder, "whole"))))
        for name in names:
            with open(os.path.join(self.folder, "some", name), "rb") as a, open(os.path.join(self.folder, "whole", name), "rb") as b:
                self.assertEqual(a.read(), b.read(), name)


if __name__ == "__main__":
    main()
