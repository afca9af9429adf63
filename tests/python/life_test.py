"""Sessions leave nothing behind: at Ctrl-C, at exit, when garbage-collected, and when the interpreter is killed."""

import gc
import threading
import time
import weakref

import penstock
from package import *

STREAM = synthetic(samples=64, batch=8, epochs=1)
LONG = synthetic(samples=512, batch=8, epochs=1)  # more batches than can be prepared
ENDLESS = synthetic(samples=64, batch=8, epochs=1000)

# Waits for a batch that does not arrive, and takes more batches after a KeyboardInterrupt.
WAITING = """
    import sys, time
    import penstock
    session = penstock.Session(sys.argv[1], loader={"workers": 2}, control_socket=False)
    epoch = session.epoch(0)
    taken = [next(epoch).index]
    session.pause()
    print("paused", flush=True)
    try:
        for batch in epoch:
            taken.append(batch.index)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    session.resume()
    taken += [batch.index for batch in epoch]
    print("taken", *taken, flush=True)
    """


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def threads():
    return len(os.listdir("/proc/self/task"))


class LifeTest(PackageTest):
    def config(self, text=STREAM):
        return self.write("stream.toml", text)

    def test_stop_wait_returns_when_the_record_of_a_pool_is_complete_even_if_its_program_continues(self):
        program = self.program("""
            import penstock
            for _ in range(5):
                try:
                    with penstock.Pool(1, name="curlew") as pool:
                        print("open", flush=True)
                        while True:
                            pool.submit(abs, -1).result()
                except Exception:
                    print("stopped", flush=True)
            """)
        for _ in range(5):
            self.assertEqual(program.stdout.readline(), "open\n")
            code, _, err = self.penstock("wait", "--session", "curlew", "--timeout", "30s")
            self.assertEqual(code, EXIT_OK, err)
            code, _, err = self.penstock("stop", "--wait", "--session", "curlew")
            self.assertEqual(code, EXIT_OK, err)
            code, out, err = self.penstock("events", "--last", "--session", "curlew", "--json")
            self.assertEqual(code, EXIT_OK, err)
            last = json.loads(out.splitlines()[-1])
            self.assertEqual((last["kind"], last["outcome"]), ("ended", "stopped"))
            self.assertEqual(program.stdout.readline(), "stopped\n")

    def make_and_drop(self, times):
        config = self.config()
        for turn in range(times):
            session = penstock.Session(config, loader={"workers": 2}, on_event=lambda event: None)
            if turn % 3 == 0:
                for _ in session.epoch(0):
                    pass
            elif turn % 3 == 1:
                session.next()
                session.close()
            else:
                next(session.epoch(0))
            del session

    def nothing_grows(self, times):
        self.make_and_drop(3)
        gc.collect()
        self.no_children_left()
        before = descriptors(), threads()
        self.make_and_drop(times)
        gc.collect()
        self.no_children_left()
        self.assertEqual((descriptors(), threads()), before)

    def test_sessions_that_are_made_and_dropped_leave_no_descriptor_thread_or_process(self):
        self.nothing_grows(int(os.environ.get("PENSTOCK_TEST_SESSIONS", "24")))

    def test_ctrl_c_interrupts_a_wait_at_once_and_loses_no_batch(self):
        process = self.program(WAITING, self.config(LONG))
        self.said(process, "paused")
        # The program takes the prepared batches; then it waits, and checks for signals every 50 ms.
        waited = times_waited(process.pid)
        self.wait_until(lambda: times_waited(process.pid) > waited + 15, "the program to wait")
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        self.said(process, "interrupted")
        self.assertLess(time.monotonic() - begin, 15)  # otherwise the program would wait forever
        self.assertEqual(self.said(process, "taken").split(), [str(index) for index in range(64)])
        self.assertEqual(process.wait(20), 0)

    def test_a_program_that_exits_with_a_live_session_keeps_its_exit_code_and_leaves_no_worker(self):
        process = self.program("""
            import sys, penstock
            session = penstock.Session(sys.argv[1], loader={"workers": 2}, on_event=lambda event: None)
            batch = session.next()
            array = batch["data"].numpy()
            while not all(pids := [w["pid"] for w in session.status()["workers"]]): pass  # the first batch may come before the last worker
            print("workers", *pids, flush=True)
            sys.exit(7)
            """, self.config(ENDLESS))
        workers = self.said(process, "workers").split()
        self.assertEqual(process.wait(20), 7, process.stderr.read())
        self.assertEqual(len(workers), 2)
        self.wait_until(lambda: not any(alive(int(pid)) for pid in workers), "the end of all workers", seconds=2)

    def test_a_killed_interpreter_leaves_no_process(self):
        process = self.program("""
            import sys, penstock
            session = penstock.Session(sys.argv[1], loader={"workers": 3})
            session.next()
            while not all(pids := [w["pid"] for w in session.status()["workers"]]): pass  # the first batch may come before the last worker
            print("workers", *pids, flush=True)
            for _ in session: pass
            """, self.config(ENDLESS))
        workers = self.said(process, "workers").split()
        process.kill()
        process.wait()
        self.assertEqual(len(workers), 3)
        self.wait_until(lambda: not any(alive(int(pid)) for pid in workers), "the end of all workers", seconds=2)

    def test_a_session_that_its_own_callback_refers_to_is_collected(self):
        class Watcher:
            def __init__(self, config):
                self.session = penstock.Session(config, loader={"workers": 1}, on_event=self.on_event)

            def on_event(self, event):
                pass
        watcher = Watcher(self.config(ENDLESS))
        watcher.session.next()
        gone = weakref.ref(watcher)
        del watcher
        gc.collect()
        self.assertIsNone(gone())
        self.no_children_left()

    def test_a_signal_handler_can_close_the_session_that_waits(self):
        out = self.ran("""
            import os, signal, sys, threading, penstock
            session = penstock.Session(sys.argv[1], loader={"workers": 1})
            session.next()
            session.pause()
            signal.signal(signal.SIGUSR1, lambda *_: session.close())
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            while session.next() is not None: pass
            print("ended", session.closed)
            """, self.config(ENDLESS))
        self.assertIn("ended True", out)

    def test_a_forked_child_that_exits_does_not_disturb_its_session(self):
        out = self.ran("""
            import os, sys, penstock
            with penstock.Session(sys.argv[1], loader={"workers": 2}) as session:
                epoch = session.epoch(0)
                next(epoch)
                child = os.fork()
                if child == 0:
                    try:
                        next(epoch)
                    except penstock.usage_error as refused:
                        sys.exit(3 if "forked" in str(refused) else 4)
                    sys.exit(5)
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 1 + sum(1 for _ in epoch))
            """, self.config())
        self.assertEqual(out.split(), ["3", "8"])

    def test_the_import_is_fast_and_does_not_look_for_a_gpu(self):
        out = self.ran("""
            import sys, penstock
            print([name for name in ("numpy", "torch", "penstock._core") if name in sys.modules])
            maps = open("/proc/self/maps").read()
            print("libcuda" in maps, "libpenstock" in maps)
            """)
        self.assertEqual(out.split("\n")[:2], ["[]", "False False"])


if __name__ == "__main__":
    main()
