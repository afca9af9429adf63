#!/usr/bin/env python3
"""Measures the time to the first batch of datasets with ten million samples: first_batch.py [BIN] [WORKERS ...]

Writes 10 million samples of 8 bytes into one .npy file and 10 million sequences into a sparse token file, in a temporary folder. Runs one batch
of 32 with each number of workers (1, 4 and 16 by default), in turn in the same run, on the host device. Prints a Markdown table: the median
time from the session's start to its first batch, the range, and the ratio to the first number of workers (median over the
rounds). BIN is the folder of the programs, build/release/bin by default. Needs NumPy.
"""

import os
import statistics
import sys
import tempfile

import numpy

from penstock_json import penstock_in

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(TOP, "build/release/bin"))
penstock = penstock_in(BIN)
WORKERS = [int(number) for number in sys.argv[2:]] or [1, 4, 16]
SAMPLES, ROUNDS = 10_000_000, 31

CONFIG = """
[dataset]
path = "%s"
%s
[sampler]
batch_size = 32
[gpu]
device = "host"
"""


def first_batch(config, workers):
    report = penstock("run", config, "--batches", "1", "--workers", str(workers))
    assert report["epochs"][0]["expected"] >= SAMPLES, report["epochs"]
    return report["totals"]["first_batch_seconds"]


def main():
    with tempfile.TemporaryDirectory() as folder:
        array, tokens = os.path.join(folder, "a.npy"), os.path.join(folder, "a.bin")
        numpy.save(array, numpy.arange(SAMPLES)[:, None])
        with open(tokens, "wb") as file:
            file.truncate(2 * (64 * SAMPLES + 1))
        print("| dataset | workers | first batch | range | ratio | load average |")
        print("| --- | --- | --- | --- | --- | --- |", flush=True)
        for what, path, more in (("npy", array, 'type = "npy"'), ("tokens", tokens, 'type = "tokens"\ndtype = "uint16"\nsequence_length = 64')):
            config = os.path.join(folder, what + ".toml")
            with open(config, "w") as file:
                file.write(CONFIG % (path, more))
            rounds = [[first_batch(config, workers) for workers in WORKERS] for _ in range(ROUNDS)]
            for workers, times in zip(WORKERS, zip(*rounds)):
                ratio = statistics.median(time / one[0] for time, one in zip(times, rounds))
                print("| %s | %d | %.0f ms | %.0f to %.0f ms | %.2f | %.1f |" % (
                    what, workers, *(1e3 * value for value in (statistics.median(times), min(times), max(times))), ratio, os.getloadavg()[0]), flush=True)


if __name__ == "__main__":
    main()
