"""A session respects what the embedding program does with signals, SIGCHLD, fork, threads and exit."""

import re

from harness import *

EMBEDDER = os.path.join(BIN, "session_embedder")


def states_of_threads(pid):
    for thread in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/stat" % (pid, thread)) as file:
            yield file.read().rpartition(")")[2].split()[0]


class EmbeddingTest(PenstockTest):
    def embed(self, mode, expect=EXIT_OK):
        """Runs a mode of embedder.cpp to its end; returns its lines as {word: rest}."""
        done = subprocess.run([EMBEDDER, mode], capture_output=True, text=True, timeout=50, env=self.environment, cwd=self.folder)
        self.assertEqual(done.returncode, expect, done.stderr)
        self.stderr = done.stderr
        return dict(line.split(" ", 1) for line in done.stdout.splitlines())

    def undisturbed(self):
        return self.embed("plain")["digest"]

    def check_gone(self, pids):
        self.wait_until(lambda: not any(alive(int(pid)) for pid in pids), "the end of all workers", seconds=2)

    def test_a_program_that_exits_with_a_live_session_keeps_its_exit_code_and_leaves_no_worker(self):
        begin = time.monotonic()
        said = self.embed("exit", expect=7)
        self.assertLess(time.monotonic() - begin, 10)
        self.check_gone(said["workers"].split())

    def test_a_forked_child_that_exits_does_not_disturb_its_session(self):
        said = self.embed("fork-exit")
        self.assertEqual(said["child"], "3")
        self.assertEqual(said["digest"], self.undisturbed())

    def test_a_forked_copy_of_a_session_refuses_to_be_used_and_the_original_continues(self):
        said = self.embed("fork-use")
        self.assertEqual(said["child"], "4")  # every use was refused with errc::usage
        self.assertEqual(said["digest"], self.undisturbed())

    def test_a_forked_child_that_outlives_the_session_keeps_no_worker_alive(self):
        process = subprocess.Popen([EMBEDDER, "fork-stay"], stdout=subprocess.PIPE, text=True, env=self.environment)
        self._running.append(process)
        holder = int(process.stdout.readline().split()[1])
        try:
            workers = [int(pid) for pid in process.stdout.readline().split()[1:]]
            # Stopped processes do not handle the parent-death signal at once, so the other mechanisms must end them.
            signal_process(workers[0], signal.SIGSTOP)
            self.wait_until(lambda: all(state == "T" for state in states_of_threads(workers[0])), "a stopped worker")
            process.kill()
            process.wait()
            self.check_gone(workers)
            self.assertTrue(alive(holder))
        finally:
            signal_process(holder, signal.SIGKILL)

    def test_a_program_that_a_forked_child_executes_inherits_no_descriptor_of_the_session(self):
        said = self.embed("fork-exec")
        self.assertEqual(said["child"], "0")
        numbers = {int(n) for n in re.findall(r" (\d+) -> ", self.stderr)}
        self.assertLessEqual({0, 1, 2}, numbers)
        for line in self.stderr.splitlines():
            if " -> " in line:
                self.assertNotRegex(line, "memfd|pidfd|eventpoll|eventfd|timerfd|socket:", self.stderr)

    def test_in_a_program_that_blocks_all_signals_the_workers_block_none(self):
        said = self.embed("mask")
        self.assertEqual(int(said["blocked"], 16), 0)
        self.assertEqual(said["digest"], self.undisturbed())
        # The program has blocked all signals but SIGKILL and SIGSTOP; libc reserves two more.
        self.assertEqual(int(said["mine"], 16) | 0x180000000, 0xFFFFFFFFFFFBFEFF)

    def test_a_program_whose_system_calls_are_constantly_interrupted_gets_its_stream(self):
        said = self.embed("alarm")
        self.assertEqual(said["interrupted"], "often")
        self.assertEqual(said["digest"], self.undisturbed())

    def test_a_program_that_reaps_every_child_gets_its_stream(self):
        said = self.embed("reap")
        self.assertEqual(said["deaths"], "1")
        self.assertEqual(said["digest"], self.undisturbed())

    def test_the_thread_that_took_the_first_batch_can_end(self):
        said = self.embed("thread")
        self.assertEqual(said["restarts"], "0")
        self.assertEqual(said["digest"], self.undisturbed())

    def test_a_session_can_be_destroyed_on_another_thread_while_its_first_thread_is_alive(self):
        self.assertEqual(self.embed("other-thread")["digest"], self.undisturbed())

    def test_a_program_without_standard_streams_gets_its_stream(self):
        self.assertEqual(self.embed("closed")["digest"], self.undisturbed())


if __name__ == "__main__":
    main()
