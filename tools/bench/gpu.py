#!/usr/bin/env python3
"""Measures and checks everything that needs a GPU, from an install tree or a build tree alone.

    gpu.py [--tree DIR] [--out DIR] [--only NAME,NAME] [--seconds 3] [--budget 460]
    gpu.py --list

DIR is what `cmake --install` made, or a build folder; default: where this script lies. The tree that it wants, with the programs of the
tests and a second build whose kernels fit no GPU but of compute capability 10.0 (step no_kernel_image):

    cmake --preset release -B build/gpu-tests -DPENSTOCK_TESTS=ON && cmake --build build/gpu-tests
    cmake --build build/gpu-tests --target penstock-bench-embedding            (step embedding)
    cmake --install build/gpu-tests --prefix TREE && cmake --install build/gpu-tests --prefix TREE --component tests
    cmake --preset release -B build/no_kernel_image -DPENSTOCK_CUDA_ARCHITECTURES=100-real -DPENSTOCK_EXAMPLES=OFF
    cmake --build build/no_kernel_image && cmake --install build/no_kernel_image --prefix TREE/variants/no_kernel_image

Each step has its own deadline, and a step that fails does not keep the others from running. Ends with a Markdown table
on stdout; --out gets gpu.md, gpu.json and gpu.log, what the steps printed. Only Python's standard library is needed; the comparison with
PyTorch is left out where there is none. memcheck runs where there is a compute-sanitizer: in the tree (a copy of the toolkit's folder of
that name), or installed.
"""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BATCH_BYTES = 19267584


class Skip(Exception):
    pass


