"""penstock replay: batches of past runs again, as pictures and compared with journals."""

from harness import *

import random

BATCHES = int(os.environ.get("PENSTOCK_TEST_BATCHES", 6))


class ReplayTest(PenstockTest):
    def photos(self, count=24):
        make_photos(os.path.join(self.folder, "photos"), count, classes=2, size=(48, 48))
        return self.write("p.toml", '[dataset]\npath = "photos"\n[image]\nsize = [32, 32]\n[sampler]\nbatch_size = 4\nepochs = 3\nseed = 3\n'
                          '[loader]\nworkers = 2\n[gpu]\ndevice = "host"\n')

    def journal(self, config, *options, expect=EXIT_OK):
        path = os.path.join(self.folder, "%d.journal" % len(os.listdir(self.folder)))
        self.run_json(config, "--sink", "journal:" + path, *options, expect=expect)
        return path

    def entries(self, journal):
        with open(journal) as file:
            return [line for line in map(json.loads, file) if "batch" in line]

    def verify(self, config, journal, *options, expect=EXIT_OK):
        code, out, err = self.penstock("replay", config, "--verify", journal, "--json", *options)
        self.assertEqual(code, expect, out + err)
        return json.loads(out)

    def replayed_digest(self, config, line, *options):
        code, out, err = self.penstock("replay", config, "--epoch", line["epoch"], "--batch", line["batch"], "--out", "again-" + os.path.basename(config), "--json", *options)
        self.assertEqual(code, EXIT_OK, out + err)
        return json.loads(out)["digest"]

    # ---- pictures --------------------------------------------------------------------------------------------

    def test_the_picture_of_a_batch_is_the_one_that_preview_draws(self):
        config = self.photos()
        code, out, err = self.penstock("replay", config, "--epoch", 1, "--batch", 2, "--png", "again.png", "--json")
        self.assertEqual(code, EXIT_OK, err)
        self.assertEqual(json.loads(out)["png"], "again.png")
        self.assertEqual(self.penstock("preview", config, "--batch", 6 + 2, "--out", "preview.png")[0], EXIT_OK)
        with open(os.path.join(self.folder, "again.png"), "rb") as a, open(os.path.join(self.folder, "preview.png"), "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_a_batch_without_pictures_cannot_be_drawn(self):
        config = self.write("s.toml", '[dataset]\ntype = "synthetic"\nshape = [4]\n[gpu]\ndevice = "host"\n')
        code, _, err = self.penstock("replay", config, "--png", "p.png")
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("batches of this dataset have the tensors data, but no images", err)

    def test_a_replay_without_an_output_is_a_usage_error(self):
        config = self.photos(4)
        code, _, err = self.penstock("replay", config)
        self.assertEqual(code, EXIT_USAGE)
        self.assertIn("--out DIR, --png FILE or --verify JOURNAL", err)
        self.assertEqual(self.penstock("replay", config, "--verify", "x", "--batch", 1)[0], EXIT_USAGE)

    def test_a_picture_with_the_extension_of_another_format_is_refused(self):
        config = self.photos(4)
        for arguments in (["replay", config, "--png", "a/p.jpg"], ["preview", config, "--out", "a/p.JPEG"], ["preview", config, "--out", "p.webp"]):
            code, _, err = self.penstock(*arguments)
            self.assertEqual(code, EXIT_USAGE, arguments)
            self.assertIn("the picture is a PNG, so name it p.png", err)

    # ---- custom datasets -------------------------------------------------------------------------------------

    def lines(self, count=20, more=""):
        self.write("poem.txt", "".join("line %d\n" % i for i in range(count)))
        return self.write("lines.toml", '[dataset]\ntype = "custom"\n[dataset.options]\nfile = "%s/poem.txt"\n%s[sampler]\nbatch_size = 7\nepochs = 2\n'
                          '[loader]\nworkers = 2\ncommand = ["02_lines_worker"]\n[gpu]\ndevice = "host"\n' % (self.folder, more))

    def test_batches_of_a_custom_dataset_are_planned_and_replayed_by_its_worker_program(self):
        config = self.lines()
        journal = self.journal(config)
        for line in self.entries(journal):
            code, out, err = self.penstock("plan", config, "--epoch", line["epoch"], "--batch", line["batch"], "--json")
            self.assertEqual(code, EXIT_OK, err)
            plan = json.loads(out)
            self.assertEqual((plan["samples"], plan["names"][0]), (line["samples"], "line %d of %s/poem.txt" % (line["samples"][0] + 1, self.folder)))
            self.assertEqual(self.replayed_digest(config, line), line["digest"])
        self.assertEqual(self.verify(config, journal)["changed"], [])
        self.write("poem.txt", "word 0\n" + "".join("line %d\n" % i for i in range(1, 20)))
        changed = self.verify(config, journal, expect=EXIT_FAILED)
        self.assertIn({"sample": 0, "name": "line 1 of %s/poem.txt" % self.folder}, changed["suspects"])

    def test_a_worker_program_that_cannot_describe_its_dataset_is_named_with_its_own_error(self):
        config = self.lines()
        os.remove(os.path.join(self.folder, "poem.txt"))
        for arguments in (["plan"], ["replay", "--out", "x"], ["preview", "--out", "x.png"]):
            code, _, err = self.penstock(*arguments, config)
            self.assertEqual(code, EXIT_FAILED, arguments)
            self.assertIn("asking the worker program ([loader] command) for the dataset: opening the dataset: ", err)

    def test_samples_are_planned_by_number_if_the_worker_program_cannot_set_up_its_dataset(self):
        config = '[dataset]\ntype = "custom"\n%s[sampler]\nbatch_size = 7\n[loader]\ncommand = ["odd-worker"]\n'
        code, out, err = self.penstock("plan", self.write("named.toml", config % ""))
        self.assertEqual((code, err), (EXIT_OK, ""))
        self.assertRegex(out, r"\A(?:(\d+)\tpage-\1\n){7}\Z")
        code, out, err = self.penstock("plan", self.write("torn.toml", config % 'options = { throw_in = "setup" }\n'))
        self.assertEqual(code, EXIT_OK, err)
        self.assertRegex(out, r"\A(?:(\d+)\tsample \1\n){7}\Z")
        self.assertRegex(err, r"^the samples have no names here: .*no licence")
    def test_a_custom_dataset_that_lacks_an_option_lists_the_options_that_exist(self):
        with open(self.lines()) as file:
            config = self.write("without.toml", file.read().replace("file = ", "files = "))
        code, _, err = self.penstock("plan", config)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("opening the dataset: [dataset.options] has no 'file'; it has: files\n", err)

    # ---- journals --------------------------------------------------------------------------------------------

    def test_a_journal_of_unchanged_data_is_confirmed(self):
        config = self.photos()
        found = self.verify(config, self.journal(config))
        self.assertEqual((found["batches"], found["changed"], found["suspects"]), (18, [], []))
        code, out, err = self.penstock("replay", config, "--verify", self.journal(config, "--batches", 5))
        self.assertEqual((code, out), (EXIT_OK, ""))
        self.assertIn("5 of 5 batches match the journal", err)

    def test_missing_duplicate_and_contradictory_batches_of_a_journal_are_reported(self):
        config = self.photos()
        with open(self.journal(config)) as file:
            lines = file.read().splitlines(True)
        place = {(one["epoch"], one["batch"]): at for at, one in enumerate(map(json.loads, lines)) if "batch" in one}
        journal = self.write("doubled", "".join(lines + [lines[place[0, 2]], lines[place[1, 0]]]))
        found = self.verify(config, journal)
        self.assertEqual((found["batches"], found["repeated"], found["contradictory_batches"], found["missing"]), (18, 2, [], []))
        _, _, err = self.penstock("replay", config, "--verify", journal)
        self.assertIn("no batch is missing from batch 0 of epoch 0 to batch 5 of epoch 2", err)
        self.assertIn("2 batches are in the journal more than once, with equal samples and digests", err)
        gone = {place[0, 3], place[1, 0], place[1, 1]}
        journal = self.write("gaps", "".join(line for at, line in enumerate(lines) if at not in gone))
        self.assertEqual(self.verify(config, journal, expect=EXIT_FAILED)["missing"],
                         [{"epoch": 0, "first": 3, "last": 3}, {"epoch": 1, "first": 0, "last": 1}])
        code, out, _ = self.penstock("replay", config, "--verify", journal)
        self.assertEqual((code, out), (EXIT_FAILED, "batch 3 of epoch 0 is missing\nbatches 0 to 1 of epoch 1 are missing\n"))
        other = json.loads(lines[place[0, 2]])
        journal = self.write("contradictory", "".join([json.dumps(other | {"digest": "0" * 16}) + "\n" if at == place[0, 1] + 1 else line
                                                       for at, line in enumerate(lines)] + [lines[place[0, 2]]]))
        self.assertEqual(self.verify(config, journal, expect=EXIT_FAILED)["contradictory_batches"], [{"epoch": 0, "seq": 2}])

    def test_a_killed_run_that_is_resumed_has_lost_no_batch_and_its_journal_proves_that(self):
        config = self.write("k.toml", synthetic(samples=400, batch=4, epochs=1, dataset='wait = "5ms"'))
        command = ["run", config, "--state", "k.state", "--sink", "journal:k.journal"]
        process = self.start(*command, "--state-every", "1h")
        path = os.path.join(self.folder, "k.journal")
        self.wait_until(lambda: os.path.exists(path) and len(open(path).readlines()) > 5, "a few batches")
        process.kill()
        process.communicate(timeout=30)
        self.assertTrue(os.path.exists(os.path.join(self.folder, "k.state")))
        code, _, err = self.penstock(*command)
        self.assertEqual(code, EXIT_OK, err)
        self.assertIn("the journal 'k.journal' already has batches: this run starts at the beginning of the stream and appends its batches", err)
        self.assertNotIn("resuming", err)
        found = self.verify(config, path)
        self.assertEqual((found["batches"], found["missing"], found["contradictory"]), (100, [], 0))
        self.assertGreater(found["repeated"], 3)

    def test_a_changed_picture_is_named_with_the_batches_that_contained_it(self):
        config = self.photos()
        journal = self.journal(config)
        photos = sorted(os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(self.folder, "photos")) for name in names)
        with open(photos[7], "rb") as other, open(photos[5], "r+b") as changed:
            changed.truncate()
            changed.write(other.read())
        found = self.verify(config, journal, expect=EXIT_FAILED)
        self.assertEqual([one["sample"] for one in found["suspects"]], [5])
        self.assertTrue(photos[5].endswith(found["suspects"][0]["name"]))
        places = [(line["epoch"], line["batch"]) for line in self.entries(journal) if 5 in line["samples"]]
        self.assertEqual([(one["epoch"], one["seq"]) for one in found["changed"]], places)
        code, out, err = self.penstock("replay", config, "--verify", journal)
        self.assertEqual(code, EXIT_FAILED)
        self.assertEqual(out.count("may have changed: 5\t"), 3)
        self.assertIn("15 of 18 batches match the journal", err)

    def test_a_picture_that_has_become_unreadable_is_reported_as_missing(self):
        config = self.photos()
        journal = self.journal(config)
        photos = sorted(os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(self.folder, "photos")) for name in names)
        with open(photos[11], "wb") as file:
            file.write(b"\xff\xd8 not a picture")
        found = self.verify(config, journal, expect=EXIT_FAILED)
        self.assertEqual([[one["sample"] for one in changed["gone"]] for changed in found["changed"]], [[11]] * 3)
        self.assertEqual(found["suspects"], [])

    def test_samples_that_the_dataset_no_longer_has_are_named_by_their_numbers(self):
        numbers = os.path.join(self.folder, "n.raw")
        config = self.write("n.toml", '[dataset]\ntype = "raw"\npath = "n.raw"\nshape = [1]\ndtype = "int64"\n[sampler]\nbatch_size = 10\n[loader]\nworkers = 1\n[gpu]\ndevice = "host"\n')
        with open(numbers, "wb") as file:
            file.write(bytes(8 * 100))
        journal = self.journal(config)
        beyond = os.path.join(self.folder, "beyond.journal")
        with open(journal) as was, open(beyond, "w") as file:
            for line in map(json.loads, was):
                if line.get("batch") == 3:
                    line["samples"][0] = 10 ** 15
                file.write(json.dumps(line) + "\n")
        found = self.verify(config, beyond, expect=EXIT_FAILED)
        self.assertEqual([(one["seq"], one["gone"]) for one in found["changed"]], [(3, [{"sample": 10 ** 15, "name": "sample %d" % 10 ** 15}])])
        os.truncate(numbers, 8 * 99)
        place = [line["batch"] for line in self.entries(journal) if 99 in line["samples"]]
        found = self.verify(config, journal, expect=EXIT_FAILED)
        self.assertEqual([one["seq"] for one in found["changed"] if {"sample": 99, "name": "sample 99"} in one["gone"]], place)
        code, out, _ = self.penstock("replay", config, "--verify", journal)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("  gone: 99\tsample 99\n", out)

    def test_another_seed_or_dataset_does_not_match_the_journal(self):
        config = self.photos()
        journal = self.journal(config)
        self.assertEqual(len(self.verify(config, journal, "--set", "sampler.seed=4", expect=EXIT_FAILED)["changed"]), 18)
        for _, _, names in os.walk(os.path.join(self.folder, "photos", "class0")):
            for name in names:
                os.remove(os.path.join(self.folder, "photos", "class0", name))
        code, _, err = self.penstock("replay", config, "--verify", journal)
        self.assertEqual(code, EXIT_FAILED)
        self.assertRegex(err, r"the journal has batch \d of epoch 0, but this config and dataset do not: that epoch has 3 batches, counted from 0")
        self.assertIn("The journal belongs to another dataset, batch size or number of ranks", err)
        self.assertNotIn("--batch", err)

    def test_a_journal_that_cannot_be_read_is_refused_by_name(self):
        config = self.photos(4)
        for text, expected in ((None, "nowhere.journal"), ('{"owner":1}\n{"owner":2,"epoch":0,"batch":0,"samples":[0],"digest":"00"}\n', "is damaged at byte 12"),
                               ('{"owner":1}\n{"owner":1,"epoch":0,"batch":0,"samples":[0],"digest":"f0123456789abcdef"}\n', '"digest":"f0123456789abcdef"}'),
                               ('{"owner":1}\n{"owner":1,"epoch":0,"batch":0,"samples":[0]}\n', 'is damaged at byte 12: {"owner":1,"epoch":0'),
                               ('{"owner":1}\n', "has no batches to compare")):
            if text:
                self.write("nowhere.journal", text)
            code, _, err = self.penstock("replay", config, "--verify", "nowhere.journal")
            self.assertEqual(code, EXIT_FAILED)
            self.assertIn(expected, err)

    # ---- three runs ------------------------------------------------------------------------------------------

    def three_runs(self):
        """(config, journal, options of replay): photographs, shuffled numbers by one of two ranks, and a run with deaths and quarantine."""
        photos = self.photos()
        yield photos, self.journal(photos), ()
        numbers = self.write("n.toml", '[dataset]\ntype = "synthetic"\nsamples = 1000\nshape = [64]\nfill = "random"\n[sampler]\nbatch_size = 16\nepochs = 4\n'
                             'world_size = 2\nrank = 1\n[loader]\nworkers = 2\n[gpu]\ndevice = "host"\n')
        yield numbers, self.journal(numbers, "--set", "gpu.placement='embedded'"), ()
        deadly = self.write("d.toml", '[dataset]\ntype = "synthetic"\nsamples = 600\nshape = [64]\nfill = "random"\n'
                            'faults = [{sample = 3, kind = "segv", times = 0}, {sample = 77, kind = "kill", times = 1}, {sample = 200, kind = "throw", times = 0}]\n'
                            '[sampler]\nbatch_size = 8\nepochs = 2\n[loader]\nworkers = 2\n[loader.restart.backoff]\nbase = "1ms"\n[gpu]\ndevice = "host"\n')
        state = os.path.join(self.folder, "d.state")
        yield deadly, self.journal(deadly, "--state", state), ("--state", state)

    def test_random_batches_of_three_runs_have_the_digests_of_their_journals(self):
        runs = [(config, self.entries(journal), options) for config, journal, options in self.three_runs()]
        self.assertTrue(any(len(line["samples"]) < 8 for line in runs[2][1]))
        for number in range(BATCHES):
            config, lines, options = runs[number % 3]
            line = random.choice(lines)
            self.assertEqual(self.replayed_digest(config, line, *options), line["digest"], (config, line))

    def test_all_batches_of_three_runs_have_the_digests_of_their_journals(self):
        for config, journal, options in self.three_runs():
            found = self.verify(config, journal, *options)
            self.assertEqual(found["batches"], len(self.entries(journal)))


if __name__ == "__main__":
    main()
