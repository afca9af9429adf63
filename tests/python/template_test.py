"""Workers that a template forks: they behave like workers started with exec, which is used where a fork is unsafe."""

import contextlib
import os
import random
import signal
import statistics
import sys
import tempfile
import time
import unittest
import unittest.mock

import penstock
import penstock.torch
import torch

TEMPLATE = {"start_method": "template"}


def facts(_=None):
    with open("/proc/self/stat") as stat:
        parent = int(stat.read().rsplit(")", 1)[1].split()[1])
    return os.getpid(), parent, os.getpgrp(), os.environ.get("PENSTOCK_WORKER")


def numbers(_):
    return random.random()


def children():
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as listed:
        direct = {int(pid) for pid in listed.read().split()}
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children") as listed:
                direct |= {int(pid) for pid in listed.read().split()}
        except OSError:
            pass
    return direct


def replaced(pool, pid, limit=60):
    """Waits until a process other than `pid` is ready in its place. Returns the seconds that took."""
    place = next(each["id"] for each in pool.status()["workers"] if each["pid"] == pid)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: next(each for each in pool.status()["workers"] if each["id"] == place),
             lambda there: there["pid"] != pid and there["state"] == "ready", limit)
    return time.monotonic() - began


def wait_for(look, wanted, limit=60):
    began = time.monotonic()
    while not wanted(found := look()):
        if time.monotonic() - began > limit:
            raise AssertionError(f"still {found} after {limit} s")
        time.sleep(0.001)
    return found


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((4,), index) + torch.rand(4)


class OpensFile(Numbers):
    """Each process must open its own file."""

    def __init__(self, path):
        self.path = path

    def __getstate__(self):
        return {"path": self.path}

    def __setstate__(self, state):
        self.path = state["path"]
        self.file = open(self.path, "rb")

    def __getitem__(self, index):
        self.file.seek(index)
        return torch.tensor([self.file.read(1)[0], os.getpid()])


class Crashes(Numbers):
    def __getitem__(self, index):
        if index == 17:
            os.abort()
        return super().__getitem__(index)