def gpus_of_this_machine():
    """As nvidia-smi lists them; none if it does not answer."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return len(re.findall(r"^GPU \d+:", listed, re.M))


class Bench:
    def __init__(self, given):
        self.given = given
        self.begin = time.monotonic()
        self.rows = []
        self.facts = {}
        self.folder = tempfile.mkdtemp(prefix="penstock-gpu-")
        self.out = given.out or self.folder
        os.makedirs(self.out, exist_ok=True)
        self.bin = os.path.join(given.tree, "bin")
        self.penstock = os.path.join(self.bin, "penstock")
        tests = [os.path.join(given.tree, "libexec/penstock/tests/test_device_gpu"), os.path.join(self.bin, "test_device_gpu")]
        self.device_tests = next((t for t in tests if os.path.exists(t)), None)
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=self.folder)
        self.gpus = gpus_of_this_machine()
        # For tests carried in from a build tree; the programs themselves find their libraries.
        self.test_environment = dict(self.environment, LD_LIBRARY_PATH=os.path.join(given.tree, "lib") + ":" + os.environ.get("LD_LIBRARY_PATH", ""))

    def run(self, name, command, timeout, environment=None, check=True):
        """The output of a command; its whole process group ends with it."""
        begin = time.monotonic()
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace",
                                  env=environment or self.environment, cwd=self.folder, start_new_session=True) as child:
                try:
                    output, _ = child.communicate(timeout=timeout)
                except subprocess.TimeoutExpired:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
                    raise RuntimeError(f"not done after {timeout} s") from None
            errors.seek(0)
            said = errors.read()
        with open(os.path.join(self.out, "gpu.log"), "a", encoding="utf-8") as log:
            log.write(f"==== {name}: {command}\n{said}\n---- stdout\n{output}\n")
        self.said = said
        tail = said + output
        self.last_seconds = time.monotonic() - begin
        if check and child.returncode != 0:
            raise RuntimeError(f"exit code {child.returncode}: {tail.strip()[-600:]}")
        self.last_code = child.returncode
        return output

    def json(self, name, command, timeout, **how):
        return json.loads(self.run(name, command, timeout, **how))

    def program(self, name):
        """A program of the tests: in an install tree, or in a build folder."""
        for folder in ("libexec/penstock/tests", "bin", "bin/device_programs"):
            path = os.path.join(self.given.tree, folder, name)
            if os.path.exists(path):
                return path
        raise Skip(f"no {name}: install the component tests")

    def needs_gpus(self, number):
        if self.given.device == "host":
            raise Skip("nothing to be rehearsed on the host device")
        if self.gpus < number:
            raise Skip(f"needs {number} GPUs, nvidia-smi lists {self.gpus}")

    def row(self, what, measured, bar, ok):
        self.rows.append({"what": what, "measured": measured, "bar": bar, "ok": ok})
        mark = {True: "ok", False: "FALLS SHORT", None: "-"}[ok]
        print(f"  {what}: {measured}  [{bar}] {mark}", flush=True)

    def step(self, function):
        name = function.__name__
        if self.given.only and name not in self.given.only:
            return
        spent = time.monotonic() - self.begin
        if spent > self.given.budget:
            self.row(name, "left out: no time", "", None)
            return
        print(f"== {name} ({spent:.0f} s)", flush=True)
        try:
            function(self)
        except Skip as why:
            self.row(name, f"left out: {why}", "", None)
        except Exception as why:  # pylint: disable=broad-except
            self.row(name, f"failed: {type(why).__name__}: {str(why)[-400:]}", "runs", False)

    def config(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def finish(self):
        def cell(text):
            return str(text).replace("|", "\\|").replace("\n", " ")
        lines = ["| what | measured | bar | |", "| --- | --- | --- | --- |"]
        for r in self.rows:
            mark = {True: "ok", False: "**short**", None: ""}[r["ok"]]
            lines.append(f"| {cell(r['what'])} | {cell(r['measured'])} | {cell(r['bar'])} | {mark} |")
        table = "\n".join(lines)
        with open(os.path.join(self.out, "gpu.md"), "w", encoding="utf-8") as file:
            file.write(table + "\n")
        with open(os.path.join(self.out, "gpu.json"), "w", encoding="utf-8") as file:
            json.dump({"facts": self.facts, "rows": self.rows, "seconds": time.monotonic() - self.begin}, file, indent=1)
        print("\n" + table)
        print(f"\n{time.monotonic() - self.begin:.0f} s in all")
        shutil.rmtree(self.folder, ignore_errors=True) if self.out != self.folder else None


def synthetic(batch_bytes=BATCH_BYTES, workers=8, more=""):
    return f"""schema = 1
