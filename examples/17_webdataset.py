"""Trains on WebDataset shards: tar files with pictures and their classes, shuffled, through penstock's DataLoader.

    python 17_webdataset.py 'shards/train-{000000..000099}.tar'      in each: 0001.jpg, 0001.cls, 0002.jpg, 0002.cls, ...
    torchrun --nproc_per_node 4 17_webdataset.py ...                 each rank reads its part of the shards

Needs torch, torchvision and webdataset. There must be a shard for each worker of each rank.

A worker that dies is replaced, and its replacement reads the same shards again. It must shuffle them in the same way, so the shuffles
get the worker's seed, which changes with each epoch. (Without a seed, webdataset takes the time of day.)
"""

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch
import torchvision
import webdataset
from torchvision import transforms

from penstock.torch import DataLoader


class Shards(torch.utils.data.IterableDataset[tuple[torch.Tensor, int]]):
    """The pictures of this worker's shards, in a different order in each epoch."""

    def __init__(self, urls: str, size: int) -> None:
        self.urls = urls
        self.transform = transforms.Compose([transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor()])

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        worker = torch.utils.data.get_worker_info()
        assert worker is not None, "num_workers must be 1 or more"
        stream = webdataset.WebDataset(self.urls, shardshuffle=100, seed=worker.seed, nodesplitter=webdataset.split_by_node)
        stream = stream.shuffle(1000, seed=worker.seed).decode("pil").to_tuple("jpg;jpeg;png", "cls")
        for picture, label in stream:
            yield self.transform(picture.convert("RGB")), int(label)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="of each rank")
    parser.add_argument("--workers", type=int, default=4, help="of each rank")
    args = parser.parse_args()

    rank, world_size, local_rank = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if world_size > 1:
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(1)
    net = torchvision.models.resnet18(num_classes=args.classes).to(device)
    model: Any = torch.nn.parallel.DistributedDataParallel(net) if world_size > 1 else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    loader: DataLoader[Any] = DataLoader(
        Shards(args.shards, args.size),
        args.batch_size,
        num_workers=args.workers,
        drop_last=True,
        seed=1,
        device=device if device.type == "cuda" else None,  # batches arrive on the GPU
        name="train" if world_size == 1 else f"train-rank{rank}",
    )
    for epoch in range(args.epochs):
        pictures, loss = 0, torch.zeros(())
        with model.join() if world_size > 1 else contextlib.nullcontext():  # one rank may have a few pictures more than another
            for images, labels in loader:
                loss = torch.nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                pictures += len(labels)
        print(f"rank {rank}, epoch {epoch}: {pictures} pictures, loss of the last batch {loss.item():.6f}", flush=True)


main()
