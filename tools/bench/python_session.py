#!/usr/bin/env python3
"""Compares C++ pipelines used from Python with `penstock run`: photographs, the same config, in turn.

    python_session.py [FOLDER] [--device host|cuda] [--workers 2] [--rounds 5] [--photos 2000] [--epochs 4]

FOLDER has photographs as tools/bench/make_photos.py makes them; without it Pillow draws some: 500 x 375, noise with large structures.
Samples per second come from the report's totals: `penstock run --json`, and session.report() after a loop that takes each batch as a
tensor of torch (of NumPy without it). The processor time covers all processes. The digests of a shorter run must be equal. Prints one
JSON object per measurement, then the ratio. Needs the package, its command on PATH or in PENSTOCK_BIN, and Pillow if there is no FOLDER.
"""

import argparse
import io
import json
import os
import random
import resource
import shutil
import statistics
import sys
import tempfile
import time

import penstock
from penstock_json import penstock_in

try:
    import torch
except ImportError:
    torch = None

CONFIG = """
[dataset]
path = "%s"
[loader]
workers = %d
[sampler]
batch_size = 32
epochs = %d
[gpu]
device = "%s"
"""


def draw(folder, count):
    from PIL import Image

    chance = random.Random(1)
    for number in range(count):
        small = Image.frombytes("RGB", (32, 24), chance.randbytes(32 * 24 * 3))
        out = io.BytesIO()
        small.resize((500, 375), Image.BICUBIC).save(out, "JPEG", quality=85)
        place = os.path.join(folder, "class%d" % (number % 4))
        os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, "%05d.jpg" % number), "wb") as file:
            file.write(out.getvalue())


def from_the_command(config, *options):
    return penstock_in(os.environ.get("PENSTOCK_BIN") or os.path.dirname(shutil.which("penstock")))("run", config, *options)


def from_python(config, **options):
    taken = 0
    with penstock.Session(config, **options) as session:
        for batch in session:
            image = batch["image"]
            view = image.torch() if torch is not None else image.numpy()
            taken += len(view)
        report = session.report()
    assert taken == report["totals"]["samples"], (taken, report["totals"])
    return report


def cpu_seconds():
    """CPU time of this process and of its descendants that have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--device", default="host")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--photos", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_RUNTIME_DIR"] = scratch
        folder = os.path.abspath(given.folder) if given.folder else os.path.join(scratch, "photos")
        if not given.folder:
            draw(folder, given.photos)
        config = os.path.join(scratch, "bench.toml")
        with open(config, "w") as file:
            file.write(CONFIG % (folder, given.workers, given.epochs, given.device))
        once = (from_the_command(config, "--epochs", "1", "--digest"), from_python(config, sampler={"epochs": 1}, digests=True))
        digests = [report["epochs"][0]["digest"] for report in once]
        print(json.dumps({"digests": digests, "equal": digests[0] == digests[1]}), flush=True)
        rates, used = {"penstock run": [], "python": []}, {"penstock run": [], "python": []}
        for _ in range(given.rounds):
            for kind, run in (("penstock run", from_the_command), ("python", from_python)):
                begin, cpu = time.monotonic(), cpu_seconds()
                totals = run(config)["totals"]
                rates[kind].append(totals["samples_per_second"])
                used[kind].append(1e6 * (cpu_seconds() - cpu) / totals["samples"])
                print(json.dumps({"kind": kind, "device": given.device, "workers": given.workers, "samples": totals["samples"],
                                  "samples_per_second": round(rates[kind][-1], 1), "cpu_us_per_sample": round(used[kind][-1]),
                                  "seconds": round(time.monotonic() - begin, 2)}), flush=True)
        pairs = [python / command for command, python in zip(rates["penstock run"], rates["python"])]
        medians = {kind: statistics.median(each) for kind, each in rates.items()}
        print(json.dumps({"device": given.device, "workers": given.workers, "medians": {k: round(v, 1) for k, v in medians.items()},
                          "ratio": round(medians["python"] / medians["penstock run"], 3), "median_of_pairs": round(statistics.median(pairs), 3),
                          "lowest": round(min(pairs), 3), "highest": round(max(pairs), 3),
                          "cpu_ratio": round(statistics.median(used["python"]) / statistics.median(used["penstock run"]), 3)}), flush=True)
    return 0 if digests[0] == digests[1] else 1


if __name__ == "__main__":
    sys.exit(main())
