"""Third-party training programs with one import changed: their batches and losses equal torch's, and a killed worker changes none.

Each program runs twice, with torch's DataLoader and with penstock's. The second time the worker that loads sample 13 is killed. Every
rank records its batches, its losses, and the program that its workers ran. A test is skipped where its library is not
installed. """

import importlib.util
import socket

from package import *

COMMON = """
import os, signal, sys

import torch
{importing}

FOLDER = sys.argv[1]


def look_and_kill(index):
    '''Once: the process that loads sample 13. Returns whether this process is a worker of penstock.'''
    if index == 13 and os.environ.get("KILL"):
        try:
            os.close(os.open(os.path.join(FOLDER, "killed"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    with open("/proc/self/cmdline") as file:
        return "penstock.worker" in file.read()


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        return {{"input": torch.full((8,), index / 48.0), "label": torch.tensor(index % 3 + 0.5), "index": index, "ours": look_and_kill(index)}}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, input):
        return self.layer(input)[:, 0]


def note(rank, batch, loss):
    with open(os.path.join(FOLDER, "rank%d" % rank), "a") as file:
        print(batch["index"].tolist(), "%.9f" % loss, file=file)
    with open(os.path.join(FOLDER, "made_by%d" % rank), "a") as file:
        print(*["penstock" if each else "torch" for each in batch["ours"].tolist()], file=file)


def train(rank, model, loader, epochs, backward=lambda loss: loss.backward(), after=lambda epoch: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        after(epoch)
        for batch in loader:
            loss = ((model(batch["input"]) - batch["label"]) ** 2).mean()
            optimizer.zero_grad()
            backward(loss)
            optimizer.step()
            note(rank, batch, loss.item())
"""

DDP = COMMON + """
def main_of(rank, world_size):
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)
    sampler = torch.utils.data.DistributedSampler(Images(), world_size, rank, seed=3)
    loader = DataLoader(Images(), batch_size=4, sampler=sampler, num_workers=2)
    model = torch.nn.parallel.DistributedDataParallel(Net())
    train(rank, model, loader, 2, after=sampler.set_epoch)
    torch.distributed.destroy_process_group()
"""

TORCHRUN = DDP + """
main_of(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
"""

SPAWNED = DDP + """
import torch.multiprocessing

if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["A_PORT"])
    torch.multiprocessing.spawn(main_of, args=(2,), nprocs=2)
"""

LIGHTNING = COMMON + """
import lightning

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, _):
        loss = ((self.net(batch["input"]) - batch["label"]) ** 2).mean()
        note(self.global_rank, batch, loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

class FromAHook(Module):
    def train_dataloader(self):
        return DataLoader(Images(), batch_size=4, shuffle=True, num_workers=2)

if __name__ == "__main__":
    lightning.seed_everything(7)
    trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="{strategy}", max_epochs=2, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, default_root_dir=FOLDER)
    if "{strategy}" == "ddp":
        trainer.fit(FromAHook())
    else:
        trainer.fit(Module(), DataLoader(Images(), batch_size=4, shuffle=True, num_workers=2))
"""

ACCELERATE = COMMON + """
import accelerate

accelerator = accelerate.Accelerator(cpu=True)
torch.manual_seed(3)
model, loader = accelerator.prepare(Net(), DataLoader(Images(), batch_size=4, shuffle=True, num_workers=2))
train(accelerator.process_index, model, loader, 2, accelerator.backward)
"""

TRAINER = COMMON + """
import transformers.trainer

transformers.trainer.DataLoader = DataLoader

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, input, labels, index, ours):  # Trainer collates "label" as "labels"
        loss = ((self.net(input) - labels) ** 2).mean()
        note(0, dict(index=index, ours=ours), loss.item())
        return {{"loss": loss}}

arguments = transformers.TrainingArguments(FOLDER, use_cpu=True, per_device_train_batch_size=4, num_train_epochs=2, dataloader_num_workers=2,
                                           report_to=[], save_strategy="no", disable_tqdm=True, seed=3, remove_unused_columns=False)
transformers.Trainer(Model(), arguments, train_dataset=Images()).train()
"""

DATASETS = COMMON + """
import datasets

def looked_at(rows):
    rows["ours"] = [look_and_kill(int(index)) for index in rows["index"]]
    rows["input"] = [torch.full((8,), index / 48.0) for index in rows["index"]]
    rows["label"] = [torch.tensor(index % 3 + 0.5) for index in rows["index"]]
    return rows

torch.manual_seed(3)
table = datasets.Dataset.from_dict(dict(index=list(range(48))))
train(0, Net(), DataLoader(table.with_transform(looked_at), batch_size=4, shuffle=True, num_workers=2), 2)
stream = table.to_iterable_dataset(num_shards=4).map(looked_at, batched=True, batch_size=3).with_format("torch")
train(1, Net(), DataLoader(stream, batch_size=4, num_workers=2), 2)
"""

