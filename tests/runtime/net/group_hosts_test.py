#!/usr/bin/env python3
"""Ranks of a group on hosts that are network namespaces, connected by a relay in this process that delays packets, loses
some, or cuts a host off (rules G18-G24 and N5). Needs root, or user namespaces, and /dev/net/tun; else exit code 77.

    group_hosts_test.py PROGRAM delay|loss|cut-fail|cut-wait       PROGRAM: group_host
"""

import collections
import ctypes
import fcntl
import heapq
import os
import random
import select
import signal
import socket
import struct
import sys
import time

HOSTS = 4
LOST_AFTER = 10.0
PORT = 21000
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
TUNSETIFF, IFF_TUN_NO_PI = 0x400454CA, 0x1001
SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFFLAGS = 0x8916, 0x891C, 0x8914


def address_of(host):
    return "10.99.0.%d" % (host + 1)


def set_up(interface, address):
    """Gives an interface an address and starts it, as `ip` would."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        def request(number, ip):
            where = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(ip))
            fcntl.ioctl(control, number, struct.pack("16s16s", interface, where))
        request(SIOCSIFADDR, address)
        request(SIOCSIFNETMASK, "255.255.255.0")
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", interface, 0x41))  # up and running


def become_host(host, channel):
    """Gives this child process its own network, whose packets go to the relay."""
    libc = ctypes.CDLL(None, use_errno=True)
    wanted = CLONE_NEWNET if os.geteuid() == 0 else CLONE_NEWNET | CLONE_NEWUSER
    if libc.unshare(wanted) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"tun0", IFF_TUN_NO_PI))
    set_up(b"lo", "127.0.0.1")
    set_up(b"tun0", address_of(host))
    socket.send_fds(channel, [b"tun"], [tun])


class Host:
    """A rank's process in its network namespace."""

    def __init__(self, number, command):
        self.number = number
        self.lines = []  # (time, word, details)
        self.rest = b""
        ours, theirs = socket.socketpair()
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                become_host(number, theirs)
                os.dup2(write, 1)
                os.execv(command[0], command)
            except OSError as why:
                print("host %d: %s" % (number, why), file=sys.stderr, flush=True)
            os._exit(77)
        os.close(write)
        theirs.close()
        with ours:
            _, fds, _, _ = socket.recv_fds(ours, 16, 1)
        if not fds:
            print("no network namespaces or no /dev/net/tun here")
            sys.exit(77)
        self.tun = fds[0]
        self.out = read
        os.set_blocking(self.tun, False)

    def hear(self):
        """False at the end."""
        some = os.read(self.out, 65536)
        *lines, self.rest = (self.rest + some).split(b"\n")
        for line in lines:
            when, word, *details = line.decode().split(" ", 2)
            self.lines.append((float(when), word, details[0] if details else ""))
            if word != "step":
                print("  host %d: %s %s" % (self.number, line.decode()[:200], ""), flush=True)
        return bool(some)

    def times(self, word):
        return [when for when, said, _ in self.lines if said == word]

    def end(self):
        """(time, details)"""
        return next((when, details) for when, said, details in self.lines if said == "end")


class World:
    """The hosts, and the relay between them."""

    def __init__(self, program, batches, pace_ms, on_lost, delay=0.0, loss=0.0):
        self.delay, self.loss = delay, loss
        self.cut = set()
        self.random = random.Random(int(os.environ.get("PENSTOCK_TEST_SEED", "1")))
        os.environ["PENSTOCK_GROUP_SECRET"] = "a secret of hosts that are namespaces"
        self.hosts = [Host(number, [program, str(number), str(HOSTS), address_of(0), str(PORT), str(batches),
                                    str(pace_ms), on_lost]) for number in range(HOSTS)]
        self.alive = set(self.hosts)
        self.waiting = []  # (when, number, host, packet)
        self.packets = self.lost = 0
        self.counts = collections.Counter()

    def run(self, until, at_most):
        """Relays packets until `until()` holds."""
        deadline = time.monotonic() + at_most
        while not until():
            now = time.monotonic()
            if now > deadline:
                raise AssertionError("it did not happen within %g s" % at_most)
            while self.waiting and self.waiting[0][0] <= now:
                _, _, host, packet = heapq.heappop(self.waiting)
                try:
                    os.write(host.tun, packet)
                except OSError:
                    pass  # its process has exited
            nap = min(0.05, self.waiting[0][0] - now if self.waiting else 0.05)
            sources = [host.tun for host in self.alive] + [host.out for host in self.alive]
            ready, _, _ = select.select(sources, [], [], max(0, nap))
            for host in list(self.alive):
                if host.tun in ready:
                    self.take(host)
                if host.out in ready and not host.hear():
                    self.alive.discard(host)
                    os.waitpid(host.pid, 0)

    def take(self, source):
        try:
            packet = os.read(source.tun, 65536)
        except OSError:
            return
        if packet[0] >> 4 != 4:
            return  # IPv6 neighbour discovery
        target = packet[19] - 1
        self.packets += 1
        if not 0 <= target < HOSTS or source.number in self.cut or target in self.cut:
            return
        if self.random.random() < self.loss:
            self.lost += 1
            return
        heapq.heappush(self.waiting, (time.monotonic() + self.delay, self.packets, self.hosts[target], packet))

    def wait(self, seconds):
        until = time.monotonic() + seconds
        self.run(lambda: time.monotonic() >= until, seconds + 5)

    def all_say(self, word, at_most):
        self.run(lambda: all(host.times(word) for host in self.hosts), at_most)

    def cut_off_once_it_runs(self, host):
        """The time at which that happened."""
        self.all_say("go", 10)
        self.wait(3)
        self.cut.add(host)
        return time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for host in self.alive:
            os.kill(host.pid, signal.SIGKILL)
            os.waitpid(host.pid, 0)


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
    """200 ms each way."""
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
    {"delay": delay, "loss": loss, "cut-fail": cut_fail, "cut-wait": cut_wait}[sys.argv[2]](sys.argv[1])
