#!/usr/bin/env python3
"""Measures how Python workers start: replacements, the first batch of many workers, and their private memory.

    tools/bench/python_workers.py [--python PYTHON] [--package PENSTOCK] [--rounds N] [--workers N ...]

Workers import torch and torchvision, because the dataset does. Each figure is taken in its own process; the loaders of a round run
in turn, in an order drawn from the seed.

  replacement   one worker gets SIGKILL: time until its replacement has delivered a batch (penstock by template, by exec)
  first batch   from DataLoader() to the first batch (torch by fork and spawn, penstock by template and exec), and the imports alone
  memory        private memory of a worker after 20 batches (Private_Clean and Private_Dirty)
"""

import argparse
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import time

IMPORTS = "import torch, torchvision"


def dataset():
    """The dataset. It is in another module, so that workers import that module and not this benchmark."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import python_workers_data
    return python_workers_data.Numbers()


def penstock_loader(method, workers):
    import penstock.torch
    return penstock.torch.DataLoader(dataset(), batch_size=4, num_workers=workers, pool={"loader": {"start_method": method}})


def torch_loader(method, workers):
    import torch
    return torch.utils.data.DataLoader(dataset(), batch_size=4, num_workers=workers, multiprocessing_context=method)


def loader_of(kind, workers):
    product, method = kind.split("-")
    return (penstock_loader if product == "penstock" else torch_loader)(method, workers)


# ---- one figure, in its own process ----------------------------------------------------------------------------------------

def first_batch(kind, workers):
    import torch  # noqa: F401 (as in a program that trains)
    import torchvision  # noqa: F401
    dataset()
    begun = time.perf_counter()
    batches = iter(loader_of(kind, workers))
    next(batches)
    return [time.perf_counter() - begun]


def replacement(kind, times):
    batches = iter(loader_of(kind, 1))
    seconds = []
    pid = int(next(batches)[0, 1])
    for _ in range(times):
        for _ in range(3):
            next(batches)
        os.kill(pid, signal.SIGKILL)
        begun = time.perf_counter()
        while (new := int(next(batches)[0, 1])) == pid:
            pass
        seconds.append(time.perf_counter() - begun)
        pid = new
    return seconds


def memory(kind, workers):
    batches = iter(loader_of(kind, workers))
    pids = {int(next(batches)[0, 1]) for _ in range(20 * workers)}
    found = []
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            facts = {line.split(":")[0]: line.split()[1] for line in file if ":" in line and line.rstrip().endswith("kB")}
        found.append((int(facts["Private_Clean"]) + int(facts["Private_Dirty"])) / 1024)
    return found


# ---- all of them -----------------------------------------------------------------------------------------------------------

def measured(o, what, kind, number):
    environment = dict(os.environ)
    if o.package:
        environment["PYTHONPATH"] = o.package
    done = subprocess.run([o.python, os.path.abspath(__file__), "--one", what, kind, str(number)], env=environment, stdout=subprocess.PIPE, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"{what}, {kind}: exit {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def imports(o):
    begun = time.perf_counter()
    subprocess.run([o.python, "-c", IMPORTS], check=True)
    return [time.perf_counter() - begun]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--package", help="the folder of penstock's package, such as build/ci/python")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--kills", type=int, default=20, help="of a round")
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    version = subprocess.run([o.python, "-c", IMPORTS + "; print('torch', torch.__version__ + ', torchvision', torchvision.__version__)"],
                             stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    print(f"{len(os.sched_getaffinity(0))} cores; Linux {platform.release()}; {version}; {o.rounds} rounds; median, minimum and maximum")
    rows = [("replacement", kind, o.kills if kind == "penstock-template" else 3, "ms", 1e3) for kind in ("penstock-template", "penstock-exec")]
    for workers in o.workers:
        rows += [("first_batch", kind, workers, "s", 1) for kind in ("torch-fork", "torch-spawn", "penstock-template", "penstock-exec")]
    rows += [("memory", kind, 2, "MiB", 1) for kind in ("penstock-template", "penstock-exec")]
    found = {row: [] for row in rows}
    alone = []
    order = random.Random(o.seed)
    for _ in range(o.rounds):
        alone += imports(o)
        for row in order.sample(rows, len(rows)):
            found[row] += measured(o, *row[:3])
    print("| what | kind | number | |\n| --- | --- | --- | --- |")
    print(f"| {IMPORTS} | | | {statistics.median(alone):.2f} s ({min(alone):.2f} to {max(alone):.2f}) |")
    for (what, kind, number, unit, factor), values in found.items():
        values = [factor * each for each in values]
        print(f"| {what.replace('_', ' ')} | {kind} | {number} | {statistics.median(values):.3g} {unit} ({min(values):.3g} to {max(values):.3g}) |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        result = globals()[sys.argv[2]](sys.argv[3], int(sys.argv[4]))
        print(json.dumps(result), flush=True)
        os._exit(0)
    main()
