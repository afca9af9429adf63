"""[dataset] type = "npy" with several arrays: .npz files, and .npy files next to each other."""

from harness import *

import io
import zipfile

import numpy


class ArraysTest(PenstockTest):
    ROWS = 37

    def setUp(self):
        super().setUp()
        dice = numpy.random.default_rng(5)
        self.arrays = {"features": dice.normal(size=(self.ROWS, 4, 3)).astype("float32"), "label": dice.integers(0, 9, self.ROWS),
                       "weight": dice.random(self.ROWS)}

    def path(self, name):
        return os.path.join(self.folder, name)

    def config(self, path, more="", sampler="shuffle = true"):
        return self.write("a.toml", '[dataset]\ntype = "npy"\npath = "%s"\n%s\n[sampler]\nbatch_size = 8\n%s\n[loader]\nworkers = 2\n[gpu]\ndevice = "host"\n'
                          % (path, more, sampler))

    def check_rows(self, config, arrays):
        out = self.path("out-%d" % len(os.listdir(self.folder)))
        self.run_json(config, "--sink", "npy", "--out", out)
        seen = []
        for batch in range((self.ROWS + 7) // 8):
            start = os.path.join(out, "e0-b%06d." % batch)
            index = numpy.load(start + "index.npy")
            seen += list(index)
            for name, values in arrays.items():
                found = numpy.load(start + name + ".npy")
                self.assertEqual(found.dtype, values.dtype)
                numpy.testing.assert_array_equal(found, values[index])
        self.assertEqual(sorted(seen), list(range(self.ROWS)))

    def refusal(self, config):
        code, out, err = self.penstock("run", config, "--dry-run")
        self.assertEqual(code, EXIT_FAILED, out + err)
        return err

    # ---- what is read ----------------------------------------------------------------------------------------

    def test_arrays_of_stored_and_compressed_npz_files_become_tensors_with_their_names(self):
        for save in (numpy.savez, numpy.savez_compressed):
            with self.subTest(save.__name__):
                save(self.path("pairs.npz"), **self.arrays)
                self.check_rows(self.config("pairs.npz"), self.arrays)

    def test_inspect_finds_a_flipped_bit_in_a_stored_member(self):
        numpy.savez(self.path("pairs.npz"), **self.arrays)
        self.assertEqual(self.penstock("inspect", self.config("pairs.npz"))[0], EXIT_OK)
        with open(self.path("pairs.npz"), "r+b") as file:
            contents = bytearray(file.read())
            at = contents.index(self.arrays["features"].tobytes()) + 100
            file.seek(at)
            file.write(bytes([contents[at] ^ 1]))
        code, _, err = self.penstock("inspect", self.config("pairs.npz"))
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("pairs.npz' has a member 'features.npy' whose contents do not match its checksum", err)

    def test_members_select_arrays_and_rename_them(self):
        numpy.savez_compressed(self.path("pairs.npz"), **self.arrays)
        config = self.config("pairs.npz", 'members = { x = "features", y = "label.npy" }')
        self.check_rows(config, {"x": self.arrays["features"], "y": self.arrays["label"]})
        code, out, err = self.penstock("inspect", config, "--json")
        self.assertEqual(code, EXIT_OK, err)
        self.assertEqual(json.loads(out)["element"], "x float32 [4, 3], y int64 []")

    def test_npy_files_next_to_each_other_become_tensors_of_one_sample(self):
        os.mkdir(self.path("pairs"))
        for name, values in self.arrays.items():
            numpy.save(self.path("pairs/%s.npy" % name), values)
        config = self.config("pairs", 'members = { x = "features.npy", w = "weight.npy" }')
        self.check_rows(config, {"x": self.arrays["features"], "w": self.arrays["weight"]})
        code, out, err = self.penstock("plan", config, "--json")
        self.assertEqual(code, EXIT_OK, err)
        self.assertTrue(all(name.startswith("weight.npy[") for name in json.loads(out)["names"]))

    def test_the_number_of_workers_and_compression_do_not_change_the_stream(self):
        numpy.savez(self.path("pairs.npz"), **self.arrays)
        stored = self.digests(self.config("pairs.npz"), "--workers", 1)
        self.assertEqual(self.digests(self.config("pairs.npz"), "--workers", 3), stored)
        numpy.savez_compressed(self.path("pairs.npz"), **self.arrays)
        self.assertEqual(self.digests(self.config("pairs.npz")), stored)

    def test_an_archive_with_a_comment_and_one_with_one_row_are_read(self):
        numpy.savez(self.path("one.npz"), x=numpy.arange(3)[None])
        with zipfile.ZipFile(self.path("one.npz"), "a") as archive:
            archive.comment = b"PK\x05\x06 is not the end" * 9
        self.assertEqual(self.run_json(self.config("one.npz"))["totals"]["samples"], 1)

    # ---- what is refused -------------------------------------------------------------------------------------

    def test_arrays_that_do_not_match_or_cannot_be_used_are_refused(self):
        ones = numpy.ones((5, 2))
        for arrays, expected in (({"a": ones, "b": numpy.ones(4)}, "has 5 rows, but '%s': its member 'b.npy' has 4 rows"),
                                 ({"a": numpy.array([{}, []], dtype=object)}, "has a member 'a.npy' that"),
                                 ({"a": numpy.asfortranarray(ones)}, "ortran"),
                                 ({"a": numpy.float32(3)}, "a.npy"), ({"a": numpy.zeros((0, 3))}, "no samples"),
                                 ({"a b": ones}, "choose another one with [dataset] members"), ({}, "has no arrays")):
            for save in (numpy.savez, numpy.savez_compressed):
                with self.subTest(expected, save=save.__name__):
                    save(self.path("bad.npz"), **arrays)
                    self.assertIn(expected.replace("%s", self.path("bad.npz")), self.refusal(self.config("bad.npz")))

    def test_missing_members_are_refused_and_the_error_lists_the_existing_ones(self):
        numpy.savez(self.path("pairs.npz"), **self.arrays)
        self.assertIn("has no member 'labels' for the tensor 'y': it has features, label, weight",
                      self.refusal(self.config("pairs.npz", 'members = { y = "labels" }')))
        self.assertIn("nowhere.npy", self.refusal(self.config(".", 'members = { y = "nowhere.npy" }')))

    def patched(self, save, at, value):
        """Writes an archive with one member `a`, and overwrites its directory entry at `at` with `value`. Returns a
        config."""
        buffer = io.BytesIO()
        save(buffer, a=numpy.arange(3000.0))
        data = bytearray(buffer.getvalue())
        entry = data.rindex(b"PK\x01\x02")
        data[entry + at:entry + at + len(value)] = value
        with open(self.path("bad.npz"), "wb") as file:
            file.write(data)
        return self.config("bad.npz")

    def test_archives_with_a_false_directory_are_refused(self):
        entry = {"flags": 8, "method": 10, "crc": 16, "stored": 20, "bytes": 24, "header": 42}
        stored, compressed = numpy.savez, numpy.savez_compressed
        for save, at, value, expected in ((stored, "flags", b"\x01\x00", "has an encrypted member 'a.npy'"),
                                          (stored, "method", b"\x0e\x00", "compressed by method 14"),
                                          (stored, "bytes", b"\x10\x00\x00\x00", "uncompressed member 'a.npy' of 16 bytes"),
                                          (stored, "header", b"\xf0\xff\xff\x7f", "it is cut off"),
                                          (stored, "header", b"\x04\x00\x00\x00", "contradicts the directory"),
                                          (compressed, "crc", b"\x00\x01\x02\x03", "do not match its checksum"),
                                          (compressed, "stored", b"\x40\x00\x00\x00", "damaged or cut off"),
                                          (compressed, "bytes", b"\xc0\x5d\x00\x00", "a.npy"),
                                          (compressed, "bytes", b"\xf0\xff\xff\xff", "a.npy")):
            with self.subTest(at + " " + expected):
                self.assertIn(expected, self.refusal(self.patched(save, entry[at], value)))

    def test_a_decompression_bomb_is_refused_by_its_size_before_it_is_inflated(self):
        header = b"\x93NUMPY\x01\x00\x76\x00" + (b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }" % (1 << 45)).ljust(117) + b"\n"
        with zipfile.ZipFile(self.path("bad.npz"), "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.npy", header + b"\0" * 200000)
        data = bytearray(open(self.path("bad.npz"), "rb").read())
        self.assertIn("a.npy", self.refusal(self.config("bad.npz")))  # the header of a.npy promises more data than there is
        # Now the directory confirms the header, with zip64 sizes.
        entry = data.rindex(b"PK\x01\x02")
        data[entry + 24:entry + 28] = b"\xff\xff\xff\xff"
        extra = struct.pack("<HHQ", 1, 8, (1 << 45) + len(header))
        data[entry + 30:entry + 32] = struct.pack("<H", len(extra))
        name = entry + 46 + 5
        data[name:name] = extra
        end = data.rindex(b"PK\x05\x06")
        data[end + 12:end + 16] = struct.pack("<I", struct.unpack("<I", data[end + 12:end + 16])[0] + len(extra))
        with open(self.path("bad.npz"), "wb") as file:
            file.write(data)
        self.assertIn("more than half of this machine's", self.refusal(self.config("bad.npz")))

    def test_truncated_archives_and_files_that_are_not_archives_are_refused(self):
        numpy.savez(self.path("whole.npz"), **self.arrays)
        whole = open(self.path("whole.npz"), "rb").read()
        for size in (0, 1, 21, 22, 100, len(whole) - 1, len(whole) - 23, len(whole) // 2):
            with self.subTest(size):
                with open(self.path("bad.npz"), "wb") as file:
                    file.write(whole[:size])
                self.assertRegex(self.refusal(self.config("bad.npz")), "is not a zip archive|extends beyond its end|damaged|cut off")
        self.assertIn("cannot be opened", self.refusal(self.config("nowhere.npz")))

    def test_a_file_that_changes_after_the_listing_fails_its_samples(self):
        numpy.savez(self.path("pairs.npz"), **self.arrays)
        script = 'cd "%s"; [ -e grown ] || { echo >> pairs.npz; touch grown; }' % self.folder
        self.worker_program(script)
        config = self.config("pairs.npz")
        text = open(config).read().replace("[loader]\nworkers = 2\n", '[loader]\nworkers = 1\ncommand = ["%s"]\n' % self.path("worker-program"))
        self.write("a.toml", text)
        code, out, err = self.penstock("run", config, "--quiet")
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("changed since it was indexed", err)


if __name__ == "__main__":
    main()
