"""Programs, sessions and loaders as ranks of a group: under the real torchrun, under `penstock launch`, and started by hand; one is
killed, raises, or differs from the others."""

import json
import re
import signal
import textwrap

from package import *

LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PENSTOCK_GROUP",
             "PENSTOCK_GROUP_ADDR", "PENSTOCK_GROUP_SECRET", "PENSTOCK_GROUP_STARTS", "TORCHELASTIC_RUN_ID")

# A training program: a loader in each rank, whose part of the dataset DistributedSampler selects.
TRAINS = """
    import json, os, signal, sys, time
    import torch
    from torch.utils.data.distributed import DistributedSampler
    from penstock.torch import DataLoader

    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 64
        def __getitem__(self, index):
            time.sleep(wait)
            return torch.tensor([index])

    what = sys.argv[1] if len(sys.argv) > 1 else ""
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else 0  # each of them imports torch
    wait = 0.05 if what in ("dies", "raises") else 0.0
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    odd = rank == 1
    dataset = Numbers()
    sampler = DistributedSampler(dataset, world_size, 0 if what == "sampler" else rank, seed=5 if odd and what == "seed" else 4)
    loader = DataLoader(dataset, batch_size=5 if odd and what == "batch_size" else 4, sampler=sampler, num_workers=workers,
                        group=True, name="train")
    seen = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            if odd and step == 1 and what == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if odd and step == 1 and what == "raises":
                raise ValueError("the loss is not a number")
            if what in ("dies", "raises"):
                time.sleep(0.3)
            seen += batch.flatten().tolist()
    group = loader.group
    everything = [json.loads(each) for each in group.all_gather(json.dumps(seen).encode())]
    group.barrier()
    print("SEEN", json.dumps([group.rank, group.world_size, seen == everything[group.rank], sorted(sum(everything, []))]), flush=True)
    """

# Rank 0 waits for a sample that never arrives.
WAITS = """
    import os, threading, time
    import torch
    from penstock.torch import DataLoader

    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 4
        def __getitem__(self, index):
            time.sleep(1000)

    loader = DataLoader(Slow(), num_workers=1, group=True)
    loader.group.barrier()
    if os.environ["RANK"] == "1":
        time.sleep(1000)
    threading.Timer(1.0, print, ("WAITS",), {"flush": True}).start()
    next(iter(loader))
    """

SESSION = """
    import json, penstock, sys
    with penstock.Session(sys.argv[1], group=True) as session:
        mine = [index for batch in session for index in batch.samples]
        session.barrier()
        everyone = [json.loads(each) for each in session.all_gather(json.dumps(mine).encode())]
        report = session.report()
        print("SEEN", json.dumps([session.rank, session.world_size, report["rank"], report["world_size"], sorted(sum(everyone, []))]))
    """


# Sums numbers from both ranks through a communicator; rank 1 may die before its part.
COMMUNICATES = """
    import ctypes, os, signal, sys
    import penstock

    with penstock.Group("test", communicator="nccl") as group:
        values = (ctypes.c_double * 2)(group.rank + 1, 10)
        if group.rank == 1 and "dies" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
        with group.communicator as nccl:
            number = nccl.number
            all_reduce = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                                          ctypes.c_void_p, ctypes.c_void_p)(nccl.function("ncclAllReduce"))
            nccl.check(all_reduce(values, values, 2, 8, 0, nccl.handle, None), "ncclAllReduce")
        try:
            group.communicator.handle
        except penstock.usage_error as e:
            print("REFUSED", e, flush=True)
        print("SUM", list(values), group.communicator.is_lost(number), flush=True)
    """


# Rank 0 closes its group on request; rank 1 waits for that in close(), is interrupted, and then closes again or does not.
CLOSES = """
    import signal, sys, threading
    import penstock

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    group = penstock.Group("test", communicator="nccl")
    with group.communicator:
        pass
    group.barrier()
    if group.rank == 0:
        signal.sigwait({signal.SIGUSR1})
        group.check()
    else:
        threading.Timer(1.0, print, ("WAITS",), {"flush": True}).start()
        try:
            group.close()
        except KeyboardInterrupt:
            print("INTERRUPTED", group.closed, flush=True)
            if "ends" in sys.argv:
                raise
    group.close()
    print("CLOSED", group.closed, flush=True)
    """


