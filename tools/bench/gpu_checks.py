"""Steps of gpu.py that check for correct results: tests, and equal results on the host device and on the GPU."""

import json
import os
import re
import shutil
import subprocess

from gpu_bench import Skip, synthetic


def doctor(b):
    """penstock doctor --deep."""
    output = b.run("doctor", [b.penstock, "doctor", "--deep", "--json"], 40, check=False)
    try:
        r = json.loads(output)
    except ValueError:
        raise Skip("no such verb") from None
    rows = r.get("results") or r.get("checks") or []
    bad = [f"{x.get('id')}: {x.get('status')}" for x in rows if x.get("status") not in ("ok", "info", "skip")]
    b.row("doctor --deep", f"{len(rows)} rows, not ok: {', '.join(bad) or 'none'}", "all ok", b.last_code == 0 and not bad)


def tests(b):
    """The device tests on the GPU, test_device_gpu; tests that need two GPUs are in two_gpus."""
    if not b.device_tests:
        raise Skip("test_device_gpu is missing")
    output = b.run("tests", [b.device_tests, "--durations", "no", "~[two]"], 120, environment=b.test_environment, check=False)
    overlap = re.search(r"overlap: (.*), ratio ([\d.]+)", output)
    if overlap:
        ratio = float(overlap[2])
        b.row("uploads and a consumer kernel of equal length at the same time, over the longer one", f"{ratio:.3f} ({overlap[1]})", "<= 1.08", ratio <= 1.08)
    summary = output.strip().splitlines()[-1] if output.strip() else f"exit code {b.last_code}"
    failed = re.findall(r"^(.*cuda_test.cpp:\d+|.*device_test.cpp:\d+): FAILED", output, re.M)
    b.row("device tests on the GPU", f"{summary} {' '.join(sorted(set(failed)))} ({b.last_seconds:.0f} s)", "all pass", b.last_code == 0)
    if b.last_code != 0:
        print(output[-3000:])


def captures(b):
    """A program that captures its training steps into CUDA graphs while a session runs, in each capture mode."""
    b.needs_gpus(1)
    output = b.run("captures", [b.program("test_captures_gpu")], 110, environment=b.test_environment, check=False)
    summary = output.strip().splitlines()[-1] if output.strip() else f"exit code {b.last_code}"
    b.row("300 captured and replayed steps in each capture mode, batches taken and released between and inside", f"{summary} ({b.last_seconds:.0f} s)",
          "all pass", b.last_code == 0)
    if b.last_code != 0:
        print(output[-3000:])


def memcheck(b):
    """The device tests under compute-sanitizer."""
    tools = [os.path.join(b.given.tree, "compute-sanitizer/compute-sanitizer"), shutil.which("compute-sanitizer"),
             "/usr/local/cuda/bin/compute-sanitizer"]
    tool = next((t for t in tools if t and os.path.exists(t)), None)
    if not b.device_tests or not tool:
        raise Skip("no compute-sanitizer, or no tests")
    output = b.run("memcheck", [tool, "--tool", "memcheck", "--error-exitcode", "9", b.device_tests,
                                "~after an illegal access*", "~uploads next to*", "~a lack of device memory*",
                                "~memory that cannot be registered*", "~a buffer is not written*"], 150,
                   environment=b.test_environment, check=False)
    summary = re.findall(r"ERROR SUMMARY: (.*)", output + b.said)
    b.row("compute-sanitizer memcheck over the gpu tests (without those that fail on purpose)",
          f"{summary[-1] if summary else 'no summary'}, exit code {b.last_code} ({b.last_seconds:.0f} s)", "0 errors",
          b.last_code == 0 and bool(summary))
    if b.last_code != 0:
        print(output[-2500:])


def digests(b):
    """Photographs on the host device and on the GPU: the same bits."""
    photos = os.path.join(b.folder, "photos")
    try:
        from PIL import Image  # pylint: disable=import-outside-toplevel
    except ImportError:
        Image = None
        b.run("digests", [b.program("penstock-sample-photos"), photos, "240"], 60, environment=b.test_environment)
    import random  # pylint: disable=import-outside-toplevel
    draw = random.Random(7)
    for i in range(240 if Image else 0):
        size = (draw.randint(180, 500), draw.randint(180, 400))
        small = Image.frombytes("RGB", (16, 12), draw.randbytes(16 * 12 * 3))
        os.makedirs(os.path.join(photos, f"class{i % 3}"), exist_ok=True)
        small.resize(size, Image.BICUBIC).save(os.path.join(photos, f"class{i % 3}", f"{i:04}.jpg"), quality=90)
    for layout, dtype in (("nchw", "float16"), ("nhwc", "bfloat16"), ("nchw", "float32"), ("nchw", "uint8")):
        file = b.config(f"photos-{layout}-{dtype}.toml", f"""schema = 1
[dataset]
type = "image-folder"
path = "{photos}"
[sampler]
batch_size = 32
epochs = 2
[gpu]
layout = "{layout}"
dtype = "{dtype}"
""")
        found = {}
        for device in ("host", b.given.device):
            r = b.json("digests", [b.penstock, "run", file, "--digest", "--json", "--quiet", "--device", device], 60)
            found[device] = [e["digest"] for e in r["epochs"]]
        b.row(f"digests of photographs, host device and GPU, {dtype} {layout}", " / ".join(found[b.given.device]), "equal",
              found["host"] == found[b.given.device] and all(found["host"]))