[dataset]
type = "synthetic"
samples = 1_000_000
bytes_per_sample = "{batch_bytes}B"
fill = "stamp"
[sampler]
batch_size = 1
shuffle = false
[loader]
workers = {workers}
{more}
"""


# ---- steps

def machine(b):
    """What runs here."""
    for name, command in {
            "gpu": ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,memory.used,pcie.link.gen.max,compute_mode",
                    "--format=csv,noheader"],
            "cores": ["nproc"], "kernel": ["uname", "-r"], "penstock": [b.penstock, "version"],
            "libraries missing": ["sh", "-c", f"ldd {b.penstock} | grep -c 'not found' || true"]}.items():
        try:
            b.facts[name] = b.run("machine", command, 20, check=False).strip()
        except (OSError, RuntimeError) as why:
            b.facts[name] = f"unknown ({why})"
        print(f"  {name}: {b.facts[name]}")


def tests(b):
    """The device tests on the GPU, test_device_gpu; what needs two GPUs is in two_gpus."""
    if not b.device_tests:
        raise Skip("test_device_gpu is not there")
    output = b.run("tests", [b.device_tests, "--durations", "no", "~[two]"], 120, environment=b.test_environment, check=False)
    overlap = re.search(r"overlap: (.*), ratio ([\d.]+)", output)
    if overlap:
        ratio = float(overlap[2])
        b.row("uploads beside a consumer kernel of equal length, over the longer", f"{ratio:.3f} ({overlap[1]})", "<= 1.08", ratio <= 1.08)
    summary = output.strip().splitlines()[-1] if output.strip() else f"exit code {b.last_code}"
    failed = re.findall(r"^(.*cuda_test.cpp:\d+|.*device_test.cpp:\d+): FAILED", output, re.M)
    b.row("device tests on the GPU", f"{summary} {' '.join(sorted(set(failed)))} ({b.last_seconds:.0f} s)", "all pass", b.last_code == 0)
    if b.last_code != 0:
        print(output[-3000:])


def captures(b):
    """A program that captures its training steps into CUDA graphs beside a session, in each capture mode."""
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
                                "~after an illegal access*", "~uploads beside*", "~device memory that does not suffice*",
                                "~memory that cannot be registered*", "~a buffer is not written*"], 150,
                   environment=b.test_environment, check=False)
    summary = re.findall(r"ERROR SUMMARY: (.*)", output + b.said)
    b.row("compute-sanitizer memcheck over the gpu tests (without those that mean to fail)",
          f"{summary[-1] if summary else 'no summary'}, exit code {b.last_code} ({b.last_seconds:.0f} s)", "0 errors",
          b.last_code == 0 and bool(summary))
    if b.last_code != 0:
        print(output[-2500:])


def upload(b):
    """penstock bench upload: slots to the device, beside the bare copy."""
    b.facts["upload"] = []
    best_memcpy = 0
    for what, arguments, bar in [
            ("19.27 MB, stamp, 8 workers", ["--workers", "8"], 0.97),
            ("1 MiB, stamp, 8 workers, 64 slots and buffers",
             ["--workers", "8", "--slot-bytes", "1MiB", "--slots", "64", "--buffers", "64"], 0.93),
            ("64 KiB, stamp, 8 workers, 64 slots and buffers",
             ["--workers", "8", "--slot-bytes", "64KiB", "--slots", "64", "--buffers", "64"], 0.40),
            ("64 KiB, stamp, 4 workers, 64 slots and buffers",
             ["--workers", "4", "--slot-bytes", "64KiB", "--slots", "64", "--buffers", "64"], None),
            ("19.27 MB, memcpy, 8 workers", ["--workers", "8", "--fill", "memcpy"], "GB/s"),
            ("19.27 MB, memcpy, 12 workers", ["--workers", "12", "--fill", "memcpy"], "GB/s"),
            ("19.27 MB, memset, 12 workers", ["--workers", "12", "--fill", "memset"], None)]:
        try:
            r = b.json("upload", [b.penstock, "bench", "upload", "--json", "--seconds", str(b.given.seconds), *arguments,
                                  *(["--device", b.given.device])], 60)
        except (RuntimeError, ValueError) as why:
            b.row(f"bench upload {what}", f"failed: {why}", "runs", False)
            continue
        b.facts["upload"].append(r)
        ours, bare = r["runtime"]["bytes_per_second"] / 1e9, r["bare"]["bytes_per_second"] / 1e9
        figures = (f"{ours:.2f} of {bare:.2f} GB/s, ratio {r['ratio']:.3f}, {r['runtime']['batches_per_second']:.0f} batches/s, "
                   f"owner {r['cpu']['owner'] * 100:.0f} % of a core, first batch {r['runtime']['first_batch_seconds']:.3f} s")
        if bar == "GB/s":
            best_memcpy = max(best_memcpy, ours)
            b.row(f"bench upload {what}", figures, ">= 45 GB/s, aim 50", ours >= 45)
        else:
            b.row(f"bench upload {what}", figures, f"ratio >= {bar}" if bar else "", r["ratio"] >= bar if bar else None)
        print("    threads: " + ", ".join(f"{name} {100 * used:.0f} %" for name, used in r["cpu"]["threads"].items())
              + f"; workers {r['cpu']['workers'] * 100:.0f} %")
        if what.startswith("19.27 MB, stamp"):
            b.row("owner CPU at full rate with 19 MB slots", f"{r['cpu']['owner'] * 100:.1f} % of a core", "<= 60 %", r["cpu"]["owner"] <= 0.6)
            b.row("owner CPU while idle", f"{r['cpu']['owner_idle'] * 100:.2f} % of a core", "<= 1 %", r["cpu"]["owner_idle"] <= 0.01)
    b.facts["best_memcpy_gb"] = best_memcpy


def pytorch(b):
    """PyTorch's DataLoader on the same payload, beside ours (after upload)."""
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
        raise Skip("no PyTorch")
    r = b.json("pytorch", [sys.executable, os.path.join(HERE, "pytorch_dataloader.py"), "--seconds", str(b.given.seconds)], 120)
    b.facts["pytorch"] = r
    theirs, ours = r["best_bytes_per_second"] / 1e9, b.facts.get("best_memcpy_gb", 0)
    rates = ", ".join(f"{w}: {v / 1e9:.2f}" for w, v in r["bytes_per_second"].items())
    b.row(f"PyTorch {r['torch']} DataLoader, same payload, GB/s by workers", rates, "", None)
    if ours:
        b.row("ours (memcpy, best of 8 and 12 workers) over PyTorch's best", f"{ours:.2f} / {theirs:.2f} = {ours / theirs:.1f} x", ">= 12 x", ours >= 12 * theirs)


