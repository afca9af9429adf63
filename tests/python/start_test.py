"""The programs of docs/start/python.md, docs/datasets.md and docs/python.md, as they are printed there."""

import json
import re
import signal
import subprocess
import sys

from package import *


class StartTest(PackageTest):
    def setUp(self):
        super().setUp()
        self.need_torch()
        for page in ("start/python.md", "start/config.md", "datasets.md", "python.md"):
            with open(os.path.join(TOP, "docs", page)) as file:
                programs = re.findall(r"^```(?:python|toml)\n(# (\w+\.(?:py|toml)).*?)^```", file.read(), re.M | re.S)
            for text, name in programs:
                with open(os.path.join(self.folder, name), "w") as file:
                    file.write(text)

    def begin(self, name):
        process = subprocess.Popen([sys.executable, "-B", name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment,
                                   cwd=self.folder)
        self._running.append(process)
        return process

    def ended(self, process, expect=0):
        out, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, expect, err)
        return out, err

    def stopped(self, number, expect):
        """Runs resume.py, and sends it this signal as soon as it has saved something."""
        path = os.path.join(self.folder, "resume.pt")
        before = os.stat(path).st_ino if os.path.exists(path) else None
        process = self.begin("resume.py")
        self.wait_until(lambda: os.path.exists(path) and os.stat(path).st_ino != before, "no state was saved", 60)
        process.send_signal(number)
        return self.ended(process, expect)

    def test_a_training_program_that_was_stopped_and_killed_ends_with_the_weights_of_one_that_was_not(self):
        undisturbed, _ = self.ended(self.begin("resume.py"))
        self.assertIn("weights [[", undisturbed)
        os.remove(os.path.join(self.folder, "resume.pt"))
        _, err = self.stopped(signal.SIGTERM, 1)
        self.assertIn("stopped in epoch 0", err)
        self.stopped(signal.SIGKILL, -signal.SIGKILL)
        self.assertEqual(self.ended(self.begin("resume.py"))[0], undisturbed)

    def test_a_sample_that_crashes_its_workers_is_left_out_and_not_tried_in_the_next_run(self):
        first, _ = self.ended(self.begin("bad.py"))
        self.assertIn("99 of 100 samples", first)
        self.assertIn("['SIGSEGV', 'SIGSEGV', 'SIGSEGV']}", first)
        second, _ = self.ended(self.begin("bad.py"))
        self.assertIn("99 of 100 samples", second)
        self.assertIn("'known': True", second)
        self.assertEqual(json.loads(self.penstock("deaths", "--last", "--json")[1])["deaths"], [])

    def test_the_program_without_a_dataset_class_gets_the_batches_of_the_config_page(self):
        self.assertEqual(self.penstock("sample-photos", os.path.join(self.folder, "photos"))[0], 0)
        batches, _ = self.ended(self.begin("decode.py"))
        self.assertIn("torch.float16 (128, 3, 224, 224)", batches)
        self.assertEqual(len(batches.splitlines()), 2)

    def test_the_dataset_that_reads_a_file_is_loaded_whole(self):
        batches, _ = self.ended(self.begin("points.py"))
        self.assertEqual(re.findall(r"^\((\d+), 2\)", batches, re.M), 15 * ["64"] + ["40"])

    def test_the_program_that_watches_a_session_prints_the_digest_of_penstock_run(self):
        self.assertEqual(self.penstock("sample-photos", os.path.join(self.folder, "photos"))[0], 0)
        report = json.loads(self.penstock("run", "photos.toml", "--digest", "--json")[1])
        self.assertEqual(self.ended(self.begin("watch.py"))[0].split(), [report["epochs"][0]["digest"]])

    def test_no_other_job_loses_its_result_when_a_job_crashes(self):
        lines = self.ended(self.begin("pool.py"))[0].splitlines()
        self.assertIn("['SIGSEGV', 'SIGSEGV', 'SIGSEGV']", lines[0])
        self.assertEqual(int(lines[1]), sum(number * number for number in range(100) if number != 13))

    def test_the_loss_of_the_first_program_falls(self):
        self.assertEqual(self.penstock("sample-photos", os.path.join(self.folder, "photos"))[0], 0)
        losses = [float(line.rpartition(" ")[2]) for line in self.ended(self.begin("train.py"))[0].splitlines()]
        self.assertEqual(len(losses), 5)
        self.assertLess(losses[-1], losses[0])


if __name__ == "__main__":
    unittest.main()
