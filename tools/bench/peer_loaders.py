"""The pipelines that tools/bench/peers compares, each in its own process. Run by that script, in the peers' environment:

    peer_loaders.py there DEVICE        what can be measured here, as JSON: for each pipeline its versions, or what is missing
    peer_loaders.py measure JOB FILE    one pipeline for some seconds; JOB and the contents of FILE are JSON
    peer_loaders.py plot RESULTS NAME   draws NAME.png and NAME.svg

A photograph is read from its file, decoded, cropped (RandomResizedCrop 224), flipped and normalised. On the host a batch is a float32
array. With a GPU it is float32 there: peers that decode on the CPU send bytes, and the GPU normalises them. That is their fastest way.
"""

import glob
import importlib
import importlib.metadata
import json
import math
import operator
import os
import random
import sys
import tempfile
import time

SIDE = 224
TINY = 64  # bytes of a tiny sample
ENDLESS = 1 << 40  # samples; no pipeline reaches the end of its epoch
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


# ---- samples: one dataset for everything that runs Python code for each sample ---------------------------------------


def crop_box(width, height, draw=random):
    """RandomResizedCrop's box: 8 % to 100 % of the area, ratio 3/4 to 4/3."""
    for _ in range(10):
        area = width * height * draw.uniform(0.08, 1.0)
        ratio = math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = draw.randrange(width - w + 1), draw.randrange(height - h + 1)
            return left, top, left + w, top + h
    return 0, 0, width, height