def transform(b):
    """penstock bench transform: the kernels, beside a device-to-device copy."""
    b.facts["transform"] = []
    for arguments, bar in [([], 0.75), (["--dtype", "bfloat16"], None), (["--dtype", "float32"], None), (["--dtype", "uint8"], None),
                           (["--layout", "nhwc"], None), (["--size", "223x221"], None)]:
        r = b.json("transform", [b.penstock, "bench", "transform", "--json", "--seconds", "1", "--device", b.given.device, *arguments], 40)
        b.facts["transform"].append(r)
        b.row(f"bench transform {r['rows']}x{r['height']}x{r['width']}x3 u8 -> {r['dtype']} {r['layout']}",
              f"{r['convert_bytes_per_second'] / 1e12:.2f} of {r['copy_bytes_per_second'] / 1e12:.2f} TB/s, ratio {r['ratio']:.3f}",
              f">= {bar}" if bar else "", r["ratio"] >= bar if bar else None)


CONTEXT = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
begin = time.monotonic()
assert cuda.cuInit(0) == 0
device, context = ctypes.c_int(), ctypes.c_void_p()
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
print(time.monotonic() - begin)
"""


def first_batch(b):
    """From the construction of a session to its first batch, beside a bare context."""
    file = b.config("first.toml", synthetic(150528, 8).replace("batch_size = 1", "batch_size = 128"))
    contexts = []
    for _ in range(3):
        contexts.append(float(b.run("context", [sys.executable, "-c", CONTEXT], 30)))
    context = statistics.median(contexts)
    for placement in ("embedded", "process"):
        times = []
        for _ in range(3):
            r = b.json("first_batch", [b.penstock, "run", file, "--batches", "1", "--json", "--quiet", "--device", b.given.device,
                                       "--set", f'gpu.placement="{placement}"'], 30)
            times.append(r["totals"]["first_batch_seconds"])
        first = statistics.median(times)
        b.row(f"construction to first batch, 128x224x224x3, 8 workers, {placement}",
              f"{first:.3f} s; context alone {context:.3f} s; difference {first - context:.3f} s", "<= context + 0.20 s", first - context <= 0.2)


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


FILLER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(free.value - (1536 << 20))) == 0
print("full", flush=True)
sys.stdin.read()
"""