WEBDATASET = COMMON + """
import webdataset

for shard in range(4):
    with webdataset.TarWriter(os.path.join(FOLDER, "shard%d.tar" % shard)) as writer:
        for index in range(12 * shard, 12 * shard + 12):
            writer.write(dict(__key__="%05d" % index, cls=index))

def sample(row):
    index = row["cls"]
    return dict(input=torch.full((8,), index / 48.0), label=torch.tensor(index % 3 + 0.5), index=index, ours=look_and_kill(index))

stream = webdataset.WebDataset(os.path.join(FOLDER, "shard{{0..3}}.tar"), shardshuffle=False).decode().map(sample)
train(0, Net(), DataLoader(stream, batch_size=4, num_workers=2), 2)
"""

TIMM = COMMON + """
import PIL.Image
import timm
import timm.data

torch.utils.data.DataLoader = DataLoader  # from which timm makes its loaders

class Photos(torch.utils.data.Dataset):
    transform = None

    def __len__(self):
        return 48

    def __getitem__(self, index):
        look_and_kill(index)
        return self.transform(PIL.Image.new("RGB", (180, 160), (5 * index, 255 - 5 * index, 77))), index

loader = timm.data.create_loader(Photos(), input_size=(3, 160, 160), batch_size=4, num_workers=2, use_prefetcher=False, is_training=False)
torch.manual_seed(5)
model = timm.create_model("test_vit", pretrained=False, num_classes=48)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for images, labels in loader:
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    note(0, dict(index=labels, ours=torch.full((len(labels),), type(loader).__module__ == "penstock.torch")), loss.item())
"""


class TrainingTest(PackageTest):
    def need(self, *names):
        for name in ("torch", *names):
            if importlib.util.find_spec(name) is None:
                self.skipTest("%s is not installed" % name)

    def compare(self, text, launcher=(), ranks=1, **values):
        steps = {}
        for kind, importing in (("torch", "from torch.utils.data import DataLoader"), ("penstock", "from penstock.torch import DataLoader")):
            folder = os.path.join(self.folder, kind)
            program = self.write(os.path.join(kind, "program.py"), text.format(importing=importing, **values))
            environment = dict(self.environment, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", A_PORT=str(free_port()))
            if kind == "penstock":
                environment["KILL"] = "1"
            done = subprocess.run([sys.executable, "-B", *launcher, program, folder], capture_output=True, text=True, cwd=folder,
                                  env=environment, timeout=500)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            steps[kind] = [self.lines(folder, "rank%d" % rank) for rank in range(ranks)]
            for rank in range(ranks):
                self.assertEqual({word for line in self.lines(folder, "made_by%d" % rank) for word in line.split()}, {kind})
        self.assertEqual(steps["penstock"], steps["torch"])
        self.assertTrue(all(steps["torch"]))
        self.assertTrue(os.path.exists(os.path.join(self.folder, "penstock", "killed")), "no worker was killed")

    def torchrun(self):
        self.need_torchrun()
        # torch 1.13's default, no redirection, fails under Python 3.11.
        return ("-m", "torch.distributed.run", *self.torchrun_alone(), "--nproc_per_node", "2", "-r", "1", "-t", "1")

    def lines(self, folder, name):
        with open(os.path.join(folder, name)) as file:
            return file.read().splitlines()

    def test_ranks_of_torchrun_train_as_with_torch(self):
        self.need()
        self.compare(TORCHRUN, self.torchrun(), ranks=2)

    def test_ranks_spawned_by_torch_train_as_with_torch(self):
        self.need()
        self.compare(SPAWNED, ranks=2)

    def test_lightning_with_ddp_trains_as_with_torch(self):
        self.need("lightning")
        self.compare(LIGHTNING, ranks=2, strategy="ddp")

    def test_lightning_with_ddp_spawn_trains_as_with_torch(self):
        self.need("lightning")
        self.compare(LIGHTNING, ranks=2, strategy="ddp_spawn")

    def test_accelerate_trains_as_with_torch(self):
        self.need("accelerate")
        self.compare(ACCELERATE)

    def test_ranks_of_accelerate_train_as_with_torch(self):
        self.need("accelerate")
        self.compare(ACCELERATE, self.torchrun(), ranks=2)

    def test_the_trainer_of_transformers_trains_as_with_torch(self):
        self.need("transformers", "accelerate")
        self.compare(TRAINER)

    def test_datasets_of_hugging_face_train_as_with_torch(self):
        self.need("datasets")
        self.compare(DATASETS, ranks=2)

    def test_webdatasets_train_as_with_torch(self):
        self.need("webdataset")
        self.compare(WEBDATASET)

    def test_timm_trains_as_with_torch(self):
        self.need("timm", "PIL")
        self.compare(TIMM)


def free_port():
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        return asking.getsockname()[1]


if __name__ == "__main__":
    main()
