#!/usr/bin/env python3
"""Measures plain shards and shards compressed with zstd: compressed_shards.py FOLDER [BIN]

Packs an image folder, and makes shards of texts (JSON of 2 to 6 KiB) with small arrays (.npy, 2 KiB), then compresses both with
`penstock pack --compress zstd` in frames of 64 KiB, 256 KiB and 1 MiB. Streams all of them with 2 workers on the host device, in
turn in the same run, shuffled and in order. Prints a Markdown table: sizes, samples a second, and samples per second of
processor time of all processes. Digests must be equal. BIN is the folder of the programs, build/release/bin by default.
Needs NumPy.
"""

import io
import json
import os
import random
import statistics
import sys
import tarfile
import tempfile

import numpy

from penstock_json import penstock_in, processor_seconds

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.abspath(sys.argv[1])
BIN = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else os.path.join(TOP, "build/release/bin"))
penstock = penstock_in(BIN)
ROUNDS, RECORDS = 3, 10_000
FRAMES = "64KiB", "256KiB", "1MiB"

CONFIG = """
[dataset]
type = "tar"
path = "%s"
members = { %s }
[sampler]
kind = "%s"
batch_size = 64
epochs = %d
[loader]
workers = 2
[gpu]
device = "host"
"""


def write_records(folder):
    draw, words = random.Random(1), ["w%04d" % i for i in range(3000)]
    numbers = numpy.random.default_rng(1)
    with tarfile.open(os.path.join(folder, "records.tar"), "w") as archive:
        for record in range(RECORDS):
            text = json.dumps({"id": record, "caption": " ".join(draw.choice(words) for _ in range(draw.randrange(300, 900)))}).encode()
            array = io.BytesIO()
            numpy.save(array, numpy.cumsum(numbers.integers(-2, 3, 512)).astype(numpy.int32))
            for ending, contents in ("json", text), ("npy", array.getvalue()):
                facts = tarfile.TarInfo("%06d.%s" % (record, ending))
                facts.size = len(contents)
                archive.addfile(facts, io.BytesIO(contents))


def size_of(folder):
    return sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder) if name.startswith(("shard", "records")))


def stream(folder, shards, members, kind, epochs):
    """Samples a second, samples per second of processor time, the digest."""
    config = os.path.join(folder, "config.toml")
    with open(config, "w") as file:
        file.write(CONFIG % (shards, members, kind, epochs))
    before = processor_seconds()
    report = penstock("run", config, "--digest")
    used = processor_seconds() - before
    samples = sum(epoch["delivered"] for epoch in report["epochs"])
    return report["totals"]["samples_per_second"], samples / used, [epoch["digest"] for epoch in report["epochs"]]


def compare(folder, name, plain, members, epochs):
    shards = {"plain": plain}
    for size in FRAMES:
        shards["frames of " + size] = os.path.join(folder, "%s-%s" % (name, size))
        penstock("pack", plain, "--out", shards["frames of " + size], "--compress", "zstd", "--frame-size", size)
    found = {(what, kind): [] for what in shards for kind in ("shuffle", "sequential")}
    for _ in range(ROUNDS + 1):  # the first fills the page cache and the index
        for what, kind in found:
            found[what, kind].append(stream(folder, shards[what], members, kind, epochs))
    for what, kind in found:
        assert found[what, kind][0][2] == found["plain", kind][0][2], "other digests: %s, %s" % (what, kind)
    for what, place in shards.items():
        rates = [[statistics.median(one[i] for one in found[what, kind][1:]) for i in (0, 1)] for kind in ("shuffle", "sequential")]
        print("| %s, %s | %.3f | %.0f | %.0f | %.0f | %.0f |" % (name, what, size_of(place) / size_of(plain), *rates[0], *rates[1]), flush=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        photos, records = (os.path.join(folder, name) for name in ("photos", "records"))
        penstock("pack", FOLDER, "--out", photos)
        os.mkdir(records)
        write_records(records)
        print("load average %.1f\n" % os.getloadavg()[0])
        print("| shards | size | shuffled: samples/s | per second of processor time | in order: samples/s | per second of processor time |")
        print("| --- | --- | --- | --- | --- | --- |")
        compare(folder, "photographs", photos, 'image = "jpg;jpeg;png", label = "cls"', 2)
        compare(folder, "records", records, 'text = "json", values = "npy"', 2)


if __name__ == "__main__":
    main()
