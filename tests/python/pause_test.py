"""Programs suspended as a whole (SIGSTOP of the program, its workers and all ranks; later SIGCONT) lose no process, and compute the
same. Sessions under the launchers: pause_test.py and paused_ranks_test.py in tests/cli.

PENSTOCK_TEST_PAUSES: how many pauses instead of two, each of 5 to 60 s and against the usual time limits.
"""

import random
import signal
import time

from package import *

PAUSES = int(os.environ.get("PENSTOCK_TEST_PAUSES", "0"))
RANKS = 3

# Ranks exchange numbers until rank 0 finds that the file is gone.
GROUP = """
    import hashlib, os, sys, time
    import penstock

    with penstock.Group("paused", lost_after=float(sys.argv[1])) as group:
        digest, step, over = hashlib.sha256(), 0, False
        while not over:
            told = group.all_gather(b"%d %d %d" % (group.rank, step, os.path.exists(sys.argv[2])))
            over = told[0].endswith(b"0")
            time.sleep(0.005)
            assert [each.split()[:2] for each in told] == [[b"%d" % rank, b"%d" % step] for rank in range(group.world_size)], told
            step += 1
            if step == 10:
                print("RUNS", flush=True)
        group.barrier()
        print("STEPS", step, flush=True)
    """

LOADER = """
    import hashlib, json, os, sys, time
    import torch
    from penstock.torch import DataLoader

    class Noise(torch.utils.data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            time.sleep(float(os.environ.get("WAIT", 0)))
            return index + torch.rand(3, dtype=torch.float64)

    limit = float(sys.argv[1])
    hang = {"heartbeat_timeout": "%gs" % limit, "item_timeout": "%gs" % limit}
    loader = DataLoader(Noise(), batch_size=4, shuffle=True, num_workers=2, seed=11, timeout=limit, pool={"loader": {"hang": hang}})
    epoch = 0
    while epoch < int(os.environ.get("EPOCHS", 1)) or os.path.exists(sys.argv[2]):
        digest = hashlib.sha256()
        for batch in loader:
            digest.update(batch.numpy().tobytes())
            if epoch == 0:
                print("RUNS", flush=True)
        print("EPOCH", digest.hexdigest(), flush=True)
        epoch += 1
    status = loader._workers.pool.status()
    print("LOST", status["worker_restarts"], status["workers_ended_unexpectedly"], status["jobs"]["retried"], flush=True)
    """

POOL = """
    import os, sys, time
    import penstock

    def square(number):
        time.sleep(float(os.environ.get("WAIT", 0)))
        return number * number

    limit = float(sys.argv[1])
    hang = {"heartbeat_timeout": "%gs" % limit}
    with penstock.Pool(2, timeout=limit, loader={"hang": hang}) as pool:
        number = 0
        while number == 0 or os.path.exists(sys.argv[2]):
            futures = [pool.submit(square, each) for each in range(number, number + 20)]
            for future in futures:
                assert future.result() == number * number
                number += 1
                if number == 5:
                    print("RUNS", flush=True)
        status = pool.status()
        print("LOST", status["worker_restarts"], status["workers_ended_unexpectedly"], status["jobs"]["retried"], flush=True)
    """


class PauseTest(PackageTest):
    def setUp(self):
        super().setUp()
        self.goes_on = self.write("goes_on", "")
        self.environment["WAIT"] = "0.02"

    def started(self, text, limit, **environment):
        script = self.write("script.py", textwrap.dedent(text))
        process = subprocess.Popen([sys.executable, "-B", script, str(limit), self.goes_on], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=dict(self.environment, **environment), cwd=self.folder)
        self._running.append(process)
        return process

    def signal(self, programs, number):
        """Sends the signal to each program and its processes, in any order."""
        pids = [pid for one in programs for pid in (one.pid, *descendants_of(one.pid))]
        for pid in random.sample(pids, len(pids)):
            signal_process(pid, number)

    def pause(self, programs, limit):
        """Suspends the processes twice, for longer than the time limit, and then lets them finish."""
        for pause in range(PAUSES or 2):
            seconds = random.uniform(5, 60) if PAUSES else 2.5 * limit
            self.signal(programs, signal.SIGSTOP)
            time.sleep(seconds)  # real time: the pause that is tested
            self.signal(programs, signal.SIGCONT)
            time.sleep(random.uniform(0.1, 0.6))  # the programs run between two pauses
            self.assertEqual([one.poll() for one in programs], [None] * len(programs), "after the pause of %.1f s" % seconds)
        os.unlink(self.goes_on)

    def limit(self, short):
        return 10 if PAUSES else short

    def ended(self, process):
        out, err = process.communicate(timeout=600 if PAUSES else 100)
        self.assertEqual(process.returncode, 0, out + err)
        self.assertNotRegex(err, "lost|silent|killing|no heartbeat|timed out")
        return out

    def values(self, out, word):
        return [line.removeprefix(word).split() for line in out.splitlines() if line.startswith(word)]

    def test_suspending_the_programs_of_all_ranks_loses_no_rank(self):
        limit = self.limit(1.2)
        ranks = [self.started(GROUP, limit, RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(RANKS),
                              TORCHELASTIC_RUN_ID="test-%d" % os.getpid(), MASTER_ADDR="127.0.0.1", MASTER_PORT="29999")
                 for rank in range(RANKS)]
        for one in ranks:
            self.said(one, "RUNS")
        self.pause(ranks, limit)
        steps = [self.values(self.ended(one), "STEPS") for one in ranks]
        self.assertEqual(steps, [steps[0]] * RANKS)
        self.assertEqual(len(steps[0]), 1)

    def test_suspending_a_loader_and_its_workers_loses_no_worker_and_no_batch(self):
        self.need_torch()
        limit = self.limit(2)
        program = self.started(LOADER, limit)
        self.said(program, "RUNS")
        self.pause([program], limit)
        out = self.ended(program)
        self.assertEqual(self.values(out, "LOST"), [["0", "0", "0"]])
        digests = self.values(out, "EPOCH")
        undisturbed = self.started(LOADER, limit, WAIT="0", EPOCHS=str(len(digests)))
        self.assertEqual(self.values(self.ended(undisturbed), "EPOCH"), digests)
        self.assertEqual(len(set(map(tuple, digests))), len(digests))

    def test_suspending_a_pool_and_its_workers_loses_no_worker_and_repeats_no_job(self):
        limit = self.limit(1.2)
        program = self.started(POOL, limit)
        self.said(program, "RUNS")
        self.pause([program], limit)
        self.assertEqual(self.values(self.ended(program), "LOST"), [["0", "0", "0"]])


if __name__ == "__main__":
    main()
