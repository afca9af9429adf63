#!/usr/bin/env python3
"""Measures how ranks of one host list the same image folder: ranks_listing.py WORK [BIN] [COUNT]

Makes COUNT files (a million by default) in 1000 class folders below WORK, as hard links to 20 photographs, and removes them at the end.
Starts groups of 1, 2 and 4 ranks with one worker each for a batch of 32, in turn in the same run, on the host device. Prints a Markdown table:
time of the whole command, time to the slowest rank's first batch, processor time of all processes, and the memory of the ranks' indexes, each
counted once.
BIN is the folder of the programs, build/ci/bin by default.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time

from penstock_json import penstock_in, processor_seconds

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORK = os.path.realpath(sys.argv[1])
BIN = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else os.path.join(TOP, "build/ci/bin"))
penstock = penstock_in(BIN)
COUNT = int(sys.argv[3]) if len(sys.argv) > 3 else 1_000_000
ROUNDS, CLASSES, RANKS = 3, 1000, (1, 2, 4)

NAME = "ranks-listing"
CONFIG = """
name = "%s"
[dataset]
path = "%s"
[sampler]
batch_size = 32
[loader]
workers = 1
[gpu]
device = "host"
"""


def make_folder(folder):
    drawn, photos = os.path.join(folder, "drawn"), os.path.join(folder, "photos")
    subprocess.run([os.path.join(BIN, "penstock"), "sample-photos", drawn, "20"], check=True, capture_output=True)
    sources = [os.path.join(at, name) for at, _, names in os.walk(drawn) for name in names]
    for number in range(COUNT):
        place = os.path.join(photos, "class-%04d" % (number % CLASSES))
        if number < CLASSES:
            os.makedirs(place)
        os.link(sources[number // CLASSES % len(sources)], os.path.join(place, "%08d.jpg" % number))
    return photos


def group(config, ranks):
    """Seconds of the command, seconds to the slowest first batch, processor seconds."""
    before, begin = processor_seconds(), time.monotonic()
    report = penstock("launch", config, "--gpus", "host:%d" % ranks, "--batches", "1")
    taken, used = time.monotonic() - begin, processor_seconds() - before
    return taken, max(rank["totals"]["first_batch_seconds"] for rank in report["ranks"]), used


def indexes_of(pid):
    """Bytes of each index that the process has, by inode."""
    for fd in os.listdir("/proc/%d/fd" % pid):
        path = "/proc/%d/fd/%s" % (pid, fd)
        try:
            if "memfd:penstock-index" in os.readlink(path):
                yield os.stat(path).st_ino, os.stat(path).st_size
        except OSError:
            pass  # closed meanwhile


def index_bytes(config, ranks):
    """Bytes of the indexes of a group whose workers have started; the indexes are then complete."""
    group = subprocess.Popen([os.path.join(BIN, "penstock"), "launch", config, "--gpus", "host:%d" % ranks, "--set", "sampler.epochs=1000", "--quiet"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        subprocess.run([os.path.join(BIN, "penstock"), "wait", "--group", NAME, "--timeout", "60s"], check=True, capture_output=True)
        status = subprocess.run([os.path.join(BIN, "penstock"), "status", "--group", NAME, "--json"], check=True, capture_output=True)
        return sum(dict(index for rank in json.loads(status.stdout)["ranks"] for index in indexes_of(rank["status"]["pid"])).values())
    finally:
        group.terminate()
        group.wait()


def main():
    folder = os.path.join(WORK, "penstock-listing")
    os.mkdir(folder)
    try:
        config = os.path.join(folder, "config.toml")
        with open(config, "w") as file:
            file.write(CONFIG % (NAME, make_folder(folder)))
        group(config, 1)  # reads folders and inodes into memory
        rounds = [[group(config, ranks) for ranks in RANKS] for _ in range(ROUNDS)]
        indexes = [index_bytes(config, ranks) for ranks in RANKS]
        print("| ranks | command | slowest first batch | processor time | indexes | load average |")
        print("| --- | --- | --- | --- | --- | --- |")
        for ranks, values, size in zip(RANKS, zip(*rounds), indexes):
            print("| %d | %.2f s | %.2f s | %.2f s | %.0f MB | %.1f |" % (
                ranks, *map(statistics.median, zip(*values)), size / 1e6, os.getloadavg()[0]))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
