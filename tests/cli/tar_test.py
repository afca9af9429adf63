"""tar datasets: shards as WebDataset writes them, compared with Python's tarfile and Pillow and with the same photographs in folders."""

import io
import random
import shutil
import struct
import tarfile
import time

import numpy
from PIL import Image

from harness import *

try:
    import webdataset
except ImportError:
    webdataset = None

CONFIG = """
name = "shards"
[dataset]
type = "{type}"
path = "{path}"
{more}
[image]
size = [48, 64]
[sampler]
batch_size = 8
epochs = {epochs}
[gpu]
device = "host"
layout = "nhwc"
dtype = "uint8"
"""


def add(archive, name, contents):
    facts = tarfile.TarInfo(name)
    facts.size = len(contents)
    archive.addfile(facts, io.BytesIO(contents))


def grouped(path):
    """The samples of a shard, as WebDataset's reader groups them."""
    samples = {}
    with tarfile.open(path) as archive:
        for member in archive:
            folder, slash, base = member.name.rpartition("/")
            stem, dot, extension = base.partition(".")
            if member.isreg() and dot and stem:
                samples.setdefault(folder + slash + stem, {})[extension.lower()] = archive.extractfile(member).read()
    return samples


class TarTest(PenstockTest):
    def setUp(self):
        super().setUp()
        self.environment["XDG_CACHE_HOME"] = os.path.join(self.folder, "cache-home")
        self.shards = os.path.join(self.folder, "shards")
        os.mkdir(self.shards)

    def config(self, path="shards", type="tar", epochs=1, more="", name="shards.toml"):
        return self.write(name, CONFIG.format(path=path, type=type, epochs=epochs, more=more))

    def photographs(self, count=40):
        """The same photographs in folders and in two shards."""
        photos = os.path.join(self.folder, "photos")
        make_photos(photos, count, size=(120, 90))
        paths = sorted(os.path.relpath(os.path.join(root, name), photos) for root, _, names in os.walk(photos) for name in names)
        half = len(paths) // 2
        for number, part in enumerate((paths[:half], paths[half:])):
            with tarfile.open(os.path.join(self.shards, "train-%03d.tar" % number), "w") as archive:
                for path in part:
                    with open(os.path.join(photos, path), "rb") as file:
                        add(archive, path, file.read())
                    add(archive, path.rpartition(".")[0] + ".cls", path[len("class")].encode())
        return paths

    def delivered(self, config, *options):
        """Tensors by sample."""
        out = os.path.join(self.folder, "out")
        shutil.rmtree(out, ignore_errors=True)
        report = self.run_json(config, "--sink", "npy", "--out", out, *options)
        samples = {}
        for index in sorted(name for name in os.listdir(out) if name.endswith(".index.npy")):
            batch = index[:-len("index.npy")]
            tensors = {name[len(batch):-len(".npy")]: numpy.load(os.path.join(out, name))
                       for name in os.listdir(out) if name.startswith(batch)}
            for row, sample in enumerate(tensors["index"]):
                samples[int(sample)] = {name: tensor[row] for name, tensor in tensors.items()}
        return report, samples

    def test_shards_give_the_stream_of_the_same_photographs_in_folders(self):
        self.photographs()
        shards = self.digests(self.config(epochs=2), "--workers", 2)
        folders = self.digests(self.config(path="photos", type="image-folder", epochs=2, name="photos.toml"), "--workers", 2)
        self.assertEqual(shards, folders)
        self.assertEqual(self.digests(self.config(path="shards/train-{000..001}.tar", epochs=2), "--workers", 3), shards)
        self.assertEqual(self.digests(self.config(path="shards/train-*.tar", epochs=2), "--workers", 1), shards)
        self.assertEqual(len([name for name in os.listdir(self.shards) if name.endswith(".index")]), 1)

    def test_balanced_shards_give_the_stream_of_the_same_photographs_in_folders(self):
        self.photographs(41)
        balanced = ("--workers", 2, "--set", "sampler.kind=balanced", "--set", "sampler.epoch_samples=50")
        shards = self.digests(self.config(epochs=2), *balanced)
        self.assertEqual(shards, self.digests(self.config(path="photos", type="image-folder", epochs=2, name="photos.toml"), *balanced))
        self.assertEqual(len(set(shards)), 2)

    def write_with_tarfile(self, samples):
        """Writes a shard as webdataset.TarWriter does: members of a sample in the order of its keys, GNU format."""
        with tarfile.open(os.path.join(self.shards, "x.tar"), "w", format=tarfile.GNU_FORMAT) as archive:
            for sample in samples:
                for extension, contents in sample.items():
                    if extension != "__key__":
                        add(archive, sample["__key__"] + "." + extension, contents)

    def write_with_webdataset(self, samples):
        with webdataset.TarWriter(os.path.join(self.shards, "x.tar"), encoder=False) as writer:
            for sample in samples:
                writer.write(sample)

    def some_samples(self):
        choose = random.Random(5)
        samples = []
        for number in range(30):
            picture = Image.new("RGB", (64, 48), (number * 8, 255 - number * 8, 100))
            file = io.BytesIO()
            kind = ("png", "webp", "webp")[number % 3]
            picture.save(file, kind.upper(), lossless=number % 3 == 1)
            array = io.BytesIO()
            numpy.save(array, numpy.arange(number, number + 6, dtype=numpy.float32).reshape(2, 3))
            samples.append({"__key__": ("deep/" * choose.randrange(40)) + "%05d" % number, kind: file.getvalue(),
                            "cls": str(number).encode(), "txt": ("caption %d " % number * choose.randrange(1, 30)).encode(),
                            "json": json.dumps({"n": number}).encode(), "emb.npy": array.getvalue()})
        return samples

    def check_samples(self, samples):
        config = self.config(more='[dataset.members]\nimage = "png;webp"\nlabel = "cls"\ncaption = "txt"\nmeta = "json"\nembedding = "emb.npy"\n')
        expected = list(grouped(os.path.join(self.shards, "x.tar")).items())
        self.assertEqual([key for key, _ in expected], [sample["__key__"] for sample in samples])
        report, found = self.delivered(config, "--set", 'image.augment="none"')
        self.assertEqual(report["failures"], [])
        self.assertEqual(sorted(found), list(range(len(expected))))
        for number, (key, members) in enumerate(expected):
            tensors = found[number]
            self.assertEqual(int(tensors["label"]), int(members["cls"]))
            self.assertEqual(bytes(tensors["caption"][:int(tensors["caption_length"])]), members["txt"])
            self.assertFalse(tensors["caption"][int(tensors["caption_length"]):].any())
            self.assertEqual(bytes(tensors["meta"][:int(tensors["meta_length"])]), members["json"])
            self.assertTrue((tensors["embedding"] == numpy.load(io.BytesIO(members["emb.npy"]))).all())
            picture = numpy.asarray(Image.open(io.BytesIO(members.get("png") or members["webp"])).convert("RGB"))
            self.assertTrue((tensors["image"] == picture).all())

    def test_samples_equal_those_read_by_tarfile_and_pillow(self):
        samples = self.some_samples()
        self.write_with_tarfile(samples)
        self.check_samples(samples)

    @unittest.skipIf(webdataset is None, "webdataset is not installed")
    def test_samples_of_shards_written_by_webdataset_equal_those_of_its_own_reader(self):
        samples = self.some_samples()
        self.write_with_webdataset(samples)
        self.check_samples(samples)
        read = list(webdataset.WebDataset(os.path.join(self.shards, "x.tar"), shardshuffle=False))
        self.assertEqual([sample["__key__"] for sample in read], [sample["__key__"] for sample in samples])
        ours = list(grouped(os.path.join(self.shards, "x.tar")).values())
        for sample, members in zip(read, ours):
            self.assertEqual({name: value for name, value in sample.items() if not name.startswith("__")}, members)

    def test_twenty_kills_of_workers_do_not_change_the_stream(self):
        self.photographs(80)
        self.survive_kills(self.config(epochs=40))

    def test_twenty_kills_of_workers_do_not_change_the_stream_of_compressed_shards(self):
        self.photographs(80)
        self.compress("--frame-size", "16KiB")
        self.survive_kills(self.config(path="compressed", epochs=40))

    def survive_kills(self, config):
        expected = self.digests(config, "--workers", 2)
        process = self.start("run", config, "--workers", 2, "--digest", "--json", "--quiet")
        choose = random.Random(20261125)
        killed = 0
        while killed < 20 and process.poll() is None:
            if workers := self.workers_of(process):
                try:
                    signal_process(choose.choice(workers), signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:
                    pass
            time.sleep(0.1)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, EXIT_OK, err.decode())
        report = json.loads(out)
        self.assertGreater(killed, 0)
        self.assertEqual([epoch["digest"] for epoch in report["epochs"]], expected)
        self.check_sums(report)

    def test_a_stopped_stream_continues_with_its_shards_and_not_with_others(self):
        self.photographs()
        config = self.config(epochs=2)
        whole = self.digests(config)
        part = self.run_json(config, "--digest", "--batches", 7, "--state", "state", "--workers", 1)
        self.assertEqual(part["outcome"], "stopped")
        rest = self.run_json(config, "--digest", "--state", "state", "--workers", 3)
        self.assertEqual(rest["epochs"][-1]["digest"], whole[-1])
        self.run_json(config, "--digest", "--batches", 7, "--state", "other", "--workers", 1)
        os.remove(os.path.join(self.shards, "train-001.tar"))
        code, _, err = self.penstock("run", config, "--state", "other")
        self.assertEqual(code, EXIT_FAILED, err)

    def test_bad_samples_are_named_by_shard_and_key_and_the_totals_add_up(self):
        with tarfile.open(os.path.join(self.shards, "x.tar"), "w") as archive:
            for number in range(20):
                add(archive, "d/%02d.cls" % number, b"1")
                if number != 7:
                    file = io.BytesIO()
                    Image.new("RGB", (64, 48), (number, 0, 0)).save(file, "PNG")
                    add(archive, "d/%02d.png" % number, file.getvalue() if number != 9 else b"nonsense")
        report = self.run_json(self.config())
        self.check_sums(report)
        self.assertEqual(sorted((one["path"], one["sample"]) for one in report["failures"]),
                         [("x.tar:d/07", 7), ("x.tar:d/09", 9)])
        self.assertIn("it has no member .jpg, .jpeg, .png or .webp: it has .cls", [one["error"] for one in report["failures"]])

    def webp_shard(self):
        """Twelve good WebP members, and five that fail."""
        def webp(number, **options):
            file = io.BytesIO()
            Image.new("RGB", (64, 48), (number * 20, 99, 7)).save(file, "WEBP", **options)
            return file.getvalue()

        noise = io.BytesIO()
        Image.frombytes("RGB", (64, 48), random.Random(1).randbytes(64 * 48 * 3)).save(noise, "WEBP")
        half = noise.getvalue()[20:len(noise.getvalue()) // 4 * 2]
        good = webp(3, quality=80)
        huge = b"\x2f" + struct.pack("<I", 16383 | 16383 << 14)
        bad = {"animated": webp(3, save_all=True, append_images=[Image.new("RGB", (64, 48))]),
               "corrupt": b"RIFF" + struct.pack("<I", 12 + len(half)) + b"WEBPVP8 " + struct.pack("<I", len(half)) + half,
               "cut": good[:-7],
               "huge": b"RIFF" + struct.pack("<I", 4 + 8 + 6) + b"WEBPVP8L" + struct.pack("<I", 5) + huge + b"\0",
               "text": b"words"}
        with tarfile.open(os.path.join(self.shards, "x.tar"), "w") as archive:
            for name, contents in [("%02d" % number, webp(number, lossless=number % 2 == 0)) for number in range(12)] + sorted(bad.items()):
                add(archive, name + ".webp", contents)
                add(archive, name + ".cls", b"1")
        return {"animated": "animated WebP: only still pictures are read",
                "corrupt": "WebP cannot be decoded: its data is corrupt or ends early",
                "cut": "truncated WebP: %d of its %d bytes" % (len(good) - 7, len(good)),
                "huge": "16384 x 16384 pixels are more than max_pixels = ",
                "text": "not a WebP: starts with 77 6f"}

    def test_webp_members_that_cannot_be_used_are_named_and_harm_no_other_sample(self):
        reasons = self.webp_shard()
        report, found = self.delivered(self.config())
        self.check_sums(report)
        self.assertEqual(sorted(found), list(range(12)))
        self.assertEqual(sorted(one["path"] for one in report["failures"]), ["x.tar:" + name for name in sorted(reasons)])
        for one in report["failures"]:
            self.assertIn("its member .webp cannot be used: " + reasons[one["path"][len("x.tar:"):]], one["error"])
        code, out, err = self.penstock("inspect", self.config(), "--json")
        self.assertEqual(code, EXIT_OK, err)
        self.assertEqual(sorted(one["path"] for one in json.loads(out)["suspicious"]), ["x.tar:" + name for name in sorted(reasons)])
        code, _, err = self.penstock("preview", self.config(), "--out", os.path.join(self.folder, "sheet.png"))
        self.assertEqual(code, EXIT_OK, err)

    def test_a_missing_libwebp_is_named_with_its_package(self):
        self.webp_shard()
        photos = os.path.join(self.folder, "pictures")
        os.mkdir(photos)
        Image.new("RGB", (64, 48)).save(os.path.join(photos, "one.webp"))
        self.write("none/libwebp.so.7", "not a library")
        environment = dict(self.environment, LD_LIBRARY_PATH=os.path.join(self.folder, "none"))
        for config in self.config(), self.config(path="pictures", type="image-folder", name="pictures.toml"):
            code, _, err = self.penstock("run", config, env=environment)
            self.assertNotEqual(code, EXIT_OK)
            self.assertIn("reading WebP pictures needs libwebp.so.7", err)
            self.assertIn("(the package libwebp7 provides it)", err)
        # Shards need libwebp only for samples that have no other picture.
        self.assertEqual(self.penstock("check-config", self.config(), env=environment)[0], EXIT_OK)
        with tarfile.open(os.path.join(self.shards, "x.tar"), "w") as archive:
            file = io.BytesIO()
            Image.new("RGB", (64, 48)).save(file, "PNG")
            for name, contents in (("1.webp", b"words"), ("1.png", file.getvalue()), ("1.cls", b"1")):
                add(archive, name, contents)
        code, _, err = self.penstock("run", self.config(), env=environment)
        self.assertEqual(code, EXIT_OK, err)

    def test_a_damaged_shard_is_refused_with_shard_offset_and_member(self):
        self.photographs()
        path = os.path.join(self.shards, "train-001.tar")
        os.truncate(path, os.path.getsize(path) - 20000)
        code, _, err = self.penstock("run", self.config())
        self.assertEqual(code, EXIT_FAILED)
        self.assertRegex(err, r"the shard 'train-001\.tar' is damaged at offset \d+(, member 'class\d/\d+\.(jpg|cls)')?: ")

    def test_an_index_is_rebuilt_when_a_shard_changes_and_run_says_so(self):
        self.photographs()
        config = self.config()
        self.run_json(config)
        with tarfile.open(os.path.join(self.shards, "train-001.tar"), "a") as archive:
            add(archive, "class9/new.cls", b"9")
        code, _, err = self.penstock("run", config)
        self.assertEqual(code, EXIT_OK, err)
        self.assertRegex(err, r"the index '.*\.index' describes 'train-001\.tar' as it was before its latest modification: building it again")
        self.assertIn("train-001.tar:class9/new", err)
        self.assertNotIn("building it again", self.penstock("run", config)[2])

    def test_inspect_counts_shards_and_names_bad_samples(self):
        self.photographs()
        with tarfile.open(os.path.join(self.shards, "zzz.tar"), "w") as archive:
            add(archive, "bad.jpg", b"nonsense")
            add(archive, "bad.cls", b"1")
        code, out, err = self.penstock("inspect", self.config(), "--json")
        self.assertEqual(code, EXIT_OK, err)
        report = json.loads(out)
        self.assertEqual([(one["name"], one["samples"]) for one in report["files"]],
                         [("train-000.tar", 20), ("train-001.tar", 20), ("zzz.tar", 1)])
        self.assertEqual(report["samples"], 41)
        self.assertEqual([one["path"] for one in report["suspicious"]], ["zzz.tar:bad"])
        self.assertIn("members by extension: .jpg 41, .cls 41", report["notices"])

    def test_preview_names_samples_by_shard_and_key(self):
        paths = self.photographs()
        code, out, err = self.penstock("preview", self.config(), "--out", os.path.join(self.folder, "sheet.png"), "--json")
        self.assertEqual(code, EXIT_OK, err)
        for sample in json.loads(out)["samples"]:
            self.assertEqual(sample["path"], "train-%03d.tar:%s" % (sample["sample"] // 20, paths[sample["sample"]][:-len(".jpg")]))

    def test_check_config_knows_patterns_and_members(self):
        self.photographs()
        self.assertEqual(self.penstock("check-config", self.config(path="shards/train-{000..001}.tar"))[0], EXIT_OK)
        code, out, err = self.penstock("check-config", self.config(more='members = { image = "jpg;txt" }'))
        self.assertEqual(code, EXIT_CONFIG)
        self.assertIn("mixes members of different kinds", out + err)

    def test_check_config_names_the_members_of_the_first_samples_if_a_tensor_finds_none(self):
        self.photographs()
        good = self.config(more='members = { image = "png;jpg", label = "cls" }')
        self.assertEqual(self.penstock("check-config", good), (EXIT_OK, "", "%s: ok\n" % good))
        wrong = self.config(more='members = { image = "jpg", label = "clss" }')
        code, out, err = self.penstock("check-config", wrong)
        self.assertEqual(code, EXIT_OK, err)
        self.assertRegex(err, r"the first samples of 'train-000.tar' have no member \.clss for the tensor 'label': '\S+', '\S+' and '\S+' have \.jpg, \.cls")
        self.assertIn('did you mean "cls"?', err)
        self.assertIn(":6:", err)
        self.assertEqual(self.penstock("check-config", wrong, "--strict")[0], EXIT_CONFIG)
        code, out, err = self.penstock("check-config", self.config(more='members = { audio = "flac" }'))
        self.assertIn('write one of those, as in audio = "jpg"', err)
        # Without [dataset.members] the tensors are image and label.
        with tarfile.open(os.path.join(self.shards, "train-000.tar"), "w") as archive:
            add(archive, "one.txt", b"words")
        err = self.penstock("check-config", self.config())[2]
        self.assertRegex(err, r"have no member \.jpg, \.jpeg, \.png, \.webp for the tensor 'image': 'one' has \.txt")
        # Unreadable files are reported by `penstock run`.
        with open(os.path.join(self.shards, "train-000.tar"), "wb") as file:
            file.write(b"no archive" * 100)
        self.assertEqual(self.penstock("check-config", self.config())[0], EXIT_OK)

    def compress(self, *options):
        """Writes the shards of a folder as seekable zstd into another folder."""
        code, _, err = self.penstock("pack", self.shards, "--out", os.path.join(self.folder, "compressed"), "--compress", "zstd", *options)
        self.assertEqual(code, EXIT_OK, err)
        return os.path.join(self.folder, "compressed")

    def test_compressed_shards_give_the_stream_of_the_plain_ones(self):
        self.photographs()
        plain = self.digests(self.config(epochs=2), "--workers", 2)
        for frame_size in "4KiB", "64KiB", "16MiB":
            shutil.rmtree(os.path.join(self.folder, "compressed"), ignore_errors=True)
            self.compress("--frame-size", frame_size)
            self.assertEqual(self.digests(self.config(path="compressed", epochs=2), "--workers", 3), plain)
        self.assertEqual(self.digests(self.config(path="compressed/*.tar.zst", epochs=2), "--workers", 1), plain)
        self.assertNotIn("building it again", self.penstock("run", self.config(path="compressed"))[2])

    def test_inspect_plan_replay_and_preview_can_read_compressed_shards(self):
        paths = self.photographs()
        folder = self.compress()
        config = self.config(path="compressed")
        report = json.loads(self.penstock("inspect", config, "--json")[1])
        self.assertEqual([(one["name"], one["samples"]) for one in report["files"]], [("train-000.tar.zst", 20), ("train-001.tar.zst", 20)])
        self.assertEqual(report["bytes"], sum(os.path.getsize(os.path.join(folder, one["name"])) for one in report["files"]))
        self.assertEqual(report["suspicious"], [])
        plans = [json.loads(self.penstock("plan", one, "--epoch", 0, "--batch", 1, "--json")[1])["samples"] for one in (config, self.config(name="plain.toml"))]
        self.assertEqual(plans[0], plans[1])
        code, out, err = self.penstock("preview", config, "--out", os.path.join(self.folder, "sheet.png"), "--json")
        self.assertEqual(code, EXIT_OK, err)
        for sample in json.loads(out)["samples"]:
            self.assertEqual(sample["path"], "train-%03d.tar.zst:%s" % (sample["sample"] // 20, paths[sample["sample"]][:-len(".jpg")]))
        digests = [json.loads(self.penstock("replay", one, "--epoch", 0, "--batch", 1, "--out", os.path.join(self.folder, out), "--json")[1])["digest"]
                   for one, out in ((config, "one"), (self.config(name="plain.toml"), "other"))]
        self.assertEqual(digests[0], digests[1])

    def test_a_stopped_stream_of_compressed_shards_continues(self):
        self.photographs()
        self.compress()
        config = self.config(path="compressed", epochs=2)
        whole = self.digests(config)
        self.run_json(config, "--digest", "--batches", 7, "--state", "state", "--workers", 1)
        self.assertEqual(self.run_json(config, "--digest", "--state", "state", "--workers", 3)["epochs"][-1]["digest"], whole[-1])

    def test_damaged_frames_fail_their_samples_and_an_error_about_a_missing_seek_table_names_the_remedy(self):
        self.photographs()
        folder = self.compress("--frame-size", "4KiB")
        config = self.config(path="compressed")
        self.run_json(config)
        path = os.path.join(folder, "train-001.tar.zst")
        facts = os.stat(path)
        with open(path, "r+b") as file:
            contents = file.read()
            # Damage the middle of a picture, which is longer than a frame.
            file.seek(len(contents) // 2)
            file.write(bytes(byte ^ 0x55 for byte in contents[len(contents) // 2:len(contents) // 2 + 50]))
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        report = self.run_json(config)
        self.check_sums(report)
        self.assertIn(len(report["failures"]), (1, 2))
        for failure in report["failures"]:
            self.assertTrue(failure["path"].startswith("train-001.tar.zst:"), failure)
            self.assertRegex(failure["error"], r"its shard has a frame at byte \d+ ")
        with open(path, "wb") as file:
            file.write(contents[:-9])
        code, _, err = self.penstock("run", config)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("the shard 'train-001.tar.zst' has no seek table at its end", err)
        self.assertIn("`zstd -d` it, and compress the .tar with `penstock pack FILE.tar --out DIR --compress zstd`", err)

    def test_a_missing_libzstd_is_named_with_its_package(self):
        self.photographs()
        self.compress()
        config = self.config(path="compressed")
        self.run_json(config)  # builds the index
        self.write("none/libzstd.so.1", "not a library")
        environment = dict(self.environment, LD_LIBRARY_PATH=os.path.join(self.folder, "none"))
        for cache in "kept", "removed":
            code, _, err = self.penstock("run", config, env=environment)
            self.assertNotEqual(code, EXIT_OK)
            self.assertIn("reading shards that are compressed with zstd needs libzstd.so.1", err)
            self.assertIn("(the package libzstd1 provides it)", err)
            for name in os.listdir(os.path.join(self.folder, "compressed")):
                if name.endswith(".index"):
                    os.remove(os.path.join(self.folder, "compressed", name))

    def test_eight_sessions_that_start_at_once_build_one_index(self):
        self.photographs(80)
        config = self.config()
        processes = [self.start("run", config, "--digest", "--json", "--quiet", "--workers", 1, "--set", 'name="s%d"' % i) for i in range(8)]
        digests = set()
        for process in processes:
            out, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, EXIT_OK, err.decode())
            digests.add(json.loads(out)["epochs"][0]["digest"])
        self.assertEqual(len(digests), 1)
        self.assertEqual(len([name for name in os.listdir(self.shards) if "penstock" in name]), 1)


if __name__ == "__main__":
    main()
