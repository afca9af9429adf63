#!/usr/bin/env python3
"""The examples, run as described in their first lines: each does what these lines say."""

import glob
import json
import os
import re
import signal
import subprocess
import unittest

import harness

SOURCES = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "examples")

SLOW = """
[dataset]
type = "synthetic"
samples = 600
bytes_per_sample = "1KiB"
fill = "random"
wait = "2ms"
[sampler]
batch_size = 10
epochs = 2
[loader]
workers = {workers}
"""


class Examples(harness.PenstockTest):
    def example(self, name, *arguments, expect=0, env=None, timeout=60):
        done = subprocess.run([os.path.join(harness.BIN, name), *arguments], capture_output=True, text=True,
                              cwd=self.folder, env=dict(self.environment, **(env or {})), timeout=timeout)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout

    def test_a_program_runs_a_config_and_shows_its_batches(self):
        out = self.example("01_run_config", os.path.join(SOURCES, "configs", "synthetic.toml"))
        self.assertEqual(len(re.findall(r"^batch \d+: \d+ samples; data uint8 \[ \d+ 3 32 32 \]", out, re.M)), 20)
        self.assertIn("999 samples in 20 batches", out)
        self.assertIn("1 died, 1 samples failed", out)

    def test_doctor_and_the_dry_run_handle_a_dataset_that_only_its_worker_knows(self):
        worker = os.path.join(harness.BIN, "02_lines_worker")
        poem = self.write("poem.txt", "to be\nor not to be\nthat is the question\n")
        config = self.write("lines.toml", '[dataset]\ntype = "custom"\noptions = { file = "%s" }\n[gpu]\ndevice = "host"\n'
                                          '[loader]\nworkers = 1\ncommand = ["%s"]\n' % (poem, worker))
        code, out, err = self.penstock("doctor", config, "--cpu-only", "--json")
        rows = {row["id"]: row for row in json.loads(out)["results"]}
        self.assertEqual((rows["data.dataset"]["observed"], rows["data.sample"]["observed"]), ("lines: 3 samples", "3 of 3 samples loaded"))
        self.assertEqual({rows["data.dataset"]["status"], rows["data.sample"]["status"]}, {"ok"})
        code, out, err = self.penstock("run", config, "--dry-run", "--json")
        self.assertEqual(code, harness.EXIT_OK, err)
        self.assertIsNone(json.loads(out)["samples"])
        code, out, err = self.penstock("run", config, "--dry-run")
        self.assertIn("only its worker program knows how many samples there are; 1 worker", out)
        self.assertIn("next: penstock doctor", err)
        self.assertNotIn("0 samples", out)
        code, out, err = self.penstock("run", config, "--dry-run", "--set", 'loader.command=["/nowhere/worker"]')
        self.assertEqual((code, "'/nowhere/worker': No such file" in err), (harness.EXIT_FAILED, True), err)

    def test_the_first_example_reports_an_invalid_config(self):
        wrong = self.write("wrong.toml", "[loader]\nworkers = 0\n")
        self.example("01_run_config", wrong, expect=1)
        self.example("01_run_config", expect=2)

    def test_a_custom_dataset_delivers_each_line_of_a_file_once(self):
        lines = ["a", "to be or not to be", "", "x" * 300, "that is", "the question"]
        out = self.example("02_own_dataset", self.write("poem.txt", "\n".join(lines) + "\n"))
        seen = dict(re.findall(r"^ +(\d+) (.*)$", out, re.M))
        for number, line in enumerate(lines, 1):
            if number == 4:
                self.assertNotIn("4", seen)
            else:
                self.assertIn(seen[str(number)], (line, line.upper()))
        self.assertRegex(out, r"failed: sample 3 \(line 4 of .*poem.txt\): the line has 300 bytes")
        # Which lines are in capitals depends only on the seed.
        again = self.example("02_own_dataset", os.path.join(self.folder, "poem.txt"))
        self.assertEqual(again, out)

    def test_samples_of_different_sizes_are_the_same_in_both_placements(self):
        poem = self.write("poem.txt", "".join("%s\n" % ("ab" * (n * 7 % 40)) for n in range(60)))
        config = self.write("lines.toml", '[dataset]\ntype = "custom"\n[dataset.options]\nfile = "%s"\n[sampler]\n'
                            'batch_size = 7\n[loader]\nworkers = 2\ncommand = ["02_lines_worker"]\n[gpu]\ndevice = "host"\n' % poem)
        embedded = self.digests(config, "--set", "gpu.placement=embedded")
        self.assertEqual(self.digests(config, "--set", "gpu.placement=process"), embedded)

    def test_a_missing_custom_dataset_is_reported_with_its_own_error(self):
        done = subprocess.run([os.path.join(harness.BIN, "02_own_dataset"), "nowhere.txt"], capture_output=True,
                              text=True, cwd=self.folder, env=self.environment, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot open nowhere.txt", done.stderr)

    def test_an_interrupted_run_continues_exactly_where_it_stopped(self):
        whole = self.example("04_resume", self.write("a.toml", SLOW.format(workers=4)), "whole.state")
        self.assertEqual(len(whole.splitlines()), 120)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "whole.state")))
        parts = []
        for workers, stop_after in ((3, 17), (1, 61), (4, None)):
            config = self.write("b.toml", SLOW.format(workers=workers))
            process = subprocess.Popen([os.path.join(harness.BIN, "04_resume"), config, "run.state"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
                                       env=self.environment)
            self._running.append(process)
            read = []
            for line in process.stdout:
                read.append(line)
                if stop_after and len(read) == stop_after:
                    process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=30), 130 if stop_after else 0, process.stderr.read())
            parts.append(read)
        self.assertEqual("".join(sum(parts, [])), whole)
        self.assertTrue(all(parts))

    def test_two_ranks_share_an_epoch_and_together_deliver_every_sample_once(self):
        config = self.write("ranks.toml", SLOW.format(workers=2))
        out = self.example("05_two_ranks", config)
        self.assertEqual(out, "rank 0: 300 samples\nrank 1: 300 samples\ntogether 600 samples, 600 different ones\n")

    def test_each_death_is_printed_and_the_stream_continues(self):
        out = self.example("06_watch_events")
        self.assertRegex(out, r"DEATH +worker \d \(pid \d+\) ended: SIGSEGV, while loading sample 100")
        self.assertRegex(out, r"DEATH +worker \d \(pid \d+\) ended: SIGKILL \(sent by another process .*\), while loading sample 200")
        self.assertRegex(out, r"sample_failed +sample 300")
        self.assertRegex(out, r"sample_quarantined +sample 400")
        self.assertEqual(out.count("DEATH"), 5)
        self.assertIn("1998 of 2000 samples delivered, 1 failed, 1 quarantined", out)

    @unittest.skipUnless(os.path.exists(os.path.join(harness.BIN, "09_thumbnail_worker")), "it was built without libjpeg")
    def test_a_folder_gets_its_thumbnails_and_the_file_that_kills_its_decoder_is_named(self):
        harness.make_photos(os.path.join(self.folder, "photos"), 12, classes=1)
        self.write("photos/class0/broken.jpg", "this is no JPEG: libjpeg ends the process\n")
        self.write("photos/class0/notes.txt", "not asked for\n")
        out = self.example("09_thumbnails", "photos/class0", "small")
        self.assertIn("12 of 13 thumbnails", out)
        self.assertRegex(out, r"broken\.jpg: poisoned: ")
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "small"))), ["%05d.ppm" % n for n in range(12)])
        from PIL import Image
        for n in range(12):
            whole = Image.open(os.path.join(self.folder, "photos/class0/%05d.jpg" % n)).convert("RGB")
            small = Image.open(os.path.join(self.folder, "small/%05d.ppm" % n))
            self.assertEqual(small.size, (53, 40))
            expected = whole.crop((0, 0, 159, 120)).resize(small.size, Image.BOX)
            for a, b in zip(small.getdata(), expected.getdata()):
                self.assertLessEqual(max(abs(x - y) for x, y in zip(a, b)), 2)

    @unittest.skipUnless(os.path.exists(os.path.join(harness.BIN, "device_programs/moments.so")), "the examples were not built")
    def test_a_device_program_evaluates_simulations_from_workers(self):
        out = self.example("10_simulate", "20", os.path.join(harness.BIN, "device_programs/moments.so"), "host")
        self.assertEqual(len(re.findall(r"^walk \d+: {\"bytes\":1000000,\"mean\":\d+\.\d{4},\"variance\":\d+\.\d{4}}$", out, re.M)), 20)
        self.assertIn("on host memory", out)

    def train_ranks(self, ranks):
        """What each rank prints: its losses, by epoch."""
        process = self.start("launch", "--gpus", "host:%d" % ranks, "--", os.path.join(harness.BIN, "08_train_ranks"), "photos")
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, out + err)
        self.assertIn(b"gradients were added over the group's links", out)
        losses = {rank: {} for rank in range(ranks)}
        for rank, world_size, epoch, loss in re.findall(r"rank (\d+) of (\d+)  epoch (\d+)  loss (\S+)", out.decode()):
            self.assertEqual(int(world_size), ranks)
            losses[int(rank)][int(epoch)] = loss
        return losses

    def test_ranks_that_add_their_gradients_have_the_same_falling_loss(self):
        from PIL import Image
        for kind in range(2):
            os.makedirs(os.path.join(self.folder, "photos", "class%d" % kind))
            for n in range(48):
                color = (40 + 3 * n, 200 - 150 * kind, 60 + 120 * kind)
                Image.new("RGB", (24, 24), color).save(os.path.join(self.folder, "photos", "class%d" % kind, "%02d.png" % n))
        for ranks in (2, 4):
            losses = self.train_ranks(ranks)
            self.assertEqual(sorted(losses[0]), list(range(5)))
            for rank in range(ranks):
                self.assertEqual(losses[rank], losses[0])  # equal to the last digit
            self.assertLess(float(losses[0][4]), 0.8 * float(losses[0][0]))

    def test_the_example_configs_pass_the_strict_check(self):
        import numpy
        from PIL import Image
        configs = glob.glob(os.path.join(SOURCES, "configs", "*.toml")) + [os.path.join(SOURCES, "photos.toml")]
        self.assertGreaterEqual(len(configs), 5)
        # With --strict the data must exist, too.
        arrays = os.path.join(self.folder, "features.npy")
        numpy.save(arrays, numpy.zeros((4, 3), "float32"))
        frames = self.write("frames.bin", "")
        os.truncate(frames, 128 * 3 * 64 * 64 * 4)
        photos = os.path.join(self.folder, "photos")
        os.makedirs(os.path.join(photos, "class"))
        Image.new("RGB", (24, 24)).save(os.path.join(photos, "class", "0.png"))
        data = dict(self.environment, ARRAYS=arrays, FRAMES=frames, PHOTOS=photos)
        for config in configs:
            code, out, err = self.penstock("check-config", config, "--strict", env=data)
            self.assertEqual(code, 0, config + out + err)

    def test_every_example_is_short_enough_to_read(self):
        for source in glob.glob(os.path.join(SOURCES, "*.c*")):
            with open(source) as file:
                self.assertLessEqual(len(file.readlines()), 120, source)


if __name__ == "__main__":
    harness.main()