def full_memory(b):
    """Device memory that another process has filled."""
    b.needs_gpus(1)
    file = b.config("full.toml", synthetic(BATCH_BYTES, 2, "[gpu]\nbuffers = 256\n"))
    with subprocess.Popen([sys.executable, "-c", FILLER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as filler:
        if filler.stdout.readline() != "full\n":
            raise RuntimeError("the device memory could not be filled")
        output = b.run("full_memory", [b.penstock, "run", file, "--batches", "4", "--json", "--device", b.given.device], 60, check=False)
        code = b.last_code
        filler.kill()
    r = json.loads(output)
    left = subprocess.run(["pgrep", "-x", "penstock-worker|penstock-gpu"], capture_output=True, text=True, check=False).stdout.split()
    error = r.get("error") or {}
    b.row("device memory filled by another process", f"exit {code}, {json.dumps(error)[:300]}, left behind: {len(left)}",
          "typed error, clean exit, nothing left", code == 1 and "out of memory" in json.dumps(error) and "asked" in json.dumps(error) and not left)
    again = b.json("full_memory", [b.penstock, "run", file, "--batches", "4", "--json", "--quiet", "--device", b.given.device], 60)
    b.row("the same run when the memory is free again", again["outcome"], "stopped", again["outcome"] == "stopped")


def descendants(pid):
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(open(f"/proc/{entry}/stat", encoding="utf-8").read().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                pass
    found = {pid}
    while True:
        more = {p for p, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def who_uses_the_gpu(pids):
    users = set()
    for pid in pids:
        try:
            maps = open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace").read()
            fds = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        if "libcuda.so" in maps or any(fd.startswith("/dev/nvidia") for fd in fds):
            users.add(pid)
    return users


def exclusivity(b):
    """16 workers, and who has the GPU open."""
    file = b.config("many.toml", synthetic(1 << 20, 16))
    with subprocess.Popen([b.penstock, "run", file, "--quiet", "--device", b.given.device], env=b.environment, cwd=b.folder,
                          stderr=subprocess.DEVNULL, start_new_session=True) as child:
        try:
            time.sleep(4)
            status = b.json("exclusivity", [b.penstock, "status", "--json"], 10)
            processes = descendants(child.pid)
            users = who_uses_the_gpu(processes)
            apps = "" if not shutil.which("nvidia-smi") else b.run("exclusivity", ["nvidia-smi", "--query-compute-apps=pid,name,used_memory", "--format=csv,noheader"], 10, check=False)
        finally:
            child.send_signal(signal.SIGINT)
            child.wait(timeout=30)
    b.row("processes on the GPU with 16 workers running", f"{len(users)} of {len(processes)} (libcuda mapped or /dev/nvidia* open); nvidia-smi: "
          f"{len(apps.split(chr(10))) - 1 if apps else 0}; workers ready: {sum(w['state'] == 'ready' for w in status['workers'])}", "exactly 1", len(users) == 1)
    seen = status["gpu"].get("processes")
    b.row("the GPU's processes in `status`, by NVML", "null" if seen is None else
          f"{len(seen)}: {', '.join(str(p['pid']) for p in seen)}; the owner's pid {status['gpu']['pid']} is {'' if any(p['pid'] == status['gpu']['pid'] for p in seen) else 'not '}among them",
          "told (pids may be of another namespace)" if b.given.device != "host" else "null", (seen is not None) == (b.given.device != "host"))


def owner_killed(b):
    """The owner's process killed 20 times in a run."""
    programs = [os.path.join(b.given.tree, "libexec/penstock/penstock-gpu"), os.path.join(b.bin, "penstock-gpu")]
    if not any(map(os.path.exists, programs)):
        raise Skip("no penstock-gpu")
    text = """schema = 1
[dataset]
type = "synthetic"
samples = 40_000
bytes_per_sample = "64KiB"
fill = "random"
wait = "2ms"
[sampler]
batch_size = 8
[loader]
workers = 8
[gpu]
placement = "process"
[gpu.restart]
intensity = { max = 100, within = "10m" }
"""
    file = b.config("killed.toml", text)
    arguments = [b.penstock, "run", file, "--digest", "--json", "--quiet", "--device", b.given.device]
    undisturbed = b.json("owner_killed", arguments, 60)
    recoveries, kills = [], 0
    with subprocess.Popen(arguments, env=b.environment, cwd=b.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        deadline = time.monotonic() + 60

        def status():
            answer = subprocess.run([b.penstock, "status", "--json"], env=b.environment, capture_output=True, text=True, check=False)
            return json.loads(answer.stdout) if answer.returncode == 0 else None
        while kills < 20 and child.poll() is None and time.monotonic() < deadline:
            now = status()
            if not now or now["gpu"]["state"] != "ready" or not now["gpu"]["pid"] or now["gpu"]["pid"] == now["pid"]:
                time.sleep(0.02)
                continue
            time.sleep(0.1)
            killed = now["gpu"]["pid"]
            before = now["batches_delivered"]
            try:
                os.kill(killed, signal.SIGKILL)
            except ProcessLookupError:
                continue
            kills += 1
            begin = time.monotonic()
            while child.poll() is None and time.monotonic() < begin + 10:
                now = status()
                if now and now["gpu"]["pid"] != killed and now["batches_delivered"] > before + 1:
                    recoveries.append(time.monotonic() - begin)
                    break
                time.sleep(0.01)
        output, _ = child.communicate(timeout=60)
    r = json.loads(output)
    same = [e["digest"] for e in r["epochs"]] == [e["digest"] for e in undisturbed["epochs"]]
    p50 = statistics.median(recoveries) if recoveries else float("nan")
    b.row("owner SIGKILLed in one run, process placement", f"{kills} times; digests {'equal' if same else 'DIFFER'}; outcome {r['outcome']}; kill to uploading "
          f"again p50 {p50:.2f} s, max {max(recoveries, default=0):.2f} s", "20 times, equal, p50 <= 1.2 s", same and kills >= 20 and p50 <= 1.2)


def device_program(b, name):
    return "plugin:" + b.program(name)


def poison(b):
    """A device program that commits an illegal access on sample 17."""
    program = device_program(b, "illegal_access.so")
    file = b.config("poison.toml", synthetic(1 << 16, 4))
    arguments = [b.penstock, "run", file, "--batches", "200", "--json", "--quiet", "--device", b.given.device, "--sink", program]
    for rule in ("fail", "skip"):
        done = subprocess.run(arguments + ["--set", f"gpu.on_poison_batch={rule}", "--set", "sampler.shuffle=false"],
                              env={**b.environment, "PENSTOCK_ILLEGAL_SAMPLE": "17"}, cwd=b.folder, capture_output=True, text=True, timeout=60)
        r = json.loads(done.stdout)
        codes = [d["code"] for d in r["gpu"]["deaths"]]
        failed = len(r["failures"])
        good = codes == [79, 79] and ((r["outcome"] == "failed" and "17" in r["error"]) if rule == "fail" else
                                      (r["outcome"] == "stopped" and 17 in [f["sample"] for f in r["failures"]]))
        b.row(f"illegal access on sample 17, on_poison_batch = {rule}",
              f"owners' exit codes {codes}; outcome {r['outcome']}; failed samples {failed}; {r.get('error') or ''}",
              "79 twice, then failed" if rule == "fail" else "79 twice, one batch left out by name", good)


def mean_variance(b):
    """A device program with state: the same figures on the host device and on the GPU."""
    program = device_program(b, "mean_variance.so")
    file = b.config("mean.toml", synthetic(1 << 16, 4).replace('"stamp"', '"random"'))
    said = {}
    for device in ("host", b.given.device):
        done = subprocess.run([b.penstock, "run", file, "--batches", "200", "--device", device, "--sink", program], env=b.environment,
                              cwd=b.folder, capture_output=True, text=True, timeout=60)
        found = re.search(r"mean_variance: .*", done.stderr)
        said[device] = found.group(0) if found else done.stderr[-300:]
    b.row("mean_variance as a device program, host device and GPU", " / ".join(said.values()), "equal", len(set(said.values())) == 1)


def endless(b):
    """A device program whose kernel never ends on sample 17: a deadline ends its process, the second time the batch is judged."""
    program = device_program(b, "never_ends.so")
    file = b.config("endless.toml", synthetic(1 << 16, 4))
    for rule in ("fail", "skip"):
        output = b.run("endless", [b.penstock, "run", file, "--batches", "200", "--json", "--quiet", "--device", b.given.device, "--sink", program,
                                   "--set", f"gpu.on_poison_batch={rule}", "--set", "gpu.hang.batch_timeout=3s"], 90,
                       environment={**b.environment, "PENSTOCK_ENDLESS_SAMPLE": "17"}, check=False)
        r = json.loads(output)
        causes = [d["cause"] for d in r["gpu"]["deaths"]]
        good = causes == ["hang", "hang"] and ((r["outcome"] == "failed" and "17" in r["error"]) if rule == "fail" else
                                               (r["outcome"] == "stopped" and 17 in [f["sample"] for f in r["failures"]]))
        b.row(f"a kernel that never ends on sample 17, batch_timeout = 3 s, on_poison_batch = {rule}",
              f"owners ended by {causes}; outcome {r['outcome']}; {b.last_seconds:.1f} s in all; {r.get('error') or ''}",
              "hang twice, then failed" if rule == "fail" else "hang twice, one batch left out by name", good)
    again = b.json("endless", [b.penstock, "run", file, "--batches", "4", "--json", "--quiet", "--device", b.given.device], 60)
    b.row("a run after the endless kernels", again["outcome"], "stopped", again["outcome"] == "stopped")


def variable_size(b):
    """Samples of different length from a worker program of somebody else's: the same stream on the host device and on the GPU."""
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


def training(b):
    """The ctest test with label gpu: the loss of examples/03_train_softmax falls."""
    b.needs_gpus(1)
    photos = os.path.join(b.folder, "sample-photos")
    b.run("training", [b.program("penstock-sample-photos"), photos, "200"], 60, environment=b.test_environment)
    output = b.run("training", [b.program("03_train_softmax"), photos], 100, environment=b.test_environment)
    losses = [float(loss) for loss in re.findall(r"^epoch +\d+  loss ([0-9.]+)$", output, re.M)]
    b.row("03_train_softmax: loss of the first and the last of its epochs", f"{losses[0]:.4f} -> {losses[-1]:.4f} in {len(losses)} epochs" if losses else "none",
          "20 epochs, falls by 10 %", len(losses) == 20 and losses[-1] < 0.9 * losses[0])


def embedding(b):
    """What a session costs the program around it: penstock-bench-embedding, on the host device."""
    program = b.program("penstock-bench-embedding")
    for what, arguments, figures, bar, holds in [
            ("construction to first lease loaded, 4 workers", ["first-lease", "20"],
             lambda r: f"p50 {r['lease_ms_p50']} ms, max {r['lease_ms_max']} ms", "30 ms", lambda r: r["lease_ms_max"] <= 30),
            ("destruction of a running session, 8 workers", ["destruction", "20"],
             lambda r: f"p50 {r['ms_p50']} ms, max {r['ms_max']} ms", "500 ms", lambda r: r["ms_max"] <= 500),
            *[(f"one spawn / all 8 workers ready beside {mib} MiB resident", ["ballast", mib, "10"],
               lambda r: f"p50 {r['spawn_ms_p50']} ms / {r['all_ready_ms_p50']} ms; RssAnon of the largest worker {r['worker_rss_anon_kib_max']} KiB",
               "no slower than beside 40 MiB", lambda r: None) for mib in ("40", "4096")],
            *[(f"state after {n} batches of the open epoch", ["state", n], lambda r: f"{r['bytes']} bytes", "bounded", lambda r: r["bytes"] <= r["bound"])
              for n in ("10", "1000", "10000")]]:
        r = b.json("embedding", [program, *arguments], 60, environment=b.test_environment)
        b.row(what, figures(r), bar, holds(r))


def two_gpus(b):
    """The session on the second GPU, its caller on the first."""
    b.needs_gpus(2)
    if not b.device_tests:
        raise Skip("test_device_gpu is not there")
    output = b.run("two_gpus", [b.device_tests, "[two]"], 60, environment=b.test_environment, check=False)
    summary = output.strip().splitlines()[-1] if output.strip() else f"exit code {b.last_code}"
    b.row("caller on cuda:0, batches on cuda:1", summary, "passes", b.last_code == 0 and "skipped" not in summary)
    file = b.config("two.toml", synthetic(1 << 16, 4).replace('"stamp"', '"random"'))
    found = {}
    for device in ("host", "cuda:1"):
        # --device knows auto, cuda and host; the config knows ordinals.
        r = b.json("two_gpus", [b.penstock, "run", file, "--batches", "200", "--digest", "--json", "--quiet", "--set", f'gpu.device="{device}"'], 60)
        found[device] = [e["digest"] for e in r["epochs"]]
    b.row("digests on the host device and on cuda:1", " / ".join(found["cuda:1"]), "equal", found["host"] == found["cuda:1"] and all(found["host"]))


def no_kernel_image(b):
    """Programs whose kernels were built for another architecture than this GPU's (see above how to build them)."""
    b.needs_gpus(1)
    penstock = os.path.join(b.given.tree, "variants/no_kernel_image/bin/penstock")
    if not os.path.exists(penstock):
        raise Skip("no variants/no_kernel_image in the tree")
    capability = b.run("no_kernel_image", ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], 20, check=False).split("\n")[0].strip()
    if capability.startswith("10."):
        raise Skip("this GPU runs what the variant was built for")
    file = b.config("image.toml", synthetic(1 << 16, 2))
    for placement in ("process", "embedded"):
        output = b.run("no_kernel_image", [penstock, "run", file, "--batches", "4", "--json", "--quiet", "--device", b.given.device, "--set",
                                           f'gpu.placement="{placement}"'], 60, check=False)
        r = json.loads(output)
        error = r.get("error") or ""
        b.row(f"no kernel image, {placement}", f"exit {b.last_code}, {r.get('error_kind')}: {error}",
              "exit 1, names the GPU's compute capability and the built architectures",
              b.last_code == 1 and f"compute capability {capability}" in error and "100-real" in error)


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


# doctor first: it reads the driver's log, in which the tests leave an illegal access that they mean.
STEPS = [machine, doctor, tests, captures, upload, transform, first_batch, digests, pytorch, full_memory, exclusivity, owner_killed, poison, endless,
         mean_variance, variable_size, training, two_gpus, no_kernel_image, embedding, memcheck]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tree", default=None)
    parser.add_argument("--out", default=None)
    parser.add_argument("--only", type=lambda text: text.split(","), default=None,
                        help="steps: " + ", ".join(s.__name__ for s in STEPS))
    parser.add_argument("--device", default="cuda", help="host rehearses the script on a machine without a GPU")
    parser.add_argument("--seconds", type=float, default=3, help="how long each benchmark measures")
    parser.add_argument("--budget", type=float, default=460, help="no step begins later than this many seconds")
    parser.add_argument("--list", action="store_true", help="say what each step does, and end")
    given = parser.parse_args()
    if given.list:
        for step in STEPS:
            print(f"{step.__name__:16} {(step.__doc__ or '').strip()}")
        return
    given.tree = os.path.abspath(given.tree or os.path.join(HERE, "..", ".."))
    if given.out:
        given.out = os.path.abspath(given.out)
    bench = Bench(given)
    if not os.path.exists(bench.penstock):
        sys.exit(f"there is no {bench.penstock}: give --tree, an install tree or a build folder")
    for step in STEPS:
        bench.step(step)
    bench.finish()
    sys.exit(1 if any(r["ok"] is False for r in bench.rows) else 0)


if __name__ == "__main__":
    main()