class TemplateTest(unittest.TestCase):
    def test_a_forked_worker_is_a_child_of_the_program_and_leads_its_own_group(self):
        with penstock.Pool(2, loader=TEMPLATE) as pool:
            pid, parent, group, worker = pool.submit(facts).result(60)
            self.assertEqual((os.getpid(), pid), (parent, group))
            self.assertIn(worker, ("0", "1"))
            template = children() - {each["pid"] for each in pool.status()["workers"]}
            self.assertEqual(1, len(template), "there is one template next to the workers")
        self.assertEqual(set(), children(), "the pool's end left a process")

    def test_a_forked_worker_runs_only_on_the_listed_cores(self):
        core = max(os.sched_getaffinity(0))
        with penstock.Pool(2, loader={**TEMPLATE, "affinity": [core]}) as pool:
            self.assertEqual({core}, pool.submit(lambda: os.sched_getaffinity(0)).result(60))

    def test_neither_the_template_nor_a_worker_has_the_secret_of_a_group(self):
        with unittest.mock.patch.dict(os.environ, PENSTOCK_GROUP_SECRET="of the program and no other process"):
            for method in (TEMPLATE, {"start_method": "exec"}):
                with penstock.Pool(1, loader=method) as pool:
                    self.assertIsNone(pool.submit(os.getenv, "PENSTOCK_GROUP_SECRET").result(60))
                    for pid in children():
                        with open(f"/proc/{pid}/environ", "rb") as environment:
                            self.assertNotIn(b"PENSTOCK_GROUP_SECRET=", environment.read(), method)

    def test_a_killed_worker_is_replaced_and_reported_as_a_death(self):
        with penstock.Pool(1, loader=TEMPLATE) as pool:
            pid = pool.submit(facts).result(60)[0]
            replaced(pool, pid)
            self.assertNotEqual(pid, pool.submit(facts).result(60)[0])
            self.assertEqual(pid, pool.status()["workers"][0]["last_death"]["pid"])

    def test_forked_workers_draw_different_random_numbers(self):
        with penstock.Pool(1, loader=TEMPLATE, fresh=True) as pool:
            drawn = [pool.submit(numbers, i).result(60) for i in range(4)]
        self.assertEqual(4, len(set(drawn)))

    def test_workers_outlive_their_template_and_the_next_one_forks_replacements(self):
        with penstock.Pool(1, loader=TEMPLATE) as pool:
            pid = pool.submit(facts).result(60)[0]
            (template,) = children() - {pid}
            os.kill(template, signal.SIGKILL)
            while template in children():
                time.sleep(0.005)
            self.assertEqual(pid, pool.submit(facts).result(60)[0])
            replaced(pool, pid)
            self.assertNotEqual(pid, pool.submit(facts).result(60)[0])

    def test_a_sample_that_kills_its_workers_does_not_cost_the_template(self):
        loader = penstock.torch.DataLoader(Crashes(), batch_size=4, num_workers=2, on_bad_sample="skip", persistent_workers=True, pool={"loader": TEMPLATE})
        batches = iter(loader)
        next(batches)
        workers = {each["pid"] for each in loader._workers_here().pool.status()["workers"]}
        (template,) = {pid for pid in children() - workers if os.getpgid(pid) == pid}
        self.assertEqual(59, sum(map(len, batches)))
        pool = loader._workers_here().pool
        wait_for(lambda: {each["state"] for each in pool.status()["workers"]}, lambda states: states == {"ready", "stopped"})  # one worker was temporary
        replaced(pool, pool.status()["workers"][0]["pid"])  # after the end of the template, if it was killed
        self.assertIn(template, children())

    def test_a_template_that_is_killed_at_any_moment_leaves_no_process(self):
        seed = int(os.environ.get("PENSTOCK_TEST_SEED", time.time_ns() % 2**32))
        print("PENSTOCK_TEST_SEED=%d" % seed, flush=True)
        choose = random.Random(seed)
        with penstock.Pool(1, loader={**TEMPLATE, "restart": {"intensity": {"max": 1000}, "backoff": {"max": "1ms", "base": "1ms"}}}) as pool:
            for _ in range(int(os.environ.get("PENSTOCK_TEST_KILLED", 20))):
                pid = pool.submit(facts).result(60)[0]
                (template,) = wait_for(lambda: children() - {pid}, lambda found: len(found) == 1)
                os.kill(pid, signal.SIGKILL)
                until = time.perf_counter() + choose.random() * 0.02
                while time.perf_counter() < until:
                    pass
                with contextlib.suppress(ProcessLookupError):  # the worker killed earlier may not have been replaced yet
                    os.kill(template, signal.SIGKILL)
            pid = pool.submit(facts).result(60)[0]
            wait_for(children, lambda found: len(found) == 2)
        self.assertEqual(set(), children(), "the pool's end left a process")

    def test_a_template_that_keeps_dying_is_given_up(self):
        with penstock.Pool(1, loader={**TEMPLATE, "restart": {"intensity": {"max": 2}, "backoff": {"max": "1ms", "base": "1ms"}}}) as pool:
            pid = pool.submit(facts).result(60)[0]
            known = {pid}
            for _ in range(3):
                (template,) = wait_for(lambda: children() - known, lambda found: len(found) == 1)
                known.add(template)
                os.kill(template, signal.SIGKILL)
            wait_for(children, lambda found: found == {pid})
            replaced(pool, pid)
            self.assertEqual({pool.submit(facts).result(60)[0]}, children(), "the worker started with exec")

    def test_workers_start_with_exec_instead_of_fork_if_a_module_starts_a_thread(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "starts_a_thread.py"), "w") as module:
                module.write("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\ndef begin(): pass\n")
            sys.path.insert(0, folder)
            try:
                import starts_a_thread

                with penstock.Pool(1, loader=TEMPLATE, initializer=starts_a_thread.begin) as pool:
                    pid = pool.submit(facts).result(60)[0]
                    self.assertEqual({pid}, children(), "the template is gone, and the worker there")
            finally:
                sys.path.remove(folder)

    def test_an_initializer_that_raises_fails_the_pool_with_its_message(self):
        def broken():
            raise ValueError("no such luck")

        with penstock.Pool(1, loader={**TEMPLATE, "restart": {"intensity": {"max": 1}}}, initializer=broken) as pool:
            with self.assertRaisesRegex(penstock.error, "no such luck"):
                pool.submit(facts).result(60)


class LoaderTest(unittest.TestCase):
    def test_batches_match_those_of_workers_started_with_exec(self):
        def batches(method):
            loader = penstock.torch.DataLoader(Numbers(), batch_size=8, num_workers=2, seed=5, shuffle=True, pool={"loader": {"start_method": method}})
            return torch.cat(list(loader))

        self.assertTrue(torch.equal(batches("template"), batches("exec")))

    def test_a_dataset_that_opens_a_file_is_created_by_each_worker(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(range(64)))
            file.flush()
            loader = penstock.torch.DataLoader(OpensFile(file.name), batch_size=4, num_workers=2, pool={"loader": TEMPLATE})
            values = torch.cat(list(loader))
        self.assertEqual(list(range(64)), values[:, 0].tolist())

    def test_a_replacement_does_not_import_torch_again(self):
        loader = penstock.torch.DataLoader(Numbers(), batch_size=8, num_workers=1, persistent_workers=True, pool={"loader": TEMPLATE})
        list(loader)
        pool = loader._workers_here().pool
        seconds = []
        for _ in range(5):
            seconds.append(replaced(pool, pool.status()["workers"][0]["pid"]))
            list(loader)
        print(f"replacements: {sorted(round(1e3 * each) for each in seconds)} ms")
        self.assertLess(statistics.median(seconds), 0.5, "an import of torch takes longer")


if __name__ == "__main__":
    unittest.main()
