"""Shared by the steps of gpu.py: programs with deadlines, the table of results, configs."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

BATCH_BYTES = 19267584


class Skip(Exception):
    pass


def gpus_of_this_machine():
    """The GPUs listed by nvidia-smi; empty if it does not answer."""
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
        # For tests copied from a build tree; installed programs find their libraries themselves.
        self.test_environment = dict(self.environment, LD_LIBRARY_PATH=os.path.join(given.tree, "lib") + ":" + os.environ.get("LD_LIBRARY_PATH", ""))

    def run(self, name, command, timeout, environment=None, check=True):
        """Runs a command and returns its output. Kills its whole process group at the end."""
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
        """The path of a test program, in an install tree or in a build folder."""
        for folder in ("libexec/penstock/tests", "bin", "bin/device_programs"):
            path = os.path.join(self.given.tree, folder, name)
            if os.path.exists(path):
                return path
        raise Skip(f"there is no program {name}: install the component tests")

    def device_program(self, name):
        return "plugin:" + self.program(name)

    def needs_gpus(self, number):
        if self.given.device == "host":
            raise Skip("this part has nothing to run on the host device")
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
        print(f"\n{time.monotonic() - self.begin:.0f} s in total")
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
