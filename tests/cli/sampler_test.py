"""[sampler] kind: streams of weighted, balanced, subset and window orders, and invalid settings."""

import io
import tarfile

from harness import *

import numpy


class SamplerTest(PenstockTest):
    def config(self, sampler, samples=96, more=""):
        return self.write("s.toml", '[dataset]\ntype = "synthetic"\nsamples = %d\nshape = [16]\n'
                          '[sampler]\nbatch_size = 8\nepochs = 2\nseed = 11\n%s\n[loader]\nworkers = 2\n[gpu]\ndevice = "host"\n%s'
                          % (samples, sampler, more))

    def save(self, name, numbers, dtype):
        numpy.save(os.path.join(self.folder, name), numpy.asarray(numbers, dtype))

    def samples_of(self, config, *options):
        """The indices of all batches of epoch 0."""
        out = os.path.join(self.folder, "npy-%d" % len(os.listdir(self.folder)))
        self.run_json(config, "--sink", "npy", "--out", out, *options)
        names = sorted(name for name in os.listdir(out) if name.startswith("e0-") and name.endswith(".index.npy"))
        return [int(i) for name in names for i in numpy.load(os.path.join(out, name))]

    KINDS = {
        "weighted": 'kind = "weighted"\nweights = "w.npy"\nepoch_samples = 80',
        "subset": 'kind = "subset"\nsubset = "s.txt"',
        "window": 'kind = "window"\nwindow = 20',
        "sequential": 'kind = "sequential"',
    }

    def all_kinds(self):
        self.save("w.npy", numpy.arange(96) % 7, "float64")
        self.write("s.txt", "# every third\n" + "".join("%d\n" % i for i in range(0, 96, 3)))
        for kind, sampler in self.KINDS.items():
            with self.subTest(kind=kind):
                yield kind, self.config(sampler)

    def test_with_every_kind_the_number_of_workers_does_not_change_the_stream(self):
        seen = set()
        for _, config in self.all_kinds():
            digests = self.digests(config, "--workers", 1)
            self.assertEqual(self.digests(config, "--workers", 3), digests)
            seen.add(tuple(digests))
        self.assertEqual(len(seen), len(self.KINDS))

    def test_with_every_kind_a_resumed_stream_has_the_digests_of_an_uninterrupted_one(self):
        for kind, config in self.all_kinds():
            digests = self.digests(config)
            state = os.path.join(self.folder, kind + ".state")
            self.run_json(config, "--digest", "--batches", 3, "--state", state)
            rest = self.run_json(config, "--digest", "--state", state)
            self.assertEqual([epoch["digest"] for epoch in rest["epochs"]], digests)

    def test_two_ranks_together_deliver_the_epoch_of_one_rank(self):
        for _, config in self.all_kinds():
            alone = self.samples_of(config)
            both = [self.samples_of(config, "--set", "sampler.world_size=2", "--set", "sampler.rank=%d" % rank) for rank in (0, 1)]
            self.assertEqual(both[0], alone[0::2])
            self.assertEqual(both[1], alone[1::2])

    def plan(self, config, *options):
        code, out, err = self.penstock("plan", config, "--json", *options)
        self.assertEqual(code, EXIT_OK, err)
        return json.loads(out)

    def test_a_plan_lists_the_samples_that_each_batch_of_a_run_has(self):
        for kind, config in self.all_kinds():
            delivered = self.samples_of(config)
            planned = [self.plan(config, "--batch", batch) for batch in range((len(delivered) + 7) // 8)]
            self.assertEqual([i for one in planned for i in one["samples"]], delivered)
            self.assertEqual([(one["epoch"], one["seq"]) for one in planned], [(0, b) for b in range(len(planned))])
            next_epoch = self.plan(config, "--epoch", 1)["samples"]
            (self.assertEqual if kind == "sequential" else self.assertNotEqual)(next_epoch, delivered[:8])

    def test_a_plan_can_be_made_for_a_rank_of_any_world_size(self):
        config = self.config("")
        alone = [i for batch in range(12) for i in self.plan(config, "--batch", batch)["samples"]]
        for rank in range(3):
            mine = [i for batch in range(4) for i in self.plan(config, "--batch", batch, "--rank", rank, "--world", 3)["samples"]]
            self.assertEqual(mine, alone[rank::3])

    def test_a_plan_with_names_prints_a_line_with_the_file_of_each_sample(self):
        make_photos(os.path.join(self.folder, "photos"), 6, classes=2, size=(32, 32))
        config = self.write("p.toml", '[dataset]\npath = "photos"\n[sampler]\nshuffle = false\nbatch_size = 4\n')
        found = self.plan(config, "--batch", 1)
        self.assertEqual((found["samples"], found["names"]), ([4, 5], ["class1/00003.jpg", "class1/00005.jpg"]))
        self.assertEqual(self.penstock("plan", config, "--batch", 1)[1], "4\tclass1/00003.jpg\n5\tclass1/00005.jpg\n")

    def test_planning_a_batch_or_rank_that_does_not_exist_is_a_usage_error(self):
        config = self.config("")
        for options, expected in ((("--batch", 12), "there is no batch 12: epoch 0 of rank 0 of 1 has 12 batches"),
                                  (("--rank", 2, "--world", 2), "rank 2 is not in a world of 2"), (("--epoch", -1), "--epoch")):
            code, _, err = self.penstock("plan", config, *options)
            self.assertEqual(code, EXIT_USAGE, err)
            self.assertIn(expected, err)

    def files_of(self, folder, start):
        found = {}
        for name in os.listdir(folder):
            if name.startswith(start):
                with open(os.path.join(folder, name), "rb") as file:
                    found[name] = file.read()
        return found

    def test_a_replayed_batch_has_the_bytes_that_the_run_wrote(self):
        make_photos(os.path.join(self.folder, "photos"), 30, size=(48, 48))
        config = self.write("p.toml", '[dataset]\npath = "photos"\n[image]\nsize = [32, 32]\n[sampler]\nbatch_size = 4\nepochs = 2\n'
                            'world_size = 2\nrank = 1\n[gpu]\ndevice = "host"\n')
        run, again = os.path.join(self.folder, "run"), os.path.join(self.folder, "again")
        self.run_json(config, "--sink", "npy", "--out", run)
        for epoch, batch in ((0, 0), (1, 2), (1, 3)):
            code, out, err = self.penstock("replay", config, "--epoch", epoch, "--batch", batch, "--out", again, "--json")
            self.assertEqual(code, EXIT_OK, err)
            start = "e%d-b%06d." % (epoch, batch)
            self.assertEqual(self.files_of(again, start), self.files_of(run, start))
            self.assertGreater(len(self.files_of(again, start)), 2)
            facts = json.loads(out)
            indices = numpy.load(os.path.join(run, start + "index.npy"))
            self.assertEqual((facts["samples"], facts["rows"]), (list(indices), len(indices)))
            self.assertTrue(all(name.startswith("class") for name in facts["names"]))

    def test_a_replay_with_the_state_of_a_run_omits_what_the_run_had_quarantined(self):
        config = self.config('shuffle = false')
        fault = ("--set", 'dataset.faults=[{sample=1, kind="segv", times=0}]', "--set", "loader.restart.backoff.base=1ms")
        state, run = os.path.join(self.folder, "s.state"), os.path.join(self.folder, "run")
        self.run_json(config, *fault, "--sink", "npy", "--out", run, "--state", state)
        code, out, err = self.penstock("replay", config, "--state", state, "--out", "again", "--json")
        self.assertEqual(code, EXIT_OK, err)
        self.assertEqual(json.loads(out)["rows"], 7)
        self.assertEqual(self.files_of(os.path.join(self.folder, "again"), "e0-b000000."), self.files_of(run, "e0-b000000."))

    def test_kind_sequential_equals_shuffle_false(self):
        self.assertEqual(self.digests(self.config('kind = "sequential"')), self.digests(self.config("shuffle = false")))
        self.assertEqual(self.digests(self.config('kind = "shuffle"')), self.digests(self.config("shuffle = true")))

    def test_weighted_never_draws_a_sample_of_weight_0(self):
        self.save("w.npy", [0, 1, 3] + [0] * 93, "float64")
        drawn = self.samples_of(self.config('kind = "weighted"\nweights = "w.npy"\nepoch_samples = 800'))
        self.assertEqual(len(drawn), 800)
        self.assertEqual(set(drawn), {1, 2})
        self.assertAlmostEqual(drawn.count(2) / 800, 0.75, delta=0.1)

    def test_a_sample_that_fails_or_kills_is_counted_for_each_draw(self):
        self.save("w.npy", [1, 1] + [0] * 94, "float64")
        for kind, counted in (("throw", "failed"), ("segv", "quarantined")):
            with self.subTest(kind):
                config = self.config('kind = "weighted"\nweights = "w.npy"\nepoch_samples = 40')
                report = self.run_json(config, "--set", 'dataset.faults=[{sample=1, kind="%s", times=0}]' % kind, "--set", "sampler.epochs=1",
                                       "--set", "loader.restart.backoff.base=1ms", "--set", "loader.max_failed_fraction=1")
                self.check_sums(report)
                [epoch] = report["epochs"]
                self.assertTrue(epoch["complete"])
                self.assertGreater(epoch[counted], 8)

    def test_a_subset_without_shuffle_is_delivered_in_the_order_of_its_list(self):
        for name, save in (("s.txt", lambda: self.write("s.txt", "\ufeff 5\n\n1 # again\r\n1\n90\n")), ("s.npy", lambda: self.save("s.npy", [5, 1, 1, 90], "int64"))):
            save()
            config = self.config('kind = "subset"\nshuffle = false\nsubset = "%s"' % name)
            self.assertEqual(self.samples_of(config), [5, 1, 1, 90])
        _, _, err = self.penstock("run", config, "--quiet")
        self.assertIn("1 of its 4 indices is repeated", err)

    def test_balanced_delivers_all_classes_of_an_image_folder_equally_often(self):
        photos = os.path.join(self.folder, "photos")
        make_photos(photos, 9, classes=2, size=(32, 32))
        config = self.write("b.toml", '[dataset]\npath = "photos"\n[image]\nsize = [16, 16]\n[sampler]\nkind = "balanced"\nbatch_size = 10\n'
                            'epoch_samples = 40\n[gpu]\ndevice = "host"\n')
        out = os.path.join(self.folder, "out")
        self.run_json(config, "--sink", "npy", "--out", out)
        for name in sorted(os.listdir(out)):
            if name.endswith(".label.npy"):
                self.assertEqual(int(numpy.load(os.path.join(out, name)).sum()), 5)

    def shards_with_classes(self, classes, members='{ text = "txt", label = "cls" }'):
        """A shard with a text and the class of each sample."""
        with tarfile.open(os.path.join(self.folder, "classes.tar"), "w") as archive:
            for number, one in enumerate(classes):
                for name, contents in (("txt", "text"), ("cls", one)):
                    facts = tarfile.TarInfo("%04d.%s" % (number, name))
                    facts.size = len(contents)
                    archive.addfile(facts, io.BytesIO(contents.encode()))
        return self.write("shards.toml", '''[dataset]
type = "tar"
path = "classes.tar"
members = %s
[sampler]
kind = "balanced"
batch_size = 10
epoch_samples = 60
[gpu]
device = "host"
''' % members)

    def test_balanced_delivers_all_classes_of_shards_equally_often_and_no_sample_without_a_class(self):
        config = self.shards_with_classes(["7"] * 40 + ["-2"] * 3 + ["none"] + ["100000"] * 5)
        out = os.path.join(self.folder, "out")
        code, _, err = self.penstock("run", config, "--quiet", "--sink", "npy", "--out", out)
        self.assertEqual(code, EXIT_OK, err)
        self.assertIn("leaves out 1 sample without a number in .cls: the first is 'classes.tar:0043'", err)
        labels = numpy.concatenate([numpy.load(os.path.join(out, name)) for name in sorted(os.listdir(out)) if name.endswith(".label.npy")])
        self.assertEqual(sorted(labels.tolist()), [-2] * 20 + [7] * 20 + [100000] * 20)

    def test_a_state_of_shards_with_other_classes_is_refused(self):
        state = os.path.join(self.folder, "s.state")
        config = self.shards_with_classes(["1", "2"] * 10)
        self.run_json(config, "--batches", 1, "--state", state)
        self.shards_with_classes(["2", "1"] * 10)
        code, _, err = self.penstock("run", config, "--state", state)
        self.assertNotEqual(code, EXIT_OK)
        self.assertRegex(err, r"order was balanced [0-9a-f]{16} 60 and is balanced [0-9a-f]{16} 60")

    def test_balanced_shards_without_a_member_for_the_class_are_refused(self):
        for members, expected in (('{ text = "txt" }', "name it in [dataset.members]"), ('{ a = "cls", b = "id;cls" }', "name it in [dataset.members]"),
                                  ('{ text = "txt", label = "id" }', "no sample has a member .id")):
            with self.subTest(members):
                code, _, err = self.penstock("run", self.shards_with_classes(["1", "2"], members))
                self.assertNotEqual(code, EXIT_OK)
                self.assertIn(expected, err)

    def test_a_state_with_other_weights_is_refused_with_both_fingerprints(self):
        self.save("w.npy", numpy.ones(96), "float64")
        config = self.config(self.KINDS["weighted"])
        state = os.path.join(self.folder, "w.state")
        self.run_json(config, "--batches", 1, "--state", state)
        self.save("w.npy", numpy.arange(96), "float64")
        code, _, err = self.penstock("run", config, "--state", state)
        self.assertNotEqual(code, EXIT_OK)
        self.assertRegex(err, r"order was weighted [0-9a-f]{16} 80 and is weighted [0-9a-f]{16} 80")

    def test_bad_weights_and_lists_are_refused_with_the_file_and_the_value(self):
        ones = numpy.ones(96)
        cases = [("float64", numpy.where(numpy.arange(96) == 5, -1, ones), "the weight of sample 5 is -1"),
                 ("float64", numpy.where(numpy.arange(96) == 6, numpy.nan, ones), "the weight of sample 6 is nan"),
                 ("float64", numpy.zeros(96), "all 96 weights are 0"),
                 ("float64", numpy.ones(95), "it has 95 weights, but the dataset has 96 samples"),
                 ("float32", ones, "it is an array of float32 with 1 axis, but must be an array of float64 with one axis"),
                 ("float64", numpy.ones((48, 2)), "it is an array of float64 with 2 axes")]
        for dtype, numbers, expected in cases:
            with self.subTest(expected):
                self.save("w.npy", numbers, dtype)
                code, _, err = self.penstock("run", self.config(self.KINDS["weighted"]))
                self.assertEqual(code, EXIT_FAILED, err)
                self.assertIn("w.npy", err)
                self.assertIn(expected, err)
        for text, expected in (("", "the list has no indices"), ("1\n96\n", "index 96 (number 2 of the list) is too large: the dataset has 96 samples"),
                               ("1\n-2\n", "line 2 is '-2'"), ("1.5\n", "line 1 is '1.5'")):
            with self.subTest(expected):
                self.write("s.txt", text)
                code, _, err = self.penstock("run", self.config(self.KINDS["subset"]))
                self.assertEqual(code, EXIT_FAILED, err)
                self.assertIn(expected, err)

    def test_a_kind_without_its_file_and_balanced_without_classes_are_config_errors(self):
        for sampler, expected in (('kind = "weighted"', "'weights' in [sampler] is missing"), ('kind = "subset"', "'subset' in [sampler] is missing"),
                                  ('kind = "balanced"', "needs each sample's class before loading it")):
            with self.subTest(sampler):
                code, out, err = self.penstock("check-config", self.config(sampler))
                self.assertNotEqual(code, EXIT_OK)
                self.assertIn(expected, out + err)


if __name__ == "__main__":
    main()
