"""Trains ResNet-50 on a folder laid out like ImageNet, on one GPU or several, and continues in the middle of an epoch.

    python 14_resnet50_imagenet.py FOLDER                  FOLDER/train/CLASS/*.JPEG and FOLDER/val/CLASS/*.JPEG
    torchrun --nproc_per_node 8 14_resnet50_imagenet.py FOLDER
    penstock launch --gpus all -- python 14_resnet50_imagenet.py FOLDER

Needs torch and torchvision; without a GPU it trains on the CPU. For a quick look: --model resnet18 --size 64 --batch-size 16 --epochs 2

The loader takes torch's arguments, and five more. Try it: kill a worker while it trains, and the losses stay the same. Kill the
program and run it again: it continues after the last checkpoint. Damaged files are replaced by others and named at the end.
"""

import argparse
import math
import os
from typing import Any

import torch
import torchvision
from torch.utils.data import DistributedSampler
from torchvision import transforms

from penstock.torch import DataLoader


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--model", default="resnet50", help="any classifier of torchvision")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=256, help="of each rank")
    parser.add_argument("--workers", type=int, default=8, help="of each loader")
    parser.add_argument("--save-every", type=int, default=500, help="steps between checkpoints")
    parser.add_argument("--checkpoint", default="resnet50.pt")
    return parser.parse_args()


def loader_of(split: str, args: argparse.Namespace, rank: int, world_size: int, device: torch.device) -> DataLoader[Any]:
    training = split == "train"
    crop = [transforms.Resize(args.size * 8 // 7), transforms.CenterCrop(args.size)]
    if training:
        crop = [transforms.RandomResizedCrop(args.size), transforms.RandomHorizontalFlip()]
    normalize = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    transform = transforms.Compose([*crop, transforms.ToTensor(), normalize])
    dataset = torchvision.datasets.ImageFolder(os.path.join(args.folder, split), transform)
    return DataLoader(
        dataset,
        args.batch_size,
        sampler=DistributedSampler(dataset, world_size, rank, shuffle=training, seed=1),
        num_workers=args.workers,
        drop_last=training,
        device=device if device.type == "cuda" else None,  # batches arrive on the GPU
        on_bad_sample="replace",  # every rank keeps the same number of batches
        seed=1,  # crops and flips depend on this, the epoch and the image alone
        group=world_size > 1,  # names ranks that differ at the start, and a lost rank at the others' next batch
        name=split,
    )


def accuracy(model: torch.nn.Module, loader: DataLoader[Any], device: torch.device) -> float:
    right = torch.zeros(2, device=device)
    model.eval()
    with torch.no_grad():
        for images, labels in loader:
            hits = model(images.to(device)).argmax(1) == labels.to(device)
            right += torch.tensor([hits.sum(), len(hits)], device=device)
    model.train()
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(right)
    return float(right[0] / right[1])


def main() -> None:
    args = arguments()
    rank, world_size, local_rank = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if world_size > 1:
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(1)
    train, val = (loader_of(split, args, rank, world_size, device) for split in ("train", "val"))
    net = torchvision.models.get_model(args.model, num_classes=len(train.dataset.classes)).to(device)  # type: ignore[attr-defined]
    model = torch.nn.parallel.DistributedDataParallel(net) if world_size > 1 else net
    rate = 0.1 * args.batch_size * world_size / 256
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)
    total = args.epochs * len(train)
    warm_up_then_cosine = lambda step: min(20 * (step + 1) / total, 0.5 + 0.5 * math.cos(math.pi * step / total))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up_then_cosine)
    whole = {"model": net, "optimizer": optimizer, "schedule": schedule, "loader": train}
    if os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint, map_location="cpu")
        for name, part in whole.items():
            part.load_state_dict(saved[name])  # the loader's next `for` continues after the checkpoint's last batch
    step = schedule.last_epoch

    for epoch in range(step // len(train), args.epochs):
        train.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        for images, labels in train:
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):  # type: ignore[attr-defined,unused-ignore]
                loss = torch.nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if rank == 0 and step % args.save_every == 0:
                torch.save({name: part.state_dict() for name, part in whole.items()}, args.checkpoint + ".new")
                os.replace(args.checkpoint + ".new", args.checkpoint)
                print(f"step {step}: loss {loss.item():.4f}, saved", flush=True)
        share = accuracy(model, val, device)
        if rank == 0:
            print(f"epoch {epoch}: loss of the last batch {loss.item():.6f}, accuracy {100 * share:.1f} %", flush=True)
    for index, bad in {bad["index"]: bad for bad in train.bad_samples}.items():
        print("replaced:", train.dataset.samples[index][0], bad.get("causes") or bad["traceback"].splitlines()[-1])  # type: ignore[attr-defined]


main()
