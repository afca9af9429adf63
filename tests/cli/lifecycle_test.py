"""Processes: when they start, what they hold open, and that none remains however the session ends."""

import os
import random
import signal
import subprocess
import time

from harness import *

SLOW = synthetic(samples=4000, dataset='wait = "5ms"', epochs=1)


class LifecycleTest(PenstockTest):
    def running(self, *options, text=SLOW, workers=4):
        """A run that has delivered some batches, and its workers."""
        process = self.start("run", self.write("s.toml", text), "--workers", workers, "--json", "--quiet", *options)
        self.wait_until(lambda: len(self.workers_of(process)) == workers, "%d workers" % workers)
        return process

    def test_exactly_the_configured_number_of_workers_is_started(self):
        process = self.running(workers=3)
        self.assertEqual(self.penstock("wait", "--for=ready", "--timeout", "20s")[0], EXIT_OK)
        self.assertEqual(len(self.workers_of(process)), 3)
        self.assertEqual(sorted(name_of(pid) for pid in descendants_of(process.pid)),
                         ["penstock-gpu"] + 3 * ["penstock-worker"])
        process.send_signal(signal.SIGINT)
        self.assertEqual(json.loads(process.communicate(timeout=15)[0])["workers"]["started"], 3)

    def test_no_worker_has_cuda_or_a_gpu_device_open(self):
        process = self.running(workers=8)
        self.assertEqual(self.penstock("wait", "--for=ready", "--timeout", "20s")[0], EXIT_OK)  # until then a worker may lack the environment that identifies it
        for pid in self.workers_of(process):
            with open("/proc/%d/maps" % pid) as maps:
                self.assertNotIn("libcuda", maps.read())
            for fd in os.listdir("/proc/%d/fd" % pid):
                self.assertFalse(os.readlink("/proc/%d/fd/%s" % (pid, fd)).startswith("/dev/nvidia"))
            with open("/proc/%d/environ" % pid, "rb") as environ:
                self.assertIn(b"CUDA_VISIBLE_DEVICES=\0", environ.read() + b"\0")
        linked = subprocess.run(["ldd", os.path.join(BIN, "penstock-worker")], capture_output=True, text=True).stdout
        self.assertNotIn("cuda", linked)

    def test_the_second_epoch_uses_the_workers_of_the_first(self):
        config = self.write("e.toml", synthetic(samples=300, dataset='wait = "4ms"', epochs=2))
        process = self.start("run", config, "--workers", 3, "--json", "--quiet")
        seen = set()
        while process.poll() is None:
            seen |= set(self.workers_of(process))
            time.sleep(0.01)
        out, _ = process.communicate()
        report = json.loads(out)
        self.assertEqual(len(seen), 3)
        self.assertEqual(report["workers"]["started"], 3)
        self.assertEqual([e["complete"] for e in report["epochs"]], [True, True])

    def test_a_worker_uses_little_memory(self):
        process = self.running(workers=2)
        for pid in self.workers_of(process):
            self.assertLess(rss_anon(pid), 24 << 20)

    def test_collation_happens_in_workers(self):
        # The session's own CPU time is small compared with its workers'.
        config = self.write("c.toml", synthetic(samples=600, dataset='work = "2ms"', epochs=1))
        process = self.start("run", config, "--workers", 2, "--json", "--quiet")
        times = {}
        while process.poll() is None:
            for pid in [process.pid] + self.workers_of(process):
                try:
                    with open("/proc/%d/stat" % pid) as file:
                        fields = file.read().rpartition(")")[2].split()
                    times[pid] = int(fields[11]) + int(fields[12])
                except OSError:
                    pass
            time.sleep(0.02)
        session = times.pop(process.pid)
        self.assertGreater(sum(times.values()), 100)
        self.assertLess(session, sum(times.values()) / 4)

    def test_ctrl_c_ends_the_run_with_a_report_and_130_and_sigterm_with_143(self):
        for number, code in ((signal.SIGINT, EXIT_INTERRUPTED), (signal.SIGTERM, EXIT_TERMINATED)):
            process = self.running()
            workers = self.workers_of(process)
            process.send_signal(number)
            out, err = process.communicate(timeout=15)
            self.assertEqual(process.returncode, code, err)
            report = json.loads(out)
            self.assertEqual(report["outcome"], "stopped")
            self.assertEqual(report["workers"]["deaths"], [])
            self.assertEqual([described(pid) for pid in workers if alive(pid)], [], err)

    def status(self):
        code, out, _ = self.penstock("status", "--json")
        return json.loads(out) if code == EXIT_OK else {"state": "", "workers": []}

    def with_samples_at_hand(self, wait):
        """A run whose two workers each spend this long on a sample."""
        text = synthetic(samples=100, dataset='wait = "%s"' % wait, epochs=1, more='[supervisor]\nshutdown = "60s"\n')
        process = self.running(text=text, workers=2)
        self.wait_until(lambda: [w["current_sample"] is None for w in self.status()["workers"]] == [False, False], "a current sample for each worker")
        return process

    def test_after_a_second_ctrl_c_the_run_does_not_wait_for_a_long_sample(self):
        process = self.with_samples_at_hand("60s")
        process.send_signal(signal.SIGINT)
        self.wait_until(lambda: self.status()["state"] == "stopping", "the first one is heard")
        begin = time.monotonic()
        self.signal_again(process, signal.SIGINT)
        process.communicate(timeout=70)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual(process.returncode, EXIT_INTERRUPTED)

    def test_repeated_sighups_count_as_one_request_to_stop(self):
        # With PR_SET_PDEATHSIG the kernel sends a SIGHUP whenever a thread of the parent ends.
        process = self.with_samples_at_hand("1s")
        for _ in range(4):
            process.send_signal(signal.SIGHUP)
            self.wait_until(lambda: not signals_pending(process.pid), "the SIGHUP to be handled: pending ones merge")
        out, err = process.communicate(timeout=15)
        self.assertEqual(process.returncode, EXIT_TERMINATED, err)
        self.assertEqual(json.loads(out)["outcome"], "stopped")
        self.assertEqual(err.count(b"stopping"), 1, err)

    def test_a_session_that_is_killed_at_any_moment_leaves_no_process_behind(self):
        choose = random.Random(30)
        before = set(os.listdir("/dev/shm"))
        temporary = os.path.join(self.folder, "tmp")
        os.mkdir(temporary)
        self.environment["TMPDIR"] = temporary
        config = self.write("k.toml", synthetic(samples=4000, dataset='work = "3ms"', epochs=1))
        for attempt in range(30):
            process = self.start("run", config, "--workers", 4, "--json", "--quiet")
            # Kill it at any time from before the first worker starts until long after; spawning takes the first 30 ms.
            time.sleep(choose.choice([0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25]))
            family = set(descendants_of(process.pid))
            process.kill()
            process.communicate()
            def left():
                return [pid for pid in family | set(lost_workers(self.folder)) if alive(pid)]
            self.wait_until(lambda: not left(), lambda: "all processes of attempt %d are gone; there are %s" % (
                attempt, [described(pid) for pid in left()]))
        self.assertFalse([name for name in set(os.listdir("/dev/shm")) - before if "penstock" in name])
        self.assertEqual(os.listdir(temporary), [])
        # The killed session's control socket and record remain. The next session of this name replaces the socket.
        self.run_json(self.write("n.toml", synthetic(samples=16)), "--set", 'name="k"')

    def test_stopped_workers_end_with_their_session(self):
        # Both in this test's session and in one whose leader is the program itself, because the kernel's treatment of stopped process
        # groups depends on that.
        for options in ({}, {"start_new_session": True}):
            process = self.start("run", self.write("s.toml", SLOW), "--workers", 3, "--json", "--quiet", **options)
            self.wait_until(lambda: len(self.workers_of(process)) == 3, "3 workers")
            self.assertEqual(self.penstock("wait", "--for=ready", "--timeout", "20s")[0], EXIT_OK)
            family = descendants_of(process.pid)
            for pid in family:
                signal_process(pid, signal.SIGSTOP)
            self.wait_until(lambda: all(state_and_parent(pid)[0] == "T" for pid in family), "all are stopped")
            process.kill()
            process.communicate()
            self.wait_until(lambda: not [pid for pid in family if alive(pid)], "all are gone", 2.0)

    def test_a_missing_worker_program_is_an_error_at_once(self):
        code, _, err = self.penstock("run", self.write("m.toml", synthetic(more='[loader]\ncommand = ["no-such-worker"]')), timeout=10)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("program 'no-such-worker' was not found", err)

    def test_a_worker_program_that_is_not_executable_is_an_error_at_once(self):
        program = self.write("worker", "#!/bin/sh\n")
        config = self.write("x.toml", synthetic(more='[loader]\ncommand = ["%s"]' % program))
        code, _, err = self.penstock("run", config, timeout=10)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("not an executable file", err)

    def test_a_program_that_is_not_a_worker_program_ends_the_run_with_its_last_output(self):
        program = self.write("worker", "#!/bin/sh\necho I am no worker >&2\nexit 3\n")
        os.chmod(program, 0o755)
        config = self.write("x.toml", synthetic(more='[loader]\ncommand = ["%s"]\n[loader.restart]\nbackoff = { base = "10ms", max = "20ms" }' % program))
        code, _, err = self.penstock("run", config, "--workers", 1, timeout=60)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("no loader worker is left", err)
        self.assertIn("I am no worker", err)

    def test_a_worker_started_by_hand_explains_itself(self):
        done = subprocess.run([os.path.join(BIN, "penstock-worker")], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 78)
        self.assertIn("A penstock session starts it", done.stderr)


def signals_pending(pid):
    try:
        with open("/proc/%d/status" % pid) as file:
            return any(int(line.split()[1], 16) for line in file if line.startswith(("SigPnd", "ShdPnd")))
    except OSError:
        return False


def lost_workers(folder):
    """Workers of this test whose parent has ended; other tests may have their own."""
    def is_of_this_test(pid):
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                return folder.encode() in file.read() and os.readlink("/proc/%d/exe" % pid).startswith(os.path.realpath(BIN))
        except OSError:
            return False
    return [pid for pid in all_pids() if state_and_parent(pid)[1] == 1 and is_of_this_test(pid)]


if __name__ == "__main__":
    main()
