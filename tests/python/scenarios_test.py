"""The programs of docs/python-scenarios.md: programs that fail with torch or the standard library alone fail as the page says, and
the same works on penstock. Needs torch for most.
"""

import re
import signal
import time

from package import *

with open(os.path.join(TOP, "docs", "python-scenarios.md")) as file:
    PAGE = file.read()
PROGRAMS = dict(re.findall(r"^```python (\S+)\n(.*?)^```$", PAGE, re.S | re.M))


class ScenariosTest(PackageTest):
    def run_one(self, name, code=0, torch=True, environment=None):
        """Runs a program of the page; returns the last lines of what it printed."""
        if torch:
            self.need_torch()
        path = self.write(name + ".py", PROGRAMS[name])
        done = subprocess.run([sys.executable, "-B", path], cwd=self.folder, capture_output=True, text=True, timeout=200,
                              env={**self.environment, **(environment or {})})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return (done.stdout if code == 0 else done.stdout + done.stderr).strip()

    def without_gpu(self):
        """torch's own message depends on whether there is a GPU."""
        if os.path.exists("/dev/nvidia0"):
            self.skipTest("there is a GPU")

    def shown(self, text):
        self.assertIn(text, PAGE)
        return text

    # ---- S0 -------------------------------------------------------------------------------------------------------

    def test_s0_alone_a_killed_worker_ends_the_epoch(self):
        self.assertRegex(self.run_one("s0-alone", code=1), "exited unexpectedly|is killed by signal")

    def test_s0_on_penstock_no_batch_is_lost_when_a_worker_is_killed(self):
        self.assertEqual(self.run_one("s0-penstock"), self.shown("64 images"))

    def test_s0_alone_cuda_in_a_worker_fails(self):
        self.without_gpu()
        self.assertRegex(self.run_one("s0-cuda-alone", code=1), "CUDA")

    def test_s0_on_penstock_the_loader_moves_batches_to_the_device(self):
        self.assertEqual(self.run_one("s0-cuda-penstock"), self.shown("8 batches on the device"))

    # ---- S1 -------------------------------------------------------------------------------------------------------

    def test_s1_alone_the_refusal_gives_no_reason(self):
        self.without_gpu()
        out = self.run_one("s1-alone", code=1)
        self.assertTrue(out.startswith("False\n"), out)
        self.assertRegex(out.splitlines()[-1], "CUDA|NVIDIA")

    def test_s1_on_penstock_each_layer_is_checked_and_a_session_runs_without_a_gpu(self):
        self.without_gpu()
        penstock = os.path.dirname(os.environ["PENSTOCK_BIN"] + "/")
        out = self.run_one("s1-penstock", torch=False, environment={"PATH": penstock + os.pathsep + os.environ["PATH"]}).splitlines()
        self.assertEqual(sorted(line.split()[0] for line in out[:4]),
                         ["gpu.architecture", "gpu.build", "gpu.driver-runtime", "gpu.toolkit"])
        self.assertRegex(out[4], "device_unavailable_error|config_error")
        self.assertEqual(out[-1], self.shown("8 batches"))

    # ---- S2 -------------------------------------------------------------------------------------------------------

    def test_s2_alone_workers_are_new_in_each_epoch_and_inherit_the_open_files_of_the_program(self):
        out = self.run_one("s2-alone")
        self.assertEqual(out, self.shown("the same two processes in both epochs: False\nthe program's file is open in them: True"))

    def test_s2_on_penstock_workers_stay_and_inherit_no_open_file_of_the_program(self):
        out = self.run_one("s2-penstock")
        self.assertEqual(out, self.shown("the same two processes in both epochs: True\nthe program's file is open in them: False"))

    # ---- S3 -------------------------------------------------------------------------------------------------------

    def test_s3_alone_a_rank_waits_for_one_that_has_failed(self):
        import socket
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        group = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        begun = time.monotonic()
        out = self.run_one("s3", code=1, environment=group)
        self.assertGreaterEqual(time.monotonic() - begun, 10)
        self.assertNotIn("rank 1", out)

    def test_s3_under_penstock_launch_the_others_end_and_the_first_failed_rank_is_named(self):
        self.need_torch()
        path = self.write("s3.py", PROGRAMS["s3"])
        done = subprocess.run([os.path.join(os.environ["PENSTOCK_BIN"], "penstock"), "launch", "--gpus", "host:2", "--", sys.executable,
                               path], cwd=self.folder, capture_output=True, text=True, timeout=100, env=self.environment)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(self.shown("rank 1: there is no such dataset"), done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"failed: rank 1 \(pid \d+\) ended: exit code 1")

    # ---- S4 -------------------------------------------------------------------------------------------------------

    def test_s4_alone_one_job_breaks_the_pool(self):
        # The standard library's executor may also hang when it breaks; then its workers hang with it.
        path = self.write("s4-alone.py", PROGRAMS["s4-alone"])
        for _ in range(3):
            process = subprocess.Popen([sys.executable, "-B", path], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       env=self.environment, start_new_session=True)
            try:
                out, err = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                continue
            self.assertEqual(process.returncode, 0, err)
            self.assertRegex(out.strip(), r"^[1-9]\d* of 1000 jobs lost: BrokenProcessPool$")
            return
        self.skipTest("the standard library's executor hung three times")

    def test_s4_on_penstock_only_that_job_fails_and_is_named(self):
        self.assertEqual(self.run_one("s4-penstock", torch=False),
                         self.shown("1 of 1000 jobs lost: [13] ['SIGSEGV', 'SIGSEGV', 'SIGSEGV']"))

    def test_s4_on_penstock_the_second_half_of_a_job_has_its_arrays_on_the_device(self):
        self.assertEqual(self.run_one("s4-gpu"), self.shown("(0.0, 2.0, 4.0) - loaded elsewhere: True"))


if __name__ == "__main__":
    main()
