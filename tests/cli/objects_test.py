"""Datasets other than tar behind http:// and s3://, compared with the same files on disk."""

import collections
import shutil
import time

import numpy

from store_case import *

TAIL = """
[storage]
cache = "{cache}"
[sampler]
batch_size = 8
epochs = {epochs}
[loader]
max_failed_fraction = 1.0
[gpu]
device = "host"
"""

TOKENS = """
name = "objects"
[dataset]
type = "tokens"
path = "{path}"
sequence_length = 32
{more}
""" + TAIL

INDEX_TYPES = {numpy.dtype(numpy.int32): 4, numpy.dtype(numpy.uint16): 8}


def write_megatron(path, documents):
    """path.bin and path.idx in the published format: one sequence per document."""
    data = numpy.concatenate(documents)
    data.tofile(path + ".bin")
    lengths = numpy.array([len(one) for one in documents], numpy.int32)
    begins = numpy.concatenate([[0], numpy.cumsum(lengths[:-1], dtype=numpy.int64)]) * data.itemsize
    with open(path + ".idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, INDEX_TYPES[data.dtype], len(documents), len(documents) + 1))
        for table in (lengths, begins.astype(numpy.int64), numpy.arange(len(documents) + 1, dtype=numpy.int64)):
            file.write(table.tobytes())


class ObjectsTest(StoreTest):
    def setUp(self):
        super().setUp()
        self.random = numpy.random.default_rng(7)
        self.data = os.path.join(self.served, "bucket", "data")
        os.makedirs(self.data)

    def same_stream(self, config, paths, local=None, **more):
        """The digest, which must equal that of the local files however they are addressed."""
        expected = self.digests(config(local or self.data, name="local.toml", **more), "--workers", 2)
        for path in paths:
            self.assertEqual(self.digests(config(path, **more), "--workers", 2), expected, path)
        return expected

    def refused(self, config, expect=EXIT_FAILED):
        code, out, err = self.penstock("run", config)
        self.assertEqual(code, expect, out + err)
        self.assertNotIn("the-secret", out + err)
        return err


class TokensTest(ObjectsTest):
    def config(self, path, more='dtype = "uint16"', epochs=2, cache="", name="objects.toml"):
        return self.write(name, TOKENS.format(path=path, more=more, epochs=epochs, cache=cache))

    def flat(self, files=5, tokens=1111):
        for number in range(files):
            self.random.integers(10, 50000, tokens + number, dtype=numpy.uint16).tofile(os.path.join(self.data, "p-%03d.bin" % number))

    def megatron(self, files=3):
        for number in range(files):
            documents = [self.random.integers(0, 50000, length, dtype=numpy.uint16) for length in self.random.integers(1, 120, 40)]
            write_megatron(os.path.join(self.data, "m-%03d" % number), documents)

    def test_flat_files_give_the_stream_of_the_same_files_on_disk(self):
        server = self.serve()
        server.page = 2
        self.flat()
        self.write("served/bucket/data/list.txt", "# all\n" + "".join("p-%03d.bin\n" % number for number in range(5)))
        self.write("served/bucket/patterns.txt", "data/p-{000..002}.bin\r\ndata/p-00[34].bin\n")
        urls = self.write("urls.txt", "".join("%s/bucket/data/p-%03d.bin\n" % (server.address, number) for number in range(5)))
        self.same_stream(self.config, ["s3://bucket/data", "s3://bucket/data/", "s3://bucket/data/p-*.bin", "s3://bucket/data/p-{000..004}.bin",
                                       server.address + "/bucket/data/p-{000..004}.bin", "s3://bucket/data/list.txt",
                                       server.address + "/bucket/data/list.txt"])
        # Names are relative to the list, and part of the fingerprint but not of the digest.
        self.same_stream(self.config, ["s3://bucket/patterns.txt", urls])

    def test_arrays_of_tokens_give_the_stream_of_the_same_files_on_disk(self):
        self.serve()
        for number in range(3):
            numpy.save(os.path.join(self.data, "a-%d.npy" % number), self.random.integers(0, 1000, 700, dtype=numpy.int32))
        self.same_stream(self.config, ["s3://bucket/data", "s3://bucket/data/a-{0..2}.npy"], more="")

    def test_an_index_below_a_listed_prefix_is_requested(self):
        self.serve()
        self.megatron()
        os.makedirs(os.path.join(self.data, "m-more"))
        write_megatron(os.path.join(self.data, "m-more", "deep"), [self.random.integers(0, 50000, 300, dtype=numpy.uint16)])
        pattern = "/{m-*,m-more/deep}.bin"
        self.same_stream(self.config, ["s3://bucket/data" + pattern], local=self.data + pattern, more="")

    def test_documents_in_a_store_end_where_those_on_disk_do_by_index_and_by_eos(self):
        server = self.serve()
        self.megatron()
        self.flat(files=2)
        for boundaries in ("ignore", "mask", "pack"):
            more = 'boundaries = "%s"\neos = 4711\ndtype = "uint16"' % boundaries
            self.same_stream(self.config, ["s3://bucket/data", "s3://bucket/data/*.bin"], more=more)
            indexed = os.path.join(self.data, "m-{000..002}.bin")
            more = 'boundaries = "%s"' % boundaries
            self.same_stream(self.config, ["s3://bucket/data/m-{000..002}.bin", server.address + "/bucket/data/m-{000..002}.bin"], local=indexed, more=more)
            server.requests.clear()
            self.digests(self.config("s3://bucket/data/m-*.bin", more=more), "--workers", 3)
            self.assertLess(server.count(".idx"), 3 * 6)  # only the session reads the .idx files, not the workers

    def test_a_stream_that_was_stopped_or_lost_workers_continues_with_the_same_batches(self):
        server = self.serve()
        self.flat()
        config = self.config("s3://bucket/data")
        whole = self.digests(self.config(self.data, name="local.toml"))
        self.run_json(config, "--digest", "--batches", 9, "--state", "state", "--workers", 1)
        rest = self.run_json(self.config(self.data, name="local.toml"), "--digest", "--state", "state", "--workers", 2)
        self.assertEqual(rest["epochs"][-1]["digest"], whole[-1])
        self.run_json(self.config(self.data, name="local.toml"), "--digest", "--batches", 9, "--state", "other", "--workers", 2)
        server.latency = 0.02
        process = self.start("run", config, "--json", "--digest", "--state", "other", "--workers", 2)
        begin = server.count()
        for number in range(3):
            self.wait_until(lambda: server.count() > begin + 10 * number, "requests")
            for pid in self.workers_of(process)[:1]:
                signal_process(pid, signal.SIGKILL)
        report = json.loads(process.communicate(timeout=60)[0])
        self.assertEqual(report["epochs"][-1]["digest"], whole[-1])

    def test_errors_and_truncated_answers_do_not_change_the_stream(self):
        server = self.serve()
        self.flat()
        self.megatron()
        more = 'boundaries = "pack"\neos = 4711\ndtype = "uint16"'
        expected = self.digests(self.config(self.data, more=more, name="local.toml"))
        faults = [lambda handler: handler.error(503, "SlowDown"), lambda handler: handler.error(500, "InternalError"),
                  lambda handler: handler.cut(10), lambda handler: setattr(handler, "close_connection", True)]
        server.fault = lambda request: faults[request[3] // 7 % len(faults)] if request[3] % 7 == 0 else None
        report = self.run_json(self.config("s3://bucket/data", more=more), "--digest", "--workers", 3)
        self.assertEqual(report["failures"], [])
        self.assertEqual([epoch["digest"] for epoch in report["epochs"]], expected)

    def test_ten_thousand_objects_are_opened_with_one_listing(self):
        server = self.serve()
        server.latency = 0.02
        for number in range(10000):
            with open(os.path.join(self.data, "%05d.bin" % number), "wb") as file:
                file.truncate(2000)
        begin = time.monotonic()
        report = self.run_json(self.config("s3://bucket/data", epochs=1), "--workers", 1, "--batches", 1)
        self.assertEqual(report["epochs"][0]["expected"], (10**7 - 1) // 32)
        listed = [path for path, _ in server.requests if "list-type" in path]
        self.assertLessEqual(len(listed), 2 * 10)
        self.assertLess(server.count() - len(listed), 100)
        self.assertLess(time.monotonic() - begin, 60)

    def test_bytes_that_were_read_once_come_from_the_cache_of_all_workers(self):
        server = self.serve()
        self.flat()
        config = self.config("s3://bucket/data", cache=os.path.join(self.folder, "cache"))
        expected = self.digests(config, "--workers", 3)
        server.requests.clear()
        self.assertEqual(self.digests(config, "--workers", 2), expected)
        self.assertEqual([path for path, _ in server.requests if "list-type" not in path], [])

    def test_a_mixture_of_objects_gives_the_stream_of_the_same_files_on_disk(self):
        server = self.serve()
        self.flat()
        numpy.save(os.path.join(self.data, "more.npy"), self.random.integers(0, 1000, 4000, dtype=numpy.int32))

        def config(path, **of):
            table = '[[datasets]]\nname = "%s"\nweight = %s\ntype = "tokens"\nsequence_length = 32\ndtype = "uint16"\npath = "%s"\n'
            tables = table % ("flat", 0.7, path + "/p-*.bin") + table % ("more", 0.3, path + "/more.npy")
            tail = TAIL.format(cache="", epochs=2).replace("[sampler]", "[sampler]\nepoch_samples = 200")
            return self.write(of.get("name", "objects.toml"), tables + tail)

        self.same_stream(config, ["s3://bucket/data"])
        server.requests.clear()
        self.digests(config("s3://bucket/data"), "--workers", 2)
        self.assertLess(server.count(), 400)  # one request fetches samples that are neighbours in a batch

    def test_mistakes_with_token_files_are_refused_and_named(self):
        server = self.serve()
        self.flat(files=2)
        self.assertIn("no token files (*.bin, *.npy) in 's3://bucket/empty'", self.refused(self.config("s3://bucket/empty/")))
        self.assertIn("no token file is named 's3://bucket/data/x*.bin'", self.refused(self.config("s3://bucket/data/x*.bin")))
        self.assertIn("'s3://bucket/data/none.bin' answers HTTP 404 NoSuchKey", self.refused(self.config("s3://bucket/data/none.bin")))
        self.assertIn("has a wildcard, but an HTTP server does not list its files", self.refused(self.config(server.address + "/bucket/data/*.bin")))
        self.assertIn("'s3://bucket/data/p-000.bin' does not say what type its tokens have", self.refused(self.config("s3://bucket/data", more="")))
        os.truncate(os.path.join(self.data, "p-001.bin"), 777)
        self.assertIn("'s3://bucket/data/p-001.bin' has 777 bytes, which is not a multiple", self.refused(self.config("s3://bucket/data")))
        self.write("served/bucket/both.txt", "data/p-000.bin\n")
        both = self.write("both.txt", "s3://bucket/data/p-000.bin\n" + os.path.join(self.data, "p-000.bin") + "\n")
        self.assertIn("list either files or objects", self.refused(self.config(both)))
        self.write("served/bucket/root.txt", "/etc/passwd\n")
        self.assertIn("'s3://bucket//etc/passwd' answers HTTP 404", self.refused(self.config("s3://bucket/root.txt")))
        self.write("served/bucket/none.txt", "# nothing\n")
        self.assertIn("the list 's3://bucket/none.txt' contains no file names", self.refused(self.config("s3://bucket/none.txt")))
        server.fault = lambda request: (lambda handler: handler.error(403, "AccessDenied")) if ".idx" in request[0] else None
        self.assertIn("'s3://bucket/data/p-000.idx' answers HTTP 403 AccessDenied", self.refused(self.config("s3://bucket/data/p-{000,001}.bin")))

    def test_the_sequences_of_an_object_that_changes_under_the_reader_fail_and_are_named(self):
        server = self.serve()
        self.flat()
        done = []

        def fault(request):
            if request[3] == 8 and not done:
                done.append(True)
                self.random.integers(10, 50000, 1113, dtype=numpy.uint16).tofile(os.path.join(self.data, "p-002.bin"))
                os.utime(os.path.join(self.data, "p-002.bin"), (1, 1))
            return None

        server.fault = fault
        report = self.run_json(self.config("s3://bucket/data", epochs=1), "--workers", 1)
        self.check_sums(report)
        self.assertTrue(done)
        self.assertGreater(len(report["failures"]), 0)
        for one in report["failures"]:
            self.assertIn("'p-002.bin' changed since it was indexed", one["error"])

    def test_files_in_a_bucket_of_moto_give_the_stream_of_the_same_files_on_disk(self):
        client = self.serve_moto()
        self.flat()
        self.megatron()
        client.create_bucket(Bucket="tokens")
        for name in os.listdir(self.data):
            client.upload_file(os.path.join(self.data, name), "tokens", "a folder/é+&/" + name)
        more = 'boundaries = "mask"\neos = 4711\ndtype = "uint16"'
        self.same_stream(self.config, ["s3://tokens/a folder/é+&", "s3://tokens/a folder/é+&/*.bin",
                                       "s3://tokens/a folder/é+&/{m-{000..002},p-{000..004}}.bin"], more=more)


ARRAYS = """
name = "objects"
[dataset]
type = "{type}"
path = "{path}"
{more}
""" + TAIL


class ArraysTest(ObjectsTest):
    def config(self, path, type="npy", more="", epochs=2, cache="", name="objects.toml"):
        return self.write(name, ARRAYS.format(type=type, path=path, more=more, epochs=epochs, cache=cache))

    def arrays(self, files=4):
        for number in range(files):
            numpy.save(os.path.join(self.data, "a-%03d.npy" % number), self.random.random((30 + number, 5, 3), dtype=numpy.float32))

    def test_arrays_give_the_stream_of_the_same_files_on_disk(self):
        server = self.serve()
        self.arrays()
        self.write("served/bucket/data/list.txt", "".join("a-%03d.npy\n" % number for number in range(4)))
        self.same_stream(self.config, ["s3://bucket/data", "s3://bucket/data/*.npy", server.address + "/bucket/data/a-{000..003}.npy",
                                       "s3://bucket/data/list.txt"])
        one = os.path.join(self.data, "a-002.npy")
        self.same_stream(self.config, ["s3://bucket/data/a-002.npy", server.address + "/bucket/data/a-002.npy"], local=one)

    def test_lists_and_patterns_of_arrays_can_be_read_from_disk_too(self):
        self.arrays()
        whole = self.digests(self.config(self.data))
        self.assertEqual(self.digests(self.config(self.data + "/a-{000..003}.npy")), whole)
        code, out, err = self.penstock("check-config", self.config(self.data + "/a-*.npy"), "--strict")
        self.assertEqual(code, EXIT_OK, out + err)
        self.write("served/bucket/data/list.txt", "\ufeffa-00[01].npy\na-{002,003}.npy\n")
        self.assertEqual(self.digests(self.config(self.data + "/list.txt")), whole)

    def test_raw_records_give_the_stream_of_the_same_files_on_disk(self):
        server = self.serve()
        for number in range(3):
            self.random.integers(0, 256, 24 * (20 + number), dtype=numpy.uint8).tofile(os.path.join(self.data, "%d.raw" % number))
        more = 'shape = [2, 3]\ndtype = "float32"'
        self.same_stream(lambda path, **of: self.config(path, type="raw", more=more, **of),
                         ["s3://bucket/data/", server.address + "/bucket/data/{0..2}.raw"])

    def test_inspect_lists_a_prefix_once(self):
        server = self.serve()
        self.arrays()
        code, out, err = self.penstock("inspect", self.config("s3://bucket/data"), "--json")
        self.assertEqual(code, EXIT_OK, err)
        self.assertEqual(sum(one["samples"] for one in json.loads(out)["files"]), 30 + 31 + 32 + 33)
        self.assertEqual(server.count("list-type"), 1)

    def test_members_of_archives_and_folders_give_the_stream_of_the_same_files_on_disk(self):
        server = self.serve()
        arrays = {"x": self.random.random((77, 400), dtype=numpy.float32), "y": self.random.integers(0, 9, 77)}
        numpy.savez(os.path.join(self.data, "pairs.npz"), **arrays)
        numpy.savez_compressed(os.path.join(self.data, "small.npz"), **arrays)
        for name, array in arrays.items():
            numpy.save(os.path.join(self.data, name + ".npy"), array)
        for name in ("pairs.npz", "small.npz"):
            self.same_stream(self.config, ["s3://bucket/data/" + name, server.address + "/bucket/data/" + name], local=os.path.join(self.data, name))
        self.same_stream(self.config, ["s3://bucket/data", "s3://bucket/data/"], more='members = { features = "x.npy", label = "y.npy" }')

    def test_mistakes_with_arrays_are_refused_and_named(self):
        server = self.serve()
        self.arrays(files=2)
        self.assertIn("no arrays (*.npy) in 's3://bucket/empty'", self.refused(self.config("s3://bucket/empty")))
        self.assertIn("'s3://bucket/data/none.npz' answers HTTP 404", self.refused(self.config("s3://bucket/data/none.npz")))
        self.assertIn("'s3://bucket/data/none.npy' answers HTTP 404",
                      self.refused(self.config("s3://bucket/data", more='members = { x = "a-000.npy", y = "none.npy" }')))
        os.truncate(os.path.join(self.data, "a-001.npy"), 1000)
        self.assertIn("'s3://bucket/data/a-001.npy' holds 872 bytes of data, but its header promises", self.refused(self.config("s3://bucket/data")))
        with open(os.path.join(self.data, "bad.npz"), "wb") as file:
            file.write(b"PK" * 100)
        self.assertIn("'s3://bucket/data/bad.npz' is not a zip archive", self.refused(self.config("s3://bucket/data/bad.npz")))
        server.ranges = False
        self.assertIn("does not support range requests", self.refused(self.config("s3://bucket/data/a-{000,001}.npy")))

    def test_another_range_than_the_requested_one_is_requested_again_and_never_delivered(self):
        server = self.serve()
        self.arrays(files=2)
        expected = self.digests(self.config(self.data, name="local.toml"))
        answered = []

        def fault(request):
            path, begin, end, number = request
            if end is None or number % 5 != 0:
                return None
            answered.append(number)
            return lambda handler: handler.another_range()

        server.fault = fault
        self.assertEqual(self.digests(self.config("s3://bucket/data")), expected)
        self.assertTrue(answered)

    def test_the_samples_of_an_array_that_changes_under_the_reader_fail_and_are_named(self):
        server = self.serve()
        self.arrays(files=1)
        path = os.path.join(self.data, "a-000.npy")
        changed = []

        def fault(request):
            if request[3] == 4 and not changed:
                changed.append(True)
                os.utime(path, (1, 1))
            return None

        server.fault = fault
        report = self.run_json(self.config("s3://bucket/data", epochs=1), "--workers", 1)
        self.check_sums(report)
        self.assertTrue(changed)
        self.assertGreater(len(report["failures"]), 0)
        self.assertIn("changed since it was indexed", report["failures"][0]["error"])

PICTURES = """
name = "objects"
[dataset]
type = "image-folder"
path = "{path}"
[image]
size = [24, 24]
""" + TAIL


class PicturesTest(ObjectsTest):
    def config(self, path, epochs=2, cache="", name="objects.toml"):
        return self.write(name, PICTURES.format(path=path, epochs=epochs, cache=cache))

    def photos(self):
        make_photos(self.data, 24, classes=3, size=(64, 48))
        # A store compares whole keys: "a-b/1.jpg" comes before "a/1.jpg".
        classes = sorted(os.listdir(self.data))
        os.rename(os.path.join(self.data, classes[0]), os.path.join(self.data, "a"))
        os.rename(os.path.join(self.data, classes[1]), os.path.join(self.data, "a-b"))
        os.rename(os.path.join(self.data, classes[2]), os.path.join(self.data, "c"))
        deep = os.path.join(self.data, "c", "deep", "er")
        os.makedirs(deep)
        shutil.copy(os.path.join(self.data, "a", sorted(os.listdir(os.path.join(self.data, "a")))[0]), os.path.join(deep, "0.jpg"))
        self.write("served/bucket/data/a/.hidden.jpg", "x")
        self.write("served/bucket/data/.hidden/1.jpg", "x")
        self.write("served/bucket/data/beside.jpg", "x")
        self.write("served/bucket/data/c/other.heic", "x")
        self.write("served/bucket/data/none/readme.md", "a class without pictures")

    def names(self):
        found = [os.path.relpath(os.path.join(folder, name), self.data) for folder, _, names in os.walk(self.data) for name in names]
        return sorted((name for name in found if name.endswith(".jpg") and "/" in name and "/." not in "/" + name), key=lambda name: name.split("/", 1))

    def test_class_folders_give_the_stream_of_the_same_folders_on_disk(self):
        server = self.serve()
        server.page = 7
        self.photos()
        self.same_stream(self.config, ["s3://bucket/data", "s3://bucket/data/"])
        _, _, err = self.penstock("run", self.config("s3://bucket/data"))
        self.assertIn("1 picture directly in 's3://bucket/data' is ignored", err)
        self.assertIn("1 file skipped: .heic 1", err)

    def test_pictures_without_class_folders_are_one_class(self):
        self.serve()
        self.photos()
        self.same_stream(self.config, ["s3://bucket/data/a"], local=os.path.join(self.data, "a"))

    def test_lists_of_pictures_give_the_stream_of_their_folders(self):
        server = self.serve()
        self.photos()
        shutil.rmtree(os.path.join(self.data, "none"))  # an empty class, which a list of pictures cannot contain
        os.remove(os.path.join(self.data, "beside.jpg"))
        self.write("served/bucket/data/list.txt", "".join(name + "\n" for name in self.names()))
        self.same_stream(self.config, [os.path.join(self.data, "list.txt"), "s3://bucket/data/list.txt", server.address + "/bucket/data/list.txt"])

    def test_errors_do_not_change_the_stream_and_a_stopped_stream_continues_with_the_same_batches(self):
        server = self.serve()
        self.photos()
        local = self.config(self.data, name="local.toml")
        whole = self.digests(local)
        server.fault = lambda request: (lambda handler: handler.error(503, "SlowDown")) if request[3] % 5 == 0 else None
        config = self.config("s3://bucket/data")
        self.assertEqual(self.digests(config, "--workers", 3), whole)
        self.run_json(config, "--digest", "--batches", 5, "--state", "state", "--workers", 1)
        self.assertEqual(self.run_json(local, "--digest", "--state", "state", "--workers", 2)["epochs"][-1]["digest"], whole[-1])

    def test_a_prefix_of_a_million_keys_is_listed_in_pages(self):
        server = self.serve()
        server.made_up = ["data/c%d/%06d.jpg" % (number // 100000, number) for number in range(10**6)]
        config = self.config("s3://bucket/data")
        code, out, err = self.penstock("plan", config, "--epoch", 0, "--batch", 10**6 // 8 - 1, "--json")
        self.assertEqual(code, EXIT_OK, err)
        pages = [path for path, _ in server.requests if "list-type" in path]
        self.assertEqual(len(set(pages)), 1000)
        self.assertLess(len(pages), 1200)  # slow requests are sent a second time
        batch = json.loads(out)
        self.assertEqual(batch["names"], ["c%d/%06d.jpg" % (sample // 100000, sample) for sample in batch["samples"]])
        self.assertEqual(len(batch["names"]), 8)

    def test_inspect_examines_objects(self):
        self.serve()
        self.photos()
        code, out, err = self.penstock("inspect", self.config("s3://bucket/data"), "--json")
        self.assertEqual(code, EXIT_OK, err)
        here = self.penstock("inspect", self.config(self.data), "--json")[1]
        self.assertEqual(json.loads(out)["pictures"], json.loads(here)["pictures"])

    def test_mistakes_with_pictures_are_refused_and_named(self):
        server = self.serve()
        self.photos()
        self.assertIn("no pictures in 's3://bucket/empty'", self.refused(self.config("s3://bucket/empty")))
        self.assertIn("is on an HTTP server, which does not list its files", self.refused(self.config(server.address + "/bucket/data")))
        for path in ("s3://bucket/data/{a,c}", "s3://bucket/data/a/*.jpg", "s3://bucket/data/beside.jpg"):
            self.assertIn("'%s' is a picture or a pattern" % path, self.refused(self.config(path)))
        self.write("served/bucket/data/list.txt", "a/none.jpg\n")
        self.assertIn("'s3://bucket/data/a/none.jpg' answers HTTP 404", self.refused(self.config("s3://bucket/data/list.txt")))
        self.assertIn("none.jpg' of the list cannot be examined", self.refused(self.config(os.path.join(self.data, "list.txt"))))
        self.write("served/bucket/other/x.jpg", "x")
        self.write("served/bucket/data/list.txt", "s3://bucket/other/x.jpg\n")
        self.assertIn("names must be relative to the list", self.refused(self.config("s3://bucket/data/list.txt")))
        self.write("served/bucket/data/list.txt", "c/deep/er/0.jpg\nc/other.heic\n")
        for path in ("s3://bucket/data/list.txt", os.path.join(self.data, "list.txt")):
            self.assertRegex(self.refused(self.config(path)), r"the list '\S+' names 'c/other\.heic', which is not a picture: names of pictures end in \.jpg, \.jpeg, \.png or \.webp")

    def test_pictures_that_arrive_damaged_are_requested_again(self):
        server = self.serve()
        self.photos()
        expected = self.digests(self.config(self.data, name="local.toml"))
        # ETags do not count as checksums until one has matched; after that a mismatch is an error.
        for server.states_sums, server.tags_are_sums in ((True, False), (False, True)):
            seen = collections.Counter()
            damaged = []

            def damage(path, number):
                seen[path] += 1
                bad = path.endswith(".jpg") and seen[path] == 2  # in the second epoch
                damaged.extend([path] if bad else [])
                return bad

            server.damaged = damage
            report = self.run_json(self.config("s3://bucket/data"), "--digest", "--workers", 1)
            self.assertEqual(report["failures"], [])
            self.assertEqual([epoch["digest"] for epoch in report["epochs"]], expected)
            self.assertGreater(len(damaged), 4)

    def test_a_picture_that_always_arrives_damaged_fails_and_is_named(self):
        server = self.serve()
        self.photos()
        server.states_sums = True
        server.damaged = lambda path, number: path.endswith("deep/er/0.jpg")
        report = self.run_json(self.config("s3://bucket/data", epochs=1), "--workers", 1)
        self.assertEqual(len(report["failures"]), 1)
        self.assertRegex(json.dumps(report["failures"]), r"c/deep/er/0\.jpg.*arrives damaged: 3 times, its MD5 did not match the one from the store \(\S+==\).*\(tried 4 times\)")

    def test_pictures_in_a_bucket_of_moto_give_the_stream_of_the_same_folders_on_disk(self):
        client = self.serve_moto()
        self.photos()
        client.create_bucket(Bucket="pictures")
        for folder, _, names in os.walk(self.data):
            for name in names:
                path = os.path.join(folder, name)
                client.upload_file(path, "pictures", "é+ &/" + os.path.relpath(path, self.data),
                                   ExtraArgs={"ChecksumAlgorithm": random.choice(("CRC32", "SHA1", "SHA256"))})
        self.same_stream(self.config, ["s3://pictures/é+ &"])


if __name__ == "__main__":
    main()
