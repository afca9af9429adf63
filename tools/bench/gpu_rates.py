"""Steps of gpu.py that measure speed."""

import os
import statistics
import subprocess
import sys

from gpu_bench import Skip, synthetic

HERE = os.path.dirname(os.path.abspath(__file__))


def upload(b):
    """penstock bench upload: slots to the device, compared with the bare copy."""
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
    """PyTorch's DataLoader with the payload of the step upload. Compares its rate with the best of that step, which must
    run first."""
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
    """penstock bench transform: the kernels, compared with a device-to-device copy."""
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
    """The time from the construction of a session to its first batch, compared with the time to create a context."""
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


def embedding(b):
    """What a session costs the program that embeds it: penstock-bench-embedding, on the host device."""
    program = b.program("penstock-bench-embedding")
    for what, arguments, figures, bar, holds in [
            ("construction to first lease loaded, 4 workers", ["first-lease", "20"],
             lambda r: f"p50 {r['lease_ms_p50']} ms, max {r['lease_ms_max']} ms", "30 ms", lambda r: r["lease_ms_max"] <= 30),
            ("destruction of a running session, 8 workers", ["destruction", "20"],
             lambda r: f"p50 {r['ms_p50']} ms, max {r['ms_max']} ms", "500 ms", lambda r: r["ms_max"] <= 500),
            *[(f"one spawn / all 8 workers ready next to {mib} MiB resident", ["ballast", mib, "10"],
               lambda r: f"p50 {r['spawn_ms_p50']} ms / {r['all_ready_ms_p50']} ms; RssAnon of the largest worker {r['worker_rss_anon_kib_max']} KiB",
               "no slower than with 40 MiB", lambda r: None) for mib in ("40", "4096")],
            *[(f"state after {n} batches of the open epoch", ["state", n], lambda r: f"{r['bytes']} bytes", "bounded", lambda r: r["bytes"] <= r["bound"])
              for n in ("10", "1000", "10000")]]:
        r = b.json("embedding", [program, *arguments], 60, environment=b.test_environment)
        b.row(what, figures(r), bar, holds(r))
