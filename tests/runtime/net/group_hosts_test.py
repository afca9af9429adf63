#!/usr/bin/env python3
"""Ranks of a group on hosts that are network namespaces, connected by a relay in this process that delays packets, loses
some, or cuts a host off (rules G18-G24 and N5). Needs root, or user namespaces, and /dev/net/tun; else exit code 77.

    group_hosts_test.py PROGRAM delay|loss|cut-fail|cut-wait       PROGRAM: group_host
"""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from networks import Machine, Network, NoNetworks, address_of  # noqa: E402

HOSTS = 4
LOST_AFTER = 10.0
PORT = 21000


class Host(Machine):
    """A rank's process in its network namespace."""

    def __init__(self, *arguments):
        self.lines = []  # (time, word, details)
        self.rest = b""
        super().__init__(*arguments)

    def hear(self, some):
        *lines, self.rest = (self.rest + some).split(b"\n")
        for line in lines:
            when, word, *details = line.decode().split(" ", 2)
            self.lines.append((float(when), word, details[0] if details else ""))
            if word != "step":
                print("  host %d: %s %s" % (self.number, line.decode()[:200], ""), flush=True)

    def times(self, word):
        return [when for when, said, _ in self.lines if said == word]

    def end(self):
        """(time, details)"""
        return next((when, details) for when, said, details in self.lines if said == "end")


class World(Network):
    """The hosts of a group."""

    def __init__(self, program, batches, pace_ms, on_lost, delay=0.0, loss=0.0):
        super().__init__(delay, loss, int(os.environ.get("PENSTOCK_TEST_SEED", "1")))
        os.environ["PENSTOCK_GROUP_SECRET"] = "a secret of hosts that are namespaces"
        self.hosts = [self.add([program, str(number), str(HOSTS), address_of(0), str(PORT), str(batches), str(pace_ms), on_lost],
                               kind=Host) for number in range(HOSTS)]

    def all_say(self, word, at_most):
        self.run(lambda: all(host.times(word) for host in self.hosts), at_most)

    def cut_off_once_it_runs(self, host):
        """Returns when the host was cut off."""
        self.all_say("go", 10)
        self.wait(3)
        self.cut.add(host)
        return time.monotonic()


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def finishes(world, joined_within):
    """All ranks join, deliver and finish; no rank counts as lost."""
    begin = time.monotonic()
    world.all_say("go", joined_within)
    print("all joined within %.1f s" % (time.monotonic() - begin))
    world.all_say("end", 120)
    for host in world.hosts:
        check(host.end()[1].startswith("1 incarnation 1 "), "host %d ended by %s" % (host.number, host.end()[1]))
    check(not world.hosts[0].times("lost"), "a rank was taken for lost")
    print("%d packets, %d of them lost on purpose" % (world.packets, world.lost))


def delay(program):
    """Packets take 200 ms in each direction."""
    with World(program, batches=60, pace_ms=50, on_lost="fail", delay=0.2) as world:
        finishes(world, 10)


def loss(program):
    """One packet of twenty does not arrive."""
    with World(program, batches=300, pace_ms=100, on_lost="fail", delay=0.02, loss=0.05) as world:
        finishes(world, 20)
        check(world.lost > 20, "hardly a packet was lost")


def cut_fail(program):
    """Host 2 is cut off for 30 s in a group that does not wait: all ranks end with that cause within lost_after + 5 s."""
    with World(program, batches=100000, pace_ms=50, on_lost="fail", delay=0.01) as world:
        cut = world.cut_off_once_it_runs(2)
        world.all_say("end", 30)
        for host in world.hosts:
            when, how = host.end()
            print("host %d ended %.1f s after the cut: %s" % (host.number, when - cut, how))
            check(when - cut <= LOST_AFTER + 5, "host %d ended only %.1f s after the cut" % (host.number, when - cut))
            check(how.startswith("3 "), "host %d: %s" % (host.number, how))
            if host.number != 2:
                check(" by 2 " in how, "host %d does not name rank 2: %s" % (host.number, how))
        last = world.hosts[2].times("step")[-1] - cut
        print("host 2 handed out its last batch %.1f s after the cut" % last)
        check(last <= LOST_AFTER + 1, "host 2 handed out for %.1f s" % last)
        check(world.hosts[0].times("lost")[0] - cut >= last, "rank 2 counted as lost while it handed out")


def cut_wait(program):
    """Host 2 is cut off for 30 s in a group that waits: the others continue, and so does host 2 once it is reconnected."""
    with World(program, batches=500, pace_ms=100, on_lost="wait", delay=0.01) as world:
        cut = world.cut_off_once_it_runs(2)
        world.wait(30)
        healed = time.monotonic()
        world.cut.clear()
        world.all_say("end", 120)
        for host in world.hosts:
            check(host.end()[1].startswith("1 incarnation 1 "), "host %d: %s" % (host.number, host.end()[1]))
            steps = host.times("step")
            gap = max(later - earlier for earlier, later in zip(steps, steps[1:]))
            print("host %d paused for at most %.1f s" % (host.number, gap))
            check(host.number == 2 or gap < 2, "host %d paused for %.1f s" % (host.number, gap))
        steps = world.hosts[2].times("step")
        during = [when for when in steps if cut < when < healed]
        check(during[-1] - cut <= LOST_AFTER + 1, "host 2 handed out for %.1f s" % (during[-1] - cut))
        again = next(when for when in steps if when > healed) - healed
        print("host 2 went on %.1f s after it was connected again" % again)
        check(again <= 7, "host 2 went on only %.1f s after it was connected again" % again)
        check(world.hosts[0].times("lost")[0] - cut >= during[-1] - cut, "rank 2 counted as lost while it handed out")


if __name__ == "__main__":
    try:
        {"delay": delay, "loss": loss, "cut-fail": cut_fail, "cut-wait": cut_wait}[sys.argv[2]](sys.argv[1])
    except NoNetworks as why:
        print(why)
        sys.exit(77)
