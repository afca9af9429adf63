"""A stopped stream continues in another process, with other workers, where it stopped: file by file, bit by bit."""

import contextlib
import fcntl
import filecmp
import shutil

from harness import *

STREAM = synthetic(samples=403, batch=8, epochs=2)  # 51 batches per epoch, of which the last one is short


class ResumeTest(PenstockTest):
    def piece(self, out, *options, **popen):
        return self.run_json(self.write("stream.toml", STREAM), "--digest", "--sink", "npy", "--out",
                             os.path.join(self.folder, out), *options, **popen)

    def state_bytes(self):
        return os.path.getsize(os.path.join(self.folder, "state"))

    def check_same_files(self, left, right):
        left, right = os.path.join(self.folder, left), os.path.join(self.folder, right)
        names = sorted(os.listdir(left))
        self.assertTrue(any(name.endswith(".index.npy") for name in names))
        self.assertEqual(sorted(os.listdir(right)), names)
        _, different, unreadable = filecmp.cmpfiles(left, right, names, shallow=False)
        self.assertEqual((different, unreadable), ([], []))

    def test_pieces_of_a_stream_with_other_worker_counts_add_up_to_the_stream(self):
        whole = self.piece("whole", "--workers", 2)
        # Stop in the middle of an epoch, at its end, and in the next one; then run to the end.
        for batches, workers in ((20, 3), (31, 1), (7, 4)):
            part = self.piece("parts", "--workers", workers, "--batches", batches, "--state", "state")
            self.assertEqual(part["outcome"], "stopped")
            self.assertLessEqual(self.state_bytes(), 1024)
        rest = self.piece("parts", "--workers", 2, "--state", "state")
        self.assertEqual(rest["outcome"], "finished")
        self.assertEqual(rest["totals"]["batches"], 102 - 20 - 31 - 7)
        last = rest["epochs"][-1]
        self.assertEqual((last["epoch"], last["from_batch"], last["complete"]), (1, 7, True))
        self.assertEqual(last["digest"], whole["epochs"][1]["digest"])
        self.check_same_files("whole", "parts")

    def test_a_run_reports_where_it_resumes_and_whether_any_batches_are_left(self):
        config = self.write("few.toml", synthetic(samples=40, batch=8, epochs=1))
        command = ["run", config, "--state", os.path.join(self.folder, "few.state")]
        self.assertNotIn("resuming", self.penstock(*command, "--batches", 2)[2])
        self.assertIn("few.state': epoch 0, 16 samples delivered\n", self.penstock(*command)[2])
        code, _, err = self.penstock(*command)
        self.assertEqual(code, EXIT_OK)
        self.assertIn("few.state' holds the end of the stream: continue it with more --epochs", err)
        self.assertIn("few.state': epoch 0 was complete\n", err)
        code, _, err = self.penstock(*command, "--set", "sampler.seed=99")
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("seed was ", err)
        self.assertNotIn("resuming", err)
        self.assertNotIn("first batch after", err)
        self.assertIn("24 samples", self.penstock(*command[:2], "--batches", 3, "--state", os.path.join(self.folder, "new.state"))[2])

    def test_a_state_without_deliveries_does_not_restrict_a_later_run(self):
        config = self.write("few.toml", synthetic(samples=40, batch=8, epochs=1))
        command = ["run", config, "--state", os.path.join(self.folder, "few.state")]
        code, _, err = self.penstock(*command, "--sink", "journal:/dev/full")
        self.assertEqual(code, EXIT_FAILED, err)
        self.assertTrue(os.path.exists(command[-1]))
        code, _, err = self.penstock(*command, "--set", "sampler.seed=99")
        self.assertEqual(code, EXIT_OK, err)
        self.assertNotIn("resuming", err)

    def test_a_full_disk_is_an_error_that_names_the_file_and_not_a_death_of_the_owner(self):
        full = os.path.join(self.folder, "full.journal")
        os.symlink("/dev/full", full)
        config = self.write("few.toml", synthetic(samples=40, batch=8, epochs=1))
        code, _, err = self.penstock("run", config, "--sink", "journal:" + full)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("writing the journal '%s': No space left on device" % full, err)
        self.assertNotIn("ended", err)
        report = self.run_json(config, "--sink", "journal:" + full, expect=EXIT_FAILED)
        self.assertEqual((report["gpu"]["deaths"], report["gpu"]["ended_unexpectedly"]), ([], 0))

    def test_a_report_that_cannot_be_written_does_not_hide_what_ended_the_run(self):
        bad = self.write("bad.toml", synthetic(samples=400, batch=8, epochs=1, dataset='wait = "5ms"\nfaults = [{sample = 390, kind = "throw", times = 0}]',
                                               more='[loader]\non_bad_sample = "fail"\n'))
        there, journal = (os.path.join(self.folder, name) for name in ("there", "j"))
        os.mkdir(there)
        process = self.start("run", bad, "--workers", 2, "--set", "sampler.shuffle=false", "--quiet", "--report", os.path.join(there, "r.json"),
                             "--sink", "journal:" + journal)
        self.wait_until(lambda: os.path.exists(journal) and os.path.getsize(journal) > 50, "a batch")
        shutil.rmtree(there)
        err = process.communicate(timeout=30)[1].decode()
        self.assertEqual(process.returncode, EXIT_FAILED)
        self.assertRegex(err, r"error: .*sample 390.*; nor could the report be written: .*r\.json")

    def test_a_long_run_lists_only_its_last_epochs(self):
        config = self.write("long.toml", synthetic(samples=8, batch=8, epochs=30))
        told = self.penstock("run", config)[2]
        self.assertIn("... 20 epochs before these; --report FILE lists all\nepoch 20: 8 of 8", told)
        self.assertIn("\nepoch 29: 8 of 8", told)
        self.assertIn("epoch 0: 8 of 8", self.penstock("run", config, "--digest")[2])

    def test_a_stream_that_was_interrupted_continues_without_a_gap(self):
        text = synthetic(samples=403, batch=8, epochs=1, dataset='wait = "2ms"')
        command = [self.write("slow.toml", text), "--digest", "--json", "--quiet", "--state", "state", "--sink", "npy", "--out"]
        whole = self.run_json(command[0], "--digest", "--sink", "npy", "--out", os.path.join(self.folder, "whole"))
        parts = os.path.join(self.folder, "parts")
        process = self.start("run", *command, parts, "--workers", 3)
        self.wait_until(lambda: os.path.exists(os.path.join(parts, "e0-b000010.index.npy")), "ten batches")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
        self.assertEqual(process.returncode, EXIT_INTERRUPTED)
        stopped = json.loads(out)["epochs"][0]
        self.assertFalse(stopped["complete"])
        rest = self.run_json(*command[:2], "--state", "state", "--sink", "npy", "--out", parts, "--workers", 1)["epochs"][0]
        self.assertEqual(rest["from_batch"], stopped["batches"])
        self.assertEqual((rest["batches"], rest["delivered"], rest["digest"]),
                         (51, 403, whole["epochs"][0]["digest"]))
        self.check_same_files("whole", "parts")

    def test_only_one_run_at_a_time_writes_a_state_a_report_a_journal_or_a_folder(self):
        slow = self.write("slow.toml", synthetic(samples=4000000, batch=8, epochs=1, dataset='wait = "2ms"'))
        quick = self.write("quick.toml", synthetic(samples=40, batch=8, epochs=1))
        path = lambda name: os.path.join(self.folder, name)
        files = {"state": ("--state", path("state")), "report": ("--report", path("report")),
                 "journal": ("--sink", "journal:" + path("seen"))}
        first = self.start("run", slow, "--quiet", "--state-every", "20ms", *sum(files.values(), ()))
        second = self.start("run", slow, "--quiet", "--sink", "npy", "--out", path("out"))
        self.wait_until(lambda: os.path.exists(path("state")) and os.path.exists(path("seen")), "a state and a journal")
        self.wait_until(lambda: os.path.exists(os.path.join(path("out"), "e0-b000000.index.npy")), "a batch")
        files["batches to"] = ("--sink", "npy", "--out", path("out"))
        for what, option in files.items():
            holder = second if what == "batches to" else first
            code, out, err = self.penstock("run", quick, "--json", "--quiet", *option)
            self.assertEqual(code, EXIT_FAILED, err)
            said = json.loads(out)
            message = said["error"] if isinstance(said["error"], str) else said["error"]["message"]
            self.assertRegex(message, "another run is writing (the )?%s '.*' \\(pid %d\\): wait until it has ended, stop it, or" % (what, holder.pid))
        code, _, err = self.penstock("launch", quick, "--gpus", "host:2", *files["state"])
        self.assertEqual(code, EXIT_FAILED, err)
        self.assertIn("another run is writing the state", err)
        self.assertFalse(os.path.exists(path("report")))
        for process in (first, second):  # the locks end with their processes
            process.kill()
            process.communicate(timeout=30)
        with open(path("seen")) as journal:
            self.assertEqual(len({json.loads(line)["owner"] for line in journal if line.endswith("\n")}), 1)
        os.unlink(path("state"))
        for option in files.values():
            self.run_json(slow, "--batches", 1, *option)
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith("-lock")], [])

    def test_progress_after_a_resume_covers_the_whole_stream(self):
        config = self.write("slow.toml", synthetic(samples=4000, batch=8, epochs=1, dataset='wait = "20ms"'))
        state = os.path.join(self.folder, "state")
        self.run_json(config, "--set", 'dataset.wait="0s"', "--batches", 400, "--state", state)
        process = self.start("run", config, "--quiet", "--state", state, "--workers", 1)
        def status():
            code, out, _ = self.penstock("status", "--json")
            return json.loads(out) if code == EXIT_OK else {}
        now = self.wait_until(lambda: (s := status()).get("batches_delivered") and s, "a batch")
        self.assertEqual((now["samples_before"], now["samples_expected"]), (3200, 800))
        self.assertGreater(now["progress"], 0.8)
        self.assertAlmostEqual(now["progress"], (3200 + now["samples_done"]) / 4000, delta=1e-4)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)

    def test_a_resumed_run_reports_a_sample_as_quarantined_even_if_only_its_state_knows_it(self):
        config = self.write("bad.toml", synthetic(samples=80, batch=8, epochs=2, dataset='faults = [{sample = 3, kind = "exit", times = 0}]'))
        state = os.path.join(self.folder, "state")
        self.run_json(config, "--batches", 10, "--state", state)
        code, _, err = self.penstock("run", config, "--state", state, "--report", os.path.join(self.folder, "report"))
        self.assertEqual(code, EXIT_OK, err)
        self.assertIn("1 quarantined", err)
        self.assertIn("quarantined sample 3: in an earlier run (from the state)", err)
        quarantine = json.loads(self.read("report"))["quarantine"]
        self.assertEqual([(q["sample"], q["known"], q["attempts"]) for q in quarantine], [(3, True, 0)])

    def test_a_state_from_before_the_first_batch_can_contain_quarantined_samples(self):
        config = self.write("bad.toml", synthetic(samples=80, batch=8, epochs=1, dataset='faults = [{sample = 3, kind = "exit", times = 0}]',
                                                  more='[quarantine]\nfile = "quarantine.jsonl"\n'))
        self.run_json(config)
        state = os.path.join(self.folder, "state")
        process = self.start("run", config, "--set", 'dataset.wait="60s"', "--quiet", "--state", state)
        self.wait_until(lambda: json.loads(self.penstock("status", "--json")[1] or "{}").get("quarantined"), "the known sample")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        code, _, err = self.penstock("run", config, "--state", state)
        self.assertEqual(code, EXIT_OK, err)
        self.assertIn("epoch 0, 0 samples delivered", err)

    def test_a_run_ended_by_a_signal_says_which_file_holds_its_position_or_that_it_is_lost(self):
        config = self.write("slow.toml", synthetic(samples=40000, batch=8, epochs=1, dataset='wait = "2ms"'))
        for options, is_lost in (((), True), (("--state", os.path.join(self.folder, "state")), False)):
            process = self.start("run", config, *options)
            self.wait_until(lambda: (json.loads(self.penstock("status", "--json")[1] or "{}")).get("batches_delivered"), "a batch")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
            self.assertEqual(process.returncode, EXIT_INTERRUPTED)
            self.assertEqual("its position is lost; `penstock run --state FILE` keeps it next time\n" in err.decode(), is_lost, err)
            self.assertEqual("/state' holds the position: epoch 0, " in err.decode(), not is_lost, err)

    def test_epochs_acknowledged_in_one_message_have_their_own_times(self):
        # The next batch is always ready, so deliveries are reported up to 16 in a message: here all 12 of the 6 epochs in one.
        config = self.write("short.toml", synthetic(samples=16, batch=8, epochs=6))
        environment = dict(self.environment, PENSTOCK_TEST_STEP_MS="20")
        report = self.run_json(config, "--sink", "plugin:" + os.path.join(BIN, "slow_program.so"), env=environment)
        seconds = [epoch["seconds"] for epoch in report["epochs"]]
        for each in seconds:
            self.assertGreater(each, 0.03, seconds)
        self.assertGreater(sum(seconds), 0.24)
        self.assertLessEqual(sum(seconds), report["totals"]["seconds"] + 0.001)

    # ---- the state file ------------------------------------------------------------------------------

    def read(self, name):
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()

    def start_that_never_opens(self, *options, **popen):
        """A run whose workers never send a message, so the stream never opens."""
        worker = self.write("silent-worker", "#!/bin/sh\nexec sleep 600\n")
        os.chmod(worker, 0o755)
        config = self.write("silent.toml", STREAM + '\n[loader]\ncommand = ["%s"]\n[supervisor]\nshutdown = "2500ms"\n' % worker)
        process = self.start("run", config, "--digest", "--json", "--quiet", "--state", "state", "--state-every", "20ms",
                             *options, **popen)
        self.wait_until(lambda: any(name_of(pid) == "sleep" for pid in children_of(process.pid)), "a worker")
        # A few periods of --state-every, during which no state may be written.
        before = times_waited(process.pid)
        self.wait_until(lambda: times_waited(process.pid) >= before + 5, "five periods")
        return process

    def check_no_leftovers(self):
        names = [name for _, _, files in os.walk(self.folder) for name in files]
        self.assertEqual([name for name in names if ".tmp" in name or name.endswith(".sock")], [])

    def test_a_run_that_ends_before_its_stream_opens_keeps_the_state_that_it_found(self):
        whole = self.piece("whole", "--workers", 2)
        self.piece("parts", "--workers", 2, "--batches", 20, "--state", "state")
        before = self.read("state")
        for number, code in ((signal.SIGINT, EXIT_INTERRUPTED), (signal.SIGTERM, EXIT_TERMINATED),
                             (signal.SIGHUP, EXIT_TERMINATED), (signal.SIGKILL, -signal.SIGKILL)):
            process = self.start_that_never_opens()
            process.send_signal(number)
            _, err = process.communicate(timeout=30)
            self.assertEqual(process.returncode, code, err)
            self.assertEqual(self.read("state"), before)
            if number != signal.SIGKILL:
                self.check_no_leftovers()
        rest = self.piece("parts", "--workers", 2, "--state", "state")
        self.assertEqual(rest["epochs"][0]["digest"], whole["epochs"][0]["digest"])

    def test_a_first_run_that_ends_before_its_stream_opens_leaves_a_state_at_the_beginning_of_the_stream(self):
        whole = self.piece("whole", "--workers", 2)
        process = self.start_that_never_opens()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, EXIT_TERMINATED)
        self.assertTrue(self.read("state"))
        again = self.piece("again", "--workers", 2, "--state", "state")
        self.assertEqual([e["digest"] for e in again["epochs"]], [e["digest"] for e in whole["epochs"]])

    def flood(self, process, number):
        """Sends the signal every few milliseconds until the process has ended."""
        self.wait_until(lambda: process.poll() is not None or process.send_signal(number), "the end")
        return [(text or b"").decode() for text in process.communicate(timeout=30)]

    def test_signals_every_few_milliseconds_do_not_lose_the_position(self):
        # Workers have ten seconds for a sample after the first signal, and still some time after the third.
        text = synthetic(samples=400, batch=8, epochs=1, dataset='faults = [{sample = 160, kind = "slow", seconds = 600, times = 0}]')
        config = self.write("stuck.toml", text)
        state = os.path.join(self.folder, "state")
        for number, code in ((signal.SIGTERM, EXIT_TERMINATED), (signal.SIGINT, EXIT_INTERRUPTED)):
            process = self.start("run", config, "--set", "sampler.shuffle=false", "--json", "--quiet", "--state", state, "--report", "report")
            self.wait_until(lambda: json.loads(self.penstock("status", "--json")[1] or "{}").get("batches_delivered") == 20, "20 batches")
            out, err = self.flood(process, number)
            self.assertEqual(process.returncode, code, err)
            self.assertEqual(json.loads(out)["totals"]["batches"], 20)
            self.assertEqual(json.loads(self.read("report")), json.loads(out))
            self.assertNotIn("gave up", err)
            _, _, err = self.penstock("run", config, "--set", "sampler.shuffle=false", "--set", "dataset.faults=[]", "--state", state)
            self.assertIn("epoch 0, 160 samples delivered\n", err)
            os.unlink(state)

    def test_a_third_signal_gives_up_a_run_whose_output_is_not_read_and_says_what_its_state_holds(self):
        config = self.write("few.toml", synthetic(samples=40, batch=8, epochs=1))
        state = os.path.join(self.folder, "state")
        reader, output = os.pipe()
        with os.fdopen(reader, "rb"), os.fdopen(output, "wb") as full:
            fcntl.fcntl(full, fcntl.F_SETFL, os.O_NONBLOCK)
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(full.fileno(), bytes(4096))
            fcntl.fcntl(full, fcntl.F_SETFL, 0)
            process = subprocess.Popen([PENSTOCK, "run", config, "--json", "--quiet", "--state", state, "--report", "report"], stdout=full, stderr=subprocess.PIPE,
                                       env=self.environment, cwd=self.folder)
            self._running.append(process)
            self.wait_until(lambda: os.path.exists(os.path.join(self.folder, "report")), "the report, which is printed next")
            _, err = self.flood(process, signal.SIGTERM)
        self.assertEqual(process.returncode, EXIT_TERMINATED)
        self.assertIn("gave up waiting for the end: '%s' holds the position: epoch 0 was complete\n" % state, err)

    def test_a_hangup_ends_a_run_like_sigterm_and_leaves_only_its_state(self):
        text = synthetic(samples=40000, batch=8, epochs=1, dataset='wait = "2ms"')
        process = self.start("run", self.write("slow.toml", text), "--json", "--quiet", "--state", "state",
                             "--state-every", "20ms", "--report", "report")
        self.wait_until(lambda: os.path.exists(os.path.join(self.folder, "state")), "a first state")
        process.send_signal(signal.SIGHUP)
        out, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, EXIT_TERMINATED, err)
        self.assertEqual(json.loads(out)["outcome"], "stopped")
        self.assertEqual(json.loads(self.read("report"))["outcome"], "stopped")
        self.check_no_leftovers()

    def test_a_run_under_nohup_ignores_a_hangup(self):
        text = synthetic(samples=400, batch=8, epochs=1, dataset='wait = "2ms"')
        process = self.start("run", self.write("slow.toml", text), "--json", "--quiet", "--state", "state",
                             "--state-every", "20ms", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.wait_until(lambda: os.path.exists(os.path.join(self.folder, "state")), "a first state")
        process.send_signal(signal.SIGHUP)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, EXIT_OK, err)
        self.assertEqual(json.loads(out)["outcome"], "finished")

    def test_epoch_times_of_a_run_with_its_gpu_owner_in_a_separate_process_add_up(self):
        begin = time.monotonic()
        report = self.run_json(self.write("three.toml", synthetic(samples=40, batch=8, epochs=3, dataset='wait = "5ms"')),
                               "--workers", 1, "--set", 'gpu.placement="process"')
        wall = time.monotonic() - begin
        # Each epoch sleeps 200 ms in total, and the first also waits for the worker's start.
        seconds = [epoch["seconds"] for epoch in report["epochs"]]
        self.assertGreaterEqual(seconds[0], 0.15)
        for each in seconds:
            self.assertGreater(each, 0.0)
        self.assertGreaterEqual(sum(seconds), 0.6)
        self.assertLessEqual(sum(seconds), wall)
        one_batch = self.run_json(self.write("one.toml", synthetic(samples=8, batch=8, epochs=2, dataset='wait = "5ms"')),
                                  "--workers", 1)
        for epoch in one_batch["epochs"]:
            self.assertGreater(epoch["seconds"], 0.0)

    def test_another_image_size_augmentation_or_type_is_refused_and_named(self):
        photos = os.path.join(self.folder, "photos")
        make_photos(photos, 24)
        text = """[dataset]
path = "%s"
[image]
size = [32, 32]
[sampler]
batch_size = 4
[gpu]
device = "host"
""" % photos
        config = self.write("photos.toml", text)
        self.run_json(config, "--batches", 2, "--state", "state", "--digest")
        self.assertLessEqual(self.state_bytes(), 1024)
        before = self.read("state")
        for change, words in (("image.size=[32, 33]", "image.size was 32x32 and is 32x33"),
                              ('image.augment="none"', "image.augment was random-resized-crop and is none"),
                              ("image.flip=0.25", "image.flip was 0.5 and is 0.25"),
                              ('gpu.dtype="float32"', "gpu.dtype was float16 and is float32"),
                              ('gpu.layout="nhwc"', "gpu.layout was nchw and is nhwc")):
            code, _, err = self.penstock("run", config, "--state", "state", "--quiet", "--set", change)
            self.assertEqual(code, EXIT_FAILED)
            self.assertIn(words, err)
            self.assertIn("'state' is the state of another run; give this run another --state, or remove the file to begin again", err)
            self.assertEqual(self.read("state"), before)
        # Settings that do not affect any batch may change.
        rest = self.run_json(config, "--state", "state", "--digest", "--set", "image.crop_fraction=0.5", "--workers", 1)
        self.assertEqual(rest["epochs"][0]["digest"], self.run_json(config, "--digest")["epochs"][0]["digest"])

    def test_a_link_is_followed_and_a_device_is_not_replaced_when_the_state_is_written(self):
        precious = self.write("precious", "mine")
        for name in ("state.tmp", "report.tmp"):
            os.symlink(precious, os.path.join(self.folder, name))
        self.piece("out", "--state", "state", "--report", "report")
        self.assertEqual(self.read("precious"), b"mine")
        code, _, err = self.penstock("run", self.write("stream.toml", STREAM), "--report", "/dev/null")
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("not a regular file", err)


if __name__ == "__main__":
    main()
