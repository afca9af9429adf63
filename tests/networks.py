"""Programs in separate network namespaces, and a relay between them in this process, which delays packets, loses some, or cuts a program
off. Each namespace has a TUN device, whose other end the relay reads. Needs root, or user namespaces, and /dev/net/tun.
"""

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

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
TUNSETIFF, IFF_TUN_NO_PI = 0x400454CA, 0x1001
SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFFLAGS = 0x8916, 0x891C, 0x8914


class NoNetworks(Exception):
    """This machine allows no network namespaces, or has no /dev/net/tun."""


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
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", interface, 0x41))  # flags: up, running


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


class Machine:
    """A program in its own network namespace. Its number decides its address."""

    def __init__(self, number, command, environment=None):
        self.number, self.command, self.ended = number, command, None  # ended: the status from os.waitpid
        self.output = b""
        ours, theirs = socket.socketpair()
        self.out, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                become_host(number, theirs)
                os.dup2(write, 1)
                os.execve(command[0], command, environment or os.environ)
            except OSError as why:
                print("host %d: %s" % (number, why), file=sys.stderr, flush=True)
            os._exit(77)
        os.close(write)
        theirs.close()
        with ours:
            _, fds, _, _ = socket.recv_fds(ours, 16, 1)
        if not fds:
            self.close()
            raise NoNetworks("no network namespaces or no /dev/net/tun here")
        self.tun = fds[0]
        os.set_blocking(self.tun, False)

    def hear(self, some):
        self.output += some

    def read(self):
        """Reads some of the program's output. When the output has ended, waits for the program's end."""
        if some := os.read(self.out, 65536):
            self.hear(some)
        else:
            self.close()

    def close(self, *signals):
        for number in signals:
            os.kill(self.pid, number)
        self.ended = os.waitpid(self.pid, 0)[1]
        os.close(self.out)


class Network:
    """Machines, and the relay between them."""

    def __init__(self, delay=0.0, loss=0.0, seed=1):
        self.delay, self.loss, self.random = delay, loss, random.Random(seed)
        self.cut = set()
        self.machines = []
        self.waiting = []  # (when, number, machine, packet)
        self.packets = self.lost = 0

    def add(self, command, environment=None, kind=Machine):
        self.machines.append(kind(len(self.machines), command, environment))
        return self.machines[-1]

    def run(self, until, at_most):
        """Relays packets until `until()` holds."""
        deadline = time.monotonic() + at_most
        while not until():
            now = time.monotonic()
            if now > deadline:
                raise AssertionError("it did not happen within %g s" % at_most)
            while self.waiting and self.waiting[0][0] <= now:
                _, _, machine, packet = heapq.heappop(self.waiting)
                try:
                    os.write(machine.tun, packet)
                except OSError:
                    pass  # the program's queue is full
            nap = min(0.05, self.waiting[0][0] - now if self.waiting else 0.05)
            # Relay the packets of killed programs, too: the kernel closes their connections.
            tuns = {machine.tun: machine for machine in self.machines}
            outs = {machine.out: machine for machine in self.machines if machine.ended is None}
            for ready in select.select([*tuns, *outs], [], [], max(0, nap))[0]:
                if ready in tuns:
                    self.take(tuns[ready])
                else:
                    outs[ready].read()

    def take(self, source):
        try:
            packet = os.read(source.tun, 65536)
        except OSError:
            return
        if packet[0] >> 4 != 4:
            return  # IPv6 neighbour discovery
        target = packet[19] - 1
        self.packets += 1
        if not 0 <= target < len(self.machines) or source.number in self.cut or target in self.cut:
            return
        if self.random.random() < self.loss:
            self.lost += 1
            return
        heapq.heappush(self.waiting, (time.monotonic() + self.delay, self.packets, self.machines[target], packet))

    def wait(self, seconds):
        until = time.monotonic() + seconds
        self.run(lambda: time.monotonic() >= until, seconds + 5)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for machine in self.machines:
            if machine.ended is None:
                machine.close(signal.SIGKILL)
            os.close(machine.tun)
