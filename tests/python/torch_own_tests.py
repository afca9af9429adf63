"""Runs PyTorch's own tests of its DataLoader on penstock.torch.DataLoader, and prints the share that passes.

    torch_own_tests.py .../pytorch-1.13.1/test/test_dataloader.py [--only WORD ...] [--jobs N] [--plain] [--json]

The file is that of the installed version: `apt-get source pytorch`, or the tag of its repository. It needs expecttest and
psutil. With --plain, torch's own DataLoader runs them: tests that fail there too are not our fault. Exits with 1 if an applicable test
fails or hangs, and with 77 ("skipped" for ctest) if the file, torch or expecttest is missing.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

# Tests that do not apply, by class (or *) and name, with the reason.
EXCLUDED = {
    "*.test_proper_exit": "kills workers by hand through the private attribute _workers, and wants the loader to die of it",
    "*.test_segfault": "wants a crash in a worker to be an error: here it is survived, or names its sample",
    "*.test_iterable_style_dataset": "wants exit codes from the private attribute _workers: processes are the pool's, which collects their codes",
    "*.test_ind_worker_queue": "wants batch k to come from worker k modulo n: here a free worker takes the next batch",
    "*.test_excessive_thread_creation_warning": "wants a warning about more workers than cores: here they may help, and freeze nothing",
    "*.test_worker_init_fn_forkserver": "wants a local worker_init_fn to be refused: here cloudpickle carries it",
    "TestDataLoaderDeviceTypeCUDA.*": "wants samples that lie on the GPU in workers: GPUs are hidden from them",
    "TestDataLoaderDeviceCUDA.*": "wants samples that lie on the GPU in workers: GPUs are hidden from them",
    "*.test_persistent_workers_pin_memory_atexit_registered_once": "about the function that torch's own iterators register for the exit",
    "*.test_persistent_workers_pin_memory_atexit_uses_iterator_shutdown": "about the function that torch's own iterators register for the exit",
    "TestOutOfOrderDataLoader.test_in_order_index_ds": "wants batch k to come from worker k modulo n: here a free worker takes the next batch",
    "TestOutOfOrderDataLoader.test_out_of_order_index_ds": "wants batches to wait behind a slow one of their worker: here a free worker takes the next batch",
    "TestDataLoader2.*": "about torch.utils.data.dataloader_experimental, another class",
    "TestDataLoader2_EventLoop.*": "about torch.utils.data.communication, another class",
}

# Tests that use a GPU if there is one.
EXCLUDED_WITH_A_GPU = {"*.test_multiprocessing_contexts": "needs workers that use CUDA: GPUs are hidden from them"}

REPLACE = """
import penstock.torch
import torch.utils.data

torch.utils.data.DataLoader = penstock.torch.DataLoader
"""

SHIM = """
{replace}
with open({path!r}) as _opened:
    exec(compile(_opened.read(), {path!r}, "exec"))
JOIN_TIMEOUT = {patience}  # for processes that it starts: their workers import torch, which takes long on a loaded machine
"""

CHILD = """
import faulthandler, json, sys, unittest
sys.path.insert(0, {folder!r})
wanted = json.load(sys.stdin)
import test_dataloader

class Told(unittest.TextTestResult):
    def startTest(self, test):
        super().startTest(test)
        faulthandler.dump_traceback_later({patience}, exit=True)
        told("begun", test)
    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)
    def addSuccess(self, test):
        super().addSuccess(test)
        told("passed", test)
    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        told("skipped", test, reason)
    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        told("skipped", test, "torch expects it to fail")
    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        told("passed", test)
    def addFailure(self, test, error):
        super().addFailure(test, error)
        told("failed", test, self.failures[-1][1])
    def addError(self, test, error):
        super().addError(test, error)
        told("failed", test, self.errors[-1][1])

def told(what, test, more=""):
    print("TOLD " + json.dumps([what, test.id().split(".", 1)[1], more]), flush=True)

suite = unittest.TestSuite()
for name in wanted:
    suite.addTest(unittest.defaultTestLoader.loadTestsFromName(name, test_dataloader))
