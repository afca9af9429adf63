#!/usr/bin/env python3
"""Compares pools of jobs: penstock, concurrent.futures, loky, joblib, Ray, and GNU parallel.

    tools/bench/jobs.py BIN [--python PYTHON] [--rounds N] [--only ROW ...] [--json FILE]

BIN has penstock, penstock-worker and penstock-bench-jobs of a Release build. PYTHON provides the competitors from PyPI;
without it, the newest loky, joblib and Ray are installed into a virtual environment in a temporary folder. GNU parallel is
Debian's package "parallel". Missing pools are left out.

In each round every pool does the same work with two workers. The pools run one after the other,
in an order drawn from the seed. A ratio is ours over theirs, the median over the rounds.
"""

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

WORKERS = 2
MEGABYTE = 1_000_000
AHEAD = 16  # number of large jobs in progress at a time

# Jobs per round: about a second for each pool.
JOBS = {"empty": {"penstock": 100_000, "concurrent.futures": 10_000, "loky": 5_000, "joblib": 20_000, "ray": 200},
        "round-trip": {"penstock": 10_000, "concurrent.futures": 3_000, "loky": 2_000, "ray": 100},
        "megabyte": {"penstock": 1_000, "concurrent.futures": 500, "loky": 500, "ray": 30},
        "command": {"penstock": 10_000, "parallel": 10_000}}
BARS = {("empty", "loky"): 10, ("empty", "concurrent.futures"): 4, ("megabyte", "loky"): 5, ("command", "parallel"): 3}
UNITS = {"empty": "jobs/s", "round-trip": "us, median", "megabyte": "jobs/s", "command": "jobs/s"}
TITLES = {"empty": "jobs that do nothing", "round-trip": "one job at a time",
          "megabyte": "1 MB in, 1 MB out", "command": "the command `true`"}


# ---- the competitors, in a separate process and Python ------------------------------------------------------------


def nothing():
    pass


def echo(data):
    return bytes(memoryview(data))


class Executor:
    """concurrent.futures and loky have the same interface."""

    def __init__(self, executor):
        self.executor = executor

    def warm_up(self):
        for future in [self.executor.submit(nothing) for _ in range(200)]:
            future.result()

    def submit(self, function, *arguments):
        return self.executor.submit(function, *arguments)

    def result(self, future):
        return future.result()

    def close(self):
        self.executor.shutdown()


class Joblib:
    """joblib has no futures: it maps a function, and bundles small jobs itself."""

    def warm_up(self):
        self.empty(2_000)

    def empty(self, count):
        from joblib import Parallel, delayed
        Parallel(n_jobs=WORKERS)(delayed(nothing)() for _ in range(count))

    def close(self):
        pass


class Ray:
    def __init__(self):
        import ray
        self.ray = ray
        ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="error")
        self.remote = {function: ray.remote(function) for function in (nothing, echo)}

    def warm_up(self):
        self.ray.get([self.remote[nothing].remote() for _ in range(500)])

    def submit(self, function, *arguments):
        return self.remote[function].remote(*arguments)

    def result(self, reference):
        return self.ray.get(reference)

    def close(self):
        self.ray.shutdown()


def competitor_named(name):
    if name == "concurrent.futures":
        from concurrent.futures import ProcessPoolExecutor
        return Executor(ProcessPoolExecutor(WORKERS))
    if name == "loky":
        from loky import ProcessPoolExecutor
        return Executor(ProcessPoolExecutor(WORKERS))
    return Joblib() if name == "joblib" else Ray()


def competitor_main(name, row, count):
    pool = competitor_named(name)
    pool.warm_up()
    begun = time.perf_counter()
    if row == "empty" and isinstance(pool, Joblib):
        pool.empty(count)
    elif row == "empty":
        for future in [pool.submit(nothing) for _ in range(count)]:
            pool.result(future)
    elif row == "megabyte":
        data = b"\1" * MEGABYTE
        waiting = []
        for _ in range(count):
            waiting.append(pool.submit(echo, data))
            if len(waiting) == AHEAD:
                assert len(pool.result(waiting.pop(0))) == MEGABYTE
        for future in waiting:
            pool.result(future)
    else:
        times = []
        data = b"x" * 64
        for _ in range(count):
            at = time.perf_counter()
            pool.result(pool.submit(echo, data))
            times.append(time.perf_counter() - at)
        print(json.dumps({"value": statistics.median(times) * 1e6}))
        return pool.close()
    print(json.dumps({"value": count / (time.perf_counter() - begun)}))
    pool.close()


# ---- one measurement -----------------------------------------------------------------------------------------------


