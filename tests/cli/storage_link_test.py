"""Shards and token files behind a link of 100 MB/s with 50 ms of latency, 5 % errors and 2 % stalls of 5 s: the stream, the share of the link that is used, and gaps.

As a test it is small and checks the stream alone; PENSTOCK_TEST_LINK_MB=1000 measures, and expects what the link can give.
"""

import subprocess
import tarfile
import time

import io
from harness import *

MB = int(os.environ.get("PENSTOCK_TEST_LINK_MB", "40"))
MEASURING = "PENSTOCK_TEST_LINK_MB" in os.environ
RATE = 100e6
MEMBER = 110_000
TAR = 'type = "tar"\nmembers = { blob = "bin" }'
TOKENS = 'type = "tokens"\ndtype = "uint16"\nsequence_length = 65536'
CONFIG = """
name = "link"
[dataset]
path = "{path}"
{kind}
[sampler]
batch_size = 16
epochs = {epochs}
[loader]
workers = 4
slots_per_worker = 6
[gpu]
device = "host"
"""


class StorageLinkTest(PenstockTest):
    def setUp(self):
        super().setUp()
        self.environment["XDG_CACHE_HOME"] = os.path.join(self.folder, "cache-home")
        self.files = os.path.join(self.folder, "files")
        os.mkdir(self.files)
        self.bytes = 0
        self.count = max(2, MB // 50)

    def write_shards(self):
        choose = random.Random(3)
        block = choose.randbytes(1 << 20)
        for number in range(self.count):
            with tarfile.open(os.path.join(self.files, "l-%03d.tar" % number), "w") as archive:
                for sample in range(int(MB * 1e6 / MEMBER / self.count)):
                    size = choose.randrange(MEMBER // 2, MEMBER * 3 // 2)
                    begin = choose.randrange(len(block) - size)
                    facts = tarfile.TarInfo("%05d.bin" % sample)
                    facts.size = size
                    archive.addfile(facts, io.BytesIO(block[begin:begin + size]))
                    self.bytes += size

    def write_tokens(self):
        for number in range(self.count):
            with open(os.path.join(self.files, "l-%03d.bin" % number), "wb") as file:
                self.bytes += file.write(random.Random(number).randbytes(int(MB * 1e6 / self.count) // 2 * 2))

    def config(self, path, kind):
        return self.write("link.toml", CONFIG.format(path=path, kind=kind, epochs=1))

    def serve(self, errors, stalls, ending):
        server = subprocess.Popen([os.path.join(BIN, "slow_link_server"), self.files, "50", str(int(RATE)), str(errors), str(stalls), "5000"], stdout=subprocess.PIPE)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        return "http://127.0.0.1:%d/l-{000..%03d}.%s" % (int(server.stdout.readline()), self.count - 1, ending)

    def test_shards_in_a_store_give_the_same_stream_as_on_disk_and_hide_stalls(self):
        self.write_shards()
        self.compare(TAR, "tar")

    def test_token_files_in_a_store_give_the_same_stream_as_on_disk_and_hide_stalls(self):
        self.write_tokens()
        self.compare(TOKENS, "bin")

    def compare(self, kind, ending):
        expected = self.digests(self.config(self.files, kind))
        config = self.config(self.serve(0.05, 0.02, ending), kind)
        self.digests(config, "--batches", 1)  # builds the index of the shards
        journal = os.path.join(self.folder, "journal")
        process = self.start("run", config, "--digest", "--json", "--quiet", "--sink", "journal:" + journal)
        times, lines = [], 0
        while process.poll() is None:
            time.sleep(0.002)
            try:
                with open(journal, "rb") as file:
                    now = file.read().count(b"\n")
            except FileNotFoundError:
                continue
            if now > lines:
                lines = now
                times.append((time.monotonic(), now))
        out, err = process.communicate()
        self.assertEqual(process.returncode, EXIT_OK, err.decode())
        report = json.loads(out)
        self.assertEqual([epoch["digest"] for epoch in report["epochs"]], expected)
        self.assertEqual(report["failures"], [])
        used = self.bytes * (lines - times[0][1]) / lines / (times[-1][0] - times[0][0]) / RATE
        gap = max((after[0] - before[0] for before, after in zip(times, times[1:])), default=0)
        print("%.0f MB, %d batches: %.2f of the link, longest gap %.0f ms" % (self.bytes / 1e6, lines, used, gap * 1000))
        if MEASURING:
            self.assertGreaterEqual(used, 0.9)
            self.assertLessEqual(gap, 0.2)


if __name__ == "__main__":
    main()
