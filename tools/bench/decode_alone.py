#!/usr/bin/env python3
"""A session compared with its own decoder in a bare loop: decode_alone.py FOLDER BIN [--device D] [--workers 1 8 16] [--rounds N]

Prints a Markdown table of photographs a second: of `penstock run`, counted from its first batch, and of the same number of
penstock-bench-decode-alone processes, which load the same samples without a session. Each round runs both in turn; the ratio
is the median of the rounds' ratios. BIN is the folder of the programs. Build penstock-bench-decode-alone first.
"""

import argparse
import os
import statistics
import subprocess
import tempfile

from penstock_json import penstock_in

CONFIG = """
[dataset]
path = "%s"
[sampler]
batch_size = 32
shuffle = false
epochs = %d
[image]
augment = "random-resized-crop"
[gpu]
device = "%s"
"""


def alone(binary, config, processes, seconds):
    started = [subprocess.Popen([binary, config, str(seconds), str(i), str(processes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
               for i in range(processes)]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    return sum(int(process.communicate()[0]) for process in started) / seconds


def session(penstock, config, workers, seconds, rate):
    """Photographs a second of a session. `rate`: the expected rate, so that the run takes about `seconds`."""
    report = penstock("run", config, "--workers", str(workers), "--batches", str(int(rate * seconds / 32)))
    totals = report["totals"]
    return (totals["samples"] - 32) / (totals["seconds"] - totals["first_batch_seconds"])


def main():
    options = argparse.ArgumentParser()
    options.add_argument("folder")
    options.add_argument("bin")
    options.add_argument("--device", default="host")
    options.add_argument("--workers", type=int, nargs="+", default=[1, 8, 16])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=5)
    options = options.parse_args()
    penstock = penstock_in(options.bin)
    binary = os.path.join(options.bin, "penstock-bench-decode-alone")
    print("| workers | penstock | bare loop | ratio |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_RUNTIME_DIR"] = scratch
        config = os.path.join(scratch, "bench.toml")
        with open(config, "w") as file:
            file.write(CONFIG % (os.path.abspath(options.folder), 100000, options.device))
        for workers in options.workers:
            rounds = []
            alone(binary, config, workers, 1)  # reads the files into the page cache
            for _ in range(options.rounds):
                bare = alone(binary, config, workers, options.seconds)
                rounds.append((session(penstock, config, workers, options.seconds, bare), bare))
            print("| %d | %.0f | %.0f | %.3f |" % (workers, statistics.median(a for a, _ in rounds), statistics.median(b for _, b in rounds),
                                                  statistics.median(a / b for a, b in rounds)), flush=True)


main()
