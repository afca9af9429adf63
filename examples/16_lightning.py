"""Lightning with penstock's DataLoader, whose position is in each checkpoint: training resumes in the middle of an epoch.

    python 16_lightning.py FOLDER                          FOLDER/CLASS/*.jpg, as for torchvision's ImageFolder
    python 16_lightning.py FOLDER --devices 4              Lightning starts the ranks, and gives each loader its DistributedSampler

Needs torch, torchvision and lightning.

Only the DataLoader differs from a program for torch's loader: its import, and the options seed, on_bad_sample and name. Try it: kill a worker
while it trains, and nothing changes. Kill the program and run it again: it continues after the last checkpoint, without loading the
images before it again.
"""

import argparse
import os
from typing import Any

import lightning
import torch
import torchvision
from lightning.pytorch.callbacks import ModelCheckpoint
from torchvision import transforms

from penstock.torch import DataLoader


class Images(lightning.LightningDataModule):
    """A folder of photographs; each folder in it is a class."""

    def __init__(self, folder: str, size: int, batch_size: int, workers: int) -> None:
        super().__init__()
        crop = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip()]
        self.images = torchvision.datasets.ImageFolder(folder, transforms.Compose([*crop, transforms.ToTensor()]))
        self.options: dict[str, Any] = dict(batch_size=batch_size, num_workers=workers)

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.images, shuffle=True, drop_last=True, seed=1, on_bad_sample="replace", name="train", **self.options)


class Classifier(lightning.LightningModule):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.net = torchvision.models.resnet18(num_classes=classes)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.net(images), labels)
        self.log("loss", loss)
        return loss

    def on_train_epoch_end(self) -> None:
        loss = self.trainer.callback_metrics.get("loss", float("nan"))  # if a checkpoint was the last step of its epoch
        self.print(f"epoch {self.current_epoch}: loss {loss:.6f}", flush=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.print(f"saved after step {self.global_step}", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="of each rank")
    parser.add_argument("--workers", type=int, default=4, help="of each rank")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--save-every", type=int, default=200, help="steps between checkpoints")
    parser.add_argument("--checkpoints", default="checkpoints")
    args = parser.parse_args()

    lightning.seed_everything(1)
    images = Images(args.folder, args.size, args.batch_size, args.workers)
    saving = ModelCheckpoint(args.checkpoints, save_last=True, every_n_train_steps=args.save_every)
    trainer = lightning.Trainer(
        devices=args.devices, max_epochs=args.epochs, callbacks=[saving], logger=False, enable_progress_bar=False, log_every_n_steps=1
    )
    last = os.path.join(args.checkpoints, "last.ckpt")
    trainer.fit(Classifier(len(images.images.classes)), images, ckpt_path=last if os.path.exists(last) else None)


if __name__ == "__main__":  # Lightning runs this file again for the other ranks
    main()
