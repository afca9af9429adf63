"""A stalled stream reports why: in status, in its exit code, in the log and in an event; and situations that must not
strand a pool."""

import re

from harness import *

EMBEDDER = os.path.join(BIN, "session_embedder")
ENDLESS = synthetic(samples=100000, dataset='wait = "2ms"', epochs=1)


class ProgressTest(PenstockTest):
    def live(self, text=ENDLESS, workers=2):
        process = self.start("run", self.write("live.toml", text), "--workers", workers, "--json", "--quiet")
        code, _, err = self.penstock("wait", "--for=ready", "--timeout", "10s", timeout=20)
        self.assertEqual(code, EXIT_OK, err)
        return process

    def status(self):
        code, out, err = self.penstock("status", "--json")
        self.assertEqual(code, EXIT_OK, err)
        return json.loads(out)

    def stall(self, kind):
        """The stall of this kind, once it is reported."""
        return self.wait_until(lambda: (s := self.status()["stalled"]) and s["kind"] == kind and s, "a stall: " + kind)

    def events(self):
        code, out, err = self.penstock("events", "--json")
        self.assertEqual(code, EXIT_OK, err)
        return [json.loads(line) for line in out.splitlines()]

    def goes_on(self):
        before = self.status()["batches_delivered"]
        self.wait_until(lambda: self.status()["batches_delivered"] > before, "batches again")
        self.wait_until(lambda: self.status()["stalled"] is None, "the end of the stall")
        self.assertEqual(self.penstock("status", "--check")[0], EXIT_OK)

    def test_a_stream_that_makes_progress_is_not_stalled(self):
        self.live()
        self.assertIsNone(self.status()["stalled"])
        self.assertEqual(self.penstock("status", "--check")[0], EXIT_OK)

    def test_a_drained_pool_says_so_and_a_restart_of_all_workers_brings_it_back(self):
        self.live()
        self.assertEqual(self.penstock("drain", "workers")[0], EXIT_OK)
        stalled = self.stall("operator")
        self.assertIn("penstock restart workers", stalled["text"])
        self.assertEqual({w["why_stopped"] for w in self.status()["workers"]}, {"drained"})
        self.assertEqual(self.status()["state"], "ok")
        self.assertEqual(self.penstock("status", "--check")[0], EXIT_NOT_MET)
        self.assertIn("stalled for", self.penstock("status")[1])
        self.assertRegex(self.penstock("top")[1], r"(?m)^stalled +\d+ s, waiting for an operator, who drained")
        self.assertIn("stalled", [e["kind"] for e in self.events()])
        # No worker is left to drain, which is reported; a restart revives the drained ones.
        code, _, err = self.penstock("drain", "workers")
        self.assertEqual(code, EXIT_NO_TARGET)
        self.assertIn("no worker to drain", err)
        code, _, said = self.penstock("restart", "workers")
        self.assertEqual((code, said.count("restart requested")), (EXIT_OK, 2), said)
        self.goes_on()

    def test_a_pool_whose_workers_are_all_drained_says_so_until_they_are_back(self):
        process = self.start("map", "--command", "sleep 0.01", "--workers", 2, "--quiet", stdin=subprocess.PIPE)
        process.stdin.write(b"line\n" * 1000)
        process.stdin.close()
        process.stdin = None  # for communicate()
        self.assertEqual(self.penstock("wait", "--for=ready", "--timeout", "10s", timeout=20)[0], EXIT_OK)
        self.assertEqual(self.penstock("drain", "workers")[0], EXIT_OK)
        self.assertIn("penstock restart workers", self.stall("operator")["text"])
        self.assertEqual(self.penstock("status", "--check")[0], EXIT_NOT_MET)
        self.assertIn("stalled", [e["kind"] for e in self.events()])
        self.assertEqual(self.penstock("restart", "workers")[0], EXIT_OK)
        self.wait_until(lambda: self.status()["stalled"] is None, "the end of the stall")
        self.wait_until(lambda: "the pool is making progress again" in " ".join(e["text"] for e in self.events()), "the event of its end")
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, len(out.splitlines())), (EXIT_OK, 1000), err)

    def test_a_paused_session_says_so(self):
        self.live()
        self.assertEqual(self.penstock("pause")[0], EXIT_OK)
        self.assertIn("penstock resume", self.stall("operator")["text"])
        self.assertEqual(self.penstock("resume")[0], EXIT_OK)
        self.goes_on()

    def test_a_sample_that_hangs_is_named_long_before_its_timeout(self):
        text = synthetic(samples=200, dataset='faults = [{sample = 17, kind = "hang"}]', epochs=1,
                         more='[log]\nlevel = "warn"\n[loader.hang]\nitem_timeout = "30s"\n')
        process = self.start("run", self.write("live.toml", text), "--workers", 2, "--json")
        stalled = self.wait_until(lambda: self.penstock("status", "--json")[0] == EXIT_OK and self.status()["stalled"], "a stall")
        self.assertEqual(stalled["kind"], "sample", stalled)
        self.assertIn("17", stalled["text"])
        worker = next(w for w in self.status()["workers"] if w["id"] == stalled["worker"])
        self.assertGreater(worker["current_sample_seconds"], 4)
        self.assertLess(worker["current_sample_seconds"], 25)
        signal_process(worker["pid"], signal.SIGKILL)  # another worker then loads the sample
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, EXIT_OK, err)
        self.assertIn("no progress for", err.decode())
        self.check_sums(json.loads(out))

    def test_a_sample_that_hangs_in_every_worker_is_one_stall_until_its_batch_is_delivered(self):
        # The rest takes some seconds, because the session looks for progress only once a second.
        text = synthetic(samples=1500, epochs=1, dataset='wait = "5ms"\nfaults = [{sample = 77, kind = "hang", times = 0}]',
                         more='[loader.hang]\nitem_timeout = "6s"\n').replace("[sampler]", "[sampler]\nshuffle = false")
        process = self.start("run", self.write("live.toml", text), "--workers", 2, "--json", "--quiet")
        hung = self.wait_until(lambda: self.penstock("status", "--json")[0] == EXIT_OK and self.status()["stalled"], "a stall")
        waited, looks = 0.0, []
        while process.poll() is None:  # each look waits for an answer
            code, out, _ = self.penstock("status", "--json")
            status = json.loads(out) if code == EXIT_OK else {}
            if status.get("state") != "ok" or status["quarantined"]:
                continue
            looks.append(status)
            self.assertIsNotNone(status["stalled"], status)
            self.assertGreaterEqual(status["stalled"]["seconds"], hung["seconds"])
            hung = status["stalled"]
            cost = status["deaths_cost"]["waited_seconds"]
            self.assertGreaterEqual(cost, waited)
            waited = cost
        deaths = [d["worker"] for d in json.loads(self.penstock("deaths", "--last", "--json")[1])["deaths"]]
        self.assertEqual(len(deaths), 3)
        self.assertGreater(hung["seconds"], 15, looks[-1:])
        self.assertGreater(waited, 10, looks[-1:])  # the stream waited because of the first two deaths
        code, out, _ = self.penstock("events", "--last", "--json")
        events = [json.loads(line) for line in out.splitlines()]
        (again,) = [e["text"] for e in events if e["kind"] == "progress_again"]
        self.assertGreaterEqual(int(re.search(r"after (\d+) s", again).group(1)), 16)
        explained = [e["text"] for e in events if e["kind"] == "worker_started" and e["worker"] == 64]
        self.assertIn("sacrificial", explained[0])
        cost = json.loads(self.penstock("deaths", "--last", "--json")[1])["cost"]["waited_seconds"]
        self.assertGreater(cost, 16)
        self.assertNotIn("restarting a worker does not help", self.penstock("events", "--last")[1] + self.penstock("status", "--last")[1])

    def test_two_samples_that_kill_are_tried_alone_even_if_no_worker_is_restarted(self):
        text = synthetic(samples=200, epochs=1, dataset='faults = [{sample = 17, kind = "segv", times = 0}, {sample = 18, kind = "exit", times = 0}]',
                         more='[loader.restart]\ntype = "temporary"\n')
        report = self.run_json(self.write("live.toml", text), "--workers", 6, timeout=60)
        self.assertEqual(report["epochs"][0]["quarantined"], 2)
        self.assertEqual({q["sample"] for q in report["quarantine"]}, {17, 18})
        self.check_sums(report)


class ConsumerTest(PenstockTest):
    def embed(self, mode):
        done = subprocess.run([EMBEDDER, mode], capture_output=True, text=True, timeout=50, env=self.environment, cwd=self.folder)
        self.assertEqual(done.returncode, EXIT_OK, done.stderr)
        return dict(line.split(" ", 1) for line in done.stdout.splitlines())

    def test_a_consumer_that_keeps_every_buffer_and_asks_for_more_is_named(self):
        said = self.embed("keep")
        self.assertIn("the consumer, which holds 2 of 2 device buffers", said["stalled"])
        self.assertEqual((said["status"], said["after"]), ("consumer ok", "moving"))

    def test_a_consumer_that_asks_for_no_batch_is_named(self):
        said = self.embed("idle")
        self.assertIn("to take but asks for none", said["stalled"])
        self.assertEqual((said["status"], said["after"]), ("consumer ok", "moving"))


if __name__ == "__main__":
    main()