class Photos:
    """Photographs by index, again and again. decoder: "pillow", "opencv", "torchvision" or "spdl". raw: bytes, without normalising."""

    def __init__(self, folder, decoder, raw):
        import numpy

        self.files = sorted(glob.glob(os.path.join(folder, "*", "*.jp*g")))
        self.decode, self.raw = getattr(self, decoder), raw
        self.scale = numpy.array([1 / (255 * s) for s in STD], numpy.float32).reshape(3, 1, 1)
        self.shift = numpy.array([m / s for m, s in zip(MEAN, STD)], numpy.float32).reshape(3, 1, 1)
        self.transform = None

    def __len__(self):
        return ENDLESS

    def __getitem__(self, index):
        return self.decode(self.files[index * 2654435761 % len(self.files)])

    def normalised(self, pixels):
        """[..., height, width, 3] of bytes to [..., 3, height, width] of float32."""
        import numpy

        if self.raw:
            return pixels
        planes = numpy.multiply(numpy.moveaxis(pixels, -1, -3), self.scale, dtype=numpy.float32, order="C")
        planes -= self.shift
        return planes

    def pillow(self, path):
        import numpy
        from PIL import Image

        with Image.open(path) as image:
            image = image.convert("RGB")
            image = image.resize((SIDE, SIDE), Image.BILINEAR, box=crop_box(*image.size))
        if random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        return self.normalised(numpy.asarray(image))

    def opencv(self, path):
        import cv2
        import numpy

        cv2.setNumThreads(0)
        image = cv2.imread(path, cv2.IMREAD_COLOR)
        left, top, right, bottom = crop_box(image.shape[1], image.shape[0])
        image = cv2.resize(image[top:bottom, left:right], (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
        image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
        return self.normalised(numpy.ascontiguousarray(image[:, ::-1]) if random.random() < 0.5 else image)

    def torchvision(self, path):
        import torch
        import torchvision

        if self.transform is None:
            self.transform = torchvision_transform(torch, self.raw)
        data = torchvision.io.read_file(path)
        return self.transform(torchvision.io.decode_jpeg(data, mode=torchvision.io.ImageReadMode.RGB))

    def spdl(self, path):
        import spdl.io

        packets = spdl.io.demux_image(path)
        left, top, right, bottom = crop_box(packets.width, packets.height)
        flip = "hflip," if random.random() < 0.5 else ""
        steps = f"crop={right - left}:{bottom - top}:{left}:{top},scale={SIDE}:{SIDE}:flags=bilinear,{flip}format=pix_fmts=rgb24"
        return spdl.io.decode_packets(packets, filter_desc=steps)

    def batch(self, indices):
        """A batch as one array: the function that SPDL's threads run."""
        import numpy

        rows = [self[i] for i in indices]
        if self.decode != self.spdl:
            return numpy.stack(rows)
        import spdl.io

        return self.normalised(spdl.io.to_numpy(spdl.io.convert_frames(rows)))


def torchvision_transform(torch, raw):
    try:
        from torchvision.transforms import v2 as steps
        floats = [steps.ToDtype(torch.float32, scale=True)]
    except ImportError:
        from torchvision import transforms as steps
        floats = [steps.ConvertImageDtype(torch.float32)]
    crop = [steps.RandomResizedCrop(SIDE, antialias=True), steps.RandomHorizontalFlip()]
    return steps.Compose(crop if raw else [*crop, *floats, steps.Normalize(MEAN, STD)])


class Tiny:
    """Samples of 64 bytes, rows of one array in memory."""

    def __init__(self, as_tensors):
        import numpy

        self.rows = numpy.zeros((1 << 16, TINY // 4), numpy.float32)
        if as_tensors:
            import torch
            self.rows = torch.from_numpy(self.rows)

    def __len__(self):
        return ENDLESS

    def __getitem__(self, index):
        return self.rows[index & 0xFFFF]

    def batch(self, indices):
        import numpy

        return numpy.stack([self[i] for i in indices])


# ---- pipelines: each yields batches without end ------------------------------------------------------------------------


def samples_of(job, decoder):
    if job["what"] == "tiny":
        return Tiny(decoder == "tensors")
    return Photos(job["folder"], decoder, job["device"] == "cuda")


def torch_loader(job, decoder):
    import torch.utils.data

    return torch.utils.data.DataLoader(samples_of(job, decoder), job["batch"], sampler=range(ENDLESS), num_workers=job["workers"],
                                       prefetch_factor=job.get("ahead", 2), pin_memory=job["device"] == "cuda")


def penstock_torch(job, decoder):
    import penstock.torch

    options = {}
    if job["what"] == "photographs":
        row = 3 * SIDE * SIDE * (1 if job["device"] == "cuda" else 4)
        options = {"pool": {"loader": {"slot_bytes": f"{job['batch'] * row + (1 << 20)}B"}}, "prefetch_factor": job.get("ahead", 2)}
        if job["device"] == "cuda":
            options["device"] = "cuda"
    return penstock.torch.DataLoader(samples_of(job, decoder), job["batch"], sampler=range(ENDLESS), num_workers=job["workers"], **options)


def grain_loader(job, decoder):
    import grain

    rows = grain.MapDataset.source(samples_of(job, decoder)).batch(job["batch"])
    if job["workers"] == 0:  # no workers: threads of this process
        cores = len(os.sched_getaffinity(0))
        return rows.to_iter_dataset(grain.ReadOptions(num_threads=cores, prefetch_buffer_size=2 * cores))
    threads = grain.ReadOptions(num_threads=1, prefetch_buffer_size=job.get("ahead", 2))
    options = grain.MultiprocessingOptions(num_workers=job["workers"], per_worker_buffer_size=job.get("ahead", 2))
    return rows.to_iter_dataset(threads).mp_prefetch(options)


def spdl_pipeline(job, decoder):
    from spdl.pipeline import PipelineBuilder

    samples, size = samples_of(job, decoder), job["batch"]
    batches = (range(first, first + size) for first in range(0, ENDLESS, size))
    pipeline = (PipelineBuilder().add_source(batches).pipe(samples.batch, concurrency=job["workers"], output_order="input")
                .add_sink(job.get("ahead", 3)).build(num_threads=job["workers"]))
    with pipeline.auto_stop():
        yield from pipeline.get_iterator()


def dali_pipeline(job, decoder):
    from nvidia.dali import fn, pipeline_def, types

    gpu = job["device"] == "cuda"

    @pipeline_def(batch_size=job["batch"], num_threads=job["workers"], device_id=0 if gpu else None, prefetch_queue_depth=job.get("ahead", 2))
    def photographs():
        jpegs, _ = fn.readers.file(file_root=job["folder"], random_shuffle=True, name="files")
        images = fn.decoders.image_random_crop(jpegs, device="mixed" if decoder == "gpu" else "cpu", output_type=types.RGB,
                                               random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3])
        images = fn.resize(images, resize_x=SIDE, resize_y=SIDE, antialias=True)
        images = images.gpu() if gpu else images
        return fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="CHW", mean=[255 * m for m in MEAN],
                                        std=[255 * s for s in STD], mirror=fn.random.coin_flip())

    pipeline = photographs()
    pipeline.build()
    while True:
        yield pipeline.run()[0].as_tensor()


PHOTOGRAPHS = """
[dataset]
path = {folder}
[gpu]
device = "{device}"
dtype = "float32"
[image]
decoder = "{decoder}"
"""
ROWS = """
[dataset]
type = "npy"
path = {rows}
[gpu]
device = "host"
"""
STREAM = """
[sampler]
batch_size = {batch}
epochs = 1000000
[loader]
workers = {workers}
"""


def penstock_session(job, decoder):
    import penstock

    with tempfile.TemporaryDirectory() as place:
        rows = os.path.join(place, "rows.npy")
        if job["what"] == "tiny":
            import numpy
            numpy.save(rows, Tiny(False).rows)
        file = os.path.join(place, "peers.toml")
        with open(file, "w") as out:
            text = (ROWS if job["what"] == "tiny" else PHOTOGRAPHS) + STREAM
            out.write(text.format(folder=json.dumps(job["folder"]), rows=json.dumps(rows), decoder=decoder, device=job["device"],
                                  batch=job["batch"], workers=job["workers"]))
        with penstock.Session(file) as session:
            for batch in session:
                tensor = batch[next(iter(batch))] if job["what"] == "tiny" else batch["image"]
                yield tensor.torch() if job["device"] == "cuda" else tensor.numpy()


# name: (what it measures, devices, pipeline, decoder, modules that it needs)
PIPELINES = {
    "torch + torchvision": ("photographs", ("host", "cuda"), torch_loader, "torchvision", ["torch", "torchvision"]),
    "torch + Pillow": ("photographs", ("host", "cuda"), torch_loader, "pillow", ["torch", "PIL"]),
    "torch + OpenCV": ("photographs", ("host", "cuda"), torch_loader, "opencv", ["torch", "cv2"]),
    "SPDL": ("photographs", ("host", "cuda"), spdl_pipeline, "spdl", ["spdl.pipeline", "spdl.io.lib:_libspdl.make_demuxer"]),
    "SPDL + OpenCV": ("photographs", ("host", "cuda"), spdl_pipeline, "opencv", ["spdl.pipeline", "cv2"]),
    "Grain + OpenCV": ("photographs", ("host", "cuda"), grain_loader, "opencv", ["grain", "cv2"]),
    "DALI, CPU": ("photographs", ("host", "cuda"), dali_pipeline, "cpu", ["nvidia.dali"]),
    "DALI, GPU": ("photographs", ("cuda",), dali_pipeline, "gpu", ["nvidia.dali"]),
    "penstock.torch + torchvision": ("photographs", ("host", "cuda"), penstock_torch, "torchvision",
                                     ["penstock.torch:DataLoader", "penstock:Pool", "torchvision"]),
    "penstock.torch + OpenCV": ("photographs", ("host", "cuda"), penstock_torch, "opencv", ["penstock.torch:DataLoader", "penstock:Pool", "cv2"]),
    "penstock": ("photographs", ("host", "cuda"), penstock_session, "cpu", ["penstock:Session"]),
    "penstock, decoder gpu": ("photographs", ("cuda",), penstock_session, "gpu", ["penstock:Session"]),
    "penstock, decoder hybrid": ("photographs", ("cuda",), penstock_session, "hybrid", ["penstock:Session"]),
    "torch, tiny": ("tiny", ("host", "cuda"), torch_loader, "tensors", ["torch"]),
    "SPDL, tiny": ("tiny", ("host", "cuda"), spdl_pipeline, "arrays", ["spdl.pipeline"]),
    "Grain, tiny": ("tiny", ("host", "cuda"), grain_loader, "arrays", ["grain"]),
    "penstock.torch, tiny": ("tiny", ("host", "cuda"), penstock_torch, "tensors", ["penstock.torch:DataLoader", "penstock:Pool"]),
    "penstock, tiny": ("tiny", ("host", "cuda"), penstock_session, "", ["penstock:Session"]),
}


# ---- measuring ---------------------------------------------------------------------------------------------------------


def cpu_seconds():
    """Processor time of this process and all its descendants that are still alive."""
    parents, used = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(name)], used[int(name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    family, size = {os.getpid()}, 0
    while size != len(family):
        size = len(family)
        family |= {pid for pid, parent in parents.items() if parent in family}
    return sum(used[pid] for pid in family) / os.sysconf("SC_CLK_TCK")


def on_the_device(job):
    """A function that moves a batch of its pipeline to the device and normalises it."""
    if job["device"] == "host" or job["what"] == "tiny":
        return lambda batch: batch
    import torch

    mean = torch.tensor([255 * m for m in MEAN], device="cuda").view(3, 1, 1)
    std = torch.tensor([255 * s for s in STD], device="cuda").view(3, 1, 1)

    def take(batch):
        if not hasattr(batch, "to") and not hasattr(batch, "__array__"):
            return batch  # DALI's tensors are already on the GPU
        if not isinstance(batch, torch.Tensor):
            batch = torch.from_numpy(batch).pin_memory()
        batch = batch.to("cuda", non_blocking=True)
        if batch.dtype != torch.uint8:
            return batch
        batch = batch if batch.shape[1] == 3 else batch.permute(0, 3, 1, 2)
        return batch.float().sub_(mean).div_(std)

    return take


def shape_of(batch):
    return list(batch.shape() if callable(batch.shape) else batch.shape)


def measure(job, out):
    _, _, pipeline, decoder, _ = PIPELINES[job["peer"]]
    begun = time.perf_counter()
    iterator, take = iter(pipeline(job, decoder)), on_the_device(job)
    first = take(next(iterator))
    wanted = [job["batch"], TINY // 4] if job["what"] == "tiny" else [job["batch"], 3, SIDE, SIDE]
    if shape_of(first) != wanted or "float" not in str(first.dtype).lower():
        raise SystemExit(f"batches of {shape_of(first)}, {first.dtype}, not of {wanted}, float32")
    start = time.perf_counter() - begun
    rows, begin, cpu = 0, time.perf_counter(), None
    while True:
        rows += shape_of(take(next(iterator)))[0]
        now = time.perf_counter()
        if cpu is None and now - begin > job["warm"]:
            rows, begin, cpu = 0, now, cpu_seconds()
        elif cpu is not None and now - begin > job["seconds"]:
            break
    if "torch" in sys.modules and job["device"] == "cuda":
        sys.modules["torch"].cuda.synchronize()
        now = time.perf_counter()
    with open(out, "w") as file:
        json.dump({"rate": rows / (now - begin), "cpu_us": 1e6 * (cpu_seconds() - cpu) / rows, "start": start}, file)
    os._exit(0)  # closing a loader may take seconds and is not measured; the caller kills its processes


def there(device):
    """{"pipelines": {name: [what it measures, null or what is missing]}, "versions": ..., "python": ...}"""
    found, versions = {}, {}
    for name, (what, devices, _, _, modules) in PIPELINES.items():
        found[name] = [what, None if device in devices else "needs a GPU"]
        for module in modules if device in devices else ():
            try:
                module, _, name_within = module.partition(":")
                operator.attrgetter(name_within or "__name__")(importlib.import_module(module))
            except Exception as why:
                found[name][1] = f"{type(why).__name__}: {why}".splitlines()[0][:160]
                break
    for package in ("torch", "torchvision", "pillow", "opencv-python-headless", "spdl", "nvidia-dali-cuda130", "nvidia-dali-cuda120", "grain"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    print(json.dumps({"pipelines": found, "versions": versions, "python": sys.version.split()[0]}))


def plot(results, name):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    with open(results) as file:
        tables = json.load(file)["tables"]
    figure, places = pyplot.subplots(len(tables), 1, figsize=(8, 0.6 + 0.42 * sum(len(t["rows"]) + 2 for t in tables)), squeeze=False,
                                     height_ratios=[len(t["rows"]) + 2 for t in tables])
    for (axes,), table in zip(places, tables):
        rows = table["rows"][::-1]
        bars = axes.barh([r["name"] for r in rows], [r["rate"] for r in rows],
                         color=["#1f6f8b" if r["ours"] else "#8a949e" for r in rows])
        axes.bar_label(bars, fmt="{:.0f}", padding=4)
        axes.set_title(table["title"], loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.1)
    figure.tight_layout()
    figure.savefig(name + ".png", dpi=110)
    figure.savefig(name + ".svg", metadata={"Date": None})


def main():
    verb, *arguments = sys.argv[1:]
    if verb == "measure":
        measure(json.loads(arguments[0]), arguments[1])
    elif verb == "there":
        there(*arguments)
    else:
        plot(*arguments)


if __name__ == "__main__":
    main()