unittest.TextTestRunner(resultclass=Told, verbosity=0, stream=sys.stderr).run(suite)
"""

LIST = """
import sys, torch, unittest
sys.path.insert(0, {folder!r})
import test_dataloader
def names(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from names(test)
        else:
            yield test.id().split(".", 1)[1]
print("GPU" if torch.cuda.is_available() else "no GPU")
print("\\n".join("NAME " + name for name in names(unittest.defaultTestLoader.loadTestsFromModule(test_dataloader))))
"""


def reason_against(name, has_gpu):
    kind, test = name.split(".", 1)
    for pattern, reason in {**EXCLUDED, **(EXCLUDED_WITH_A_GPU if has_gpu else {})}.items():
        of_class, of_test = pattern.split(".")
        if of_class in ("*", kind) and of_test in ("*", test):
            return reason
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--only", nargs="+", default=[""], help="tests whose name has one of these in it")
    parser.add_argument("--patience", type=int, default=120, help="seconds for one test")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the tests")
    parser.add_argument("--plain", action="store_true", help="torch's own DataLoader, to compare with")
    parser.add_argument("--json", action="store_true", help="print a summary as JSON")
    given = parser.parse_args()
    missing = [name for name in ("torch", "expecttest") if importlib.util.find_spec(name) is None]
    missing += [] if os.path.exists(given.file) else [given.file]
    if missing:
        print("not here: " + ", ".join(missing))
        return 77
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "test_dataloader.py"), "w") as shim:
            shim.write(SHIM.format(replace="" if given.plain else REPLACE, path=os.path.abspath(given.file), patience=given.patience - 10))
        results = run(folder, given)
    return report(results, given)


def run(folder, given):
    listed = subprocess.run([sys.executable, "-c", LIST.format(folder=folder)], capture_output=True, text=True)
    names = [line[5:] for line in listed.stdout.splitlines() if line.startswith("NAME ")]
    has_gpu = listed.stdout.startswith("GPU")
    if not names:
        sys.exit("no tests found:\n" + listed.stderr)
    results = {}
    wanted = []
    for name in names:
        if not any(word in name for word in given.only):
            continue
        reason = reason_against(name, has_gpu)
        if reason is None:
            wanted.append(name)
        else:
            results[name] = ("excluded", reason)
    parts = [threading.Thread(target=run_part, args=(folder, given, wanted[part::given.jobs], results)) for part in range(given.jobs)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    return results


def run_part(folder, given, wanted, results):
    """Runs these tests one after another in a process, and continues in a new process when a test has ended it."""
    while wanted:
        begun = None
        child = subprocess.Popen([sys.executable, "-c", CHILD.format(folder=folder, patience=given.patience)], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder)
        child.stdin.write(json.dumps(wanted))
        child.stdin.close()
        for line in child.stdout:
            if not line.startswith("TOLD "):
                continue
            what, name, more = json.loads(line[5:])
            if what == "begun":
                begun, since = name, time.monotonic()
            else:
                results[name] = (what, more)
                print(f"{what:8} {time.monotonic() - since:6.1f} s  {name}", file=sys.stderr, flush=True)
                if what == "failed":
                    print(textwrap.indent(more, "    "), file=sys.stderr, flush=True)
        child.wait()
        left = [name for name in wanted if name not in results]
        if left and (begun is None or begun in results):
            begun = left[0]
        if left:
            results[begun] = ("hung", f"the process ended with {child.returncode}")
            print(f"hung     {begun}", file=sys.stderr, flush=True)
        wanted = [name for name in left if name != begun]


def report(results, given):
    counts = {}
    for what, _ in results.values():
        counts[what] = counts.get(what, 0) + 1
    ran = sum(counts.get(what, 0) for what in ("passed", "failed", "hung"))
    share = counts.get("passed", 0) / ran if ran else 0.0
    if given.json:
        print(json.dumps({"counts": counts, "share": share, "results": results}))
    else:
        for name, (what, more) in sorted(results.items()):
            if what in ("failed", "hung"):
                print(f"--- {what}: {name}\n{textwrap.indent(more, '    ')}")
        for name, (what, more) in sorted(results.items()):
            if what in ("excluded", "skipped"):
                print(f"{what}: {name}: {more}")
        print(f"{counts.get('passed', 0)} of {ran} pass ({100 * share:.1f} %); {counts}")
    return 0 if ran and counts.get("passed") == ran else 1


if __name__ == "__main__":
    sys.exit(main())
