"""penstock pack: shards of an image folder, and what remains when it is killed."""

import hashlib
import io
import random
import tarfile
import time

from PIL import Image

from harness import *


def unpacked(path):
    """The contents of a zstd file, as the zstd program reads them."""
    return subprocess.run(["zstd", "-d", "-c", path], check=True, stdout=subprocess.PIPE).stdout


class PackTest(PenstockTest):
    def setUp(self):
        super().setUp()
        self.photos = os.path.join(self.folder, "photos")
        make_photos(self.photos, 60, size=(1024, 768))
        self.out = os.path.join(self.folder, "shards")

    def pack(self, *options, out=None, expect=EXIT_OK):
        code, text, err = self.penstock("pack", self.photos, "--out", out or self.out, "--json", *options)
        self.assertEqual(code, expect, err + text)
        return json.loads(text)

    def paths(self):
        return sorted(os.path.relpath(os.path.join(root, name), self.photos) for root, _, names in os.walk(self.photos) for name in names)

    def members(self, out=None):
        """(shard, name, contents) of all members."""
        folder = out or self.out
        found = []
        for shard in sorted(name for name in os.listdir(folder) if name.endswith(".tar")):
            with tarfile.open(os.path.join(folder, shard)) as archive:
                found += [(shard, member.name, archive.extractfile(member).read()) for member in archive]
        return found

    def sums(self, out):
        sums = {}
        for name in sorted(os.listdir(out)):
            with open(os.path.join(out, name), "rb") as file:
                sums[name] = hashlib.sha256(file.read()).hexdigest()
        return sums

    def stream(self, type, path, augment="centre-crop"):
        return self.digests(self.write(type + ".toml", """
[dataset]
type = "%s"
path = "%s"
[image]
size = [48, 64]
augment = "%s"
[sampler]
batch_size = 8
[gpu]
device = "host"
""" % (type, path, augment)))

    def test_shards_contain_the_files_and_their_classes_and_give_the_same_stream(self):
        report = self.pack("--shard-size", "1MiB")
        members = self.members()
        expected = []
        for path in self.paths():
            with open(os.path.join(self.photos, path), "rb") as file:
                expected += [(path, file.read()), (path[:-len("jpg")] + "cls", path[len("class"):len("class") + 1].encode())]
        self.assertEqual([(name, contents) for _, name, contents in members], expected)
        self.assertGreater(len(report["shards"]), 1)
        self.assertTrue(report["complete"])
        self.assertEqual((report["packed"], report["failed"]), (60, []))
        for shard in report["shards"]:
            self.assertLessEqual(shard["bytes"], 1 << 20)
            self.assertEqual(shard["bytes"], os.path.getsize(os.path.join(self.out, shard["name"])))
        with open(os.path.join(self.out, "classes.txt")) as file:
            self.assertEqual(file.read().split(), ["class0", "class1", "class2", "class3"])
        self.assertEqual(self.stream("tar", self.out), self.stream("image-folder", self.photos))

    def test_pictures_are_reduced_and_encoded_again(self):
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.new("RGB", (100, 50), (200, 30, 40)).save(os.path.join(self.photos, "class0", "turned.jpg"), exif=exif)
        self.pack("--resize", 60, "--quality", 95)
        pictures = {name: Image.open(io.BytesIO(contents)) for _, name, contents in self.members() if name.endswith(".jpg")}
        self.assertEqual(pictures["class0/00000.jpg"].size, (80, 60))
        self.assertEqual(pictures["class0/turned.jpg"].size, (50, 100))
        with Image.open(os.path.join(self.photos, "class0", "00000.jpg")) as source:
            reduced = source.resize((80, 60), Image.BILINEAR)
        difference = [abs(a - b) for a, b in zip(reduced.tobytes(), pictures["class0/00000.jpg"].tobytes())]
        self.assertLess(sum(difference) / len(difference), 4)

    def test_a_run_that_is_killed_again_and_again_ends_with_the_same_shards(self):
        options = ["--shard-size", "1MiB", "--quality", "95"]
        whole = os.path.join(self.folder, "whole")
        self.pack(*options, out=whole)
        choose = random.Random(7)
        kills = 0
        for _ in range(40):
            process = self.start("pack", self.photos, "--out", self.out, "--json", *options)
            time.sleep(choose.uniform(0.01, 0.2))
            process.kill()
            process.communicate()
            if process.returncode == EXIT_OK:
                break
            kills += 1
            for name in os.listdir(self.out) if os.path.isdir(self.out) else ():
                if name.endswith(".tar"):
                    with tarfile.open(os.path.join(self.out, name)) as archive:
                        self.assertTrue(archive.getnames())
        self.assertGreater(kills, 0)
        self.pack(*options)
        self.assertEqual(self.sums(self.out), self.sums(whole))

    def refused_while_another_writes(self, shard, *arguments):
        """Runs `penstock pack` while another one is writing this shard to the same folder."""
        part = os.path.join(self.out, shard + ".part")
        os.makedirs(self.out, exist_ok=True)
        os.mkfifo(part)  # opening it blocks the first run
        first = self.start("pack", *arguments, "--out", self.out, "--json")
        try:
            self.wait_until(lambda: os.path.exists(os.path.join(self.out, "pack.json")), "the first run's state")
            code, text, _ = self.penstock("pack", *arguments, "--out", self.out, "--json", timeout=20)
        finally:
            first.kill()
            first.communicate()
            os.remove(part)
        self.assertEqual(code, EXIT_FAILED)
        self.assertEqual(json.loads(text)["error"]["message"], "another run is writing shards to '%s' (pid %d): wait until it has ended, stop it, or choose another path" % (self.out, first.pid))
        self.expect_ok("pack", *arguments, "--out", self.out)

    def test_a_second_run_into_the_same_folder_is_refused(self):
        self.refused_while_another_writes("shard-000000.tar", self.photos)
        self.assertEqual(len(self.members()), 120)

    def test_a_second_run_that_compresses_into_the_same_folder_is_refused(self):
        plain = os.path.join(self.folder, "plain")
        self.pack(out=plain)
        self.refused_while_another_writes("shard-000000.tar.zst", plain, "--compress", "zstd")
        self.assertEqual(self.stream("tar", self.out), self.stream("tar", plain))

    def test_temporary_files_of_killed_runs_are_removed(self):
        kept = ["classes.txt.tmp-old", "pack.json.tmp"]
        for name in ["classes.txt.tmp-4711-1", "pack.json.tmp-4711-12", *kept]:
            self.write(os.path.join(self.out, name), "x")
        self.pack()
        self.assertEqual([name for name in sorted(os.listdir(self.out)) if ".tmp" in name], kept)

    def test_the_state_is_written_before_the_first_shard(self):
        obstacle = os.path.join(self.out, "shard-000000.tar.part")
        os.makedirs(obstacle)
        self.pack(expect=EXIT_FAILED)
        with open(os.path.join(self.out, "pack.json")) as file:
            self.assertEqual(json.load(file)["shards"], [])
        os.rmdir(obstacle)
        self.assertTrue(self.pack()["complete"])

    def test_repeating_a_complete_run_has_no_effect(self):
        first = self.pack()
        before = {name: os.stat(os.path.join(self.out, name)).st_mtime_ns for name in os.listdir(self.out)}
        self.assertEqual(self.pack(), first)
        self.assertEqual({name: os.stat(os.path.join(self.out, name)).st_mtime_ns for name in os.listdir(self.out)}, before)

    def test_different_settings_different_pictures_and_shards_from_elsewhere_are_refused(self):
        self.pack()
        self.assertIn("the same pictures with a different --shard-size, --resize, --quality, --restart-markers, --compress or --frame-size", self.pack("--resize", 50, expect=EXIT_USAGE)["error"]["message"])
        self.write(os.path.join(self.photos, "class0", "new.jpg"), "x")
        self.assertIn("made from other pictures", self.pack(expect=EXIT_USAGE)["error"]["message"])
        os.remove(os.path.join(self.photos, "class0", "new.jpg"))
        os.truncate(os.path.join(self.out, "shard-000000.tar"), 100)
        self.assertIn("'shard-000000.tar' in '%s' is missing or was changed" % self.out, self.pack(expect=EXIT_USAGE)["error"]["message"])
        os.remove(os.path.join(self.out, "pack.json"))
        self.assertIn("were not written by penstock pack", self.pack(expect=EXIT_USAGE)["error"]["message"])
        self.assertIn("--shard-size '12'", self.pack("--shard-size", "12", expect=EXIT_USAGE)["error"]["message"])

    def test_webp_pictures_are_copied_or_encoded_again_as_jpeg(self):
        for number, path in enumerate(self.paths()[:5]):
            Image.open(os.path.join(self.photos, path)).resize((200, 150)).save(os.path.join(self.photos, "class0", "%d.webp" % number))
        self.assertEqual(self.pack("--restart-markers")["failed"], [])
        for _, name, contents in self.members():
            if name.endswith(".webp"):
                with open(os.path.join(self.photos, name), "rb") as file:
                    self.assertEqual(contents, file.read())
        self.assertEqual(self.stream("tar", self.out), self.stream("image-folder", self.photos))
        reduced = os.path.join(self.folder, "reduced")
        self.pack("--resize", 75, out=reduced)
        pictures = {name: contents for _, name, contents in self.members(reduced)}
        self.assertFalse([name for name in pictures if name.endswith(".webp")])
        self.assertEqual(Image.open(io.BytesIO(pictures["class0/0.jpg"])).size, (100, 75))

    def test_pictures_that_cannot_be_read_are_omitted_and_named(self):
        self.write(os.path.join(self.photos, "class1", "bad.jpg"), "nonsense")
        report = self.pack("--resize", 50, expect=EXIT_FAILED)
        self.assertEqual([(one["path"], one["reason"]) for one in report["failed"]],
                         [("class1/bad.jpg", "not a JPEG: starts with 6e 6f")])
        self.assertEqual(report["packed"], 60)
        code, out, err = self.penstock("pack", self.photos, "--out", self.out, "--resize", 50)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("left out: class1/bad.jpg", err)
        self.assertIn("60 pictures in 1 shard", out)

    def vary_the_photos(self):
        """A few progressive files, other subsamplings, grey, CMYK, rotated, and a PNG."""
        paths = [os.path.join(self.photos, path) for path in self.paths()]
        for index, path in enumerate(paths[:20]):
            exif = Image.Exif()
            exif[0x0112] = index % 8 + 1
            with Image.open(path) as image:
                image.convert(("RGB", "L", "CMYK")[index % 3]).resize((500 + index, 375)).save(path, exif=exif, subsampling=index % 3, progressive=index % 4 == 0)
        Image.open(paths[20]).save(os.path.join(self.photos, "class0", "one.png"))

    def test_restart_markers_change_files_but_no_pixel_of_a_stream(self):
        self.vary_the_photos()
        plain = os.path.join(self.folder, "plain")
        self.pack(out=plain)
        report = self.pack("--restart-markers")
        self.assertTrue(report["restart_markers"])
        counts = report["transcoded"]
        self.assertEqual((counts["unchanged"], counts["were_progressive"], report["packed"]), (1, 5, 61))
        before, after = ({name: contents for _, name, contents in self.members(out)} for out in (plain, self.out))
        pictures = [name for name in before if not name.endswith(".cls")]
        self.assertEqual(counts["bytes_before"], sum(len(before[name]) for name in pictures))
        self.assertEqual(counts["bytes_after"], sum(len(after[name]) for name in pictures))
        for name in pictures:
            one, other = (Image.open(io.BytesIO(files[name])) for files in (before, after))
            self.assertEqual((one.tobytes(), one.getexif().get(0x0112)), (other.tobytes(), other.getexif().get(0x0112)), name)
            if name.endswith(".jpg"):
                self.assertIn(b"\xff\xd3", after[name], name)
            else:
                self.assertEqual(after[name], before[name], name)
        for augment in "random-resized-crop", "centre-crop":
            self.assertEqual(self.stream("tar", self.out, augment), self.stream("tar", plain, augment))
        code, out, _ = self.penstock("pack", self.photos, "--out", self.out, "--restart-markers")
        self.assertEqual(code, EXIT_OK)
        self.assertIn("5 were progressive, 1 unchanged", out)

    def test_a_killed_run_with_restart_markers_ends_with_the_same_shards_and_counts(self):
        options = ["--shard-size", "1MiB", "--restart-markers", "--threads", 1]
        whole = os.path.join(self.folder, "whole")
        expected = self.pack(*options, out=whole)
        self.assertGreater(len(expected["shards"]), 2)
        process = self.start("pack", self.photos, "--out", self.out, "--json", *options)
        self.wait_until(lambda: os.path.exists(os.path.join(self.out, "shard-000000.tar")) or process.poll() is not None, "the first shard")
        process.kill()
        process.communicate()
        self.assertEqual(self.pack(*options)["transcoded"], expected["transcoded"])
        for name, digest in self.sums(whole).items():
            if name.endswith(".tar"):
                self.assertEqual(self.sums(self.out)[name], digest)

    def test_a_corrupt_picture_gets_no_markers_and_is_omitted(self):
        path = os.path.join(self.photos, self.paths()[0])
        os.truncate(path, os.path.getsize(path) // 2)
        report = self.pack("--restart-markers", expect=EXIT_FAILED)
        self.assertEqual([one["path"] for one in report["failed"]], [self.paths()[0]])
        self.assertIn("JPEG cannot be decoded: Premature end of JPEG file", report["failed"][0]["reason"])

    def test_names_with_dots_and_equal_stems_give_separate_keys(self):
        place = os.path.join(self.photos, "class9.x")
        os.mkdir(place)
        for name in "a.b.jpg", "a_b.jpg", "c.jpg", "c.jpeg":
            Image.new("RGB", (32, 32), (1, 2, 3)).save(os.path.join(place, name))
        report = self.pack()
        names = [name for _, name, _ in self.members() if name.startswith("class9.x/")]
        self.assertEqual(sorted(names), sorted("class9.x/" + name for name in (
            "a_b.jpg", "a_b.cls", "a_b-2.jpg", "a_b-2.cls", "c.jpeg", "c.cls", "c-2.jpg", "c-2.cls")))
        self.assertEqual(report["packed"], 64)
        self.assertEqual(len(self.stream("tar", self.out)), 1)

    def test_compressed_shards_contain_what_plain_ones_contain_and_give_the_same_stream(self):
        plain = os.path.join(self.folder, "plain")
        self.pack("--shard-size", "1MiB", out=plain)
        report = self.pack("--shard-size", "1MiB", "--compress", "zstd", "--frame-size", "32KiB")
        self.assertEqual((report["compress"], report["frame_size"], report["complete"]), ("zstd", 32768, True))
        names = [shard["name"] for shard in report["shards"]]
        self.assertEqual(names, [name + ".zst" for name in sorted(os.listdir(plain)) if name.endswith(".tar")])
        for shard in report["shards"]:
            self.assertEqual(shard["bytes"], os.path.getsize(os.path.join(self.out, shard["name"])))
            with open(os.path.join(plain, shard["name"][:-len(".zst")]), "rb") as file:
                self.assertEqual(unpacked(os.path.join(self.out, shard["name"])), file.read())
        self.assertEqual(self.pack("--shard-size", "1MiB", "--compress", "zstd", "--frame-size", "32KiB"), report)
        self.assertEqual(self.stream("tar", self.out), self.stream("tar", plain))
        self.assertIn("--frame-size", self.pack("--shard-size", "1MiB", "--compress", "zstd", expect=EXIT_USAGE)["error"]["message"])
        self.assertIn("--frame-size '1KiB'", self.pack("--frame-size", "1KiB", expect=EXIT_USAGE)["error"]["message"])

    def test_a_killed_run_that_compresses_ends_with_the_same_shards(self):
        options = ["--shard-size", "1MiB", "--compress", "zstd", "--threads", 1]
        whole = os.path.join(self.folder, "whole")
        self.pack(*options, out=whole)
        process = self.start("pack", self.photos, "--out", self.out, "--json", *options)
        self.wait_until(lambda: os.path.exists(os.path.join(self.out, "shard-000000.tar.zst")) or process.poll() is not None, "the first shard")
        process.kill()
        process.communicate()
        self.pack(*options)
        self.assertEqual(self.sums(self.out), self.sums(whole))

    def test_existing_shards_can_be_compressed_and_decompressed_unchanged(self):
        plain, back = os.path.join(self.folder, "plain"), os.path.join(self.folder, "back")
        self.pack("--shard-size", "1MiB", out=plain)
        shards = sorted(name for name in os.listdir(plain) if name.endswith(".tar"))
        report = json.loads(self.expect_ok("pack", plain, "--out", self.out, "--compress", "zstd", "--json"))
        self.assertEqual([(shard["name"], shard["was_there"]) for shard in report["shards"]], [(name + ".zst", False) for name in shards])
        self.assertEqual(self.stream("tar", self.out), self.stream("tar", plain))
        os.remove(os.path.join(self.out, shards[1] + ".zst"))
        text = self.expect_ok("pack", os.path.join(plain, "*.tar"), "--out", self.out, "--compress", "zstd")
        self.assertIn("%d of them %s there already" % (len(shards) - 1, "was" if len(shards) == 2 else "were"), text)
        self.expect_ok("pack", self.out, "--out", back)
        before, after = self.sums(plain), self.sums(back)
        self.assertEqual([after[name] for name in shards], [before[name] for name in shards])

    def test_mistakes_with_shards_are_refused_and_named(self):
        self.pack()
        shard = os.path.join(self.out, "shard-000000.tar")
        to = os.path.join(self.folder, "to")
        code, _, err = self.penstock("pack", shard, "--out", to, "--compress", "zstd", "--resize", 100)
        self.assertEqual(code, EXIT_USAGE)
        self.assertIn("names tar shards, which are copied member by member", err)
        os.truncate(shard, os.path.getsize(shard) - 5000)
        code, _, err = self.penstock("pack", shard, "--out", to, "--compress", "zstd")
        self.assertEqual(code, EXIT_FAILED)
        self.assertRegex(err, r"packing '.*shard-000000\.tar': it is damaged at offset \d+")
        self.assertFalse(os.path.exists(os.path.join(to, "shard-000000.tar.zst")))

    def test_shards_of_an_earlier_run_are_kept_only_if_their_sources_and_settings_are_the_same(self):
        plain = os.path.join(self.folder, "plain")
        self.pack(out=plain)
        shard = os.path.join(plain, "shard-000000.tar")
        compress = ["pack", plain, "--out", self.out, "--compress", "zstd"]
        self.expect_ok(*compress)
        self.refuse("made with a different --compress or --frame-size", *compress, "--frame-size", "8KiB")
        facts = os.stat(shard)
        os.utime(shard, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
        self.refuse("and a different modification time: choose another --out, or remove the shards", *compress)
        os.remove(os.path.join(self.out, "shard-000000.tar.zst"))
        self.expect_ok(*compress)
        os.remove(os.path.join(self.out, "pack.json"))
        self.refuse("which was not written by penstock pack", *compress)
        self.refuse("is the folder of '%s'" % shard, "pack", plain, "--out", plain + "/.", "--compress", "zstd")
        self.refuse("made from pictures", "pack", os.path.join(self.out, "*.tar.zst"), "--out", plain)
        within = ["pack", plain, "--out", os.path.join(plain, "small"), "--compress", "zstd"]
        self.expect_ok(*within)
        self.assertIn("1 of them was there already", self.expect_ok(*within))

    def test_an_image_folder_that_contains_an_archive_is_packed_as_pictures(self):
        self.write(os.path.join(self.photos, "train.tar"), "x")
        self.assertEqual(self.pack()["schema"], "penstock.pack/1")

    def refuse(self, text, *arguments):
        code, _, err = self.penstock(*arguments)
        self.assertEqual(code, EXIT_USAGE, err)
        self.assertIn(text, err)

    def expect_ok(self, *arguments):
        code, out, err = self.penstock(*arguments)
        self.assertEqual(code, EXIT_OK, err + out)
        return out


if __name__ == "__main__":
    main()
