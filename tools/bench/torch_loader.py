#!/usr/bin/env python3
"""Compares penstock.torch.DataLoader with torch's own, in the same run. Prints one JSON object per measurement, then the ratios.

    torch_loader.py [tiny] [photos] [start] [--seconds 5] [--workers 2]
    torch_loader.py --gpu [--only-penstock] [--workers 8] [--seconds 8] [--rounds 2]

tiny: samples of 64 bytes, batches of 32. photos: a Pillow transform (decode a JPEG, resize, crop, to a float tensor), images and CPU
seconds. start: the time to the first batch. --gpu: 600 kB float32 samples sliced from an array in memory, batches of 32, to
the GPU,
compared with the best of torch with 4 to 16 workers and pin_memory; --only-penstock leaves torch out, to compare two builds in
turn. Needs only torch and penstock: no network, no files.
"""

import argparse
import io
import json
import os
import statistics
import time

import torch
import torch.utils.data

import penstock.torch


class Tiny(torch.utils.data.Dataset):
    def __init__(self, length):
        self.data = torch.zeros(1 << 16, 16, dtype=torch.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.data[index & 0xFFFF]


class Photos(torch.utils.data.Dataset):
    """JPEGs of 500 x 375, made of noise with large structures."""

    def __init__(self, length):
        from PIL import Image

        self.length = length
        self.files = []
        generator = torch.Generator().manual_seed(1)
        for _ in range(16):
            small = torch.randint(0, 256, (24, 32, 3), dtype=torch.uint8, generator=generator).numpy()
            out = io.BytesIO()
            Image.fromarray(small).resize((500, 375), Image.BICUBIC).save(out, "JPEG", quality=85)
            self.files.append(out.getvalue())

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        import random

        import numpy
        from PIL import Image

        with Image.open(io.BytesIO(self.files[index % len(self.files)])) as image:
            image = image.convert("RGB")
            left, top = random.randrange(0, 100), random.randrange(0, 75)
            image = image.crop((left, top, left + 400, top + 300)).resize((224, 224), Image.BILINEAR)
            array = numpy.asarray(image, dtype=numpy.float32)
        return torch.from_numpy(array).permute(2, 0, 1).div_(255.0), index % 1000


class Slices(torch.utils.data.Dataset):
    """600 kB float32 samples, each a slice of an array in memory."""

    SHAPE = (3, 224, 224)

    def __init__(self, length, different=256):
        self.data = torch.rand(different, *self.SHAPE)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.data[index % len(self.data)]


def cpu_seconds():
    """CPU time of this process and its children, running ones included."""
    total = 0.0
    for pid in [os.getpid(), *children_of(os.getpid())]:
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return total


def children_of(pid):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(name), *children_of(int(name))]
    return found


def all_begun(loader):
    """Whether all workers have started. penstock's workers start in two steps and import torch; torch's workers are forked."""
    workers = getattr(loader, "_workers", None)
    return workers is None or all(each["state"] == "ready" for each in workers.pool.status()["workers"])


def rate(loader, seconds, warm, move=None):
    """Batches per second, and CPU seconds per batch, once all workers have started."""
    taken, begin, cpu = 0, None, 0.0
    iterator = iter(loader)  # keeps its workers alive until their CPU time has been read
    for batch in iterator:
        if move is not None:
            batch = move(batch)
        taken += 1
        if begin is None:
            if taken >= warm and taken % 16 == 0 and all_begun(loader):
                begin, cpu, taken = time.perf_counter(), cpu_seconds(), 0
        elif time.perf_counter() - begin > seconds:
            break
    if move is not None:
        torch.cuda.synchronize()
    used, spent = time.perf_counter() - begin, cpu_seconds() - cpu
    del iterator
    return taken / used, spent / taken


def told(**facts):
    print(json.dumps(facts), flush=True)
    return facts


def compare(name, kinds, seconds, warm, rounds=2):
    """Measures each kind of loader twice, in turn; the better figure counts."""
    best = {}
    for _ in range(rounds):
        for kind, make in kinds.items():
            loader = make()
            batches, cpu = rate(loader, seconds, warm)
            del loader
            told(what=name, kind=kind, batches_per_second=round(batches, 1), cpu_us_per_batch=round(1e6 * cpu))
            if kind not in best or batches > best[kind][0]:
                best[kind] = (batches, cpu)
    for kind, (batches, cpu) in best.items():
        if kind != "torch":
            told(what=name, kind=kind, ratio=round(batches / best["torch"][0], 2), cpu_ratio=round(cpu / best["torch"][1], 2))


