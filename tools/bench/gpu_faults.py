"""Steps of gpu.py with faults, or with a GPU that another process holds."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

from gpu_bench import BATCH_BYTES, Skip, synthetic

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
          "typed error, clean exit, nothing left", code == 1 and "out of memory" in json.dumps(error) and "requested" in json.dumps(error) and not left)
    again = b.json("full_memory", [b.penstock, "run", file, "--batches", "4", "--json", "--quiet", "--device", b.given.device], 60)
    b.row("the same run after the memory was freed", again["outcome"], "stopped", again["outcome"] == "stopped")


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
    """Checks which processes have the GPU open with 16 workers."""
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
          "reported (pids may be of another namespace)" if b.given.device != "host" else "null", (seen is not None) == (b.given.device != "host"))


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


def poison(b):
    """A device program that commits an illegal access on sample 17."""
    program = b.device_program("illegal_access.so")
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


def endless(b):
    """A device program whose kernel never ends on sample 17. A deadline kills its process twice; then the batch is a poison batch."""
    program = b.device_program("never_ends.so")
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
              f"owners ended by {causes}; outcome {r['outcome']}; {b.last_seconds:.1f} s in total; {r.get('error') or ''}",
              "hang twice, then failed" if rule == "fail" else "hang twice, one batch left out by name", good)
    again = b.json("endless", [b.penstock, "run", file, "--batches", "4", "--json", "--quiet", "--device", b.given.device], 60)
    b.row("a run after the endless kernels", again["outcome"], "stopped", again["outcome"] == "stopped")


def no_kernel_image(b):
    """Programs whose kernels were built for a different architecture than this GPU's (gpu.py says how to build them)."""
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
