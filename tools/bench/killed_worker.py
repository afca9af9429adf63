#!/usr/bin/env python3
"""Photographs a second while a worker is killed: torch's DataLoader, penstock's with the same dataset, and a session of penstock.

    killed_worker.py PHOTOS [--workers 2] [--seconds 12] [--kill 5] [--rounds 3] [--out tools/bench/killed_worker.json]

PHOTOS: a folder of class folders with JPEGs (penstock-sample-photos makes one). Each loader decodes them, crops at random to
224 x 224 and delivers batches of 32 for some seconds; after --kill seconds one worker gets SIGKILL. Loaders run in turn, each in its own
process. Writes what was delivered in each half second of each round; tools/pictures draws the means. Needs penstock's package, torch,
Pillow and NumPy.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BATCH = 32
BUCKET = 0.5
WARM_UP = 5.0


# ---- one loader, in its own process ---------------------------------------------------------------------------------

class Folder:
    """The dataset that both DataLoaders use: Pillow decodes, crops and resizes."""

    def __init__(self, path):
        self.files = sorted(os.path.join(at, name) for at, _, names in os.walk(path) for name in names)

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        import random

        import numpy
        import torch
        from PIL import Image

        with Image.open(self.files[index % len(self.files)]) as image:
            width, height = image.size
            scale = random.uniform(0.3, 1.0)
            w, h = int(width * scale), int(height * scale)
            left, top = random.randrange(width - w + 1), random.randrange(height - h + 1)
            pixels = numpy.array(image.convert("RGB").resize((224, 224), Image.BILINEAR, box=(left, top, left + w, top + h)))
        return torch.from_numpy(pixels), index


def a_worker_of_penstock():
    for pid in subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True).stdout.split():
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if b"penstock.worker" in file.read():
                return int(pid)
    raise RuntimeError("there is no worker")


def deliver(batches, worker_of, seconds, kill):
    """Waits WARM_UP seconds for all workers to start, then takes batches for `seconds`; kills a worker after `kill`
    seconds."""
    begin = time.monotonic() + WARM_UP
    while time.monotonic() < begin:
        next(batches)
    begin = time.monotonic()
    timer = threading.Timer(kill, lambda: os.kill(worker_of(), signal.SIGKILL))
    timer.start()
    counts, error = [0] * round(seconds / BUCKET), None
    ended = seconds
    while True:
        try:
            rows = next(batches)
        except Exception as failure:  # the error that a training program would get
            error, ended = f"{type(failure).__name__}: {failure}".split("\n")[0], time.monotonic() - begin
            break
        now = time.monotonic() - begin
        if now >= seconds:
            break
        counts[int(now / BUCKET)] += rows
    timer.cancel()
    return {"photographs": counts, "ended": round(ended, 3), "error": error}


def one(kind, photos, workers, seconds, kill):
    if kind == "session":
        import penstock

        with penstock.Session(os.path.join(TOP, "examples", "photos.toml"), dataset={"path": photos}, loader={"workers": workers},
                              sampler={"batch_size": BATCH, "epochs": 100000}, gpu={"device": "host"}) as session:
            pid = lambda: session.status()["workers"][0]["pid"]
            return deliver((batch.rows for batch in session), pid, seconds, kill)
    if kind == "penstock":
        from penstock.torch import DataLoader
    else:
        from torch.utils.data import DataLoader
    loader = DataLoader(Folder(photos), batch_size=BATCH, shuffle=True, num_workers=workers)
    batches = iter(loader)
    pid = lambda: batches._workers[0].pid if kind == "torch" else a_worker_of_penstock()
    result = deliver((len(labels) for _, labels in batches), pid, seconds, kill)
    print(json.dumps(result), flush=True)
    os._exit(0)  # torch's iterator would wait for the dead worker


# ---- all of them -----------------------------------------------------------------------------------------------------

def version_of_torch():
    return subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("photos")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--kill", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", default=os.path.join(TOP, "tools/bench/killed_worker.json"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one, given.photos, given.workers, given.seconds, given.kill)))
        return
    result = {"bucket_seconds": BUCKET, "workers": given.workers, "seconds": given.seconds, "killed_at": given.kill, "batch": BATCH,
              "cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), "torch": version_of_torch(), "rounds": []}
    for _ in range(given.rounds):
        loaders = {}
        for kind in ("torch", "penstock", "session"):
            with tempfile.TemporaryDirectory() as scratch:
                done = subprocess.run([sys.executable, __file__, given.photos, "--one", kind, "--workers", str(given.workers),
                                       "--seconds", str(given.seconds), "--kill", str(given.kill)], stdout=subprocess.PIPE, text=True, check=True,
                                      env={**os.environ, "XDG_RUNTIME_DIR": scratch})
            loaders[kind] = json.loads(done.stdout.splitlines()[-1])
            print(kind, done.stdout.splitlines()[-1])
        result["rounds"].append(loaders)
    with open(given.out, "w") as file:
        json.dump(result, file)
        file.write("\n")


if __name__ == "__main__":
    main()
