"""Data-parallel training in a disturbed group of ranks (example 07), with a communicator.

On the host device it is the stand-in of tests/fake_nccl; with PENSTOCK_TEST_GPUS=N it is NCCL on N GPUs.
"""

from harness import *

import glob
import socket

GPUS = int(os.environ.get("PENSTOCK_TEST_GPUS", "0"))
RANKS = GPUS or 3
DEVICES = ",".join(map(str, range(GPUS))) if GPUS else "host:%d" % RANKS
CLASSES = 4
FAKE_NCCL = os.path.join(os.path.dirname(BIN), "lib", "libfake_nccl.so")
LONG = 300 if GPUS else 40  # epochs: enough for two faults, even on a fast machine


class Training(PenstockTest):
    placement = "process"

    def setUp(self):
        super().setUp()
        if GPUS > len(glob.glob("/dev/nvidia[0-9]*")):
            self.skipTest("there are fewer than %d GPUs" % GPUS)
        make_photos(os.path.join(self.folder, "photos"), 96 * RANKS, CLASSES, (24, 18))
        self.log = os.path.join(self.folder, "steps")
        os.mkdir(self.log)
        self.environment.update(SOFTMAX_LOG=self.log, SOFTMAX_CLASSES=str(CLASSES), NCCL_NVLS_ENABLE="0")
        if not GPUS:
            self.environment["PENSTOCK_NCCL"] = FAKE_NCCL

    def config(self, epochs, more=""):
        return self.write("softmax.toml", """
name = "softmax"
[dataset]
path = "photos"
[image]
size = [16, 16]
augment = "none"
[sampler]
batch_size = 4
epochs = %d
[loader]
workers = 1
[gpu]
placement = "%s"
dtype = "float32"
[group]
communicator = "nccl"
abort_timeout = "2s"
%s
""" % (epochs, self.placement, more))

    def launch(self, config, *options, **popen):
        return self.start("launch", config, "--gpus", DEVICES, "--json", "--quiet", "--sink",
                          "plugin:" + os.path.join(BIN, "device_programs", "07_softmax_ranks.so"), *options, **popen)

    def steps_of(self, rank):
        """The loss by step, as last computed, and the numbers of the communicators."""
        losses, numbers = {}, set()
        try:
            with open(os.path.join(self.log, "rank-%d.txt" % rank)) as file:
                for line in file:
                    if line.endswith("\n"):
                        step, loss, number = line.split()
                        losses[int(step)] = float.fromhex(loss)
                        numbers.add(int(number))
        except OSError:
            pass
        return losses, numbers

    def forget_steps(self):
        for name in os.listdir(self.log):
            os.remove(os.path.join(self.log, name))

    def check_that_an_undisturbed_training_has_the_same_losses(self):
        disturbed = self.steps_of(0)[0]
        self.forget_steps()
        self.finish(self.launch(self.config(LONG)), LONG * 24)
        self.assertEqual(self.steps_of(0)[0], disturbed)

    def check_that_a_signal_stops_all_at_one_step(self):
        process = self.launch(self.config(2000))
        self.wait_for_step(process, 40)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        ends = {max(self.steps_of(rank)[0]) for rank in range(RANKS)}
        self.assertEqual(len(ends), 1)

    def finish(self, process, steps):
        """Runs to the end: all ranks took all steps, with the same, falling losses."""
        out, err = process.communicate(timeout=150)
        self.assertEqual(process.returncode, EXIT_OK, err.decode() + out.decode())
        report = json.loads(out)
        losses, numbers = self.steps_of(0)
        self.assertEqual(sorted(losses), list(range(1, steps + 1)))
        for rank in range(1, RANKS):
            self.assertEqual(self.steps_of(rank)[0], losses)
        tenth = max(1, steps // 10)
        first = sum(losses[s] for s in range(1, tenth + 1))
        last = sum(losses[s] for s in range(steps - tenth + 1, steps + 1))
        self.assertLess(last, first)
        for rank in report["ranks"]:
            self.check_sums(rank)
        return report, numbers

    def owner_of(self, session):
        for child in children_of(session):
            try:
                with open("/proc/%d/comm" % child) as file:
                    if file.read().startswith("penstock-gpu"):
                        return child
            except OSError:
                continue
        return None

    def kill(self, process, pid):
        """Kills a process, and prints how long the others took to continue."""
        at = max(self.steps_of(1 % RANKS)[0])
        begin = time.monotonic()
        signal_process(pid, signal.SIGKILL)
        self.wait_for_step(process, at + 32, 1 % RANKS)
        print("killed at step %d, further after %.2f s" % (at, time.monotonic() - begin))

    def wait_for_step(self, process, step, rank=0):
        self.wait_until(lambda: process.poll() is not None or max(self.steps_of(rank)[0], default=0) >= step,
                        "step %d of rank %d" % (step, rank), 60)
        if process.poll() is not None:
            out, err = process.communicate()
            self.fail("the group has ended: " + err.decode() + out.decode())


class CommunicatorTest(Training):
    def test_all_ranks_of_a_training_have_the_same_loss_at_each_step(self):
        report, numbers = self.finish(self.launch(self.config(4)), 4 * 24)
        self.assertEqual(report["restarts"], 0)
        self.assertEqual(len(numbers), 1)

    def test_training_continues_with_equal_losses_when_a_session_is_killed(self):
        process = self.launch(self.config(LONG))
        for rank, step in ((RANKS - 1, 40), (0, 120)):
            self.wait_for_step(process, step)
            self.kill(process, self.rank_pids(process)[rank])
        report, numbers = self.finish(process, LONG * 24)
        self.assertGreaterEqual(report["restarts"], 2)
        self.assertGreaterEqual(len(numbers), 3)
        self.check_that_an_undisturbed_training_has_the_same_losses()

    def test_training_continues_with_equal_losses_when_a_gpu_owner_is_killed(self):
        process = self.launch(self.config(LONG))
        for rank, step in ((RANKS - 1, 40), (0, 120)):
            self.wait_for_step(process, step)
            self.kill(process, self.wait_until(lambda: self.owner_of(self.rank_pids(process)[rank]), "an owner"))
        report, numbers = self.finish(process, LONG * 24)
        self.assertEqual(report["restarts"], 0)  # no session's process was restarted
        self.assertGreaterEqual(len(numbers), 3)
        self.check_that_an_undisturbed_training_has_the_same_losses()

    def test_a_group_without_state_whose_sessions_are_all_killed_at_once_continues_at_one_step(self):
        epochs, options = LONG if GPUS else 20, ("--digest",)
        undisturbed = self.finish(self.launch(self.config(epochs), *options), epochs * 24)[0]
        self.forget_steps()
        process = self.launch(self.config(epochs), *options)
        self.wait_for_step(process, epochs * 6)  # the launcher knows steps that all ranks have
        for pid in self.rank_pids(process).values():
            signal_process(pid, signal.SIGKILL)
        out, err = process.communicate(timeout=150)
        self.assertEqual(process.returncode, EXIT_OK, err.decode() + out.decode())
        report = json.loads(out)
        self.assertGreaterEqual(report["restarts"], RANKS)
        # Every batch counts once, and the restarted programs have taken the same steps since.
        for rank, before in zip(report["ranks"], undisturbed["ranks"]):
            self.assertEqual([epoch["digest"] for epoch in rank["epochs"]], [epoch["digest"] for epoch in before["epochs"]])
        since = [self.steps_since_the_last_beginning(rank) for rank in range(RANKS)]
        self.assertEqual(since, [since[0]] * RANKS)
        self.assertEqual([step for step, _ in since[0]], list(range(1, len(since[0]) + 1)))
        agreed = epochs * 24 - len(since[0])
        self.assertGreater(agreed, 0)
        print("went on at step %d" % agreed)

    def steps_since_the_last_beginning(self, rank):
        with open(os.path.join(self.log, "rank-%d.txt" % rank)) as file:
            steps = [(int(step), loss) for step, loss, _ in (line.split() for line in file)]
        begins = max(at for at, (step, _) in enumerate(steps) if step == 1)
        return steps[begins:]

    def test_a_signal_stops_all_ranks_at_one_step(self):
        self.check_that_a_signal_stops_all_at_one_step()


class EmbeddedTest(Training):
    """Device programs in the sessions' own processes: only their threads are replaced."""
    placement = "embedded"

    def restart_owner(self, process, rank):
        name = "softmax-rank%d" % rank
        begin = max(self.steps_of(1 % RANKS)[0])
        code, _, err = self.penstock("restart", "gpu", "--session", name)
        self.assertEqual(code, EXIT_OK, err)
        self.wait_for_step(process, begin + 32, 1 % RANKS)

    def test_embedded_training_has_the_losses_and_digests_of_training_in_owner_processes(self):
        losses, digests = [], []
        for self.placement in ("process", "embedded"):
            self.forget_steps()
            report, numbers = self.finish(self.launch(self.config(4), "--digest"), 4 * 24)
            self.assertEqual(len(numbers), 1)
            losses.append(self.steps_of(0)[0])
            digests.append([[epoch["digest"] for epoch in rank["epochs"]] for rank in report["ranks"]])
        self.assertEqual(losses[0], losses[1])
        self.assertEqual(digests[0], digests[1])

    def test_embedded_training_continues_with_equal_losses_when_a_session_is_killed(self):
        process = self.launch(self.config(LONG))
        for rank, step in ((RANKS - 1, 40), (0, 120)):
            self.wait_for_step(process, step)
            self.kill(process, self.rank_pids(process)[rank])
        report, numbers = self.finish(process, LONG * 24)
        self.assertEqual(report["restarts"], 2)  # only the two killed processes were restarted
        self.assertGreaterEqual(len(numbers), 3)
        self.check_that_an_undisturbed_training_has_the_same_losses()

    def test_an_embedded_owner_that_an_operator_restarts_continues_in_the_same_process(self):
        process = self.launch(self.config(LONG))
        self.wait_for_step(process, 40)
        before = self.rank_pids(process)
        self.restart_owner(process, 0)
        self.assertEqual(self.rank_pids(process), before)
        report, numbers = self.finish(process, LONG * 24)
        self.assertEqual(report["restarts"], 0)
        self.assertGreaterEqual(len(numbers), 2)

    def test_a_signal_stops_all_embedded_ranks_at_one_step(self):
        self.check_that_a_signal_stops_all_at_one_step()

    def test_after_an_asynchronous_error_in_an_embedded_rank_all_ranks_return_to_the_agreed_step(self):
        if GPUS:
            self.skipTest("NCCL itself does not fail on request")
        self.environment.update(PENSTOCK_FAKE_NCCL="error-at:50", PENSTOCK_FAKE_NCCL_ONCE=self.write("once", ""))
        report, numbers = self.finish(self.launch(self.config(6)), 6 * 24)
        self.assertEqual(report["restarts"], 0)
        self.assertGreaterEqual(len(numbers), 2)

    def test_a_program_that_never_returns_ends_an_embedded_session_because_no_one_can_end_a_thread(self):
        if GPUS:
            self.skipTest("a kernel that never ends is another test's")
        self.environment["PENSTOCK_ENDLESS_SAMPLE"] = "17"
        config = self.config(4, """[gpu.hang]
batch_timeout = "1s"
""")
        process = self.start("launch", config, "--gpus", "host:%d" % RANKS, "--json", "--quiet", "--set", "group.abort_timeout=200ms",
                             "--sink", "plugin:" + os.path.join(BIN, "device_programs", "never_ends.so"))
        out, _ = process.communicate(timeout=60)
        report = json.loads(out)
        self.assertEqual(report["outcome"], "failed")
        self.assertIn("the device program did not return within 2.4 s of a request to stop; [gpu] placement = \"embedded\"", report["error"])

    def test_a_rank_whose_group_has_finished_delivers_its_remaining_batches_without_a_communicator(self):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(b'{"state":"","delivered":0,"alone":true}\n')  # set as by a launcher that restarts such a rank
            self.environment.update(PENSTOCK_LAUNCH_CHANNEL=str(theirs.fileno()), RANK="0", WORLD_SIZE="2", LOCAL_RANK="0",
                                    LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29999")
            device = () if GPUS else ("--set", "gpu.device=host")
            process = self.start("run", self.config(1), "--json", "--quiet", *device, pass_fds=[theirs.fileno()])
            out, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, EXIT_OK, err)
        self.assertEqual(json.loads(out)["outcome"], "finished")

    def test_a_program_whose_thread_does_not_end_delays_neither_its_session_nor_the_group(self):
        self.environment.update(PENSTOCK_TEST_AFTER_THE_END="1", PENSTOCK_TEST_DEATHS="0", PENSTOCK_TEST_COUNT=self.write("count", ""))
        config = self.config(4)
        begin = time.monotonic()
        process = self.start("launch", config, "--gpus", DEVICES, "--json", "--quiet", "--set", "group.abort_timeout=200ms",
                             "--sink", "plugin:" + os.path.join(BIN, "dying_program.so"))
        out, _ = process.communicate(timeout=60)
        self.assertEqual(json.loads(out)["outcome"], "finished", out)
        self.assertLess(time.monotonic() - begin, 15)

    def test_an_abort_that_hangs_ends_an_embedded_session_within_abort_timeout_and_names_the_remedy(self):
        if GPUS:
            self.skipTest("NCCL itself does not fail on request")
        self.environment.update(PENSTOCK_FAKE_NCCL="abort-hangs", PENSTOCK_FAKE_NCCL_ONCE=self.write("once", ""))
        process = self.launch(self.config(2000))
        self.wait_for_step(process, 40)
        signal_process(self.rank_pids(process)[0], signal.SIGKILL)
        begin = time.monotonic()
        out, _ = process.communicate(timeout=60)
        print("ended after %.2f s" % (time.monotonic() - begin))
        report = json.loads(out)
        self.assertEqual(report["outcome"], "failed")
        error = report["error"]
        self.assertIn("cannot be aborted: the abort has not returned for 2s", error)
        self.assertIn("with \"process\" the group would have continued", error)
        self.assertLess(time.monotonic() - begin, 15)


class TroubledLibraryTest(Training):
    def setUp(self):
        super().setUp()
        if GPUS:
            self.skipTest("NCCL itself does not fail on request")
        self.environment["PENSTOCK_FAKE_NCCL_ONCE"] = self.write("once", "")

    def test_after_an_asynchronous_error_in_one_rank_all_ranks_return_to_the_agreed_step(self):
        self.environment["PENSTOCK_FAKE_NCCL"] = "error-at:50"
        _, numbers = self.finish(self.launch(self.config(6)), 6 * 24)
        self.assertGreaterEqual(len(numbers), 2)

    def test_an_abort_that_hangs_ends_the_owner_process_but_not_the_training(self):
        self.environment["PENSTOCK_FAKE_NCCL"] = "abort-hangs"
        process = self.launch(self.config(LONG))
        self.wait_for_step(process, 40)
        signal_process(self.wait_until(lambda: self.owner_of(self.rank_pids(process).get(0, 0)), "an owner"), signal.SIGKILL)
        self.finish(process, LONG * 24)
        self.assertFalse(os.path.exists(self.environment["PENSTOCK_FAKE_NCCL_ONCE"]))


class RefusedTest(PenstockTest):
    def refused(self):
        """The reason why a session on the host device cannot have a communicator."""
        code, _, err = self.penstock("run", self.write("host.toml", """
[dataset]
type = "synthetic"
samples = 40
[gpu]
device = "host"
[group]
communicator = "nccl"
"""))
        self.assertEqual(code, EXIT_CONFIG, err)
        return err

    def test_without_a_gpu_a_communicator_is_refused_with_an_explanation(self):
        self.environment.pop("PENSTOCK_NCCL", None)
        self.assertIn("needs a GPU for each rank", self.refused())

    def test_a_session_outside_any_group_is_refused_a_communicator(self):
        self.environment["PENSTOCK_NCCL"] = FAKE_NCCL
        self.assertIn("is in none: start it as one of several ranks", self.refused())


if __name__ == "__main__":
    main()
