"""The charts of docs/measurements.md, from figures in docs/benchmarks.md, and the README's chart, from
tools/bench/killed_worker.json. If docs/benchmarks.md lacks one of their figures, that is an error."""

import json
import os
import re

import svg

# name: (title, unit, [(label, pattern whose first group is the figure, colour)], note)
BARS = {
    "chart-photographs.svg": ("Photographs decoded, cropped and delivered", "images/s, 2 cores, no GPU", [
        ("penstock, 1 worker", r"images/s, 1 worker, compared with Pillow in 1 process \| 1.5 x \| (\d+) /", svg.BLUE),
        ("Pillow, 1 process", r"images/s, 1 worker, compared with Pillow in 1 process \| 1.5 x \| \d+ / (\d+)", svg.GREY),
        ("penstock, 2 workers", r"images/s, 2 workers, compared with Pillow in 2 processes \| 1.5 x \| (\d+) /", svg.BLUE),
        ("Pillow, 2 processes", r"images/s, 2 workers, compared with Pillow in 2 processes \| 1.5 x \| \d+ / (\d+)", svg.GREY),
    ], "500 x 375 JPEGs to 224 x 224 crops, batches of 32, medians of 5 rounds."),
    "chart-upload.svg": ("Batches from memory to one H200", "GB/s", [
        ("bare copies of pinned memory", r"bench upload 19.27 MB, memcpy, 8 workers \| [\d.]+ of ([\d.]+) GB/s", svg.GREY),
        ("penstock, 8 workers", r"bench upload 19.27 MB, memcpy, 8 workers \| ([\d.]+) of", svg.BLUE),
        ("torch DataLoader, best of 4 to 16", r"ours \(memcpy, best of 8 and 12 workers\) over PyTorch's best \| [\d.]+ / ([\d.]+) =", svg.ORANGE),
    ], "128 samples of 3 x 224 x 224 bytes, copied from memory by workers; torch with pin_memory."),
    "chart-tiny.svg": ("Samples of 64 bytes through a DataLoader", "batches/s, 2 workers", [
        ("penstock, seeding=\"worker\"", r"tiny, `seeding=\"worker\"` \| [\d, ]+ \| (\d+)", svg.BLUE),
        ("penstock, seeds per sample", r"tiny, seeds per sample \| [\d, ]+ \| (\d+)", svg.BLUE),
        ("torch", r"tiny, seeds per sample \| (\d+)", svg.ORANGE),
    ], "Batches of 32, torch 1.13, 2 cores; the first of the rounds in the lab notes."),
    "chart-jobs.svg": ("Jobs that do nothing", "jobs/s, 2 workers", [
        ("penstock", r"jobs that do nothing \| jobs/s \| (\d+) \| Ray", svg.BLUE),
        ("joblib", r"jobs that do nothing \| jobs/s \| 288573 \| joblib \| (\d+)", svg.GREY),
        ("concurrent.futures", r"jobs that do nothing \| jobs/s \| 288573 \| concurrent.futures \| (\d+)", svg.GREY),
        ("loky", r"jobs that do nothing \| jobs/s \| 288573 \| loky \| (\d+)", svg.GREY),
        ("Ray", r"jobs that do nothing \| jobs/s \| 288573 \| Ray \| (\d+)", svg.GREY),
    ], "2 cores, Python 3.11; joblib sends thousands of calls as one task, which fails as a whole."),
    "chart-megabyte.svg": ("Jobs of 1 MB in and 1 MB out", "jobs/s, 2 workers", [
        ("penstock", r"1 MB in, 1 MB out \| jobs/s \| (\d+) \| Ray", svg.BLUE),
        ("concurrent.futures", r"1 MB in, 1 MB out \| jobs/s \| 9470 \| concurrent.futures \| (\d+)", svg.GREY),
        ("loky", r"1 MB in, 1 MB out \| jobs/s \| 9470 \| loky \| (\d+)", svg.GREY),
        ("Ray", r"1 MB in, 1 MB out \| jobs/s \| 9470 \| Ray \| (\d+)", svg.GREY),
    ], "2 cores, Python 3.11."),
    "chart-recovery.svg": ("From a death until work resumes", "milliseconds, median", [
        ("a worker of a pool, killed", r"a replacement ready after a SIGKILL, p50 \| 15 ms \| ([\d.]+) ms", svg.BLUE),
        ("the GPU owner, killed (H200)", r"kill to uploading again p50 0\.(\d+) s", svg.BLUE),
    ], "The owner's time includes creating a CUDA context."),
    "chart-start.svg": ("To the first batch of a DataLoader", "seconds, 4 workers that import torch", [
        ("torch, spawn", r"\| first batch, seconds \| ([\d.]+) ", svg.ORANGE),
        ("penstock", r"\| first batch, seconds \|[^|]*\|[^|]*\| ([\d.]+) ", svg.BLUE),
    ], "2 cores; medians of 5 runs in turn. torch with fork needs 0.1 s, and cannot be used after CUDA."),
}


def all_of(top):
    """(name, text) of each chart."""
    with open(os.path.join(top, "docs", "benchmarks.md"), encoding="utf-8") as file:
        notes = file.read()
    for name, (title, unit, rows, note) in BARS.items():
        yield name, svg.bars(title, unit, [(label, figure(notes, name, pattern), colour) for label, pattern, colour in rows], note)
    recorded = os.path.join(top, "tools", "bench", "killed_worker.json")
    if os.path.exists(recorded):
        with open(recorded, encoding="utf-8") as file:
            yield "killed-worker.svg", killed_worker(json.load(file))


def figure(notes, name, pattern):
    match = re.search(pattern, notes)
    if not match:
        raise SystemExit(f"{name}: docs/benchmarks.md has no figure that matches {pattern}")
    value = float(match[1])
    return 10 * value if name == "chart-recovery.svg" and "0\\." in pattern else value  # the figure is in hundredths of a second, the chart in ms


def killed_worker(recorded):
    bucket = recorded["bucket_seconds"]
    looks = {"session": ("penstock.Session", svg.GREEN), "penstock": ("penstock.torch.DataLoader", svg.BLUE), "torch": ("torch DataLoader", svg.ORANGE)}
    series = []
    for kind, (label, colour) in looks.items():
        runs = [each[kind] for each in recorded["rounds"]]
        broken = any(run["error"] for run in runs)
        lasted = min(int(run["ended"] / bucket) for run in runs)
        points = [((i + 0.5) * bucket, sum(run["photographs"][i] for run in runs) / len(runs) / bucket) for i in range(lasted)]
        series.append((label, colour, points, "RuntimeError: the run is over" if broken else ""))
    note = (f"JPEGs, cropped, batches of {recorded['batch']}; {recorded['workers']} workers on {recorded['cores']} cores; torch "
            f"{recorded['torch'].partition('+')[0]}. Both DataLoaders: one dataset (Pillow). Session: C++. Mean of {len(recorded['rounds'])} rounds.")
    return svg.curves("Photographs per second while a worker is killed", note, "photographs/s", series, recorded["seconds"],
                      (recorded["killed_at"], "SIGKILL to one worker"))
