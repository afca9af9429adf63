"""The end of a loader and of its program: no processes, descriptors or memory remain, and nothing grows."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import unittest.mock

import penstock
from loader_data import DataLoader, LoaderCase, Squares, Values, torch
from package import *
from package import children_of
from penstock._pool_end import PoolLife


def anonymous_memory_of(pid):
    """The anonymous memory of a process in kilobytes."""
    with open("/proc/%d/status" % pid) as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon:"))


def descriptors_of(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def threads_of(pid):
    return len(os.listdir("/proc/%d/task" % pid))


class LoaderEndTest(LoaderCase):
    def test_classes_of_a_program_without_a_main_guard_reach_workers_and_come_back(self):
        out = self.ran("""
            import torch
            from penstock.torch import DataLoader
            class Batch:
                def __init__(self, samples): self.total = sum(samples)
            class Numbers(torch.utils.data.Dataset):
                def __len__(self): return 6
                def __getitem__(self, index): return index
            for batch in DataLoader(Numbers(), batch_size=3, num_workers=1, collate_fn=lambda samples: Batch(samples)):
                print(isinstance(batch, Batch), batch.total)
            """)
        self.assertEqual(out.split(), ["True", "3", "True", "12"])

    def test_an_iterator_that_lives_until_the_interpreter_ends_does_not_delay_that(self):
        out = self.ran("""
            import time, torch
            from penstock.torch import DataLoader
            class Slow(torch.utils.data.Dataset):
                def __len__(self): return 100
                def __getitem__(self, index):
                    if index > 2: time.sleep(600)
                    return index
            loader = iter(DataLoader(Slow(), num_workers=2))
            print(next(loader).item())
            """, timeout=100)
        self.assertEqual(out.strip(), "0")

    BUSY = """
        import signal, sys, time, torch
        from penstock.torch import DataLoader
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
        class Slow(torch.utils.data.Dataset):
            def __len__(self): return 1000
            def __getitem__(self, index):
                if index > 2: time.sleep(600)
                return index
        for batch in DataLoader(Slow(), num_workers=2, name="busy"):
            print("got", batch.item(), flush=True)
            if sys.argv[1] == "break" and batch.item() == 2: break
        """

    def deaths_of_ended(self):
        head, row = self.penstock("sessions", "--ended")[1].splitlines()[:2]
        self.assertTrue(head.endswith(" DEATHS") and row.startswith("busy@"), row)
        return int(row.split()[-1])

    def test_a_signal_handler_that_raises_while_a_loader_is_dropped_leaves_no_descriptor(self):
        drop = PoolLife.drop

        def interrupted(life):
            drop(life)
            raise KeyboardInterrupt
        list(DataLoader(Values(abs, 2), num_workers=1))  # what stays open from now on
        gc.collect()
        self.no_children_left()
        before = descriptors_of(os.getpid())
        loader = DataLoader(Values(abs, 2), num_workers=1)
        list(loader)
        with unittest.mock.patch.object(PoolLife, "drop", interrupted), unittest.mock.patch("sys.unraisablehook") as printed:
            del loader
            gc.collect()
        self.assertEqual(printed.call_count, 1)
        del printed  # its traceback holds the pool
        gc.collect()
        self.no_children_left()
        self.assertEqual(descriptors_of(os.getpid()), before)

    def test_workers_that_are_busy_at_a_break_are_no_deaths(self):
        self.ran(self.BUSY, "break")
        self.assertEqual(self.deaths_of_ended(), 0)

    def test_ctrl_c_ends_a_program_with_one_traceback_and_no_deaths(self):
        process = subprocess.Popen([sys.executable, "-B", "-c", textwrap.dedent(self.BUSY), "wait"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=self.environment, cwd=self.folder, start_new_session=True)
        self._running.append(process)
        while self.said(process, "got") != "2":
            pass
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGINT, err)
        self.assertEqual([line for line in err.splitlines() if not line.startswith(" ")],
                         ["Traceback (most recent call last):", "KeyboardInterrupt"], err)
        self.assertEqual(self.deaths_of_ended(), 0)

    def test_a_loader_whose_pool_was_stopped_raises_at_most_once_for_each_batch_and_then_ends(self):
        loader = DataLoader(Values(int, 40), batch_size=4, num_workers=1)
        batches = iter(loader)
        next(batches)
        loader._workers.pool.abort()
        delivered, raised = 1, 0
        while raised < 100:
            try:
                next(batches)
                delivered += 1
            except StopIteration:
                break
            except penstock.error:
                raised += 1
        self.assertGreater(raised, 0)
        self.assertEqual(delivered + raised, 10)

    def test_a_batch_that_a_stop_cuts_off_is_not_done_and_a_resumed_loader_begins_with_it(self):
        for length in (12, 40):  # all batches are in progress, or only some
            def wait(index):
                if index >= 8 and not resumed:
                    threading.Event().wait()
                return index
            resumed = []
            loader = DataLoader(Values(wait, length), batch_size=4, num_workers=1)
            batches = iter(loader)
            seen = [index for _ in range(2) for index in next(batches).tolist()]
            pool = loader._workers.pool
            pool._core.stop(0)
            while True:
                try:
                    next(batches)
                except penstock.stopped_error:
                    pass
                except StopIteration:
                    break
            self.assertEqual([pool.status()[name] for name in ("batches_delivered", "batches_done", "samples_done")], [2, 2, 8])
            resumed.append(True)
            again = DataLoader(Values(wait, length), batch_size=4, num_workers=1)
            again.load_state_dict(loader.state_dict())
            self.assertEqual(seen + [index for batch in again for index in batch.tolist()], list(range(length)))

    def test_a_consumer_that_waits_for_a_batch_gets_stopped_error_when_the_loader_is_stopped(self):
        us = "process %d \\(" % os.getpid()
        for length, who in ((2, "the program$"), (40, "`penstock stop` from " + us)):  # all batches are in progress, or only some
            begun = os.path.join(self.folder, "begun-%d" % length)

            def wait(index):
                if index == 1:
                    open(begun, "w").close()
                    threading.Event().wait()
                return index
            loader = DataLoader(Values(wait, length), batch_size=None, num_workers=1, name="waits-%d" % length)
            batches = iter(loader)
            self.assertEqual(next(batches), 0)

            def stop():
                self.wait_until(lambda: os.path.exists(begun), "the sample that waits")
                loader._workers.pool._core.stop(0.5) if length == 2 else self.penstock("stop", "--session", "waits-40")
            stopper = threading.Thread(target=stop)
            stopper.start()
            with self.assertRaisesRegex(penstock.stopped_error, "^the loader was stopped by " + who) as caught:
                next(batches)
            stopper.join()
            self.assertIsNone(caught.exception.__context__)

    def test_a_killed_interpreter_leaves_no_worker(self):
        process = self.program("""
            import os, time, torch
            from penstock.torch import DataLoader
            class Pids(torch.utils.data.Dataset):
                def __len__(self): return 1000
                def __getitem__(self, index): return os.getpid()
            for pid in DataLoader(Pids(), batch_size=None, num_workers=1):
                print("worker", pid, flush=True)
                time.sleep(0.1)
            """)
        worker = int(self.said(process, "worker"))
        process.kill()
        process.wait()
        self.wait_until(lambda: not alive(worker), "the end of the worker", seconds=3)

    def test_iterations_leak_no_descriptors_threads_or_memory(self):
        many = int(os.environ.get("PENSTOCK_TEST_ITERATIONS", "60"))

        def give(index):
            return torch.full((20_000,), index, dtype=torch.float32), {"name": "n%d" % index, "worker": os.getpid()}  # batches have 320 kB, so they are read in their slots
        loader = DataLoader(Values(give, 40), batch_size=4, num_workers=2)

        def grown_from(processes):
            return {pid: (descriptors_of(pid), threads_of(pid), anonymous_memory_of(pid)) for pid in processes}

        def turn(times):
            for at in range(times):
                for place, batch in enumerate(loader):
                    if at % 3 == 0 and place == 4:  # an iteration that is abandoned
                        break
            del batch
            gc.collect()
            return grown_from([os.getpid(), *children_of(os.getpid())])
        seen = set()
        while len(seen) < 2:  # the second worker imports torch when the first one has
            seen |= {int(facts["worker"][0]) for _, facts in loader}
        before = turn(30)
        after = turn(many)
        self.assertEqual(sorted(before), sorted(after))
        for pid, (descriptors, threads, memory) in before.items():
            self.assertEqual(after[pid][1], threads)
            self.assertLessEqual(after[pid][0], descriptors + 2, "descriptors")  # open for the current order and the last one
            self.assertLess(after[pid][2], memory + (8 << 10), "kilobytes")
        print("%d iterations; descriptors, threads, kB at first and at last:" % many, list(before.values()), list(after.values()))

    def test_loaders_that_are_made_and_dropped_leave_no_processes_or_descriptors(self):
        def turn(times):
            for at in range(times):
                loader = DataLoader(Squares(64), batch_size=4, num_workers=1)
                for batch in loader:
                    if at % 2 == 0:
                        break
            del loader, batch
            gc.collect()
            self.no_children_left()
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        before, memory = turn(2), anonymous_memory_of(os.getpid())
        many = int(os.environ.get("PENSTOCK_TEST_LOADERS", "2"))
        self.wait_until(lambda: turn(many) == before, "the numbers of descriptors and threads return to what they were", seconds=60 + many)
        print("%d loaders: %d kB at first, %d at last" % (many, memory, anonymous_memory_of(os.getpid())))
        self.assertLess(anonymous_memory_of(os.getpid()), memory + (16 << 10), "kilobytes")


if __name__ == "__main__":
    main()
