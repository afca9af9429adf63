"""The stream is the same for all numbers of workers and slots, and under kills; seeds, epochs, resuming."""

import glob
import os
import random
import re
import signal
import threading
import time

from harness import *


class StreamTest(PenstockTest):
    def setUp(self):
        super().setUp()
        self.config = self.write("s.toml", synthetic())

    def test_the_digests_are_the_same_for_any_number_of_workers_and_slots(self):
        expected = self.digests(self.config, "--workers", 1)
        self.assertEqual(len(expected), 2)
        for workers in (2, 4, 8):
            self.assertEqual(self.digests(self.config, "--workers", workers), expected)
        for slots in (1, 6):
            self.assertEqual(self.digests(self.config, "--slots", slots), expected)

    def test_a_different_seed_or_epoch_gives_a_different_order(self):
        first = self.digests(self.config)
        other = self.digests(self.config, "--set", "sampler.seed=99")
        self.assertEqual(len(set(first + other)), 4)

    def test_twenty_kills_of_random_workers_do_not_change_the_stream(self):
        slow = self.write("slow.toml", synthetic(samples=1000, epochs=2, dataset='wait = "10ms"'))
        expected = self.digests(slow, "--workers", 4)
        process = self.start("run", slow, "--workers", 4, "--digest", "--json", "--quiet")
        killed = set()  # a worker that is not reaped yet can be signalled again
        choose = random.Random(20261120)
        while len(killed) < 20 and process.poll() is None:
            status = self.live_status("slow")
            workers = [worker["pid"] for worker in status["workers"] if worker["pid"] and worker["pid"] not in killed] if status else []
            if workers and status["batches_delivered"] >= 8 * len(killed):
                chosen = choose.choice(workers)
                with contextlib.suppress(ProcessLookupError):
                    signal_process(chosen, signal.SIGKILL)
                    killed.add(chosen)
            time.sleep(0.005)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err.decode())
        report = json.loads(out)
        self.assertEqual(len(killed), 20)
        self.assertEqual([e["digest"] for e in report["epochs"]], expected)
        self.assertEqual(report["quarantine"], [])
        self.assertEqual(len(report["workers"]["deaths"]), len(killed), report["workers"]["deaths"])
        self.assertEqual(report["workers"]["restarts"], len(killed))
        self.check_sums(report)

    def test_the_index_files_of_an_epoch_contain_every_sample_once(self):
        import numpy
        out = os.path.join(self.folder, "out")
        self.run_json(self.config, "--sink", "npy", "--out", out)
        for epoch in (0, 1):
            files = sorted(glob.glob(os.path.join(out, "e%d-b*.index.npy" % epoch)))
            indices = numpy.concatenate([numpy.load(f) for f in files])
            self.assertEqual(indices.dtype, numpy.int64)
            self.assertEqual(sorted(indices), list(range(400)))
            self.assertNotEqual(list(indices), list(range(400)))

    def test_two_ranks_share_an_epoch(self):
        import numpy
        seen = []
        for rank in (0, 1):
            out = os.path.join(self.folder, "rank%d" % rank)
            self.run_json(self.config, "--epochs", 1, "--set", "sampler.world_size=2", "--set", "sampler.rank=%d" % rank,
                          "--sink", "npy", "--out", out)
            seen += [int(i) for f in glob.glob(out + "/*.index.npy") for i in numpy.load(f)]
        self.assertEqual(sorted(seen), list(range(400)))

    def test_ranks_follow_the_key_uneven_and_report_their_rank(self):
        config = self.write("odd.toml", synthetic(samples=101, epochs=2))
        for uneven, expected, padded in (("pad", (34, 34, 34), (0, 0, 1)), ("drop", (33, 33, 33), (0, 0, 0)),
                                         ("allow", (34, 34, 33), (0, 0, 0))):
            for rank in range(3):
                share = ["--set", "sampler.world_size=3", "--set", "sampler.rank=%d" % rank, "--set",
                         'sampler.uneven="%s"' % uneven]
                if uneven == "pad":
                    del share[-2:]  # these options are the default
                report = self.run_json(config, *share)
                self.assertEqual((report["rank"], report["world_size"]), (rank, 3))
                for epoch in report["epochs"]:
                    self.assertEqual((epoch["expected"], epoch["padded"], epoch["delivered"], epoch["complete"]),
                                     (expected[rank], padded[rank], expected[rank], True))
                plan = self.run_json(config, "--dry-run", *share)
                self.assertEqual((plan["expected_samples"], plan["padded_samples"]), (expected[rank], padded[rank]))
        self.assertNotIn("world_size", self.run_json(config))

    def test_a_stream_without_batches_is_refused_with_the_numbers(self):
        config = self.write("few.toml", synthetic(samples=3, batch=8))
        for options, words in ((["--set", "sampler.world_size=7", "--set", "sampler.rank=5", "--set", 'sampler.uneven="drop"'],
                                r'3 samples for 7 ranks, .*uneven = "drop" leaves out'),
                               (["--set", "sampler.drop_last=true"], "3 samples do not fill a batch of 8, .*drop_last leaves out")):
            with self.subTest(words):
                self.assertRegex(self.run_json(config, *options, expect=EXIT_FAILED)["error"], words)
                self.assertRegex(self.run_json(config, "--dry-run", *options, expect=EXIT_FAILED)["error"]["message"], words)
                code, _, err = self.penstock("check-config", config, *options)
                self.assertEqual(code, EXIT_CONFIG)
                self.assertRegex(err, words)
        allowed = ["--set", "sampler.world_size=7", "--set", "sampler.rank=5", "--set", 'sampler.uneven="allow"']
        self.assertEqual(self.run_json(config, *allowed)["outcome"], "finished")  # other ranks have batches
        self.assertEqual(self.penstock("check-config", config, *allowed)[0], EXIT_OK)

    def test_a_stopped_run_continues_at_its_position_with_other_workers(self):
        expected = self.digests(self.config)
        state = os.path.join(self.folder, "state")
        for batches in (7, 30, 1, 40):
            report = self.run_json(self.config, "--digest", "--state", state, "--batches", batches, "--workers", 1 + batches % 3,
                                   "--slots", ("auto", 1, 6)[batches % 3])
            self.assertEqual(report["totals"]["batches"], batches)
            self.assertEqual(report["outcome"], "stopped")
        report = self.run_json(self.config, "--digest", "--state", state, "--workers", 4)
        self.assertEqual(report["outcome"], "finished")
        self.assertEqual([e["digest"] for e in report["epochs"]], expected[1:])
        self.assertEqual(report["epochs"][0]["from_batch"], 78 - 50)
        self.assertEqual(report["epochs"][0]["delivered"], 400)

    def test_a_state_of_another_stream_is_refused_with_the_difference(self):
        state = os.path.join(self.folder, "state")
        self.run_json(self.config, "--state", state, "--batches", 3)
        code, _, err = self.penstock("run", self.config, "--state", state, "--set", "sampler.seed=5")
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("seed was 1234 and is 5", err)

    def test_batches_counts_batches_over_all_epochs(self):
        report = self.run_json(self.config, "--batches", 60)
        self.assertEqual(report["outcome"], "stopped")
        self.assertEqual([(e["epoch"], e["batches"], e["complete"]) for e in report["epochs"]], [(0, 50, True), (1, 10, False)])

    def test_a_sample_that_crashes_once_is_delivered_and_one_that_always_crashes_is_quarantined(self):
        faults = ('faults = [{sample = 17, kind = "segv", times = 1}, {sample = 30, kind = "abort", times = 0}, '
                  '{sample = 31, kind = "exit", times = 0}, {sample = 32, kind = "throw", times = 0}]')
        config = self.write("faults.toml", synthetic(epochs=1, dataset=faults))
        report = self.run_json(config, "--digest", "--workers", 3)
        epoch = report["epochs"][0]
        self.assertEqual((epoch["delivered"], epoch["failed"], epoch["quarantined"]), (397, 1, 2))
        self.assertEqual(sorted(q["sample"] for q in report["quarantine"]), [30, 31])
        self.assertEqual(report["failures"][0]["sample"], 32)
        self.assertEqual({q["attempts"] for q in report["quarantine"]}, {3})
        for workers in (1, 2, 5):
            again = self.run_json(config, "--digest", "--workers", workers)
            self.assertEqual(again["epochs"][0]["digest"], epoch["digest"])

    def test_replace_fills_the_rows_of_bad_samples_in_the_same_way_for_any_number_of_workers(self):
        faults = 'faults = [{sample = 5, kind = "throw", times = 0}, {sample = 9, kind = "segv", times = 0}]'
        config = self.write("r.toml", synthetic(epochs=1, dataset=faults, more='[loader]\non_bad_sample = "replace"'))
        expected = None
        for workers in (1, 2, 4):
            report = self.run_json(config, "--digest", "--workers", workers)
            self.assertEqual(report["epochs"][0]["delivered"], 400)
            expected = expected or report["epochs"][0]["digest"]
            self.assertEqual(report["epochs"][0]["digest"], expected)
        code, _, err = self.penstock("run", config)
        self.assertEqual(code, EXIT_OK, err)
        self.assertIn("400 of 400 samples", err)
        self.assertIn(", 2 of them replace bad samples", err)

    def test_samples_that_fail_for_one_reason_are_logged_ten_times(self):
        faults = ", ".join('{sample = %d, kind = "throw", times = 0}' % sample for sample in range(25))
        config = self.write("many.toml", synthetic(samples=100, epochs=1, dataset="faults = [%s]" % faults))
        code, _, err = self.penstock("run", config)
        self.assertEqual(code, EXIT_OK, err)
        self.assertEqual(len(re.findall(r"sample \d+.* failed: ", err)), 10, err)
        self.assertEqual(err.count("further samples that fail for this reason are not logged"), 1, err)
        events = self.penstock("events", "--last", "--json")[1].splitlines()
        self.assertEqual(sum(json.loads(event)["kind"] == "sample_failed" for event in events), 25)
    def test_fail_ends_the_run_and_names_the_sample(self):
        config = self.write("f.toml", synthetic(dataset='faults = [{sample = 5, kind = "throw", times = 0}]',
                                                more='[loader]\non_bad_sample = "fail"'))
        report = self.run_json(config, expect=EXIT_FAILED)
        self.assertEqual(report["outcome"], "failed")
        self.assertIn("sample 5", report["error"])

    def test_drop_last_omits_the_remainder_and_does_not_expect_it(self):
        report = self.run_json(self.config, "--epochs", 1, "--set", "sampler.drop_last=true", "--set", "sampler.batch_size=64")
        self.assertEqual(report["epochs"][0]["expected"], 384)
        self.assertEqual(report["epochs"][0]["delivered"], 384)


if __name__ == "__main__":
    main()
