#!/usr/bin/env python3
"""PyTorch's DataLoader on the payload of `penstock bench upload --fill memcpy`: batches of 128 samples of 3 x 224 x 224 bytes,
copied from memory by worker processes, pinned, copied to the GPU. Prints one JSON object: bytes a second for each number of
workers and the best of them.

    pytorch_dataloader.py [--workers 4,8,12,16] [--seconds 3]
"""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset

SHAPE = (3, 224, 224)
BATCH = 128
SAMPLES = 1 << 20


class Copies(Dataset):
    """Each sample is copied from a buffer, like in an in-memory dataset."""

    def __init__(self):
        self.source = torch.randint(0, 256, (64, *SHAPE), dtype=torch.uint8)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.source[index % len(self.source)].clone()


def measure(workers, seconds, device):
    loader = DataLoader(Copies(), batch_size=BATCH, num_workers=workers, pin_memory=device.type == "cuda", prefetch_factor=3)
    batches = iter(loader)

    def take(until):
        taken = 0
        while time.monotonic() < until:
            batch = next(batches).to(device, non_blocking=True)
            taken += batch.numel()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return taken

    take(time.monotonic() + max(1.0, seconds / 3))
    begin = time.monotonic()
    taken = take(begin + seconds)
    rate = taken / (time.monotonic() - begin)
    del batches, loader
    return rate


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", default="4,8,12,16")
    parser.add_argument("--seconds", type=float, default=3)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.zeros(1, device=device)
    rates = {workers: measure(workers, given.seconds, device) for workers in map(int, given.workers.split(","))}
    best = max(rates, key=rates.get)
    print(json.dumps({"torch": torch.__version__, "device": device.type, "batch": BATCH, "shape": SHAPE,
                      "bytes_per_second": rates, "best_workers": best, "best_bytes_per_second": rates[best]}))


if __name__ == "__main__":
    main()
