"""Reads that fail with EIO or ESTALE, as on bad disks and file servers: retried, and named if they always fail."""

import errno
import io
import tarfile

import numpy

from harness import *

CONFIG = """
[dataset]
{dataset}
[sampler]
batch_size = {batch}
[gpu]
device = "host"
[loader]
workers = 2
"""

DATASETS = {
    "image-folder": 'path = "data"',
    "npy": 'type = "npy"\npath = "data/a.npy"',
    "raw": 'type = "raw"\npath = "data/a.raw"\nshape = [16]',
    "tar": 'type = "tar"\npath = "data/a.tar"\nmembers = { text = "txt" }',
    "tokens": 'type = "tokens"\npath = "data/a.bin"\ndtype = "uint16"\nsequence_length = 64',
}
NAMES = {"image-folder": "class1/00001.jpg", "npy": "a.npy[1]", "raw": "a.raw[1]", "tar": "a.tar:01", "tokens": "a.bin[64]"}


class FailingDiskTest(PenstockTest):
    def make(self, samples):
        self.data = os.path.join(self.folder, "data")
        make_photos(self.data, samples)
        numbers = numpy.random.default_rng(3).integers(0, 60000, samples * 64 + 1, dtype=numpy.uint16)
        numbers.tofile(os.path.join(self.data, "a.bin"))
        numpy.save(os.path.join(self.data, "a.npy"), numbers[:samples * 64].reshape(samples, 64))
        numbers[:samples * 8].tofile(os.path.join(self.data, "a.raw"))
        with tarfile.open(os.path.join(self.data, "a.tar"), "w") as archive:
            for number in range(samples):
                member = tarfile.TarInfo("%02d.txt" % number)
                member.size = 100
                archive.addfile(member, io.BytesIO(b"%0100d" % number))

    def config(self, kind, fault=None, every=1, batch=8):
        text = CONFIG.format(dataset=DATASETS[kind], batch=batch)
        if fault:
            text += '[loader.env]\nLD_PRELOAD = "%s"\nPENSTOCK_FAILING_DISK = "%d:%d:%s"\n' % (
                os.path.join(BIN, "slow_disk.so"), fault, every, os.path.realpath(self.data))
        return self.write("failing.toml", text)

    def test_reads_that_fail_temporarily_do_not_change_the_stream(self):
        self.make(24)
        for kind in DATASETS:
            whole = self.digests(self.config(kind))
            for fault in (errno.EIO, errno.ESTALE):
                report = self.run_json(self.config(kind, fault, every=5), "--digest")
                self.assertEqual([epoch["digest"] for epoch in report["epochs"]], whole, (kind, fault))
                self.assertEqual(report["failures"], [], kind)

    def test_samples_that_can_never_be_read_fail_by_name_and_the_totals_add_up(self):
        self.make(2)
        for kind, name in NAMES.items():
            report = self.run_json(self.config(kind, errno.ESTALE, batch=1))
            self.check_sums(report)
            self.assertEqual(report["epochs"][0]["failed"], 2, kind)
            self.assertIn(name, [failure["path"] for failure in report["failures"]])
            for failure in report["failures"]:
                self.assertIn(os.strerror(errno.ESTALE), failure["error"], kind)
                self.assertIn("(tried 4 times)", failure["error"], kind)


if __name__ == "__main__":
    main()
