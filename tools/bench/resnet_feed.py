#!/usr/bin/env python3
"""Compares a ResNet-18 trained in PyTorch from JPEG files with the same steps on one batch that stays on the GPU, in one run.

    resnet_feed.py FOLDER [--workers 16] [--batch 256] [--seconds 8] [--decoders cpu,gpu,hybrid]

FOLDER has a folder of JPEGs for each class. Measures each decoder between two measurements of the cached batch. Prints
one JSON object per decoder: images per second of the feed, of the cached batch, and their ratio. float16 weights,
channels last, SGD. Needs torch, torchvision, a GPU and the package.
"""

import argparse
import json
import os
import tempfile
import time

import torch
import torchvision

import penstock

CONFIG = """
[dataset]
path = "%s"
[loader]
workers = %d
[sampler]
batch_size = %d
epochs = 100000
[gpu]
device = "cuda"
layout = "nhwc"
[image]
decoder = "%s"
"""


class Training:
    def __init__(self):
        self.model = torchvision.models.resnet18().cuda().half().to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)

    def step(self, images, labels):
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(self.model(images.permute(0, 3, 1, 2)).float(), labels)
        loss.backward()
        self.optimizer.step()

    def rate(self, batches, seconds):
        """Images a second over the batches, an endless iterator of (images, labels)."""
        torch.cuda.synchronize()
        begun, taken = time.monotonic(), 0
        for images, labels in batches:
            self.step(images, labels)
            taken += len(images)
            if time.monotonic() - begun >= seconds:
                torch.cuda.synchronize()
                return taken / (time.monotonic() - begun)
        raise RuntimeError("the batches ended")


def tensors(session):
    for batch in session:
        yield batch["image"].torch(), batch["label"].torch().long()


def again(batch):
    while True:
        yield batch


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--decoders", default="cpu,gpu,hybrid")
    given = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    training = Training()
    with tempfile.TemporaryDirectory() as folder:
        for decoder in given.decoders.split(","):
            config = os.path.join(folder, "feed.toml")
            with open(config, "w") as out:
                out.write(CONFIG % (os.path.abspath(given.folder), given.workers, given.batch, decoder))
            with penstock.Session(config) as session:
                feed = tensors(session)
                kept = tuple(t.clone() for t in next(feed))
                training.rate(feed, 4)  # the first epochs fill the caches and let the GPU's clocks settle
                session.pause()
                before = training.rate(again(kept), given.seconds)
                session.resume()
                training.rate(feed, 1)
                fed = training.rate(feed, given.seconds)
                limits = session.status().get("limits")
                session.pause()
                training.rate(again(kept), 1)
                after = training.rate(again(kept), given.seconds)
            cached = max(before, after)
            print(json.dumps({"decoder": decoder, "feed": round(fed), "cached": round(cached), "cached_before": round(before),
                              "cached_after": round(after), "ratio": round(fed / cached, 3), "limits": limits}), flush=True)


main()