class GroupTest(PackageTest):
    def setUp(self):
        super().setUp()
        for name in LAUNCHERS:
            self.environment.pop(name, None)

    def script(self, text):
        if "import torch" in text:
            self.need_torch()
        return self.write("script.py", textwrap.dedent(text))

    def begin(self, *command, **environment):
        process = subprocess.Popen([str(one) for one in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=dict(self.environment, **environment), cwd=self.folder)
        self._running.append(process)
        return process

    def start_ranks(self, ranks, text, *arguments):
        """Starts ranks as torchrun does."""
        script = self.script(text)
        return [self.begin(sys.executable, "-B", script, *arguments, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank),
                           LOCAL_WORLD_SIZE=str(ranks), TORCHELASTIC_RUN_ID="test-%d" % os.getpid(), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT="29999") for rank in range(ranks)]

    def torchrun(self, ranks, text, *arguments):
        self.need_torchrun()
        # torch 1.13's default, no redirection, fails under Python 3.11.
        return self.begin(sys.executable, "-m", "torch.distributed.run", *self.torchrun_alone(), "--nproc_per_node", ranks,
                          "-r", 1, "-t", 1, self.script(text), *arguments)

    def ended(self, process, seconds=280):
        out, err = process.communicate(timeout=seconds)
        return process.returncode, out, err

    def seen(self, text):
        return [json.loads(line) for line in re.findall(r"SEEN (\[.*\])", text)]

    def check_training(self, text, ranks):
        told = self.seen(text)
        self.assertEqual(sorted(each[:3] for each in told), [[rank, ranks, True] for rank in range(ranks)], text)
        for each in told:
            self.assertEqual(each[3], sorted(2 * list(range(64))))

    def test_loaders_join_a_group_under_torchrun(self):
        code, out, err = self.ended(self.torchrun(2, TRAINS, "alike", 1))
        self.assertEqual(code, 0, out + err)
        self.check_training(out, 2)
        self.assertNotIn("another session named", err)  # each rank's loader has its own name

    def test_loaders_join_a_group_under_penstock_launch(self):
        code, out, err = self.ended(self.start("launch", "--gpus", "host:2", "--", sys.executable, "-B", self.script(TRAINS)))
        out, err = out.decode(), err.decode()
        self.assertEqual(code, 0, out + err)
        self.check_training(out, 2)

    def test_if_loaders_of_ranks_differ_the_error_has_both_values(self):
        for what, said in (("batch_size", "the loader's batch_size is [45] at rank . .*, but [45] at rank ."),
                           ("seed", "the sampler's seed is [45] at rank . .*, but [45] at rank .")):
            for process in self.start_ranks(2, TRAINS, what):
                code, out, err = self.ended(process)
                self.assertEqual(code, 1, out + err)
                self.assertRegex(err, "group_failed_error: .*" + said)

    def test_loaders_that_differ_end_a_job_of_torchrun(self):
        code, out, err = self.ended(self.torchrun(2, TRAINS, "batch_size"))
        self.assertNotEqual(code, 0)
        self.assertIn("the loader's batch_size is", out + err)

    def test_a_sampler_for_another_rank_is_refused(self):
        processes = self.start_ranks(2, TRAINS, "sampler")
        code, _, err = self.ended(processes[1])
        self.assertEqual(code, 1)
        self.assertIn("its sampler is for rank 0 of 2, and this program is rank 1 of 2", err)
        code, _, err = self.ended(processes[0])
        self.assertEqual(code, 1)
        self.assertIn("rank 1 (", err)

    def test_a_killed_rank_ends_the_others_with_the_first_cause(self):
        processes = self.start_ranks(3, TRAINS, "dies")
        self.assertEqual(self.ended(processes[1])[0], -signal.SIGKILL)
        for process in (processes[0], processes[2]):
            code, out, err = self.ended(process)
            self.assertEqual(code, 1, out + err)
            self.assertRegex(err, r"group_failed_error: rank 1 \(.*, pid %d\): its process has ended" % processes[1].pid)

    def test_a_rank_that_waits_for_a_batch_learns_at_once_that_another_rank_is_lost(self):
        processes = self.start_ranks(2, WAITS)
        self.said(processes[0], "WAITS")
        processes[1].kill()
        code, out, err = self.ended(processes[0], 30)
        self.assertEqual(code, 1, out + err)
        self.assertRegex(err, r"group_failed_error: rank 1 \(.*, pid %d\): its process has ended" % processes[1].pid)

    def test_an_exception_in_one_rank_is_the_first_cause_for_all(self):
        processes = self.start_ranks(2, TRAINS, "raises")
        code, out, err = self.ended(processes[1])
        self.assertEqual(code, 1, out + err)
        self.assertIn("ValueError", err)
        code, out, err = self.ended(processes[0])
        self.assertEqual(code, 1, out + err)
        self.assertRegex(err, r"group_failed_error: rank 1 \(.*\): ValueError: the loss is not a number")

    def test_sessions_join_a_group_and_share_the_samples(self):
        config = self.write("numbers.toml", synthetic(60, "64B", 5, 1, more="[loader]\nworkers = 1\n"))
        told = []
        for process in self.start_ranks(2, SESSION, config):
            code, out, err = self.ended(process)
            self.assertEqual(code, 0, out + err)
            told += self.seen(out)
        self.assertEqual(sorted(each[:4] for each in told), [[0, 2, 0, 2], [1, 2, 1, 2]])
        for each in told:
            self.assertEqual(each[4], list(range(60)))

    def test_if_sessions_of_ranks_differ_the_error_has_both_values(self):
        configs = [self.write("numbers.toml", synthetic(60, "64B", size, 1, more="[loader]\nworkers = 1\n")) for size in (5,)]
        text = SESSION.replace("group=True)", 'group=True, sampler={"batch_size": 5 + int(__import__("os").environ["RANK"])})')
        for process in self.start_ranks(2, text, *configs):
            code, out, err = self.ended(process)
            self.assertEqual(code, 1, out + err)
            self.assertRegex(err, "sampler.batch_size is [56] at rank . .*, but [56] at rank .")

    def test_without_a_launcher_the_error_lists_the_known_launchers(self):
        out = self.ran("""
            import penstock
            try:
                penstock.Group("alone")
            except penstock.config_error as why:
                print(why)
            """)
        self.assertIn("the environment has no rank from a launcher", out)
        self.assertIn("torchrun", out)

    def test_the_communicator_of_a_group_sums_numbers(self):
        self.environment["PENSTOCK_NCCL"] = os.path.join(os.path.dirname(BIN), "lib", "libfake_nccl.so")
        for process in self.start_ranks(2, COMMUNICATES):
            code, out, err = self.ended(process)
            self.assertEqual(code, 0, out + err)
            self.assertIn("SUM [3.0, 20.0] False", out)
            self.assertIn("REFUSED the communicator can be used only in a `with` block", out)

    def test_a_lost_rank_ends_the_use_of_the_communicator_with_the_first_cause(self):
        self.environment["PENSTOCK_NCCL"] = os.path.join(os.path.dirname(BIN), "lib", "libfake_nccl.so")
        ranks = self.start_ranks(2, COMMUNICATES, "dies")
        code, out, err = self.ended(ranks[0])
        self.assertEqual(code, 1, out + err)
        self.assertRegex(err, r"group_failed_error: rank 1 \(.*, pid %d\): its process has ended" % ranks[1].pid)

    def test_ctrl_c_ends_the_wait_in_close_and_the_next_close_continues(self):
        self.environment["PENSTOCK_NCCL"] = os.path.join(os.path.dirname(BIN), "lib", "libfake_nccl.so")
        ranks = self.start_ranks(2, CLOSES)
        self.said(ranks[1], "WAITS")
        ranks[1].send_signal(signal.SIGINT)
        self.assertEqual(self.said(ranks[1], "INTERRUPTED"), "False")
        ranks[0].send_signal(signal.SIGUSR1)
        for process in ranks:
            code, out, err = self.ended(process)
            self.assertEqual(code, 0, out + err)
            self.assertIn("CLOSED True", out)

    def test_a_program_that_is_ended_by_ctrl_c_in_close_is_the_first_cause(self):
        self.environment["PENSTOCK_NCCL"] = os.path.join(os.path.dirname(BIN), "lib", "libfake_nccl.so")
        ranks = self.start_ranks(2, CLOSES, "ends")
        self.said(ranks[1], "WAITS")
        ranks[1].send_signal(signal.SIGINT)
        code, out, err = self.ended(ranks[1], 30)
        self.assertIn("KeyboardInterrupt", err)
        ranks[0].send_signal(signal.SIGUSR1)
        code, out, err = self.ended(ranks[0])
        self.assertEqual(code, 1, out + err)
        self.assertRegex(err, r"group_failed_error: rank 1 \(.*\): KeyboardInterrupt")

    def test_a_communicator_without_a_gpu_is_refused_with_an_explanation(self):
        self.environment.pop("PENSTOCK_NCCL", None)
        self.environment["CUDA_VISIBLE_DEVICES"] = ""
        code, _, err = self.ended(self.start_ranks(1, COMMUNICATES)[0])
        self.assertEqual(code, 1)
        self.assertIn('config_error: group.communicator: "nccl" needs a GPU for each rank, but this process has none', err)

    def test_two_groups_in_one_program_need_two_names(self):
        (process,) = self.start_ranks(1, """
            import penstock
            with penstock.Group("a") as first, penstock.Group("b") as second:
                second.barrier(), first.barrier()
                try:
                    penstock.Group("a")
                except penstock.usage_error as why:
                    print(why)
            penstock.Group("a").barrier()
            again = penstock.Group("a")  # the previous one is garbage
            again.barrier()
            try:
                again.all_gather(bytes(65537))
            except penstock.usage_error as why:
                print(why)
            """)
        code, out, err = self.ended(process)
        self.assertEqual(code, 0, out + err)
        self.assertIn("already in the group 'a'", out)
        self.assertIn("65537 bytes, but at most 65536", out)


if __name__ == "__main__":
    main()
