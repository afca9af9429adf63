"""Fine-tunes a text classifier of Hugging Face: datasets reads and tokenizes, accelerate trains, penstock loads.

    python 15_finetune_accelerate.py --data reviews.jsonl          lines like {"text": "what a film", "label": 1}
    accelerate launch --num_processes 4 15_finetune_accelerate.py --data reviews.jsonl --model roberta-base

Needs torch, transformers, datasets and accelerate. --model names a model of the hub, or a folder that save_pretrained() has
written, such as --out of an earlier run.

Only the DataLoader differs from a program for torch's loader: its import, and the options seed and on_bad_sample. prepare() shards it for the
ranks, and it stays penstock's. Try it: kill a worker while it trains. No row is lost, and the losses stay the same.
"""

import argparse
from typing import Any

import accelerate
import datasets
import torch
import transformers

from penstock.torch import DataLoader


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a file of JSON lines with text and label")
    parser.add_argument("--model", default="distilbert-base-uncased")
    parser.add_argument("--out", default="finetuned")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    parser.add_argument("--workers", type=int, default=4, help="of each loader")
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    return parser.parse_args()


def accuracy(model: Any, loader: Any, accelerator: accelerate.Accelerator) -> float:
    right = rows = 0
    model.eval()
    for batch in loader:
        with torch.no_grad():
            guesses = model(**batch).logits.argmax(-1)
        guesses, labels = accelerator.gather_for_metrics((guesses, batch["labels"]))
        right += int((guesses == labels).sum())
        rows += len(labels)
    model.train()
    return right / rows


def main() -> None:
    args = arguments()
    accelerator = accelerate.Accelerator(mixed_precision="bf16" if torch.cuda.is_available() else "no")
    transformers.set_seed(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    with accelerator.main_process_first():  # the others find its result in the cache
        table = datasets.load_dataset("json", data_files=args.data, split="train").train_test_split(test_size=0.2, seed=1)
        table = table.map(lambda rows: tokenizer(rows["text"], truncation=True, max_length=256), batched=True, remove_columns=["text"])
    collate = transformers.DataCollatorWithPadding(tokenizer)  # pads to the longest row of a batch; "label" becomes "labels"
    options: dict[str, Any] = dict(batch_size=args.batch_size, collate_fn=collate, num_workers=args.workers)
    train = DataLoader(table["train"], shuffle=True, seed=1, on_bad_sample="replace", **options)
    test = DataLoader(table["test"], **options)

    classes = len(set(table["train"]["label"]))
    model = transformers.AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, len(train) // 10, args.epochs * len(train))
    model, optimizer, train, test, schedule = accelerator.prepare(model, optimizer, train, test, schedule)
    for epoch in range(args.epochs):
        loss = torch.zeros(())
        for batch in train:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: loss {loss.item():.6f}, accuracy {100 * accuracy(model, test, accelerator):.1f} %")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(args.out)
        tokenizer.save_pretrained(args.out)
    accelerator.end_training()


main()
