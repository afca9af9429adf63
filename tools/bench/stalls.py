#!/usr/bin/env python3
"""What late samples cost a stream of 8 workers: 0.2 % of reads stall for 2 s, or 5 % of samples take 20 times as long.

    tools/bench/stalls.py build/ci/bin [--batches N] [--batch-size N] [--slots N] [--rounds N] [--only stalls|steps|tails]

Samples sleep, so two cores are enough for 8 workers. Under "stalls" and "tails" a batch takes 800 ms, and the workers limit the
stream; under "steps" it takes 80 ms, and a device program that takes 20 ms for each batch limits it to half of what the workers
could load. Prints a line for each run, and at the end one JSON object. Rates leave out the time to the first batch. Needs
penstock, stalling_worker and slow_program.so in BIN.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

CONFIG = """
name = "stalls"
[dataset]
type = "custom"
[dataset.options]
folder = "{folder}"
samples = "{samples}"
wait_us = "{wait_us}"
{options}
[sampler]
batch_size = {batch_size}
[loader]
command = ["{worker}"]
workers = 8
slots_per_worker = {slots}
{loader}
[gpu]
device = "host"
{scheduler}
"""
STALLS = 'stall_every = "500"\nstall = "2"'
RELAXED = '[scheduler]\norder = "relaxed"\nwindow = 64'


class Bench:
    def __init__(self, options):
        self.bin = os.path.abspath(options.bin)
        self.batches, self.batch_size, self.slots = options.batches, options.batch_size, options.slots

    def rate(self, batch_ms=800.0, options="", loader="", scheduler="", sink="null", batches=1):
        """Samples a second, and the hedges of the run."""
        with tempfile.TemporaryDirectory(prefix="penstock-stalls-") as folder:
            config = os.path.join(folder, "stalls.toml")
            with open(config, "w") as out:
                out.write(CONFIG.format(folder=folder, samples=self.batch_size * self.batches * batches, batch_size=self.batch_size, slots=self.slots,
                                        wait_us=round(1000 * batch_ms / self.batch_size), options=options, loader=loader, scheduler=scheduler,
                                        worker=os.path.join(self.bin, "stalling_worker")))
            done = subprocess.run([os.path.join(self.bin, "penstock"), "run", config, "--json", "--quiet", "--sink", sink],
                                  env=dict(os.environ, XDG_RUNTIME_DIR=folder, PENSTOCK_TEST_STEP_MS="20"), capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(done.stderr)
            report = json.loads(done.stdout)
            return report["totals"]["samples"] / (report["totals"]["seconds"] - report["totals"]["first_batch_seconds"]), report["hedges"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--slots", type=int, default=3, help="slots of each worker (slots_per_worker)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=("stalls", "steps", "tails"))
    options = parser.parse_args()
    bench = Bench(options)
    stalls = [("none", {}), ("strict", {"options": STALLS}), ("strict, hedge", {"options": STALLS, "loader": "hedge = true"}),
              ("relaxed", {"options": STALLS, "scheduler": RELAXED}),
              ("relaxed, hedge", {"options": STALLS, "loader": "hedge = true", "scheduler": RELAXED})]
    steps = {"batch_ms": 80, "sink": "plugin:" + os.path.join(bench.bin, "slow_program.so"), "batches": 4}
    # 95 of 100 samples take 1 / 1.95 of the mean time, the others 20 times as long.
    cases = {"stalls": stalls, "steps": [(name, {**settings, **steps}) for name, settings in stalls],
             "tails": [("none", {}), ("strict", {"batch_ms": 800 / 1.95, "options": 'slow_every = "20"\nslow_factor = "20"'})]}
    found = {}
    for group, runs in cases.items():
        if options.only not in (None, group):
            continue
        rates = {name: [] for name, _ in runs}
        for _ in range(options.rounds):
            for name, settings in runs:
                rate, hedges = bench.rate(**settings)
                rates[name].append(rate)
                print("%-8s %-16s %7.2f samples/s  %.3f of none  hedges %d, won %d" % (
                    group, name, rate, rate / rates["none"][-1], hedges["started"], hedges["won"]), flush=True)
        found[group] = {name: round(statistics.median(r / n for r, n in zip(rates[name], rates["none"])), 3) for name, _ in runs}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
