"""A worker program started by hand loads single samples in the foreground: same bytes as in a session, clear errors."""

import glob
import os
import re
import subprocess

import numpy
from harness import BIN, PenstockTest, main, make_photos

PHOTOS = """
[dataset]
path = "photos"
[image]
size = [16, 16]
augment = "random-resized-crop"
[sampler]
batch_size = 4
seed = 9
[loader]
workers = 1
[gpu]
device = "host"
"""

ODD = """
[dataset]
type = "custom"
options = {{ {options} }}
[loader]
command = ["odd-worker"]
"""


class WorkerByHand(PenstockTest):
    def worker(self, name, *arguments, environment={}):
        done = subprocess.run([os.path.join(BIN, name), *map(str, arguments)], capture_output=True, text=True, cwd=self.folder,
                              env=dict(self.environment, **environment), stdin=subprocess.DEVNULL, timeout=50)
        return done.returncode, done.stdout, done.stderr

    def odd(self, options=""):
        return self.write("odd.toml", ODD.format(options=options))

    def test_workers_whose_fingerprints_differ_are_refused_and_the_error_shows_what_their_author_chose(self):
        code, _, err = self.penstock("run", self.odd('new_each_time = "yes", hang = "0"'), "--device", "host", "--workers", 2)  # sample 0 hangs, so no worker finishes the run alone
        self.assertEqual(code, 1, err)
        self.assertRegex(err, r"fingerprints [0-9a-f]+ \(its author's 'odd/\d+'\) and [0-9a-f]+ \(its author's 'odd/\d+'\)")
    def test_a_sample_equals_the_one_that_a_session_delivers_and_is_the_same_each_time(self):
        make_photos(os.path.join(self.folder, "photos"), 6, classes=2)
        config = self.write("p.toml", PHOTOS)
        out = os.path.join(self.folder, "out")
        self.run_json(config, "--sink", "npy", "--out", out)
        crops = {}
        for path in glob.glob(out + "/*.index.npy"):
            for index, crop in zip(numpy.load(path), numpy.load(path.replace(".index.", ".crop."))):
                crops[int(index)] = [int(x) for x in crop]
        code, text, err = self.worker("penstock-worker", "--config", config, "--load", "0-2,5")
        self.assertEqual(code, 0, err)
        found = re.findall(r"sample (\d+) \(([^)]*)\), epoch 0\n.*?crop +int32 \[4\]  digest [0-9a-f]{16}  = ([0-9, ]+)", text, re.S)
        self.assertEqual([int(index) for index, _, _ in found], [0, 1, 2, 5])
        self.assertRegex(text, r"(?m)^dataset '[a-z-]+': \d+ samples, fingerprint '")
        for index, name, crop in found:
            self.assertEqual([int(x) for x in crop.split(",")], crops[int(index)])
            self.assertTrue(name.endswith(".jpg"), name)
        digests = lambda t: re.findall(r"digest ([0-9a-f]{16})", t)
        self.assertEqual(digests(text), digests(self.worker("penstock-worker", "--config", config, "--load", "0-2,5")[1]))
        other = self.worker("penstock-worker", "--config", config, "--load", "0-2,5", "--epoch", 1)[1]
        self.assertNotEqual(digests(text), digests(other))

    def test_a_custom_program_loads_in_the_foreground_and_failures_are_named(self):
        code, out, err = self.worker("odd-worker", "--config", self.odd('throw = "13"'), "--load", "12-14")
        self.assertEqual(code, 1, err)
        self.assertIn("dataset 'odd': 60 samples, its author's fingerprint 'odd/1'\n  tokens  uint16 [10, 2]\n  number  int64 []\n", out)
        self.assertIn("sample 13 (page-13), epoch 0\n  failed: page is torn\n", out)
        self.assertRegex(out, r"sample 14 \(page-14\), epoch 0\n  tokens  uint16 \[10, 2\]  digest [0-9a-f]{16}\n"
                              r"  number  int64 \[\]  digest [0-9a-f]{16}  = 14\n  loaded in [0-9.]+ ms\n")
        self.assertIn("odd-worker: 1 sample failed", err)

    def test_after_a_crash_the_name_of_the_sample_is_shown(self):
        code, out, _ = self.worker("odd-worker", "--config", self.odd('segv = "13"'), "--load", 13)
        self.assertEqual(code, -11)
        self.assertEqual(out.splitlines()[-1], "sample 13 (page-13), epoch 0")

    def test_setup_alone_loads_no_sample(self):
        code, out, _ = self.worker("odd-worker", "--config", self.odd('segv = "0"'), "--setup-only")
        self.assertEqual(code, 0)
        self.assertTrue(out.endswith("set up; no sample was loaded\n"), out)
        code, _, err = self.worker("odd-worker", "--config", self.odd('throw_in = "setup"'), "--setup-only")
        self.assertEqual(code, 78)
        self.assertIn("setting up the dataset: no licence", err)

    def test_mistakes_are_reported_with_the_remedy(self):
        config = self.odd()
        for arguments, code, words in [
                (["--config", config, "--load", "60"], 2, "--load 60: the dataset has 60 samples, counted from 0"),
                (["--config", config, "--load", "seven"], 2, "'seven' is not a sample index"),
                (["--load", "7"], 2, "which config? Write --config FILE"),
                (["--config", "nowhere.toml", "--load", "7"], 78, "cannot read nowhere.toml"),
                (["--config", self.write("bad.toml", "[loader]\nworker = 2\n"), "--load", "7"], 78, "did you mean 'workers'?"),
                ([], 78, "--config FILE --load 7")]:
            done, _, err = self.worker("odd-worker", *arguments)
            self.assertEqual(done, code, err)
            self.assertIn(words, err)

    def test_help_explains_the_program_and_lists_every_option(self):
        for program in "penstock-worker", "odd-worker":
            code, out, _ = self.worker(program, "--help")
            self.assertEqual(code, 0)
            for option in "--config", "--load", "--setup-only", "--epoch", "--set", "--help":
                self.assertIn("\n  %s" % option, out)
            self.assertIn("A penstock session starts it", out)


if __name__ == "__main__":
    main()
