"""penstock inspect: the contents of a dataset, and files that look like mistakes."""

import shutil

from harness import *


class InspectTest(PenstockTest):
    def inspect(self, *arguments, expect=EXIT_OK):
        code, out, err = self.penstock("inspect", *arguments, "--json")
        self.assertEqual(code, expect, err + out)
        report = json.loads(out)
        if expect == EXIT_OK:
            self.assertEqual(report["schema"], "penstock.inspect/1")
        return report

    def photos(self, count=12):
        folder = os.path.join(self.folder, "photos")
        make_photos(folder, count)
        return folder, self.write("p.toml", '[dataset]\npath = "photos"\n[sampler]\nbatch_size = 4\n[gpu]\ndevice = "host"\n')

    def test_class_counts_and_sizes_are_those_of_the_files(self):
        folder, config = self.photos()
        os.mkdir(os.path.join(folder, "empty"))
        report = self.inspect(config)
        self.assertEqual([(c["name"], c["samples"]) for c in report["classes"]],
                         [("class0", 3), ("class1", 3), ("class2", 3), ("class3", 3), ("empty", 0)])
        sizes = sorted(os.path.getsize(os.path.join(root, name)) for root, _, names in os.walk(folder) for name in names)
        self.assertEqual(report["bytes"], sum(sizes))
        self.assertEqual(report["file_bytes"], {"min": sizes[0], "median": sizes[6], "max": sizes[-1]})
        self.assertEqual(report["pictures"], {"formats": {"jpeg": 12}, "turned": 0, "smaller_than_size": 12,
                                              "width": {"min": 160, "median": 160, "max": 160},
                                              "height": {"min": 120, "median": 120, "max": 120}})
        self.assertEqual(report["suspicious"], [])
        self.assertIn("class 'empty' has no samples", report["notices"])
        self.assertEqual(report["samples"], 12)

    def test_run_and_inspect_count_skipped_pictures(self):
        folder, config = self.photos()
        for name in "a.heic", "b.heic", "c.tiff", "notes.txt":
            self.write(os.path.join(folder, "class0", name), "x")
        self.assertIn("3 files skipped: .heic 2, .tiff 1 (JPEG, PNG and WebP are read)", self.inspect(config)["notices"])
        code, _, err = self.penstock("run", config, "--workers", 1)
        self.assertEqual(code, EXIT_OK, err)
        self.assertIn("3 files skipped: .heic 2, .tiff 1", err)

    def custom(self, text):
        """The example's dataset: the lines of a text file; a line of more than 256 bytes cannot be loaded."""
        self.write("poem.txt", text)
        return self.write("lines.toml", '[dataset]\ntype = "custom"\n[dataset.options]\nfile = "%s/poem.txt"\n[sampler]\nbatch_size = 7\n'
                          '[loader]\nworkers = 2\ncommand = ["02_lines_worker"]\n[gpu]\ndevice = "host"\n' % self.folder)

    def test_samples_of_a_custom_dataset_are_loaded_by_its_worker_program(self):
        report = self.inspect(self.custom("one\ntwo\n" + "x" * 300 + "\nfour\n"))
        self.assertEqual((report["type"], report["samples"]), ("custom", 4))
        self.assertRegex(report["fingerprint"], r"^[0-9a-f]{32}$")
        self.assertRegex(report["element"], r"^uint8 \[\d+\]$")
        self.assertEqual(report["values"]["samples"], 3)
        self.assertEqual(report["suspicious"], [{"sample": 2, "path": "line 3 of %s/poem.txt" % self.folder, "reason": "the line has 300 bytes"}])
        self.assertFalse(any(name.endswith(".sock") for _, _, files in os.walk(self.folder) for name in files))

    def test_evenly_spread_samples_of_a_large_custom_dataset_are_loaded(self):
        report = self.inspect(self.custom("".join("line %d\n" % i for i in range(10000))))
        self.assertEqual(report["samples"], 10000)
        self.assertEqual(report["values"]["samples"], 3334)  # every third
        self.assertEqual(report["suspicious"], [])

    def test_a_worker_program_without_a_dataset_is_named(self):
        config = self.write("true.toml", '[dataset]\ntype = "custom"\n[loader]\nworkers = 2\ncommand = ["/bin/true"]\n[gpu]\ndevice = "host"\n')
        code, _, err = self.penstock("inspect", config)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("exit 0 before its hello ([loader] command is not a worker program", err)

    def test_suspicious_files_are_named_with_their_sample_and_reason(self):
        from PIL import Image
        folder, config = self.photos()
        at = lambda name: os.path.join(folder, "class0", name)
        with open(at("00000.jpg"), "rb") as file:
            good = file.read()
        for name, content in (("cut.jpg", good[: len(good) // 2]), ("empty.jpg", b""), ("text.jpg", b"hello, this is text\n"),
                              ("bad\xff.jpg".encode("latin-1"), b"x")):
            with open(os.path.join(folder.encode(), b"class0", name if isinstance(name, bytes) else name.encode()), "wb") as file:
                file.write(content)
        Image.new("RGB", (64, 64)).save(at("small.png"))
        os.rename(at("small.png"), at("named.jpg"))
        Image.new("RGB", (64, 64), "red").save(at("good.webp"))
        with open(at("good.webp"), "rb") as file, open(at("cut.webp"), "wb") as cut:
            cut.write(file.read()[:-1])
        Image.new("RGB", (64, 64), "blue").save(at("named.png"), "WEBP")
        shutil.copy(at("00000.jpg"), os.path.join(folder, "class1", "twin.jpg"))
        os.symlink("/nonexistent.jpg", at("dangling.jpg"))
        os.mkfifo(at("pipe.jpg"))
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.new("RGB", (300, 400)).save(at("turned.jpg"), exif=exif)
        report = self.inspect(config)
        reasons = {os.path.basename(s["path"]): s["reason"] for s in report["suspicious"]}
        for name, reason in (("cut.jpg", "no end marker"), ("empty.jpg", ""), ("text.jpg", "starts with 68 65"), ("bad\\xff.jpg", "not a JPEG"),
                             ("named.jpg", "named as a JPEG, but it is a PNG"),
                             ("cut.webp", "truncated WebP: "), ("named.png", "named as a PNG, but it is a WebP"), ("dangling.jpg", "No such file"),
                             ("pipe.jpg", "FIFO"), ("twin.jpg", "the same bytes as class0/00000.jpg, which is in another class")):
            self.assertIn(reason, reasons.pop(name))
        self.assertEqual(reasons, {})
        self.assertEqual(report["pictures"]["turned"], 1)
        self.assertEqual(report["pictures"]["formats"]["webp"], 2)
        self.assertEqual(report["pictures"]["width"]["max"], 400)
        # Sample numbers are the same as in a run's report.
        run = self.run_json(config)
        failed = {f["path"]: f["sample"] for f in run["failures"]}
        inspected = {s["path"]: s["sample"] for s in report["suspicious"]}
        for path, sample in failed.items():
            self.assertEqual(inspected[path], sample)

    def test_records_are_counted_and_their_values_checked(self):
        import numpy
        data = numpy.arange(40, dtype=numpy.float32).reshape(10, 4) + 1
        data[3] = 0
        data[7, 1] = numpy.nan
        numpy.save(os.path.join(self.folder, "a.npy"), data)
        config = self.write("n.toml", '[dataset]\ntype = "npy"\npath = "a.npy"\n[sampler]\nbatch_size = 2\n')
        report = self.inspect(config)
        self.assertEqual([(s["sample"], s["reason"]) for s in report["suspicious"]],
                         [(3, "all of its values are 0"), (7, "1 of its values is infinite or NaN")])
        self.assertEqual(report["files"][0]["samples"], 10)
        self.assertEqual(report["element"], "float32 [4]")
        self.assertEqual((report["values"]["min"], report["values"]["max"], report["values"]["not_finite"]), (0, 40, 1))
        self.assertAlmostEqual(report["values"]["mean"], float(numpy.nanmean(data)), places=4)
        numpy.save(os.path.join(self.folder, "a.npy"), numpy.full((3, 4), numpy.inf))
        self.assertEqual(self.inspect(config)["values"], {"samples": 3, "min": None, "max": None, "mean": None, "not_finite": 12})
        self.assertIn("no finite values (3 samples checked)", self.penstock("inspect", config)[1])
        data.astype(numpy.float16).tofile(os.path.join(self.folder, "b.raw"))
        raw = self.write("r.toml", '[dataset]\ntype = "raw"\npath = "b.raw"\nshape = [4]\ndtype = "float16"\n[sampler]\nbatch_size = 2\n')
        report = self.inspect(raw)
        self.assertEqual([s["sample"] for s in report["suspicious"]], [3, 7])
        self.assertEqual(report["values"]["max"], 40)

    def test_synthetic_data_is_inspected_without_its_faults(self):
        config = self.write("s.toml", synthetic(samples=64, dataset='faults = [{sample = 5, kind = "segv", times = 0}]'))
        report = self.inspect(config)
        self.assertEqual((report["samples"], report["suspicious"]), (64, []))

    def test_a_dataset_that_cannot_be_inspected_is_refused_with_the_reason(self):
        missing = self.write("m.toml", '[dataset]\npath = "missing"\n')
        self.assertIn("does not exist", self.inspect(missing, expect=EXIT_FAILED)["error"]["message"])
        custom = self.write("c.toml", '[dataset]\ntype = "custom"\n[loader]\ncommand = ["my-worker"]\n')
        self.assertIn("program 'my-worker' was not found", self.inspect(custom, expect=EXIT_FAILED)["error"]["message"])

    def test_the_table_for_people_fits_the_terminal(self):
        folder, config = self.photos()
        with open(os.path.join(folder, "class2", "a.jpg"), "wb"):
            pass
        code, out, err = self.penstock("inspect", config)
        self.assertEqual(code, EXIT_OK, err)
        self.assertIn("CLASS   SAMPLES", out)
        self.assertIn("class2/a.jpg", out)
        self.assertEqual(out.splitlines()[-1], "1 sample is suspicious")
        lines = self.lines_on_a_terminal("inspect", config)
        self.assertIn("CLASS   SAMPLES", "\n".join(lines))
        for line in lines[1:]:
            self.assertLessEqual(len(line), 80)


if __name__ == "__main__":
    main()