def starts(workers, rounds):
    """Median times from the loader's construction to the first batch, each kind in turn."""
    seconds = {}
    for _ in range(rounds):
        for kind, loader, options in (("torch, spawn", torch.utils.data.DataLoader, {"multiprocessing_context": "spawn"}),
                                      ("torch, fork", torch.utils.data.DataLoader, {"multiprocessing_context": "fork"}),
                                      ("penstock", penstock.torch.DataLoader, {})):
            begin = time.perf_counter()
            iterator = iter(loader(Tiny(1000), num_workers=workers, **options))
            next(iterator)
            seconds.setdefault(kind, []).append(time.perf_counter() - begin)
            del iterator
            told(what="start", kind=kind, workers=workers, seconds=round(seconds[kind][-1], 3))
    median = {kind: statistics.median(each) for kind, each in seconds.items()}
    for kind in ("torch, spawn", "torch, fork"):
        told(what="start", over=kind, workers=workers, ratio=round(median["penstock"] / median[kind], 2))


def on_the_host(given, what):
    ours, theirs = penstock.torch.DataLoader, torch.utils.data.DataLoader
    if "tiny" in what:
        options = {"batch_size": 32, "num_workers": given.workers}
        compare("tiny", {
            "torch": lambda: theirs(Tiny(1 << 26), **options),
            "penstock, seeds per sample": lambda: ours(Tiny(1 << 26), **options),
            "penstock, seeding=worker": lambda: ours(Tiny(1 << 26), seeding="worker", **options),
        }, given.seconds, 200, given.rounds)
    if "photos" in what:
        options = {"batch_size": 32, "num_workers": given.workers}
        compare("photos", {
            "torch": lambda: theirs(Photos(1_000_000), **options),
            "penstock": lambda: ours(Photos(1_000_000), pool={"loader": {"slot_bytes": "24MiB"}}, **options),
        }, given.seconds, 4, given.rounds)
    if "start" in what:
        starts(given.workers, given.rounds)


def on_the_gpu(given):
    device = torch.device("cuda")
    told(what="gpu", device=torch.cuda.get_device_name(), torch=torch.__version__, cores=len(os.sched_getaffinity(0)))
    size = 4 * 3 * 224 * 224 * 32
    best = {}

    def check(batch):
        expected = Slices(1).data.shape[1:]
        assert batch.device.type == "cuda" and batch.shape[1:] == expected and bool(torch.isfinite(batch).all())

    for turn in range(given.rounds):
        for workers in () if given.only_penstock else (4, 8, 12, 16):
            loader = torch.utils.data.DataLoader(Slices(1 << 24), batch_size=32, num_workers=workers, pin_memory=True, prefetch_factor=3)
            batches, _ = rate(loader, given.seconds, 2 * workers, lambda batch: batch.to(device, non_blocking=True))
            best["torch"] = max(best.get("torch", 0), batches * size / 1e9)
            told(what="gpu", kind="torch", workers=workers, GB_per_second=round(batches * size / 1e9, 2))
            del loader
        for seeding in ("sample", "worker"):
            loader = penstock.torch.DataLoader(Slices(1 << 24), batch_size=32, num_workers=given.workers, device="cuda", prefetch_factor=3,
                                               seeding=seeding, pool={"loader": {"slot_bytes": "24MiB", "slots_per_worker": 4}})
            if turn == 0:
                check(next(iter(loader)))
            batches, _ = rate(loader, given.seconds, 4 * given.workers, lambda batch: batch)
            best["penstock"] = max(best.get("penstock", 0), batches * size / 1e9)
            told(what="gpu", kind="penstock", workers=given.workers, seeding=seeding, GB_per_second=round(batches * size / 1e9, 2))
            del loader
    if given.only_penstock:
        return
    told(what="gpu", best_torch=round(best["torch"], 2), best_penstock=round(best["penstock"], 2), ratio=round(best["penstock"] / best["torch"], 2))
    if not given.no_starts:
        starts(16, given.rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="*", help="tiny, photos, start; default: all")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--no-starts", action="store_true", help="with --gpu: only the rates")
    parser.add_argument("--only-penstock", action="store_true", help="with --gpu: without torch's own loader")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    given.workers = given.workers or (8 if given.gpu else 2)
    torch.set_num_threads(1)
    told(torch=torch.__version__, cores=len(os.sched_getaffinity(0)), load=os.getloadavg()[0])
    if given.gpu:
        on_the_gpu(given)
    else:
        on_the_host(given, given.what or ["tiny", "photos", "start"])


if __name__ == "__main__":
    main()
