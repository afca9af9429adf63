#!/usr/bin/env python3
"""Compares photographs in tar shards with the same ones in files: shards.py FOLDER WORK [BIN] [COUNT]

Reduces the photographs of FOLDER to 256 pixels, and writes COUNT files (100 000 by default) into WORK, repeating
photographs if there are fewer. Then `penstock pack` makes shards of these. Both are streamed shuffled, with 2 workers
on the host device, in turn in the same run. Prints a Markdown table: images a second after the first batch, and
processor time of all processes per image, including the start. Warm: everything is in the page cache. Cold: before each
run all pages of both are dropped (inodes and folders stay in memory). Slow opens: also cold, and each open takes 5 ms,
as on a file server. Digests must be equal. WORK must be on a disk, with 5 GB of space for 100 000 photographs; what was
written there is removed. BIN is the folder of the programs, build/ci/bin by default; slow_disk.so must be there.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tarfile

from penstock_json import penstock_in, processor_seconds

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER, WORK = os.path.abspath(sys.argv[1]), os.path.realpath(sys.argv[2])
BIN = os.path.abspath(sys.argv[3] if len(sys.argv) > 3 else os.path.join(TOP, "build/ci/bin"))
penstock = penstock_in(BIN)
COUNT = int(sys.argv[4]) if len(sys.argv) > 4 else 100_000
ROUNDS, BATCH, CLASSES, OPEN_MICROSECONDS = 5, 64, 100, 5000
PARTS = ("warm", 300), ("cold", 300), ("cold, slow opens", 75)  # name, batches per run

CONFIG = """
[dataset]
%s
[sampler]
batch_size = %d
[loader]
workers = 2
[gpu]
device = "host"
"""
SLOW = """
[loader.env]
LD_PRELOAD = "%s/slow_disk.so"
PENSTOCK_SLOW_OPEN = "%d:%s"
"""


def write_photographs(folder):
    small = os.path.join(folder, "small")
    penstock("pack", FOLDER, "--out", small, "--resize", "256")
    contents = []
    for name in sorted(os.listdir(small)):
        if name.endswith(".tar"):
            with tarfile.open(os.path.join(small, name)) as shard:
                contents += [shard.extractfile(member).read() for member in shard if member.name.endswith(".jpg")]
    shutil.rmtree(small)
    photos = os.path.join(folder, "photos")
    for number in range(COUNT):
        place = os.path.join(photos, "%03d" % (number % CLASSES))
        if number < CLASSES:
            os.makedirs(place)
        with open(os.path.join(place, "%06d.jpg" % number), "wb") as file:
            file.write(contents[number % len(contents)])
    return photos, len(contents)


def files_below(folder):
    return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]


def drop_pages(folder):
    for path in files_below(folder):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def read_all(folder):
    for path in files_below(folder):
        with open(path, "rb") as file:
            while file.read(1 << 20):
                pass


def measure(folder, dataset, part, batches):
    config = os.path.join(folder, "config.toml")
    with open(config, "w") as file:
        file.write(CONFIG % (dataset, BATCH) + (SLOW % (BIN, OPEN_MICROSECONDS, folder) if "slow" in part else ""))
    if part != "warm":
        drop_pages(folder)
    before = processor_seconds()
    report = penstock("run", config, "--digest", "--batches", str(batches))
    totals, used = report["totals"], processor_seconds() - before
    return ((totals["samples"] - BATCH) / (totals["seconds"] - totals["first_batch_seconds"]), used / totals["samples"] * 1e6,
            [one["digest"] for one in report["epochs"]])


def main():
    folder = os.path.join(WORK, "penstock-shards")
    os.mkdir(folder)
    try:
        photos, distinct = write_photographs(folder)
        shards = os.path.join(folder, "shards")
        penstock("pack", photos, "--out", shards, "--shard-size", "256MiB")
        subprocess.run(["sync", "-f", folder], check=True)  # pages that are not written yet cannot be dropped
        size = sum(map(os.path.getsize, files_below(photos)))
        print("%d files of %.1f kB on average, %d distinct; %d shards" % (
            COUNT, size / COUNT / 1e3, distinct, sum(name.endswith(".tar") for name in os.listdir(shards))))
        datasets = 'path = "%s"' % photos, 'type = "tar"\npath = "%s"' % shards
        print("| page cache | images | files: images/s, processor time | shards: images/s, processor time | median ratio | all ratios | load average |")
        print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
        for part, batches in PARTS:
            if part == "warm":
                read_all(folder)
            rounds = []
            for _ in range(ROUNDS):
                files, packed = (measure(folder, dataset, part, batches) for dataset in datasets)
                assert files[2] == packed[2], "the digests differ"
                rounds.append(files[:2] + packed[:2])
            ratios = [packed / files for files, _, packed, _ in rounds]
            print("| %s | %d | %.0f, %.0f us | %.0f, %.0f us | %.2f | %s | %.1f |" % (
                part, batches * BATCH, *map(statistics.median, zip(*rounds)), statistics.median(ratios),
                ", ".join("%.2f" % ratio for ratio in ratios), os.getloadavg()[0]), flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
