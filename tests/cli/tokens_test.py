"""tokens datasets: what a run delivers, compared with slices of NumPy arrays and with what Megatron reads from its own files."""

import shutil

import numpy

from harness import *

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../runtime/dataset/tokens/fixtures")

CONFIG = """
name = "tokens"
[dataset]
type = "tokens"
path = "{path}"
dtype = "uint16"
sequence_length = 64
{more}
[sampler]
batch_size = 8
epochs = {epochs}
[gpu]
device = "host"
"""


class TokensTest(PenstockTest):
    def setUp(self):
        super().setUp()
        self.tokens = numpy.random.default_rng(3).integers(10, 50000, 20000, dtype=numpy.uint16)
        self.tokens[::97] = 7
        os.mkdir(os.path.join(self.folder, "data"))
        for number, begin in enumerate(range(0, 20000, 4321)):
            self.tokens[begin:begin + 4321].tofile(os.path.join(self.folder, "data", "part-%d.bin" % number))

    def config(self, path="data", more="", epochs=1):
        return self.write("tokens.toml", CONFIG.format(path=path, more=more, epochs=epochs))

    def delivered(self, config, *options, names=("tokens", "targets")):
        out = os.path.join(self.folder, "out")
        shutil.rmtree(out, ignore_errors=True)
        self.run_json(config, "--sink", "npy", "--out", out, *options)
        rows = {}
        for name in os.listdir(out):
            if not name.endswith(".index.npy"):
                continue
            batch = os.path.join(out, name[:-len("index.npy")])
            tensors = [numpy.load(batch + tensor + ".npy") for tensor in names]
            for row, sample in enumerate(numpy.load(os.path.join(out, name))):
                rows[int(sample)] = tuple(tensor[row] for tensor in tensors)
        return rows

    def test_sequences_equal_slices_of_the_concatenated_files(self):
        rows = self.delivered(self.config())
        self.assertEqual(len(rows), 19999 // 64)
        for sample, (tokens, targets) in rows.items():
            self.assertEqual(tokens.dtype, numpy.int32)
            numpy.testing.assert_array_equal(tokens, self.tokens[sample * 64:sample * 64 + 64])
            numpy.testing.assert_array_equal(targets, self.tokens[sample * 64 + 1:sample * 64 + 65])

    def corpora_of_megatron(self):
        """For each of Megatron's corpora: its file, all ids, and the number of ids of each document, as Megatron reads
        them."""
        for name in "documents_uint16", "items_int32", "items_uint16", "merged_uint16":
            path = os.path.join(FIXTURES, name)
            yield path + ".bin", numpy.load(path + ".tokens.npy"), numpy.load(path + ".documents.npy")

    def test_tokens_and_targets_of_corpora_that_megatron_wrote_are_those_that_it_reads(self):
        for path, ids, lengths in self.corpora_of_megatron():
            begins = set(numpy.cumsum(lengths))
            for boundaries in "ignore", "mask":
                rows = self.delivered(self.config(path, 'boundaries = "%s"' % boundaries))
                self.assertEqual(len(rows), (len(ids) - 1) // 64, path)
                for sample, (tokens, targets) in rows.items():
                    at = range(sample * 64, sample * 64 + 64)
                    numpy.testing.assert_array_equal(tokens, ids[at])
                    numpy.testing.assert_array_equal(targets, [-100 if boundaries == "mask" and i + 1 in begins else ids[i + 1] for i in at])

    def test_packed_documents_of_corpora_that_megatron_wrote_are_those_that_it_reads(self):
        for path, ids, lengths in self.corpora_of_megatron():
            self.assertLess(max(lengths), 128)
            packed = []
            rows = self.delivered(self.config(path, 'boundaries = "pack"'), "--set", "dataset.sequence_length=128",
                                  names=("tokens", "targets", "doc_lengths"))
            for tokens, targets, ends in rows.values():
                for begin, end in zip(ends[:-1], ends[1:]):
                    if begin < end and targets[begin] != -100:  # skips places that hold no token
                        packed.append([*tokens[begin:end], targets[end - 1]])
            documents = numpy.split(ids, numpy.cumsum(lengths)[:-1])
            self.assertEqual(sorted(packed), sorted(one.tolist() for one in documents if len(one) > 1), path)

    def test_the_stream_is_the_same_for_any_number_of_workers_and_slots(self):
        for boundaries in ("ignore", "mask", "pack"):
            config = self.config(more='boundaries = "%s"\neos = 7' % boundaries, epochs=2)
            one = self.digests(config, "--workers", 1)
            self.assertEqual(self.digests(config, "--workers", 3), one)
            self.assertEqual(self.digests(config, "--workers", 2, "--set", "loader.slots_per_worker=4"), one)

    def test_inspect_shows_the_sequences_and_the_rest(self):
        code, out, err = self.penstock("inspect", self.config())
        self.assertEqual(code, EXIT_OK, err)
        self.assertIn("312", out)
        self.assertIn("do not fill a sequence of 64", out + err)

    def test_a_resumed_stream_has_the_digests_of_an_uninterrupted_one(self):
        for boundaries in ("ignore", "mask", "pack"):
            config = self.config(more='boundaries = "%s"\neos = 7' % boundaries, epochs=2)
            state = os.path.join(self.folder, boundaries + ".state")
            self.run_json(config, "--digest", "--batches", 45, "--state", state)
            rest = self.run_json(config, "--digest", "--state", state)
            self.assertEqual([epoch["digest"] for epoch in rest["epochs"]][-1], self.digests(config)[-1])

    def test_a_list_of_files_keeps_its_order(self):
        names = sorted(os.listdir(os.path.join(self.folder, "data")), reverse=True)
        listed = self.write("list.txt", "".join("data/%s\n" % name for name in names))
        order = numpy.concatenate([numpy.fromfile(os.path.join(self.folder, "data", name), dtype=numpy.uint16) for name in names])
        for sample, (tokens, _) in self.delivered(self.config(path=os.path.basename(listed))).items():
            numpy.testing.assert_array_equal(tokens, order[sample * 64:sample * 64 + 64])

    def test_arrays_of_another_shape_or_type_are_refused_and_named(self):
        for array, said in ((numpy.zeros((4, 5), numpy.uint16), "2 axes"), (numpy.zeros(5, numpy.float32), "float32")):
            path = os.path.join(self.folder, "tokens.npy")
            numpy.save(path, array)
            code, out, err = self.penstock("run", self.config(path=path), "--quiet")
            self.assertNotEqual(code, EXIT_OK, out)
            self.assertIn("tokens.npy", err)
            self.assertIn(said, err)

    def preview(self, tokenizer=None, words=()):
        """The texts of a batch from files that contain these words' ids one after another."""
        numpy.tile(numpy.arange(len(words), dtype=numpy.uint16), 3000)[:9000].tofile(os.path.join(self.folder, "few.bin"))
        options = ["--set", "sampler.shuffle=false", "--set", "dataset.sequence_length=%d" % len(words)]
        if tokenizer is not None:
            options += ["--tokenizer", self.write("tokenizer.json", json.dumps(tokenizer))]
        out = os.path.join(self.folder, "batch.txt")
        code, _, err = self.penstock("preview", self.config(path="few.bin"), "--out", out, *options)
        self.assertEqual(code, EXIT_OK, err)
        with open(out, encoding="utf-8") as file:
            lines = [line.rstrip("\n").split("\t") for line in file]
        self.assertEqual([line[:2] for line in lines], [[str(i), "few.bin[%d]" % (i * len(words))] for i in range(8)])
        return {line[2] for line in lines}

    def test_a_preview_shows_ids_or_the_text_of_a_tokenizer_file(self):
        words = ["Hello", "\u0120w\u00c3\u00b6rld", "\u0120\u00e2\u0124\u00ac"]  # GPT-2's letters for the bytes of " wörld" and " €"
        self.assertEqual(self.preview(words=words), {"0 1 2"})
        bytes_of = {"model": {"type": "BPE", "vocab": {word: i for i, word in enumerate(words)}}, "decoder": {"type": "ByteLevel"}}
        self.assertEqual(self.preview(bytes_of, words), {"Hello wörld €"})
        added = dict(bytes_of, added_tokens=[{"id": 1, "content": "<|end|>"}])
        self.assertEqual(self.preview(added, words), {"Hello<|end|> €"})
        blocks = {"model": {"type": "Unigram", "vocab": [["\u2581Hel", -1.0], ["lo", -2.0], ["<0x21>", -3.0]]}}
        self.assertEqual(self.preview(blocks, words), {" Hello!"})
        pieces = {"model": {"type": "WordPiece", "vocab": {"hel": 0, "##lo": 1}}}
        self.assertEqual(self.preview(pieces, words), {" hello<2>"})

    def test_preview_refuses_to_write_a_picture_of_tokens(self):
        code, _, err = self.penstock("preview", self.config(), "--out", "batch.PNG")
        self.assertEqual(code, EXIT_USAGE)
        self.assertIn("--out 'batch.PNG': token ids are written as text, so name it .txt", err)

    def test_a_file_that_is_not_a_tokenizer_is_refused_and_named(self):
        for text, said in (("{", "is not a tokenizer.json"), ('{"model": {"vocab": {}}}', "is not a tokenizer.json"), (None, "cannot be opened")):
            path = os.path.join(self.folder, "gone.json") if text is None else self.write("bad.json", text)
            code, _, err = self.penstock("preview", self.config(), "--out", "batch.txt", "--tokenizer", path)
            self.assertEqual(code, EXIT_FAILED, err)
            self.assertIn("the tokenizer '%s' %s" % (path, said), err)

    def test_a_trillion_tokens_in_ten_thousand_files_can_be_opened(self):
        sparse = os.path.join(self.folder, "sparse")
        os.mkdir(sparse)
        for number in range(10000):
            with open(os.path.join(sparse, "%05d.bin" % number), "wb") as file:
                file.truncate(2 * 10**8)
        report = self.run_json(self.config(path="sparse"), "--workers", 1, "--batches", 1)
        self.assertEqual(report["epochs"][0]["delivered"], 8)
        self.assertEqual(report["epochs"][0]["expected"], (10**12 - 1) // 64)


if __name__ == "__main__":
    main()
