"""[scheduler] order = "relaxed": batches that pass a late one, the digest of strict order, states, deaths, and the features that refuse it."""

from harness import *

BATCHES = 50  # batches in an epoch


class RelaxedTest(PenstockTest):
    def config(self, name="r", dataset="", window=8, more=""):
        return self.write(name + ".toml", 'name = "%s"\n' % name + synthetic(samples=8 * BATCHES, epochs=2, dataset=dataset, more=more)
                          + '\n[scheduler]\norder = "relaxed"\nwindow = %d\n' % window)

    def late(self, sample=100, seconds=1):
        """This sample is slow in every epoch; no sample's bytes depend on that."""
        return 'faults = [{sample = %d, kind = "slow", seconds = %d, times = 0}]' % (sample, seconds)

    def journal(self, path):
        """(epoch, batch) of each delivery, in order; the digests by batch."""
        batches = [line for line in self.journal_lines(path) if "batch" in line]
        return [(line["epoch"], line["batch"]) for line in batches], {(line["epoch"], line["batch"]): line["digest"] for line in batches}

    def check_order(self, order, window):
        """Each batch once, at most `window` places before the first missing one, and none before the previous epoch's end."""
        self.assertEqual(sorted(order), [(e, b) for e in range(2) for b in range(BATCHES)])
        missing = sorted(order)
        for one in order:
            self.assertEqual(one[0], missing[0][0])
            self.assertLessEqual(one[1] - missing[0][1], window)
            missing.remove(one)

    def test_batches_pass_a_late_one_and_the_digests_are_those_of_strict_order(self):
        strict = self.digests(self.config("strict"), "--set", 'scheduler.order="strict"', "--workers", 3)
        for window in (1, 8):
            with self.subTest(window=window):
                for seconds in (1, 10, 100):  # on a busy machine the other workers may start that late
                    path = os.path.join(self.folder, "journal-%d-%d" % (window, seconds))
                    # With more slots, the worker of the late batch may also hold the next one, and only that one could pass it.
                    report = self.run_json(self.config(dataset=self.late(seconds=seconds)), "--digest", "--workers", 3, "--slots", 1,
                                           "--sink", "journal:" + path, "--set", "scheduler.window=%d" % window)
                    self.check_sums(report)
                    self.assertEqual([epoch["digest"] for epoch in report["epochs"]], strict)
                    order, _ = self.journal(path)
                    self.check_order(order, window)
                    if all(epoch["early_batches"] for epoch in report["epochs"]):
                        break
                self.assertNotEqual(order, sorted(order))
                for epoch in report["epochs"]:
                    self.assertGreaterEqual(epoch["early_batches"], 1)
                    self.assertIn(epoch["most_early"], range(1, window + 1))

    def test_a_run_in_strict_order_has_no_early_batch(self):
        report = self.run_json(self.config(dataset=self.late()), "--set", 'scheduler.order="strict"', "--workers", 3)
        self.assertEqual([(epoch["early_batches"], epoch["most_early"]) for epoch in report["epochs"]], [(0, 0), (0, 0)])

    def test_a_run_that_is_resumed_again_and_again_delivers_each_batch_once(self):
        config = self.config(dataset=self.late())
        expected = self.digests(config, "--set", 'scheduler.order="strict"', "--workers", 3)
        state, path = os.path.join(self.folder, "r.state"), os.path.join(self.folder, "journal")
        early, digests = 0, {}
        for stop in (("--batches", 3), ("--batches", 17), ("--batches", 5), ("--batches", 29), ()):
            report = self.run_json(config, "--digest", "--workers", 3, "--state", state, "--sink", "journal:" + path, *stop)
            early += sum(epoch["early_batches"] for epoch in report["epochs"])
            digests.update({epoch["epoch"]: epoch["digest"] for epoch in report["epochs"] if epoch["complete"]})
        order, _ = self.journal(path)
        self.assertEqual(sorted(order), [(e, b) for e in range(2) for b in range(BATCHES)])
        self.assertEqual([digests[epoch] for epoch in (0, 1)], expected)
        self.assertGreater(early, 0)

    def test_a_strict_run_continues_from_a_relaxed_state(self):
        config = self.config(dataset=self.late(self.sample_of_batch(4), seconds=600))
        state, path = os.path.join(self.folder, "r.state"), os.path.join(self.folder, "journal")
        # With more slots, the worker of the late batch holds so many others that fewer than 10 can pass it.
        process = self.start("run", config, "--workers", 3, "--slots", 3, "--state", state, "--sink", "journal:" + path, "--quiet")
        self.wait_until(lambda: os.path.exists(path) and len(self.journal(path)[0]) >= 10, "batches that pass the late one")
        process.send_signal(signal.SIGTERM)
        self.wait_until(lambda: (self.live_status("r") or {}).get("state") == "stopping", "the stop")
        self.signal_again(process, signal.SIGTERM)  # the session no longer waits for the sample
        process.communicate(timeout=60)
        before, _ = self.journal(path)
        self.assertNotIn((0, 4), before)
        self.assertGreater(max(before), (0, 4))
        self.run_json(config, "--workers", 3, "--state", state, "--sink", "journal:" + path, "--set", 'scheduler.order="strict"', "--set", "dataset.faults=[]")
        order, _ = self.journal(path)
        self.assertEqual(sorted(order), [(e, b) for e in range(2) for b in range(BATCHES)])
        self.assertEqual(order[len(before):], sorted(order[len(before):]))

    def sample_of_batch(self, batch):
        code, out, err = self.penstock("plan", self.config("plan"), "--batch", batch, "--json")
        self.assertEqual(code, EXIT_OK, err)
        return json.loads(out)["samples"][0]

    def test_deaths_of_workers_and_of_the_owner_change_no_digest(self):
        config = self.config("mortal", 'wait = "4ms"\nfaults = [{sample = 100, kind = "slow", seconds = 0.3, times = 0}, '
                             '{sample = 5, kind = "segv", times = 1}, {sample = 300, kind = "segv", times = 1}]',
                             more='[gpu.restart]\nintensity = { max = 100, within = "60s" }')
        strict = self.digests(config, "--set", 'scheduler.order="strict"', "--workers", 3)
        path = os.path.join(self.folder, "journal")
        process = self.start("run", config, "--workers", 3, "--digest", "--json", "--quiet", "--sink", "journal:" + path,
                             "--set", "gpu.placement=process")
        for batches in (10, 45, 70):
            self.wait_until(lambda: os.path.exists(path) and len(set(self.journal(path)[0])) >= batches, "%d batches" % batches)
            owners = [pid for pid in descendants_of(process.pid) if name_of(pid).startswith("penstock-gpu")]
            for pid in owners:
                with contextlib.suppress(ProcessLookupError):  # the run may have ended already
                    signal_process(pid, signal.SIGKILL)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, EXIT_OK, err)
        report = json.loads(out)
        self.check_sums(report)
        self.assertEqual([epoch["digest"] for epoch in report["epochs"]], strict)
        self.assertGreaterEqual(report["gpu"]["restarts"], 1)
        self.assertEqual(report["workers"]["restarts"], 4)  # both samples kill a worker once per epoch
        order, digests = self.journal(path)
        self.assertEqual(len(digests), 2 * BATCHES)
        # The batch in which an owner was killed comes again, with the same bytes.
        self.assertEqual(sorted(set(order)), [(e, b) for e in range(2) for b in range(BATCHES)])

    def test_ranks_of_a_group_refuse_relaxed_order(self):
        code, out, err = self.penstock("launch", self.config(), "--gpus", "host:2")
        self.assertNotEqual(code, EXIT_OK, out)
        self.assertIn('the 2 ranks of a group take their batches step by step', err)

    def test_a_window_without_effect_is_a_warning_and_one_beyond_64_an_error(self):
        config = self.write("w.toml", synthetic() + "\n[scheduler]\nwindow = 4\n")
        code, _, err = self.penstock("check-config", config)
        self.assertIn("'window' in [scheduler] has no effect with order", err)
        code, _, err = self.penstock("check-config", self.config("wide", window=65))
        self.assertEqual(code, EXIT_CONFIG, err)
        self.assertIn("64", err)

    def test_a_communicator_refuses_relaxed_order(self):
        config = self.config("c", more='[group]\ncommunicator = "nccl"')
        code, _, err = self.penstock("check-config", config)
        self.assertEqual(code, EXIT_CONFIG, err)
        self.assertIn('must be "strict"', err)


if __name__ == "__main__":
    main()
