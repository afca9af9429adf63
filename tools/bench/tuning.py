#!/usr/bin/env python3
"""Measures [loader] workers = "auto".

Compares its rate, starting from 1 worker, with that of the best fixed number of workers. Then measures it with a consumer
that takes 2000 samples a second.

    tools/bench/make_photos.py FOLDER 2000 && tools/bench/tuning.py build/ci/bin FOLDER

Prints a line for each measurement, and at the end one JSON object. Needs nothing but the programs in BIN.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time

CONFIG = """
name = "tuning"
[dataset]
path = "{photos}"
[sampler]
batch_size = 64
epochs = 1000000
[gpu]
device = "{device}"
"""


class Bench:
    def __init__(self, options, folder):
        self.penstock = os.path.join(os.path.abspath(options.bin), "penstock")
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=folder)
        self.config = os.path.join(folder, "tuning.toml")
        with open(self.config, "w") as out:
            out.write(CONFIG.format(photos=os.path.abspath(options.photos), device=options.device))

    def ask(self, *words):
        done = subprocess.run([self.penstock, *words], env=self.environment, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else None

    def status(self):
        told = self.ask("status", "--json")
        return json.loads(told) if told else None

    def start(self, *words):
        process = subprocess.Popen([self.penstock, *words], env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            status = self.status()
            if status and status["batches_delivered"] > 0:
                return process
            time.sleep(0.05)
        process.kill()
        raise SystemExit("no batch within 60 s: " + " ".join(words))

    def rate_over(self, seconds):
        """Samples a second of the running session."""
        before, begun = self.status()["samples_delivered"], time.monotonic()
        time.sleep(seconds)
        return (self.status()["samples_delivered"] - before) / (time.monotonic() - begun)

    def stop(self, process):
        process.kill()
        process.wait()

    def fixed(self, workers, seconds):
        process = self.start("run", self.config, "--quiet", "--workers", str(workers))
        try:
            time.sleep(2)
            return self.rate_over(seconds)
        finally:
            self.stop(process)

    def tuned(self, settles, seconds):
        process = self.start("run", self.config, "--quiet", "--workers", "1")
        try:
            self.ask("scale", "auto")
            time.sleep(settles)
            rate = self.rate_over(seconds)
            return rate, self.status()["tuning"]
        finally:
            self.stop(process)

    def with_consumer(self, samples_per_second, seconds):
        step = "%gms" % (64e3 / samples_per_second)
        process = self.start("headroom", self.config, "--step", step, "--seconds", "%ds" % (3 * seconds))
        try:
            time.sleep(1.5 * seconds)  # skips headroom's first part, which repeats one batch
            rate = self.rate_over(seconds)
            return rate, self.status()["tuning"]
        finally:
            self.stop(process)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin")
    parser.add_argument("photos")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2, 4, 8, 12, 14, 15, 16])
    parser.add_argument("--seconds", type=float, default=8, help="length of each measurement")
    parser.add_argument("--consumer", type=float, default=2000, help="samples a second")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        rates = {}
        for count in options.counts:
            rates[count] = bench.fixed(count, options.seconds)
            print("%2d workers  %8.0f samples/s" % (count, rates[count]), flush=True)
        best = max(rates, key=rates.get)
        rate, tuning = bench.tuned(20, options.seconds)
        print("auto from 1, after 20 s: %.0f samples/s, %.3f of the best (%d workers)" % (rate, rate / rates[best], best))
        print("  %s workers: %s" % (tuning["workers"], tuning["why"]))
        slow, shrunk = bench.with_consumer(options.consumer, 20)
        need = next((count for count in sorted(rates) if rates[count] >= slow), None)
        print("a consumer of %.0f samples/s got %.0f with %s workers (needed: at most %s)" % (options.consumer, slow, shrunk["workers"], need))
        print("  %s" % shrunk["why"])
    print(json.dumps({"rates": rates, "best": best, "auto": rate, "ratio": rate / rates[best], "tuning": tuning, "consumer": shrunk}))


if __name__ == "__main__":
    main()
