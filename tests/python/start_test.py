"""The programs of docs/start/python.md, as they are printed there."""

import re
import signal
import subprocess
import sys

from package import *


class StartTest(PackageTest):
    def setUp(self):
        super().setUp()
        self.need_torch()
        with open(os.path.join(TOP, "docs", "start", "python.md")) as page:
            programs = re.findall(r"^```python\n(# (\w+\.py).*?)^```", page.read(), re.M | re.S)
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

    def test_the_loss_of_the_first_program_falls(self):
        self.assertEqual(self.penstock("sample-photos", os.path.join(self.folder, "photos"))[0], 0)
        losses = [float(line.rpartition(" ")[2]) for line in self.ended(self.begin("train.py"))[0].splitlines()]
        self.assertEqual(len(losses), 5)
        self.assertLess(losses[-1], losses[0])


if __name__ == "__main__":
    unittest.main()
