#!/usr/bin/env python3
"""Measures photographs with and without restart markers: restart_markers.py FOLDER [BIN]

Packs an image folder as it is and with `penstock pack --restart-markers`, and does the same with a copy that has mixed subsampling and
a fifth of its files progressive. Streams random-resized-crop 224 from the shards, in turn in the
same run, with 1 worker on the host device. Prints a Markdown table: sizes, images a second of the worker, images per
second of processor time of all processes; digests must be equal. BIN is the folder of the programs, build/release/bin
by default. Needs Pillow.
"""

import glob
import json
import os
import random
import statistics
import sys
import tempfile

from PIL import Image

from penstock_json import penstock_in, processor_seconds

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.abspath(sys.argv[1])
BIN = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else os.path.join(TOP, "build/release/bin"))
penstock = penstock_in(BIN)
ROUNDS = 5

CONFIG = """
[dataset]
type = "tar"
path = "%s"
[image]
augment = "random-resized-crop"
[sampler]
batch_size = 32
epochs = %d
[loader]
workers = 1
[gpu]
device = "host"
"""


def save_mixed(source, target):
    """The same pictures, a fifth of them progressive, with chroma at 4:2:0, 4:2:2 and 4:4:4 (3 : 1 : 1)."""
    draw = random.Random(1)
    for path in sorted(glob.glob(os.path.join(source, "**", "*.jpg"), recursive=True)):
        place = os.path.join(target, os.path.relpath(path, source))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with Image.open(path) as image:
            image.convert("RGB").save(place, quality=90, subsampling=draw.choice((0, 1, 2, 2, 2)), progressive=draw.random() < 0.2)


class Shards:
    def __init__(self, scratch, name, folder, *options):
        self.out = os.path.join(scratch, name)
        penstock("pack", folder, "--out", self.out, *options)
        self.bytes = sum(map(os.path.getsize, glob.glob(os.path.join(self.out, "*.tar"))))
        self.config = self.out + ".toml"
        with open(self.config, "w") as file:
            file.write(CONFIG % (self.out, 10))
        self.rates, self.per_core, self.digests = [], [], set()

    def run(self):
        before = processor_seconds()
        report = penstock("run", self.config)
        cpu = processor_seconds() - before
        self.rates.append(report["totals"]["samples_per_second"])
        self.per_core.append(sum(epoch["delivered"] for epoch in report["epochs"]) / cpu)
        self.digests.add(json.dumps([epoch["digest"] for epoch in report["epochs"]]))


def main():
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_RUNTIME_DIR"] = scratch
        mixed = os.path.join(scratch, "mixed-photos")
        save_mixed(FOLDER, mixed)
        print("| files | size | images/s, 1 worker | ratio | images per second of processor time | ratio |")
        print("| --- | --- | --- | --- | --- | --- |")
        for name, folder in (("as they are", FOLDER), ("mixed, a fifth progressive", mixed)):
            plain = Shards(scratch, name + " plain", folder)
            marked = Shards(scratch, name + " marked", folder, "--restart-markers")
            for round in range(ROUNDS + 1):
                for shards in (plain, marked):
                    shards.run()
            assert len(plain.digests | marked.digests) == 1, "other pixels"
            median = lambda values: statistics.median(values[1:])  # the first round reads the files into memory
            for shards, what in ((plain, name), (marked, "with markers")):
                print("| %s | %.3f | %.0f | %.2f | %.0f | %.2f |" % (
                    what, shards.bytes / plain.bytes, median(shards.rates), median(shards.rates) / median(plain.rates),
                    median(shards.per_core), median(shards.per_core) / median(plain.per_core)))


main()
