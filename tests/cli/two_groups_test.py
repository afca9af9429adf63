"""Two groups on the same cores."""

import resource

from harness import *

ROUNDS = 3
# Kernel time for ending the groups, divided by the kernel time for their start and work: about 2 (0.04 to 0.09 s over
# 0.02 to 0.05 s). A single thread that busy-waits used 6.4 s.
MUCH_MORE = 40


def kernel_seconds(pids):
    """The kernel time of these processes, and of those that they have reaped."""
    ticks = 0
    for pid in pids:
        try:
            with open("/proc/%d/stat" % pid) as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        ticks += int(fields[12]) + int(fields[14])
    return ticks / os.sysconf("SC_CLK_TCK")


def list_threads(pid):
    """Lists the threads as `ps -L` does: the kernel then has /proc entries for them, which it must remove when the process is reaped."""
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/stat" % (pid, thread)) as file:
                file.read()
    except OSError:
        pass


class TwoGroupsTest(PenstockTest):
    def start_group(self, name):
        config = self.write(name + ".toml", 'name = "%s"\n' % name + synthetic(40000, "3KiB", 50, 2, dataset='wait = "2ms"',
                                                                               more="[loader]\nworkers = 1\n"))
        return self.start("launch", config, "--gpus", "host:2", "--quiet")

    def wait_until_delivering(self, name):
        def delivers():
            code, out, _ = self.penstock("status", "--group", name, "--json", timeout=20)
            ranks = json.loads(out)["ranks"] if code == EXIT_OK else []
            return len(ranks) == 2 and all((rank["status"] or {}).get("batches_delivered", 0) > 3 for rank in ranks)

        self.wait_until(delivers, "both ranks of %s deliver" % name)

    def test_a_paused_group_ends_at_once_while_another_one_uses_the_same_cores(self):
        # Reaping a process must not wait in the kernel for its threads: that would be a busy wait, for seconds on a core that both groups
        # use. Measured as CPU time and compared with that of the start, because both depend on the machine and its other load.
        for turn in range(ROUNDS):
            with self.subTest(turn=turn):
                groups = {name: self.start_group(name) for name in ("first", "second")}
                for name in groups:
                    self.wait_until_delivering(name)
                self.assertEqual(self.penstock("pause", "--group", "first")[0], EXIT_OK)
                family = {pid for process in groups.values() for pid in {process.pid} | set(descendants_of(process.pid))}
                to_start = kernel_seconds(family)
                before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_stime
                for name, process in groups.items():
                    for pid in descendants_of(process.pid):
                        list_threads(pid)
                    self.assertEqual(self.penstock("stop", "--group", name)[0], EXIT_OK)
                    self.assertEqual(process.wait(timeout=30), EXIT_OK, name)
                to_end = resource.getrusage(resource.RUSAGE_CHILDREN).ru_stime - before - to_start
                self.assertLess(to_end, MUCH_MORE * max(to_start, 0.02))  # to_start counts as at least two clock ticks


if __name__ == "__main__":
    main()
