"""[[datasets]]: several datasets with weights as one stream."""

from harness import *

import numpy


class MixtureTest(PenstockTest):
    SIZES = {"a": 50, "b": 30, "c": 10}  # sample i of b has the values 2000 + i

    def setUp(self):
        super().setUp()
        for number, (name, size) in enumerate(self.SIZES.items()):
            values = 1000 * (number + 1) + numpy.arange(size, dtype="int64")[:, None].repeat(3, 1)
            numpy.save(os.path.join(self.folder, name + ".npy"), values)

    def dataset(self, name, weight, more=""):
        return '[[datasets]]\nname = "%s"\nweight = %s\ntype = "npy"\npath = "%s.npy"\n%s\n' % (name, weight, name, more)

    THREE = (("a", 0.7), ("b", 0.2), ("c", 0.1))

    def config(self, datasets=None, sampler="epoch_samples = 100", more=""):
        if datasets is None:
            datasets = "".join(self.dataset(name, weight) for name, weight in self.THREE)
        return self.write("m.toml", datasets + '[sampler]\nbatch_size = 8\nepochs = 3\nseed = 7\n%s\n[loader]\nworkers = 2\n[loader.restart.backoff]\nbase = "1ms"\n'
                          '[gpu]\ndevice = "host"\n%s' % (sampler, more))

    def rows_of(self, config, *options, epochs=3):
        """(source, first value) of each row, epoch after epoch."""
        out = os.path.join(self.folder, "npy-%d" % len(os.listdir(self.folder)))
        self.run_json(config, "--sink", "npy", "--out", out, *options)
        found = []
        for epoch in range(epochs):
            starts = sorted(name[:-len("index.npy")] for name in os.listdir(out) if name.startswith("e%d-" % epoch) and name.endswith(".index.npy"))
            rows = []
            for start in starts:
                source = numpy.load(os.path.join(out, start + "source.npy"))
                self.assertEqual(source.dtype, numpy.int32)
                rows += zip(source.tolist(), numpy.load(os.path.join(out, start + "data.npy"))[:, 0].tolist())
            found.append(rows)
        return found

    def test_every_prefix_of_an_epoch_is_within_one_sample_of_the_weights(self):
        for rows in self.rows_of(self.config()):
            self.assertEqual(len(rows), 100)
            for length in range(1, 101):
                for source, (_, weight) in enumerate(self.THREE):
                    count = sum(row[0] == source for row in rows[:length])
                    self.assertLess(abs(count - weight * length), 1, (length, source))
            self.assertTrue(all(value // 1000 == source + 1 for source, value in rows))

    def test_each_dataset_gives_all_of_its_samples_before_it_repeats_one_across_all_epochs(self):
        rows = [row for epoch in self.rows_of(self.config()) for row in epoch]
        for source, size in enumerate(self.SIZES.values()):
            walk = [value for which, value in rows if which == source]
            laps = [walk[i:i + size] for i in range(0, len(walk), size)]
            self.assertGreater(len(laps), 1)
            for lap in laps:
                self.assertEqual(len(set(lap)), len(lap))
            self.assertNotEqual(laps[0], sorted(laps[0]))
            self.assertNotEqual(laps[0][:len(laps[1])], laps[1])

    def test_a_sequential_mixture_matches_a_model_of_four_lines(self):
        rows = [row for epoch in self.rows_of(self.config(sampler="epoch_samples = 100\nshuffle = false")) for row in epoch]
        taken = [0, 0, 0]
        for source, value in rows:
            self.assertEqual(value, 1000 * (source + 1) + taken[source] % list(self.SIZES.values())[source])
            taken[source] += 1
        self.assertEqual(taken, [210, 60, 30])

    def test_workers_deaths_and_resuming_do_not_change_the_digest(self):
        config = self.config()
        digests = self.digests(config, "--workers", 1)
        self.assertEqual(len(digests), 3)
        self.assertEqual(self.digests(config, "--workers", 3), digests)
        state = os.path.join(self.folder, "m.state")
        self.run_json(config, "--digest", "--batches", 16, "--state", state)
        rest = self.run_json(config, "--digest", "--state", state, "--workers", 1)
        self.assertEqual([epoch["digest"] for epoch in rest["epochs"]], digests[1:])
        pools = [self.dataset("a", 2), '[[datasets]]\nname = "s"\ntype = "synthetic"\nsamples = 40\nshape = [3]\ndtype = "int64"\n']
        quiet = self.digests(self.config("".join(pools)))
        pools[1] += 'faults = [{sample = 3, kind = "kill", times = 1}, {sample = 9, kind = "segv", times = 1}]\n'
        report = self.run_json(self.config("".join(pools)), "--digest")
        self.check_sums(report)
        self.assertEqual([epoch["digest"] for epoch in report["epochs"]], quiet)
        self.assertGreaterEqual(report["workers"]["ended_unexpectedly"], 2)

    def test_three_ranks_together_deliver_the_epoch_of_one_rank(self):
        config = self.config(sampler="epoch_samples = 99")
        alone = self.rows_of(config)
        for rank in range(3):
            mine = self.rows_of(config, "--set", "sampler.world_size=3", "--set", "sampler.rank=%d" % rank)
            self.assertEqual(mine, [epoch[rank::3] for epoch in alone])

    def test_a_group_delivers_a_mixture_like_single_ranks_and_resumes_with_a_different_number_of_ranks(self):
        config = self.config(sampler="epoch_samples = 96", more='[log]\nlevel = "error"\n')

        def group(ranks, *options):
            code, out, err = self.penstock("launch", config, "--gpus", "host:%d" % ranks, "--json", "--quiet", "--digest", *options)
            self.assertEqual(code, EXIT_OK, out + err)
            return [[(epoch["digest"], epoch["delivered"]) for epoch in rank["epochs"]] for rank in json.loads(out)["ranks"]]

        alone = [self.digests(config, "--set", "sampler.world_size=2", "--set", "sampler.rank=%d" % rank) for rank in range(2)]
        self.assertEqual([[digest for digest, _ in rank] for rank in group(2)], alone)
        state = os.path.join(self.folder, "group.state")
        group(2, "--state", state, "--batches", 3)
        rest = group(3, "--state", state)
        self.assertEqual(sum(delivered for rank in rest for _, delivered in rank), 3 * 96 - 2 * 3 * 8)

    def test_a_sample_that_kills_is_quarantined_under_the_name_of_its_dataset(self):
        synthetic = '[[datasets]]\nname = "s"\ntype = "synthetic"\nsamples = 20\nshape = [3]\ndtype = "int64"\nfaults = [{sample = 3, kind = "segv", times = 0}]\n'
        config = self.config(self.dataset("a", 2) + synthetic, sampler="epoch_samples = 100", more='[quarantine]\nfile = "q.jsonl"\n')
        report = self.run_json(config)
        self.check_sums(report)
        self.assertGreater(sum(epoch["quarantined"] for epoch in report["epochs"]), 3)
        with open(os.path.join(self.folder, "q.jsonl")) as file:
            self.assertIn('"s:sample 3"', file.read())

    def plan(self, config, *options):
        code, out, err = self.penstock("plan", config, "--json", *options)
        self.assertEqual(code, EXIT_OK, err)
        return json.loads(out)

    def test_plan_and_replay_name_the_dataset_of_each_sample(self):
        config = self.config()
        run, again = os.path.join(self.folder, "run"), os.path.join(self.folder, "again")
        self.run_json(config, "--sink", "npy", "--out", run)
        planned = self.plan(config, "--epoch", 2, "--batch", 5)
        code, out, err = self.penstock("replay", config, "--epoch", 2, "--batch", 5, "--out", again, "--json")
        self.assertEqual(code, EXIT_OK, err)
        self.assertEqual(json.loads(out)["names"], planned["names"])
        for name in ("data", "source", "index"):
            with open(os.path.join(run, "e2-b000005.%s.npy" % name), "rb") as a, open(os.path.join(again, "e2-b000005.%s.npy" % name), "rb") as b:
                self.assertEqual(a.read(), b.read())
        sources = numpy.load(os.path.join(run, "e2-b000005.source.npy"))
        values = numpy.load(os.path.join(run, "e2-b000005.data.npy"))[:, 0]
        expected = ["%s:%s.npy[%d]" % ("abc"[source], "abc"[source], value % 1000) for source, value in zip(sources, values)]
        self.assertEqual(planned["names"], expected)

    def test_each_entry_of_a_list_of_weights_is_for_one_epoch_and_the_last_entry_also_for_all_later_ones(self):
        config = self.config(self.dataset("a", "[1, 0, 3]") + self.dataset("b", "[0, 1]"), sampler="epoch_samples = 40")
        rows = self.rows_of(config)
        self.assertEqual([[sum(source == which for source, _ in epoch) for which in (0, 1)] for epoch in rows], [[40, 0], [0, 40], [30, 10]])
        first = [value for _, value in rows[0]]
        later = [value for source, value in rows[2] if source == 0]
        self.assertEqual(len(set(first + later[:10])), 50)  # an epoch of b alone does not advance in a

    def test_each_dataset_can_have_its_own_order(self):
        self.write("some.txt", "4\n5\n4\n")
        numpy.save(os.path.join(self.folder, "w.npy"), numpy.arange(10) % 2 * 1.0)
        datasets = self.dataset("a", 1, 'sampler = "sequential"') + self.dataset("b", 1, 'sampler = "subset"\nsubset = "some.txt"') \
            + self.dataset("c", 1, 'sampler = "weighted"\nsample_weights = "w.npy"')
        rows = [row for epoch in self.rows_of(self.config(datasets, sampler="epoch_samples = 30")) for row in epoch]
        self.assertEqual([value for source, value in rows if source == 0], [1000 + i for i in range(30)])
        chosen = [value for source, value in rows if source == 1]
        self.assertEqual(sorted(chosen[:3]), [2004, 2004, 2005])
        self.assertEqual(len(chosen), 30)
        self.assertEqual({value % 2 for source, value in rows if source == 2}, {1})

    def test_a_state_of_a_mixture_with_other_weights_is_refused(self):
        state = os.path.join(self.folder, "m.state")
        self.run_json(self.config(), "--batches", 1, "--state", state)
        self.assertLess(os.path.getsize(state), 1024)
        code, _, err = self.penstock("run", self.config(self.dataset("a", 0.6) + self.dataset("b", 0.3) + self.dataset("c", 0.1)), "--state", state)
        self.assertNotEqual(code, EXIT_OK)
        self.assertRegex(err, r"order was mixture [0-9a-f]{16} 100 and is mixture [0-9a-f]{16} 100")

    def test_weights_that_were_rounded_are_shown(self):
        config = self.config(self.dataset("a", 3.14159265358979) + self.dataset("b", 1))
        code, _, err = self.penstock("run", config, "--quiet")
        self.assertEqual(code, EXIT_OK, err)
        self.assertIn("they are rounded to a 758547/1000000, b 241453/1000000", err)

    def test_datasets_with_different_tensors_are_refused_with_both_names(self):
        numpy.save(os.path.join(self.folder, "d.npy"), numpy.zeros((5, 3), "float32"))
        code, _, err = self.penstock("run", self.config(self.dataset("a", 1) + self.dataset("d", 1)))
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("the datasets 'a' and 'd' cannot be mixed", err)
        self.assertIn("'a' has data int64 [3], and 'd' has data float32 [3]", err)

    def test_mistakes_are_found_before_any_data_is_read(self):
        a, b = self.dataset("a", 1), self.dataset("b", 1)
        for datasets, sampler, expected in (
                (a + a, "epoch_samples = 9", "two of [[datasets]] have the name 'a'"),
                (a + self.dataset("b", 0), "epoch_samples = 9", "'weight' of the dataset 'b' of [[datasets]] is 0"),
                (a + self.dataset("b", -1), "epoch_samples = 9", "'weight' of the dataset 'b' of [[datasets]] is negative: -1"),
                (a + self.dataset("b", "nan"), "epoch_samples = 9", "must be a finite number"),
                (a + self.dataset("b", "[]"), "epoch_samples = 9", "'weight' of the dataset 'b' of [[datasets]] is empty"),
                (self.dataset("a", "[1, 0]") + self.dataset("b", "[1, 0]"), "epoch_samples = 9", "all weights of [[datasets]] are 0 in epoch 1"),
                (a + self.dataset("b", "[1, 1, 1, 1]"), "epoch_samples = 9", "has numbers for 4 epochs, but there are 3"),
                (a + self.dataset("b", 1).replace('name = "b"', ""), "epoch_samples = 9", "'name' of number 2 of [[datasets]] is missing"),
                (a + self.dataset("b", 1).replace('"b"', '"b:c"', 1), "epoch_samples = 9", "cannot be the name of a dataset"),
                (a + b + '[dataset]\ntype = "npy"\npath = "a.npy"\n', "epoch_samples = 9", "[dataset] and [[datasets]] both say where samples come from"),
                (a + b, "", "'epoch_samples' in [sampler] is missing"),
                (a, "epoch_samples = 9", "[[datasets]] has only one dataset"),
                (a + '[[datasets]]\nname = "b"\ntype = "raw"\n', "epoch_samples = 9", "'path' of the dataset 'b' of [[datasets]] is missing"),
                (a + '[[datasets]]\nname = "b"\ntype = "custom"\n', "epoch_samples = 9", "cannot be mixed"),
                (a + self.dataset("b", 1, 'sampler = "subset"'), "epoch_samples = 9", "'subset' of the dataset 'b' of [[datasets]] is missing"),
                (a + self.dataset("b", 1, 'wieght = 3'), "epoch_samples = 9", "unknown key 'wieght' in [[datasets]]")):
            with self.subTest(expected):
                _, out, err = self.penstock("check-config", self.config(datasets, sampler), "--strict")
                self.assertIn(expected, out + err)

    def test_a_mixture_can_be_given_on_the_command_line_and_printed_and_read_again(self):
        config = self.config("")
        given = ["--set", 'datasets=[{"name" = "a", "weight" = 0.7, "type" = "npy", "path" = "a.npy"}, {"name" = "b", "weight" = [0.3, 1], "type" = "npy", "path" = "b.npy"}]']
        code, printed, err = self.penstock("check-config", config, *given, "--print-effective")
        self.assertEqual(code, EXIT_OK, err)
        self.assertEqual(self.digests(self.write("again.toml", printed)), self.digests(config, *given))

    def test_inspect_examines_each_dataset(self):
        code, out, err = self.penstock("inspect", self.config(), "--json")
        self.assertEqual(code, EXIT_OK, err)
        found = json.loads(out)
        self.assertEqual([(one["name"], one["samples"], one["weight"]) for one in found["datasets"]], [("a", 50, [0.7]), ("b", 30, [0.2]), ("c", 10, [0.1])])
        self.assertIn("b, weight 0.2:", self.penstock("inspect", self.config())[1])

    def test_a_preview_of_two_image_folders_names_the_files_of_both(self):
        for name in ("x", "y"):
            make_photos(os.path.join(self.folder, name), 4, size=(32, 32))
        datasets = "".join('[[datasets]]\nname = "%s"\ntype = "image-folder"\npath = "%s"\n' % (name, name) for name in ("x", "y"))
        config = self.config(datasets, more="[image]\nsize = [32, 32]\n")
        code, out, err = self.penstock("preview", config, "--out", "p.png", "--json")
        self.assertEqual(code, EXIT_OK, err)
        self.assertEqual({one["path"].split(":")[0] for one in json.loads(out)["samples"]}, {"x", "y"})


if __name__ == "__main__":
    main()
