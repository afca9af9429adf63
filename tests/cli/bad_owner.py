"""A penstock-gpu that speaks penstock's protocol and then commits the fault named by the first argument. Only the first process does so
(it writes the file that the second argument names); the others run the real program. Used by bad_owner_test.py."""

import os
import struct
import sys

from bad_worker import Link, flood, hello, misbehave_as_any_child, once, size, sleep_for_ever, text

_HELLO, OPENED, COPIED, DELIVERED, _GIVES_UP, IRREPLACEABLE, PROCESSES = range(7)  # _: what every child gets
OPEN, PREPARE, MAP, UPLOAD, STOP = range(5)


def opened(link):
    link.send(OPENED, text("host") + text("a made up device") + text(""))


def introduce(link):
    """Starts up like a correct owner. Returns the numbers of the first uploads."""
    hello(link)
    link.receive(OPEN, stop=STOP)
    opened(link)
    return next_uploads(link)


def next_uploads(link):
    payload = link.receive(UPLOAD, stop=STOP)
    count, at, uploads = payload[0], 1, []
    for _ in range(count):
        uploads.append(struct.unpack_from(">Q", payload, at)[0])
        at += 40
        samples = payload[at]
        at += 1 + 8 * samples
    return uploads


def copied(uploads):
    return size(len(uploads)) + b"".join(struct.pack(">Q", upload) for upload in uploads)


def delivered(uploads):
    deliveries = b"".join(struct.pack(">QQqqqqqq", upload, 7, 0, 0, 0, 0, 0, 0) for upload in uploads)
    return size(len(uploads)) + deliveries + struct.pack(">BQQBB", 0, 0, 0, 0, 0) + text("")


def work(link, batches):
    uploads = introduce(link)
    while True:
        link.send(COPIED, copied(uploads))
        link.send(DELIVERED, delivered(uploads))
        batches -= len(uploads)
        if batches == 0:
            return
        uploads = next_uploads(link)


def misbehave(how):
    link = Link()
    if misbehave_as_any_child(link, how, lambda: introduce(link)):
        pass
    elif how == "open-before-its-time":
        opened(link)
    elif how == "opens-twice":
        introduce(link)
        opened(link)
    elif how == "says-hello-twice":
        introduce(link)
        hello(link)
    elif how == "copies-what-it-never-got":
        link.send(COPIED, copied([max(introduce(link)) + 1000]))
    elif how == "copies-twice":
        uploads = introduce(link)
        link.send(COPIED, copied(uploads[:1] * 2))
    elif how == "delivers-what-it-never-got":
        link.send(DELIVERED, delivered([max(introduce(link)) + 1000]))
    elif how == "delivers-what-it-has-not-copied":
        link.send(DELIVERED, delivered(introduce(link)[:1]))
    elif how == "keeps-what-it-knows":
        hello(link)
        link.receive(OPEN, stop=STOP)
        link.send(IRREPLACEABLE, b"")
        opened(link)
    elif how.startswith("dies-when-all-is-delivered-"):
        work(link, int(how.rsplit("-", 1)[1]))
        os._exit(1)
    elif how.startswith("dies-when-told-to-go-"):
        work(link, int(how.rsplit("-", 1)[1]))
        link.receive(STOP, stop=None)
        os._exit(1)
    elif how == "dies-in-the-middle-of-a-message":
        introduce(link)
        link.raw(struct.pack("<II", 1000, DELIVERED) + b"half")
        os._exit(0)
    elif how == "flood-of-processes":
        introduce(link)
        flood(link, PROCESSES, size(0))
    elif how == "flood-of-empty-deliveries":
        introduce(link)
        flood(link, DELIVERED, delivered([]))
    sleep_for_ever()


def main():
    how, turn, real = sys.argv[1:]
    once(turn, real, lambda certain: misbehave(how))


if __name__ == "__main__":
    main()
