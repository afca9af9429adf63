"""Bad input gets a clear error: what failed, for which input, and why; no sample is lost and no process hangs."""

import os
import pathlib
import resource
import socket
import subprocess

from harness import *


class BadPicturesTest(PenstockTest):
    def setUp(self):
        super().setUp()
        self.photos = os.path.join(self.folder, "photos")
        make_photos(self.photos, 12)
        self.config = self.write("p.toml", '[dataset]\npath = "photos"\n[sampler]\nbatch_size = 4\n[gpu]\ndevice = "host"\n')

    def bad(self, name, content):
        path = os.path.join(self.photos.encode(), b"class0", name if isinstance(name, bytes) else name.encode())
        with open(path, "wb") as file:
            file.write(content)
        return path

    def failures(self, *options):
        report = self.run_json(self.config, *options)
        self.check_sums(report)
        return {os.path.basename(f["path"]): f["error"] for f in report["failures"]}, report

    def good_bytes(self):
        with open(os.path.join(self.photos, "class0", "00000.jpg"), "rb") as file:
            return file.read()

    def test_every_kind_of_broken_picture_is_a_failure_with_its_name_and_reason(self):
        good = self.good_bytes()
        self.bad("truncated.jpg", good[: len(good) // 2])
        self.bad("empty.jpg", b"")
        self.bad("text.jpg", b"hello, this is text\n")
        self.bad("text.png", b"hello, this is text\n")
        os.symlink("/nonexistent/target.jpg", os.path.join(self.photos, "class0", "dangling.jpg"))
        os.mkfifo(os.path.join(self.photos, "class0", "pipe.jpg"))
        os.mkdir(os.path.join(self.photos, "class0", "folder.jpg"))
        failed, report = self.failures()
        self.assertEqual(set(failed), {"truncated.jpg", "empty.jpg", "text.jpg", "text.png", "dangling.jpg", "pipe.jpg"})
        self.assertEqual(report["epochs"][0]["delivered"], 12)
        self.assertIn("68 65", failed["text.jpg"])
        self.assertIn("No such file", failed["dangling.jpg"])

    def test_a_picture_with_too_many_pixels_fails_before_it_is_decoded(self):
        from PIL import Image
        path = os.path.join(self.photos, "class0", "bomb.png")
        Image.new("1", (20000, 20000)).save(path)
        failed, _ = self.failures()
        self.assertIn("20000 x 20000 pixels are more than max_pixels = 100000000", failed["bomb.png"])

    def test_a_bad_picture_is_listed_once_however_often_it_failed(self):
        self.bad("text.jpg", b"hello, this is text\n")
        code, _, err = self.penstock("run", self.config, "--set", "sampler.epochs=2")
        self.assertEqual(code, EXIT_OK, err)
        lines = [line for line in err.splitlines() if "text.jpg" in line and line.startswith("  failed")]
        self.assertEqual(len(lines), 1, err)
        self.assertTrue(lines[0].endswith(" (x2)"), lines)

    def test_a_file_that_vanishes_after_the_listing_is_a_failure(self):
        process = self.start("run", self.config, "--workers", 1, "--json", "--quiet", "--set", 'loader.slots_per_worker=1',
                             "--set", "sampler.epochs=200")
        self.wait_until(lambda: self.workers_of(process), "a worker")
        os.unlink(os.path.join(self.photos, "class1", "00001.jpg"))
        out, err = process.communicate(timeout=120)
        report = json.loads(out)
        self.check_sums(report)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual({f["path"] for f in report["failures"]}, {"class1/00001.jpg"})

    def test_names_may_contain_spaces_newlines_and_bytes_that_are_not_text(self):
        good = self.good_bytes()
        for name in (b"with space.jpg", b"with\nnewline.jpg", b"caf\xe9.JPG", b"quote\"and'.jpeg"):
            self.bad(name, good)
        self.bad(b"bad\xff\n.jpg", b"")
        failed, report = self.failures()
        self.assertEqual(report["epochs"][0]["delivered"], 16)
        self.assertEqual(list(failed), ["bad\\xff\\x0a.jpg"])

    def test_a_cycle_of_links_between_folders_ends(self):
        os.symlink("..", os.path.join(self.photos, "class0", "up"))
        os.symlink(".", os.path.join(self.photos, "class1", "self"))
        report = self.run_json(self.config)
        self.assertEqual(report["outcome"], "finished")

    def test_an_empty_folder_and_a_missing_folder_are_named(self):
        empty = os.path.join(self.folder, "empty")
        os.mkdir(empty)
        for path, reason in ((empty, ".jpg"), (os.path.join(self.folder, "missing"), "does not exist")):
            code, _, err = self.penstock("run", self.config, "--set", 'dataset.path="%s"' % path)
            self.assertEqual(code, EXIT_FAILED)
            self.assertIn(path, err)
            self.assertIn(reason, err)

    def test_an_exception_in_the_loader_is_a_loader_error_and_not_a_cuda_error(self):
        config = self.write("t.toml", synthetic(epochs=1, dataset='faults = [{sample = 5, kind = "throw", times = 0}]'))
        code, out, err = self.penstock("run", config, "--json")
        self.assertEqual(code, 0)
        self.assertIn("sample 5", json.loads(out)["failures"][0]["path"])
        self.assertNotIn("cuda", (out + err).lower().replace("uuid", ""))


class BadSurroundingsTest(PenstockTest):
    def test_a_slot_that_is_too_small_for_a_batch_says_how_large_it_must_be(self):
        config = self.write("s.toml", synthetic(bytes="64KiB", batch=16, more='[loader]\nslot_bytes = "512KiB"'))
        code, _, err = self.penstock("run", config)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("needs a slot of 1.00 MiB, but [loader] slot_bytes is 512 KiB", err)

    def test_too_little_memory_is_reported_in_one_sentence_and_no_process_is_killed(self):
        config = self.write("m.toml", synthetic(bytes="1GiB", batch=64))
        code, _, err = self.penstock("run", config, "--workers", 8)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("the arena needs 1.69 TiB (8 workers + 1 sacrificial, each 3 slots x 64.0 GiB)", err)
        self.assertNotIn("cuda", err.lower())

    def test_a_limit_on_file_sizes_is_an_error_and_not_a_signal(self):
        config = self.write("f.toml", synthetic(bytes="1MiB", batch=8))
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 20, 16 << 20))
        code, _, err = self.penstock("run", config, preexec_fn=limit)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("ulimit -f", err)

    def test_the_memory_cgroup_is_checked_before_it_kills(self):
        config = self.write("g.toml", synthetic(bytes="1MiB", batch=64))
        code, _, err = self.penstock("run", config, "--workers", 8, preexec_fn=self.memory_cgroup())
        self.assertEqual(code, EXIT_FAILED, err)
        self.assertIn("memory cgroup", err)
        self.assertIn("the arena needs 1.69 GiB (8 workers + 1 sacrificial", err)

    def test_a_sink_without_a_file_name_is_refused_and_the_error_says_what_to_write(self):
        config = self.write("s.toml", synthetic())
        for kind in ("journal", "plugin"):
            code, _, err = self.penstock("run", config, "--sink", kind + ":")
            self.assertEqual(code, EXIT_USAGE, err)
            self.assertIn("write --sink %s:PATH" % kind, err)

    def test_a_folder_with_files_of_another_batch_size_is_refused_and_left_unchanged(self):
        config = self.write("b.toml", synthetic(samples=40, batch=8, epochs=1))
        files = os.path.join(self.folder, "files")
        def whole():
            return {path.name: path.read_bytes() for path in pathlib.Path(files).iterdir()}
        self.run_json(config, "--sink", "npy", "--out", files)
        before = whole()
        self.assertEqual(len([name for name in before if name.endswith(".index.npy")]), 5)
        code, _, err = self.penstock("run", config, "--sink", "npy", "--out", files, "--set", "sampler.batch_size=4")
        self.assertEqual(code, EXIT_FAILED, err)
        self.assertIn('has "batch_size": 8, but this run has "batch_size": 4; choose another --out', err)
        self.assertEqual(whole(), before)
        self.run_json(config, "--sink", "npy", "--out", files)
        self.assertEqual(whole(), before)

    def test_a_run_in_which_too_many_samples_fail_is_a_failure_that_names_the_most_frequent_reason(self):
        def folder_of(count):
            photos = os.path.join(self.folder, "of-%d" % count, "class0")
            os.makedirs(photos)
            for number in range(count):
                self.write(os.path.join(photos, "%03d.jpg" % number), "hello, this is text\n")
            return self.write("of-%d.toml" % count, '[dataset]\npath = "of-%d"\n[sampler]\nbatch_size = 8\n'
                                                    '[gpu]\ndevice = "host"\n[loader]\nworkers = 1\n' % count)
        report = self.run_json(folder_of(100), expect=EXIT_FAILED)
        # Samples that were loaded in advance have failed too.
        self.assertRegex(report["error"], r"^56 of the 100 samples of epoch 0 have failed, more than \[loader\] "
                                          r"max_failed_fraction = 0.5 allows; the most frequent reason \(\d+ of \d+ failures so far\): not a JPEG")
        report = self.run_json(os.path.join(self.folder, "of-100.toml"), "--set", "loader.max_failed_fraction=1")
        self.assertEqual(report["epochs"][0]["failed"], 100)
        self.assertEqual(self.run_json(folder_of(32))["epochs"][0]["failed"], 32)

    def test_a_full_disk_under_the_sink_ends_the_run_and_names_the_file(self):
        config = self.write("d.toml", synthetic(bytes="64KiB"))
        os.mkdir(os.path.join(self.folder, "full"))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", os.path.join(self.folder, "full")], capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("mounting a small file system needs root")
        try:
            code, _, err = self.penstock("run", config, "--sink", "npy", "--out", os.path.join(self.folder, "full"))
            self.assertEqual(code, EXIT_FAILED)
            self.assertIn("No space left on device", err)
            self.assertIn(".npy", err)
        finally:
            subprocess.run(["umount", os.path.join(self.folder, "full")])

    def test_a_report_that_cannot_be_written_is_refused_before_any_sample_is_loaded(self):
        code, _, err = self.penstock("run", self.write("s.toml", synthetic()), "--report", "/nonexistent/report.json", timeout=10)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("/nonexistent/report.json", err)

    def test_a_missing_gpu_is_an_error_with_cuda_and_selects_the_host_device_with_auto(self):
        config = self.write("s.toml", synthetic(samples=16))
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("this machine has a GPU")
        code, _, err = self.penstock("run", config, "--device", "cuda")
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("cuda", err.lower())
        self.assertEqual(self.run_json(config, "--device", "auto")["device"]["kind"], "host")

    def test_all_errors_of_a_config_are_reported_with_their_places_and_exit_code_78(self):
        config = self.write("bad.toml", '[dataset]\ntype = "synthetc"\n[loader]\nwokers = 4\nslots_per_worker = 0\n[sampler]\nbatch_size = "8"\n')
        for verb in ("run", "check-config"):
            code, _, err = self.penstock(verb, config)
            self.assertEqual(code, EXIT_CONFIG)
            for place in ("bad.toml:2:8", "bad.toml:4:1", "bad.toml:5:20", "bad.toml:7:14"):
                self.assertIn(place, err)
            self.assertIn("workers", err)
            self.assertIn("synthetic", err)

    def test_slots_that_cannot_fit_in_memory_are_a_config_error(self):
        config = self.write("huge.toml", synthetic(more="[loader]\nworkers = 4\nslot_bytes = \"500GiB\"  # each\n"))
        with open(config) as file:
            line = next(n for n, text in enumerate(file, 1) if "slot_bytes" in text)
        code, _, err = self.penstock("check-config", config)
        self.assertEqual(code, EXIT_CONFIG)
        self.assertIn("huge.toml:%d:14" % line, err)
        self.assertIn("4 workers + 1 sacrificial, each 3 slots x 500 GiB", err)
        code, out, _ = self.penstock("check-config", config, "--json")
        found = json.loads(out)["diagnostics"]
        self.assertEqual([(d["key"], d["line"], d["column"], d["length"]) for d in found], [("loader.slot_bytes", line, 14, 8)])
        self.assertEqual(self.penstock("check-config", config, "--set", "loader.slot_bytes=\"1MiB\"")[0], EXIT_OK)

    def test_missing_data_is_a_warning_of_check_config_and_an_error_under_strict(self):
        config = self.write("far.toml", '[dataset]\npath = "nowhere"\n')
        code, _, err = self.penstock("check-config", config)
        self.assertEqual(code, EXIT_OK, err)
        self.assertIn("warning: 'path' in [dataset]: '%s/nowhere' does not exist on this machine" % self.folder, err)
        self.assertIn("far.toml:2:8", err)
        self.assertTrue(err.endswith(": ok, 1 warning\n"), err)
        code, _, err = self.penstock("check-config", config, "--strict")
        self.assertEqual(code, EXIT_CONFIG)
        self.assertIn("error: 'path' in [dataset]", err)
        self.assertTrue(err.endswith("\n1 error\n"), err)
        found = json.loads(self.penstock("check-config", config, "--json")[1])["diagnostics"]
        self.assertEqual([(d["severity"], d["key"], d["line"]) for d in found], [("warning", "dataset.path", 2)])
        os.mkdir(os.path.join(self.folder, "nowhere"))
        self.write("nowhere/a.jpg", "x")
        self.assertEqual(self.penstock("check-config", config)[2], config + ": ok\n")

    def test_data_that_the_dataset_type_cannot_read_is_a_warning_of_check_config(self):
        for name in ("photos/a", "photos/b", "one/a", "shards", "tokens"):
            os.makedirs(os.path.join(self.folder, name))
        for name in ("photos/beside.jpg", "photos/a/notes.txt", "shards/notes.txt", "a-000.tar", "a-001.tar", "g.tar.gz"):
            self.write(name, "x")
        for dataset, words in (('path = "photos"', "no pictures in '%s/photos': went through 2 class folders and looked for names that end in .jpg"),
                               ('path = "one"', "no pictures in '%s/one': went through 1 class folder and looked for names that end in .jpg"),
                               ('type = "tar"\npath = "shards"', "no shards (*.tar, *.tar.zst) in '%s/shards'"),
                               ('type = "tar"\npath = "a-{000..002}.tar"', "1 of 3 shards does not exist on this machine: '%s/a-002.tar'"),
                               ('type = "tar"\npath = "g.tar.gz"', "'%s/g.tar.gz' is named as if compressed with gzip: only zstd is read"),
                               ('type = "npy"\npath = "tokens"\nmembers = { features = "y.npy" }', "'%s/tokens/y.npy' cannot be opened"),
                               ('type = "tokens"\nsequence_length = 8\npath = "tokens"', "in '%s/tokens'")):
            config = self.write("odd.toml", "[dataset]\n%s\n" % dataset)
            code, _, err = self.penstock("check-config", config)
            self.assertEqual(code, EXIT_OK, err)
            self.assertIn("warning: 'path' in [dataset]: ", err)
            self.assertIn(words % self.folder, err)
            self.assertTrue(err.endswith(": ok, 1 warning\n"), err)
        mixed = self.write("mixed.toml", '[sampler]\nepoch_samples = 9\n[[datasets]]\nname = "a"\ntype = "synthetic"\n[[datasets]]\nname = "b"\npath = "photos"\n')
        self.assertIn("'path' in [[datasets]] 'b': no pictures", self.penstock("check-config", mixed)[2])

    def test_a_file_for_a_pool_is_refused_by_verbs_that_need_a_stream(self):
        config = self.write("jobs.toml", '[loader]\nworkers = 2\n[jobs]\ntimeout = "2s"\n')
        for verb in (["run"], ["run", "--dry-run"], ["plan"], ["replay", "--out", "x"], ["inspect"], ["preview", "--out", "x.png"], ["launch", "--gpus", "host:2"]):
            code, _, err = self.penstock(*verb, config)
            self.assertEqual(code, EXIT_CONFIG, verb)
            self.assertIn("this configures a pool of jobs: it has [jobs], but no [dataset]", err, verb)
            self.assertIn("`penstock map` runs jobs in a pool", err)
            self.assertNotIn("missing", err)
            self.assertIn("jobs.toml:3:", err)
        self.assertEqual(self.penstock("check-config", config)[0], EXIT_OK)

    def test_a_missing_worker_program_is_a_warning_of_check_config_and_an_error_of_run_that_names_the_key(self):
        config = self.write("own.toml", '[dataset]\ntype = "custom"\n[loader]\ncommand = ["./no-such-worker"]\n[gpu]\ndevice = "host"\n')
        missing = "program '%s/no-such-worker': No such file or directory" % self.folder
        code, _, err = self.penstock("check-config", config)
        self.assertEqual(code, EXIT_OK, err)
        self.assertIn("warning: 'command' in [loader]: " + missing, err)
        self.assertIn("own.toml:4:11", err)
        code, _, err = self.penstock("run", config)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("[loader] command: " + missing, err)

    def test_a_custom_dataset_without_a_worker_program_is_refused_before_a_worker_starts(self):
        config = self.write("own.toml", '[dataset]\ntype = "custom"\npath = "."\n[gpu]\ndevice = "host"\n')
        for verb in (["check-config"], ["run"], ["run", "--dry-run"]):
            code, _, err = self.penstock(*verb, config)
            self.assertEqual(code, EXIT_CONFIG, err)
            self.assertIn("own.toml:2:8", err)
            self.assertIn("'command' in [loader] names no worker program of yours", err)
            self.assertIn("set 'command' in [loader] to your program", err)

    def test_wrong_usage_has_exit_code_2(self):
        for arguments in ([], ["run"], ["run", "a.toml", "--no-such-option"], ["dance"], ["run", "s.toml", "--sink", "npy"]):
            self.write("s.toml", synthetic())
            self.assertEqual(self.penstock(*arguments)[0], EXIT_USAGE, arguments)


    def test_a_number_that_an_option_cannot_take_is_refused_with_its_range(self):
        config = self.write("n.toml", synthetic(samples=16))
        for arguments, said in (
                (["run", config, "--batches", "-1"], "--batches: '-1': must be a whole number from 1 to 1000000000000"),
                (["run", config, "--batches", "18446744073709551615"], "'18446744073709551615': must be"),
                (["run", config, "--batches", "0x10"], "'0x10'"),
                (["chaos", config, "--faults", "-1"], "--faults: '-1': must be a whole number from 1 to"),
                (["chaos", config, "--seed", "-1"], "'-1'"),
                (["preview", config, "--out", "p.png", "--batch", "-1"], "--batch: '-1'"),
                (["logs", "--tail", "4294967296"], "--tail: '4294967296': must be a whole number from 0 to 4294967295"),
                (["run", config, "--state", "s", "--state-every", "0s"], "--state-every '0s': must be at least 10 ms"),
                (["launch", config, "--gpus", "host:2", "--state", "s", "--state-every", "1us"], "'1us': must be at least"),
                (["scale", "-1"], "N: '-1'"),
                (["scale", "abc"], "N: 'abc': must be a whole number from 1 to 1024"),
                (["quarantine", "retry", "-1"], "SAMPLE: '-1'"),
                (["bench", "upload", "--workers", "0"], "--workers: '0': must be a whole number from 1 to 1024"),
                (["bench", "upload", "--seconds", "nan"], "--seconds")):
            code, _, err = self.penstock(*arguments)
            self.assertEqual(code, EXIT_USAGE, (arguments, err))
            self.assertIn(said, err)
        # Leading zeros do not mean octal.
        self.assertEqual(self.run_json(config, "--batches", "02", "--set", "sampler.batch_size=1")["totals"]["batches"], 2)

    def test_a_missing_config_file_is_the_same_failure_for_every_verb(self):
        lines = self.write("lines", "one\n")
        for arguments in (["run"], ["check-config"], ["launch"], ["launch", "--gpus", "host:2"], ["map", "--function", "f", "--input", lines],
                          ["preview", "--out", "p.png"], ["doctor"], ["chaos"], ["inspect"]):
            code, out, err = self.penstock(arguments[0], "nowhere.toml", *arguments[1:])
            self.assertEqual((code, out), (EXIT_CONFIG, ""), (arguments, err))
            self.assertEqual(err, "error: cannot read nowhere.toml: No such file or directory\n --> nowhere.toml\n1 error\n", arguments)

    def test_preview_refuses_a_batch_beyond_the_end_of_the_stream(self):
        photos = os.path.join(self.folder, "photos")
        make_photos(photos, 4)
        config = self.write("p.toml", '[dataset]\npath = "photos"\n[sampler]\nbatch_size = 2\nepochs = 3\n[gpu]\ndevice = "host"\n')
        picture = os.path.join(self.folder, "p.png")
        code, _, err = self.penstock("preview", config, "--out", picture, "--batch", "6")
        self.assertEqual(code, EXIT_USAGE)
        self.assertIn("--batch: there is no batch 6: the stream has 6 batches, counted from 0 (3 epochs of 2 each)", err)
        code, _, err = self.penstock("preview", config, "--out", picture, "--batch", "2000000", "--epochs", "1")
        self.assertEqual(code, EXIT_USAGE)
        self.assertIn("the stream has 2 batches, counted from 0 (1 epoch of 2)", err)
        self.assertFalse(os.path.exists(picture))
        self.assertEqual(self.penstock("preview", config, "--out", picture, "--batch", "5")[0], EXIT_OK)

    def test_an_invalid_number_of_sample_photographs_is_refused(self):
        program = os.path.join(BIN, "penstock-sample-photos")
        for number in ("abc", "-3", "0", "12x", "99999999999"):
            done = subprocess.run([program, os.path.join(self.folder, "made"), number], capture_output=True, text=True)
            self.assertEqual(done.returncode, EXIT_USAGE)
            self.assertIn("'%s' photographs: must be a whole number from 1 to 1000000" % number, done.stderr)
            code, _, err = self.penstock("sample-photos", os.path.join(self.folder, "made"), "--", number)
            self.assertEqual(code, EXIT_USAGE)
            self.assertIn("'%s': must be a whole number from 1 to 1000000" % number, err)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "made")))

    def test_sample_photographs_that_cannot_be_written_are_named_with_the_reason(self):
        full = os.path.join(self.folder, "full", "class-0", "00000.jpg")
        os.makedirs(os.path.dirname(full))
        os.symlink("/dev/full", full)
        self.write("file", "mine")
        for folder, why in (("full", "No space left on device"), ("file", "Not a directory")):
            code, out, err = self.penstock("sample-photos", os.path.join(self.folder, folder), 1, "--json")
            self.assertEqual(code, EXIT_FAILED, err)
            self.assertEqual(json.loads(out)["error"]["message"],
                             "writing '%s': %s" % (os.path.join(self.folder, folder, "class-0", "00000.jpg"), why))
        self.assertFalse(os.path.lexists(full))
        _, _, err = self.penstock("sample-photos", os.path.join(self.folder, "file"), 1)
        self.assertTrue(err.startswith("error: writing '"), err)
        done = subprocess.run([os.path.join(BIN, "penstock-sample-photos"), os.path.join(self.folder, "file"), "1"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr.endswith("00000.jpg: Not a directory\n")), (1, True), done.stderr)

    def test_an_option_of_run_without_any_effect_is_refused(self):
        config = self.write("few.toml", synthetic(samples=40, batch=8, epochs=1))
        out = os.path.join(self.folder, "out")
        for sink in ((), ("--sink", "journal:seen")):
            code, _, err = self.penstock("run", config, "--out", out, *sink)
            self.assertEqual(code, EXIT_USAGE)
            self.assertIn("--out '%s' needs --sink npy" % out, err)
        code, _, err = self.penstock("run", config, "--sink", "npz", "--out", "x")
        self.assertEqual(code, EXIT_USAGE)
        self.assertIn("unknown --sink 'npz'; choose null, npy, journal:PATH or plugin:PATH", err)
        for verb in (("run", config), ("launch", config, "--gpus", "host:2")):
            code, _, err = self.penstock(*verb, "--batches", 0)
            self.assertEqual(code, EXIT_USAGE, err)
            self.assertIn("--batches", err)
            self.assertIn("'0': must be a whole number from 1", err)


if __name__ == "__main__":
    main()
