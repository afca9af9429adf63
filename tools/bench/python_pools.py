#!/usr/bin/env python3
"""Compares pools in Python: penstock.Pool, concurrent.futures and loky; NumPy arrays in and out, empty jobs (of an imported function, and of
one that the script itself defines), and a map of them in chunks of 100.

    tools/bench/python_pools.py [--python PYTHON] [--rounds N] [--only ROW ...] [NAME=PACKAGE ...]

NAME=PACKAGE adds a penstock from this folder (PYTHONPATH: build/release/python), so that two builds can be compared in
one run; without one, PYTHON's own penstock is used. loky is left out if it is missing.

In each round every pool does the same work with two workers. The pools run one after
the other, in an order drawn from the seed. A ratio is the median over the rounds.
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time

WORKERS = 2
AHEAD = 16  # number of jobs in progress at a time
SIZES = {"64 KiB": 64 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20}
JOBS = {"64 KiB": 4000, "1 MiB": 1000, "16 MiB": 60, "empty": 10_000, "script": 10_000, "map": 300_000}


def nothing(_=None):
    pass


def add_one(array):
    return array + 1


def executor_of(name):
    if name == "concurrent.futures":
        from concurrent.futures import ProcessPoolExecutor
        return ProcessPoolExecutor(WORKERS)
    if name == "loky":
        from loky import ProcessPoolExecutor
        return ProcessPoolExecutor(WORKERS)
    import penstock
    return penstock.Pool(WORKERS, control_socket=False)


def competitor_main(name, row, count):
    import numpy
    pool = executor_of(name)
    array = numpy.ones(SIZES[row] // 8) if row in SIZES else None
    empty = sys.modules["__main__"].nothing if row == "script" else nothing

    def turn(times):
        if row == "map":
            assert sum(1 for _ in pool.map(nothing, range(times), chunksize=100)) == times
            return
        waiting = []
        for number in range(times):
            waiting.append(pool.submit(empty) if array is None else pool.submit(add_one, array))
            if len(waiting) == (1000 if array is None else AHEAD):
                taken = waiting.pop(0).result()
                assert taken is None if array is None else taken[-1] == 2
        for future in waiting:
            future.result()
    turn(max(count // 10, 2 * AHEAD))
    begun = time.perf_counter()
    turn(count)
    print(json.dumps(count / (time.perf_counter() - begun)))
    pool.shutdown()


def measured(o, pool, row):
    environment = dict(os.environ)
    if pool in o.packages:
        environment["PYTHONPATH"] = o.packages[pool]
    count = max(1, int(JOBS[row] * o.scale))
    done = subprocess.run([o.python, "-P", os.path.abspath(__file__), "--competitor", pool, row, str(count)], env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit("%s, %s: exit %d\n%s" % (pool, row, done.returncode, done.stderr[-2000:]))
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*", metavar="NAME=PACKAGE")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="run this share of the usual number of jobs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=list(JOBS))
    o = parser.parse_args()
    o.packages = dict(each.split("=", 1) for each in o.packages) or {"penstock": os.environ.get("PYTHONPATH", "")}
    pools = [*o.packages, "concurrent.futures"]
    if subprocess.run([o.python, "-c", "import loky"], stderr=subprocess.DEVNULL).returncode == 0:
        pools.append("loky")
    order = random.Random(o.seed)
    print("%d cores; Linux %s; Python %s; %d rounds" % (
        len(os.sched_getaffinity(0)), platform.release(), platform.python_version(), o.rounds))
    print("| jobs/s | %s |" % " | ".join(pools))
    print("| --- |%s" % (" --- |" * len(pools)))
    for row in o.only or JOBS:
        found = {pool: [] for pool in pools}
        for _ in range(o.rounds):
            for pool in order.sample(pools, len(pools)):
                found[pool].append(measured(o, pool, row))
        standard = found["concurrent.futures"]
        print("| %s | %s |" % (row, " | ".join("%.0f (%.2f x)" % (
            statistics.median(found[pool]), statistics.median(a / b for a, b in zip(found[pool], standard))) for pool in pools)), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--competitor"]:
        # Imported by name: loky and penstock send functions of __main__ by value, with each job.
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        import python_pools
        python_pools.competitor_main(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
