"""A worker program that speaks penstock's protocol and then commits the fault named by the first argument. Only the first process does so
(it writes the file that the second argument names); the others run the real worker program, once the fault cannot be missed. Used by
bad_worker_test.py."""

import fcntl
import os
import re
import socket
import struct
import sys
import time

LINK = 3
MESSAGES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "actors", "protocol", "messages.hpp")
with open(MESSAGES) as file:
    PROTOCOL = int(re.search(r"constexpr std::uint32_t version = (\d+);", file.read()).group(1))
HELLO, DESCRIBED, READY, LOADED, GIVES_UP = range(5)
OPEN_DATASET, ASSIGN_SLOTS, LOAD_BATCH, STOP = range(4)


def size(number):
    """A length: seven bits per byte, the lowest bits first."""
    out = b""
    while number > 0x7f:
        out += bytes([number & 0x7f | 0x80])
        number >>= 7
    return out + bytes([number])


def text(string):
    return size(len(string)) + string.encode()


class Link:
    def __init__(self):
        self.socket = socket.socket(fileno=LINK)
        self.unread = b""

    def send(self, kind, payload):
        self.socket.sendall(struct.pack("<II", len(payload), kind) + payload)

    def raw(self, data):
        self.socket.sendall(data)

    def take(self, count):
        while len(self.unread) < count:
            piece = self.socket.recv(65536)
            if not piece:
                sys.exit(0)
            self.unread += piece
        taken, self.unread = self.unread[:count], self.unread[count:]
        return taken

    def receive(self, wanted, stop=STOP):
        while True:
            length, kind = struct.unpack("<II", self.take(8))
            payload = self.take(length)
            if kind == stop:
                os._exit(0)
            if kind == wanted:
                return payload


def hello(link, version=PROTOCOL, magic=0x4b545350):
    link.send(HELLO, struct.pack(">IIi", magic, version, os.getpid()))


def get_ready(link, fingerprint, samples, sample_bytes):
    """The whole startup, like a correct worker. Returns the first lease: slot, generation, samples."""
    hello(link)
    link.receive(OPEN_DATASET)
    describe(link, fingerprint, samples, sample_bytes)
    link.receive(ASSIGN_SLOTS)
    link.send(READY, b"")
    return next_lease(link)


def next_lease(link):
    lease = link.receive(LOAD_BATCH)
    slot, generation, _ = struct.unpack_from(">IIQ", lease)
    return slot, generation, lease[16]


def describe(link, fingerprint, samples, sample_bytes):
    tensor = text("data") + struct.pack(">BB", 0, 0) + size(1) + struct.pack(">IB", sample_bytes, 0)
    link.send(DESCRIBED, text("synthetic") + struct.pack(">Q", samples) + size(1) + tensor + text(fingerprint))


def loaded(link, slot, generation, rows, failures=()):
    reasons = b"".join(struct.pack(">I", row) + text("name") + text("reason") for row in failures)
    link.send(LOADED, struct.pack(">III", slot, generation, rows) + size(len(failures)) + reasons + struct.pack(">QQ", 1, 0) + size(0) + struct.pack(">Q", 0) + size(0))


def sleep_for_ever():
    while True:
        time.sleep(1000)


def misbehave_as_any_child(link, how, introduce):
    """Faults that any child of a session can commit. Returns False if there is no fault of this name."""
    if how == "garbage":
        link.raw(os.urandom(100000))
    elif how == "garbage-after-the-introduction":
        introduce()
        link.raw(b"\x05\0\0\0\x03\0\0\0hello")
    elif how == "four-gigabytes":
        link.raw(struct.pack("<II", 0xffffffff, HELLO) + b"x" * 1000)
    elif how == "unknown-type":
        link.raw(struct.pack("<II", 0, 77))
    elif how == "another-version":
        hello(link, version=999)
    elif how == "another-program":
        hello(link, magic=0x12345678)
    elif how.startswith("exits-"):
        introduce()
        os._exit(int(how.rsplit("-", 1)[1]))
    elif how == "closes-its-link-and-lives":
        introduce()
        link.socket.close()
    elif how == "flood-of-long-last-words":
        introduce()
        flood(link, GIVES_UP, struct.pack(">iB", 75, 0) + text("x" * 4000000))
    else:
        return False
    return True


def misbehave(how, fingerprint, samples, sample_bytes, certain):
    link = Link()

    def introduce():
        lease = get_ready(link, fingerprint, samples, sample_bytes)
        certain()  # no run can end before this lease is complete
        return lease

    if misbehave_as_any_child(link, how, introduce):
        pass
    elif how == "truncated":
        introduce()
        link.raw(struct.pack("<II", 1000, LOADED) + b"half")
        os._exit(0)
    elif how == "another-dataset":
        hello(link)
        link.receive(OPEN_DATASET)
        describe(link, "0123456789abcdef", samples, sample_bytes)
    elif how == "foreign-slot":
        slot, generation, rows = introduce()
        loaded(link, slot + 1000, generation, rows)
    elif how == "foreign-generation":
        slot, generation, rows = introduce()
        loaded(link, slot, generation + 7, rows)
    elif how == "too-many-rows":
        slot, generation, rows = introduce()
        loaded(link, slot, generation, rows + 1)
    elif how == "failures-that-do-not-exist":
        slot, generation, rows = introduce()
        loaded(link, slot, generation, rows - 2, (5000, 2))
    elif how == "the-same-batch-twice":
        slot, generation, rows = introduce()
        for _ in range(2):
            loaded(link, slot, generation, 0, range(rows))
    elif how == "ready-before-its-time":
        hello(link)
        link.send(READY, b"")
    elif how == "flood-of-reports":
        slot, generation, rows = introduce()
        flood(link, LOADED, struct.pack(">III", slot, generation + 1, rows) + size(0) + struct.pack(">QQ", 1, 0) + size(0) + struct.pack(">Q", 0) + size(0))
    elif how == "flood-of-ready":
        introduce()
        flood(link, READY, b"")
    elif how == "never-reads":
        introduce()
    certain()
    sleep_for_ever()


def flood(link, kind, payload):
    frame = struct.pack("<II", len(payload), kind) + payload
    while True:
        link.raw(frame * max(1, 65536 // len(frame)))


def once(turn, real, wrong):
    """The first process commits the fault; the others run the real program. They wait for the first to call
    certain(): two fast workers would otherwise end a short run before a slow one has done anything wrong."""
    file = os.open(turn, os.O_RDWR | os.O_CREAT)
    fcntl.flock(file, fcntl.LOCK_EX)  # the death of its holder unlocks it too
    if os.read(file, 1):
        os.execv(real, [real])
    os.write(file, b"1")
    try:
        wrong(lambda: fcntl.flock(file, fcntl.LOCK_UN))
    except (BrokenPipeError, ConnectionResetError):
        sleep_for_ever()


def main():
    how, turn, fingerprint, samples, sample_bytes, real = sys.argv[1:]
    once(turn, real, lambda certain: misbehave(how, fingerprint, int(samples), int(sample_bytes), certain))


if __name__ == "__main__":
    main()
