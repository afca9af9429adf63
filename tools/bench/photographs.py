#!/usr/bin/env python3
"""Photographs compared with Pillow: photographs.py FOLDER [BIN]

Prints a Markdown table: time to the first batch, private memory of a worker, CPU of a paused session, and images a second with 1
and 2 workers, compared with Pillow's own pipeline (decode, RandomResizedCrop 224 with BILINEAR, flip) in the same number of
processes, in turn in the same run. BIN is the folder of the programs, build/release/bin by default.
"""

import glob
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
from PIL import Image

from peer_loaders import crop_box
from penstock_json import penstock_in

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.abspath(sys.argv[1])
BIN = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else os.path.join(TOP, "build/release/bin"))
PENSTOCK = os.path.join(BIN, "penstock")
ROUNDS = 5

CONFIG = """
[dataset]
path = "%s"
[sampler]
batch_size = 32
epochs = %d
[gpu]
device = "host"
"""


def run(config, *options):
    return penstock_in(BIN)("run", config, *options)


def children(pid):
    return subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()


def name_of(pid):
    with open("/proc/%s/comm" % pid) as file:
        return file.read().strip()


def rss_anon(pid):
    with open("/proc/%s/status" % pid) as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("RssAnon"))


def cpu_seconds(pid):
    with open("/proc/%s/stat" % pid) as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def live_session(config):
    """Returns the memory in MiB of the largest worker while it loads, and the CPU share of the paused session with all
    its processes."""
    process = subprocess.Popen([PENSTOCK, "run", config, "--quiet", "--workers", "4"], stderr=subprocess.DEVNULL)
    subprocess.run([PENSTOCK, "wait", "--timeout", "10s"], check=True, capture_output=True)
    time.sleep(2)
    memory = max(rss_anon(pid) for pid in children(process.pid) if name_of(pid).startswith("penstock-work"))
    subprocess.run([PENSTOCK, "pause"], check=True, capture_output=True)
    time.sleep(2)
    everybody = [str(process.pid)] + children(process.pid)
    before = sum(map(cpu_seconds, everybody))
    time.sleep(10)
    share = (sum(map(cpu_seconds, everybody)) - before) / 10
    subprocess.run([PENSTOCK, "stop"], check=True, capture_output=True)
    process.wait()
    return memory, share


# ---- Pillow --------------------------------------------------------------------------------------------------


def pillow_worker(paths):
    draw = random.Random(len(paths))
    out = numpy.empty((224, 224, 3), numpy.uint8)
    for path in paths:
        image = Image.open(path).convert("RGB")
        image = image.resize((224, 224), Image.BILINEAR, box=crop_box(*image.size, draw))
        out[:] = numpy.asarray(image)


def pillow(paths, processes):
    parts = [paths[i::processes] for i in range(processes)]
    workers = [multiprocessing.Process(target=pillow_worker, args=(part,)) for part in parts]
    begin = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return len(paths) / (time.monotonic() - begin)


def main():
    paths = sorted(glob.glob(os.path.join(FOLDER, "*", "*.jpg")))
    size = sum(map(os.path.getsize, paths)) / len(paths)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_RUNTIME_DIR"] = scratch
        config = os.path.join(scratch, "bench.toml")
        with open(config, "w") as file:
            file.write(CONFIG % (FOLDER, 1))
        endless = os.path.join(scratch, "endless.toml")
        with open(endless, "w") as file:
            file.write(CONFIG % (FOLDER, 1000))
        run(config)  # reads the files into the page cache
        first = statistics.median(run(config, "--workers", "4", "--batches", "1")["totals"]["first_batch_seconds"] for _ in range(ROUNDS))
        memory, idle = live_session(endless)
        rows = []
        for workers in (1, 2):
            ours, theirs = [], []
            for _ in range(ROUNDS):
                report = run(config, "--workers", str(workers))
                ours.append(report["totals"]["samples_per_second"])
                theirs.append(pillow(paths, workers))
            rows.append((workers, statistics.median(ours), statistics.median(theirs)))
    print("%d photographs of 500 x 375, %.0f kB on average; batch 32; medians of %d rounds\n" % (len(paths), size / 1000, ROUNDS))
    print("| what | figure |\n| --- | --- |")
    print("| first batch, 4 workers | %.3f s |" % first)
    print("| private memory (RssAnon) of the largest of 4 workers | %.1f MiB |" % memory)
    print("| CPU of a paused session and its 4 workers | %.2f %% of a core |" % (100 * idle))
    for workers, ours, theirs in rows:
        print("| images/s, %d worker%s: penstock / Pillow in %d process%s | %.0f / %.0f = %.2f |" % (
            workers, "" if workers == 1 else "s", workers, "" if workers == 1 else "es", ours, theirs, ours / theirs))


main()
