"""`penstock bench`: its figures add up, and it leaves no files or processes behind."""

import json

from harness import EXIT_FAILED, EXIT_OK, EXIT_USAGE, PenstockTest, main


class BenchTest(PenstockTest):
    def bench(self, *arguments):
        code, out, err = self.penstock("bench", *arguments, "--device", "host", "--seconds", "0.3", "--json")
        self.assertEqual(code, EXIT_OK, err)
        return json.loads(out)

    def test_an_upload_is_measured_alone_and_through_the_runtime(self):
        for fill in ("stamp", "memcpy"):
            r = self.bench("upload", "--workers", "2", "--slot-bytes", "512KiB", "--slots", "4", "--buffers", "4", "--fill", fill)
            self.assertEqual((r["schema"], r["fill"], r["slot_bytes"]), ("penstock.bench.upload/1", fill, 512 << 10))
            self.assertGreater(r["bare"]["bytes_per_second"], 0)
            self.assertGreater(r["runtime"]["batches_per_second"], 0)
            self.assertAlmostEqual(r["runtime"]["bytes_per_second"], r["runtime"]["batches_per_second"] * (512 << 10), delta=1)
            self.assertAlmostEqual(r["ratio"], r["runtime"]["bytes_per_second"] / r["bare"]["bytes_per_second"], places=6)
            self.assertLess(r["cpu"]["owner_idle"], 0.1)

    def test_a_conversion_is_measured_along_with_plain_copies(self):
        r = self.bench("transform", "--rows", "4", "--size", "32x24", "--dtype", "float32", "--layout", "nhwc")
        self.assertEqual((r["rows"], r["height"], r["width"], r["dtype"]), (4, 32, 24, "float32"))
        self.assertAlmostEqual(r["ratio"], r["convert_bytes_per_second"] / r["copy_bytes_per_second"], places=6)

    def test_an_impossible_measurement_is_refused_and_named(self):
        for arguments, words in [(("upload", "--fill", "sand"), "--fill 'sand'"), (("upload", "--slot-bytes", "5 fathoms"), "fathoms"),
                                 (("transform", "--size", "224"), "--size '224'"), (("sideways",), "sideways")]:
            code, _, err = self.penstock("bench", *arguments)
            self.assertEqual(code, EXIT_USAGE, err)
            self.assertIn(words, err)
        code, _, err = self.penstock("bench", "transform", "--dtype", "uint8", "--layout", "nhwc", "--device", "host")
        self.assertEqual(code, EXIT_FAILED, err)
        self.assertIn("is not converted", err)


if __name__ == "__main__":
    main()
