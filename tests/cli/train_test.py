#!/usr/bin/env python3
"""The example with a training loop, on a machine with a GPU."""

import os
import re
import subprocess

import harness


class Training(harness.PenstockTest):
    def test_the_loss_of_a_training_loop_falls_on_the_gpu(self):
        photos = os.path.join(self.folder, "photos")
        subprocess.run([os.path.join(harness.BIN, "penstock-sample-photos"), photos, "200"], check=True)
        done = subprocess.run([os.path.join(harness.BIN, "03_train_softmax"), photos], capture_output=True, text=True,
                              env=self.environment, timeout=100)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        losses = [float(loss) for loss in re.findall(r"^epoch +\d+  loss ([0-9.]+)$", done.stdout, re.M)]
        self.assertEqual(len(losses), 20, done.stdout)
        self.assertLess(losses[-1], 0.9 * losses[0], done.stdout)

    def test_a_training_loop_without_a_gpu_says_plainly_what_is_missing(self):
        photos = os.path.join(self.folder, "photos")
        subprocess.run([harness.PENSTOCK, "sample-photos", photos, "20"], check=True)
        done = subprocess.run([os.path.join(harness.BIN, "03_train_softmax"), photos], capture_output=True, text=True,
                              env=dict(self.environment, CUDA_VISIBLE_DEVICES=""), timeout=60)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"looking for CUDA devices: (this machine has no NVIDIA driver|no CUDA-capable device is detected)")
        self.assertIn("penstock doctor", done.stderr)
        self.assertNotIn("insufficient", done.stderr)


if __name__ == "__main__":
    harness.main()