def output_of(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError("%s: exit %d: %s" % (" ".join(command), done.returncode, done.stderr[-500:]))
    return done.stdout


def seconds_of(command, lines):
    begun = time.perf_counter()
    done = subprocess.run(command, input=lines, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=600)
    if done.returncode != 0:
        raise RuntimeError("%s: exit %d: %s" % (" ".join(command), done.returncode, done.stderr[-500:]))
    return time.perf_counter() - begun


def measure(row, pool, o):
    count = max(1, int(JOBS[row][pool] * o.scale))
    if row == "command":
        lines = b"".join(b"%d\n" % i for i in range(count))
        command = (["parallel", "--will-cite", "-j", str(WORKERS), "true"] if pool == "parallel" else
                   [os.path.join(o.bin, "penstock"), "map", "--command", "true", "--workers", str(WORKERS), "--quiet"])
        return count / seconds_of(command, lines)
    if pool == "penstock":
        told = json.loads(output_of([os.path.join(o.bin, "penstock-bench-jobs"), row, "--workers", str(WORKERS), "--jobs", str(count)]))
        return told["p50_us"] if row == "round-trip" else told["jobs_per_second"]
    told = output_of([o.python, os.path.abspath(__file__), "--competitor", pool, row, str(count)])
    return json.loads(told.splitlines()[-1])["value"]


def ratio(row, ours, theirs):
    return theirs / ours if row == "round-trip" else ours / theirs


# ---- all of them ---------------------------------------------------------------------------------------------------


def version_of(python, package):
    code = "import importlib.metadata as m; print(m.version(%r))" % package
    done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def competitors_there(o):
    there = {"concurrent.futures": "Python " + output_of([o.python, "-c", "import platform; print(platform.python_version())"]).strip()}
    for package in ("loky", "joblib", "ray"):
        version = version_of(o.python, package)
        if version:
            there[package] = "%s %s" % (package, version)
    if shutil.which("parallel"):
        there["parallel"] = output_of(["parallel", "--version"]).splitlines()[0]
    return there


def processor():
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return "%d x %s" % (len(os.sched_getaffinity(0)), models[0] if models else platform.machine())


def make_environment(folder):
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = os.path.join(folder, "bin", "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "loky", "joblib"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "ray"], check=False)  # Ray is not available for every Python
    return python


def run_rounds(o, there):
    order = random.Random(o.seed)
    found = {}
    for row in o.only or list(JOBS):
        pools = [pool for pool in JOBS[row] if pool == "penstock" or pool in there]
        for number in range(o.rounds):
            order.shuffle(pools)
            for pool in pools:
                try:
                    value = measure(row, pool, o)
                except (RuntimeError, subprocess.TimeoutExpired) as why:
                    print("%s, %s: left out: %s" % (row, pool, why), file=sys.stderr)
                    there.pop(pool, None)
                    pools = [one for one in pools if one != pool]
                    continue
                found.setdefault(row, {}).setdefault(pool, []).append(value)
                print("round %d of %d  %-10s %-18s %10.1f" % (number + 1, o.rounds, row, pool, value), file=sys.stderr)
    return found


def table_of(found):
    lines = ["| what | unit | penstock | compared with | | ratio | bar |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for row, by_pool in found.items():
        ours = by_pool["penstock"]
        for pool, theirs in sorted(by_pool.items()):
            if pool == "penstock":
                continue
            # Compare within a round: a noisy minute slows both.
            median = statistics.median(ratio(row, a, b) for a, b in zip(ours, theirs))
            bar = BARS.get((row, pool))
            lines.append("| %s | %s | %.0f | %s | %.0f | %.1f x | %s |" % (
                TITLES[row], UNITS[row], statistics.median(ours), pool, statistics.median(theirs), median,
                "" if bar is None else "%d x: %s" % (bar, "met" if median >= bar else "MISSED")))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin")
    parser.add_argument("--python", help="an interpreter that has loky, joblib and ray")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="run this share of the usual number of jobs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=list(JOBS))
    parser.add_argument("--json", help="write all values into this file")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        needs_python = any(row != "command" for row in o.only or JOBS)
        if not o.python:
            o.python = make_environment(folder) if needs_python else sys.executable
        there = competitors_there(o)
        versions = dict(there)
        found = run_rounds(o, there)
    facts = {"processor": processor(), "kernel": platform.release(), "versions": versions, "workers": WORKERS,
             "rounds": o.rounds, "seed": o.seed, "jobs": {row: {p: max(1, int(JOBS[row][p] * o.scale)) for p in by} for row, by in found.items()}}
    print("%s; Linux %s; %s; %d rounds, seed %d\n" % (facts["processor"], facts["kernel"], ", ".join(versions.values()), o.rounds, o.seed))
    print(table_of(found))
    if o.json:
        with open(o.json, "w") as file:
            json.dump({**facts, "values": found}, file, indent=1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--competitor"]:
        # Imported by name: loky sends functions of __main__ again with each job.
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        import jobs
        jobs.competitor_main(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