def variable_size(b):
    """Samples of different length from a custom worker program: the same stream on the host device and on the GPU."""
    worker = b.program("02_lines_worker")
    poem = os.path.join(b.folder, "poem.txt")
    with open(poem, "w", encoding="utf-8") as file:
        file.writelines("ab" * (n * 7 % 113) + "\n" for n in range(5000))
    file = b.config("lines.toml", f"""schema = 1
[dataset]
type = "custom"
[dataset.options]
file = "{poem}"
[sampler]
batch_size = 37
epochs = 2
[loader]
workers = 4
command = ["{worker}"]
""")
    found = {}
    for device, placement in (("host", "process"), (b.given.device, "process"), (b.given.device, "embedded")):
        r = b.json("variable_size", [b.penstock, "run", file, "--digest", "--json", "--quiet", "--device", device, "--set",
                                     f'gpu.placement="{placement}"'], 60, environment=b.test_environment)
        found[f"{device}, {placement}"] = [e["digest"] for e in r["epochs"]]
    first = found["host, process"]
    b.row("digests of samples of variable size (02_lines_worker), host device and GPU, either placement", " / ".join(first), "equal",
          all(f == first for f in found.values()) and all(first))


def mean_variance(b):
    """A device program with state: the same results on the host device and on the GPU."""
    program = b.device_program("mean_variance.so")
    file = b.config("mean.toml", synthetic(1 << 16, 4).replace('"stamp"', '"random"'))
    said = {}
    for device in ("host", b.given.device):
        done = subprocess.run([b.penstock, "run", file, "--batches", "200", "--device", device, "--sink", program], env=b.environment,
                              cwd=b.folder, capture_output=True, text=True, timeout=60)
        found = re.search(r"mean_variance: .*", done.stderr)
        said[device] = found.group(0) if found else done.stderr[-300:]
    b.row("mean_variance as a device program, host device and GPU", " / ".join(said.values()), "equal", len(set(said.values())) == 1)


def training(b):
    """The ctest test with label gpu: the loss of examples/03_train_softmax falls."""
    b.needs_gpus(1)
    photos = os.path.join(b.folder, "sample-photos")
    b.run("training", [b.program("penstock-sample-photos"), photos, "200"], 60, environment=b.test_environment)
    output = b.run("training", [b.program("03_train_softmax"), photos], 100, environment=b.test_environment)
    losses = [float(loss) for loss in re.findall(r"^epoch +\d+  loss ([0-9.]+)$", output, re.M)]
    b.row("03_train_softmax: loss of the first and the last of its epochs", f"{losses[0]:.4f} -> {losses[-1]:.4f} in {len(losses)} epochs" if losses else "none",
          "20 epochs, falls by 10 %", len(losses) == 20 and losses[-1] < 0.9 * losses[0])


def two_gpus(b):
    """The session uses the second GPU while its caller uses the first."""
    b.needs_gpus(2)
    if not b.device_tests:
        raise Skip("test_device_gpu is missing")
    output = b.run("two_gpus", [b.device_tests, "[two]"], 60, environment=b.test_environment, check=False)
    summary = output.strip().splitlines()[-1] if output.strip() else f"exit code {b.last_code}"
    b.row("caller on cuda:0, batches on cuda:1", summary, "passes", b.last_code == 0 and "skipped" not in summary)
    file = b.config("two.toml", synthetic(1 << 16, 4).replace('"stamp"', '"random"'))
    found = {}
    for device in ("host", "cuda:1"):
        # --device accepts auto, cuda and host; the config also accepts ordinals.
        r = b.json("two_gpus", [b.penstock, "run", file, "--batches", "200", "--digest", "--json", "--quiet", "--set", f'gpu.device="{device}"'], 60)
        found[device] = [e["digest"] for e in r["epochs"]]
    b.row("digests on the host device and on cuda:1", " / ".join(found["cuda:1"]), "equal", found["host"] == found["cuda:1"] and all(found["host"]))
