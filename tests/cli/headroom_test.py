"""penstock headroom: the rate of a program with its real feed, compared with the rate if it never waited for data."""

from harness import *


class HeadroomTest(PenstockTest):
    def measure(self, dataset, *options):
        path = self.write("headroom.toml", synthetic(samples=1000, batch=4, dataset=dataset))
        code, out, err = self.penstock("headroom", path, "--workers", 1, "--seconds", "2s", "--json", *options)
        self.assertEqual(code, EXIT_OK, err)
        return json.loads(out)

    def test_a_slow_feed_gives_less_than_half_of_the_rate_with_cached_data(self):
        r = self.measure('wait = "25ms"', "--step", "5ms")
        self.assertEqual(list(r), ["schema", "device", "sink", "step_seconds", "feed", "cached", "ratio", "limit", "key", "verdict"])
        self.assertEqual((r["schema"], r["sink"], r["step_seconds"]), ("penstock.headroom/1", "null", 0.005))
        self.assertLess(r["ratio"], 0.5)
        self.assertGreater(r["feed"]["waited"], 0.5)
        self.assertEqual(r["cached"]["waited"], 0)
        self.assertAlmostEqual(r["ratio"], r["feed"]["samples_per_second"] / r["cached"]["samples_per_second"])
        self.assertIsInstance(r["verdict"], str)

    def test_a_slow_program_gets_all_that_it_can_take(self):
        r = self.measure("", "--step", "40ms")
        self.assertGreater(r["ratio"], 0.75)
        self.assertEqual(r["limit"], "consumer")

    def test_both_rates_are_of_full_batches_if_the_dataset_has_any(self):
        # 6 samples: batches of 4 and 2. The program works on each for 40 ms and never waits.
        for batch, rows in ((4, 4), (8, 6)):
            path = self.write("small.toml", synthetic(samples=6, batch=batch))
            code, out, err = self.penstock("headroom", path, "--workers", 1, "--seconds", "2s", "--step", "40ms", "--json")
            self.assertEqual(code, EXIT_OK, err)
            feed = json.loads(out)["feed"]
            self.assertAlmostEqual(feed["samples_per_second"] / feed["batches_per_second"], rows)

    def test_the_text_for_people_has_both_rates_and_the_limit(self):
        path = self.write("headroom.toml", synthetic(dataset='wait = "5ms"'))
        code, out, err = self.penstock("headroom", path, "--workers", 1, "--seconds", 1)
        self.assertEqual(code, EXIT_OK, err)
        cached, feed, verdict = out.splitlines()
        self.assertRegex(cached, r"^cached +\d+ samples/s, with one batch")
        self.assertRegex(feed, r"^feed +\d+ samples/s, [0-9.]+ % of that; the program waited [0-9.]+ % of the time$")
        self.assertTrue(verdict)
        self.assertIn("about the last 10 s, and the feed was measured for less: to compare the two, give --seconds 20s", err)
        self.assertIn("nothing works on the batches", err)

    def test_while_it_measures_it_is_listed_under_the_name_of_the_config_and_shows_no_remaining_time(self):
        process = self.start("headroom", self.write("photos.toml", synthetic(samples=1_000_000, dataset='wait = "2ms"')), "--workers", 1, "--seconds", 12)
        self.addCleanup(process.kill)
        status = self.wait_until(lambda: self.live_status("photos-headroom"), "a rate")
        self.assertGreater(status["samples_expected"], 0)
        self.assertIsNone(status["eta_seconds"])

    def live_status(self, name):
        code, out, _ = self.penstock("status", "--json", "--session", name)
        status = json.loads(out) if code == EXIT_OK else {}
        return status if status.get("rate") else None

    def test_the_cached_phase_is_not_a_stall(self):
        # The cached phase takes longer than the 5 s after which the watch reports a stall.
        code, _, err = self.penstock("headroom", self.write("headroom.toml", synthetic()), "--workers", 1, "--seconds", 14, "--step", "20ms")
        self.assertEqual(code, EXIT_OK, err)
        self.assertNotIn("no progress for", err)

    def test_the_pause_names_headroom_and_not_an_operator_and_the_run_leaves_a_record(self):
        process = self.start("headroom", self.write("photos.toml", synthetic(dataset='wait = "1ms"')), "--workers", 1, "--seconds", 6)
        paused = self.wait_until(lambda: self.paused("photos-headroom"), "the cached phase")
        self.assertEqual(paused["paused_by"], "`penstock headroom`, for its own measurement")
        _, text, _ = self.penstock("why", "--session", "photos-headroom")
        self.assertIn("The session was paused by `penstock headroom`", text)
        self.assertNotIn("operator", text + self.penstock("status", "--session", "photos-headroom")[1])
        self.assertEqual(process.wait(timeout=60), EXIT_OK)
        code, out, err = self.penstock("events", "--last", "--json")
        self.assertEqual(code, EXIT_OK, err)
        events = [json.loads(line) for line in out.splitlines()]
        for kind in ("paused", "resumed"):
            (text,) = [e["text"] for e in events if e["kind"] == kind]
            self.assertIn("as requested by `penstock headroom`", text)
        self.assertEqual((events[-1]["kind"], events[-1]["outcome"]), ("ended", "stopped"))
        self.assertIn("`penstock headroom`, because its measurement is over", events[-1]["text"])

    def paused(self, name):
        code, out, _ = self.penstock("status", "--json", "--session", name)
        status = json.loads(out) if code == EXIT_OK else {}
        return status if status.get("state") == "paused" else None

    def test_mistakes_are_named(self):
        path = self.write("headroom.toml", synthetic())
        for options, words in ((["--step", "abc"], "--step abc: must be a time"), (["--seconds", "0"], "--seconds 0: must be a time"),
                               (["--sink", "nul"], "nul")):
            code, _, err = self.penstock("headroom", path, *options)
            self.assertEqual(code, 2, err)
            self.assertIn(words, err)
        self.assertEqual(self.penstock("headroom", self.write("broken.toml", "[dataset]\ntype = 3\n"))[0], EXIT_CONFIG)


if __name__ == "__main__":
    main()
