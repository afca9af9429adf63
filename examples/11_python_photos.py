"""Loads a folder of photographs as batches, in Python, and prints what happens to workers; no batch is lost.

    python 11_python_photos.py FOLDER [EPOCHS]      each folder directly in FOLDER is a class

Try it: kill a worker while it runs, or press Ctrl-C and run it again: it continues where it stopped.
"""

import os
import sys
from typing import Any

import penstock

CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "photos.toml")


def tell(event: dict[str, Any]) -> None:
    if event["kind"] in ("worker_died", "sample_failed", "sample_quarantined"):
        print(event["text"])


def main(folder: str, epochs: int) -> None:
    position = os.path.join(os.getcwd(), "photos.state")
    state = None
    if os.path.exists(position):
        with open(position, "rb") as file:
            state = file.read()
    with penstock.Session(
        CONFIG, state=state, on_event=tell, digests=True, dataset={"path": os.path.abspath(folder)}, sampler={"epochs": epochs}
    ) as session:
        try:
            for batch in session:
                image, label = batch["image"], batch["label"]
                # A training step would use image.torch() and label.torch(); .numpy() does not need torch.
                print(f"epoch {batch.epoch} batch {batch.index}: {image.dtype} {list(image.shape)} on {batch.device}, {len(label)} labels")
        except KeyboardInterrupt:
            with open(position, "wb") as file:
                file.write(session.state())
            print(f"interrupted: run again to continue ({position})")
            return
        for epoch in session.report()["epochs"]:
            print(f"epoch {epoch['epoch']}: {epoch['delivered']} photos, digest {epoch['digest']}")
    if state is not None:
        os.remove(position)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
