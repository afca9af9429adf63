"""An HTTP server for tests of object storage: files with ranges and ETags, S3's ListObjectsV2, and faults that the test selects.

By hand, for measuring:  object_server.py FOLDER [--port N] [--latency MS] [--rate MB_S] [--errors SHARE] [--stalls SHARE] [--stall S]
"""

import argparse
import base64
import hashlib
import http.server
import os
import random
import re
import socketserver
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape


class ObjectServer:
    """Serves `folder` as http://127.0.0.1:PORT/..., or https:// with `tls`, an ssl.SSLContext; its first level are buckets. Faults can be
    set at any time."""

    def __init__(self, folder, port=0, tls=None):
        self.folder = folder
        self.fault = lambda request: None  # of (path, begin, end, number): None, or a function of the handler that answers instead
        self.page = 1000
        self.latency = 0.0
        self.link = None
        self.ranges = True
        self.tags_are_sums = False  # true: ETags are MD5s of the contents
        self.states_sums = False  # true: answers have a Content-MD5 of the whole file
        self.damaged = lambda path, number: False  # whether a bit of this answer's body is flipped
        self.made_up = None  # sorted keys that a bucket lists instead of its files
        self.requests = []  # (path, headers)
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.owner = self
        if tls:  # the thread of a connection does the handshake
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.address = "%s://127.0.0.1:%d" % ("https" if tls else "http", self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()

    def note(self, path, headers):
        with self._lock:
            self.requests.append((path, headers))
            return len(self.requests)

    def count(self, part=""):
        with self._lock:
            return sum(part in path for path, _ in self.requests)

    def tag_of(self, path):
        if self.tags_are_sums:
            with open(path, "rb") as file:
                return '"%s"' % hashlib.md5(file.read()).hexdigest()
        facts = os.stat(path)
        return '"%s"' % hashlib.md5(("%s %d %d" % (path, facts.st_size, facts.st_mtime_ns)).encode()).hexdigest()


class Link:
    """A link of a fixed rate that all connections share."""

    def __init__(self, rate):
        self.rate, self.free, self.lock = rate, 0.0, threading.Lock()

    def wait_for(self, count):
        with self.lock:
            now = time.monotonic()
            self.free = max(self.free, now - 0.01) + count / self.rate
            due = self.free
        if due > now:
            time.sleep(due - now)


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        pass  # the client has disconnected


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *arguments):
        pass

    def answer(self, status, headers=(), body=b""):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def error(self, status, code):
        self.answer(status, body=("<?xml version='1.0'?><Error><Code>%s</Code></Error>" % code).encode())

    def cut(self, count=1000):
        """Promises an answer, sends part of it and closes the connection."""
        self.send_response(206)
        self.send_header("Content-Length", "1000000")
        self.send_header("Content-Range", "bytes 0-999999/1000000")
        self.end_headers()
        self.wfile.write(b"x" * count)
        self.close_connection = True

    def another_range(self):
        """Answers with as many bytes as requested, which begin one byte later, and says so."""
        begin, end = (int(number) for number in re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        file = os.path.join(self.server.owner.folder, urllib.parse.unquote(self.path.partition("?")[0]).lstrip("/"))
        with open(file, "rb") as contents:
            contents.seek(begin + 1)
            body = contents.read(end - begin + 1).ljust(end - begin + 1, b"x")
        self.answer(206, {"Content-Range": "bytes %d-%d/%d" % (begin + 1, end + 1, os.path.getsize(file)),
                          "ETag": self.server.owner.tag_of(file)}.items(), body)

    def do_GET(self):
        owner = self.server.owner
        path, _, query = self.path.partition("?")
        path = urllib.parse.unquote(path)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        begin, end = (int(wanted[1]), int(wanted[2]) + 1) if wanted else (0, None)
        number = owner.note(self.path, dict(self.headers))
        if owner.latency:
            time.sleep(owner.latency)
        if instead := owner.fault((path, begin, end, number)):
            return instead(self)
        if "list-type=2" in query:
            return self.list(path, dict(urllib.parse.parse_qsl(query)))
        file = os.path.join(owner.folder, path.lstrip("/"))
        if not os.path.isfile(file):
            return self.error(404, "NoSuchKey")
        tag, size = owner.tag_of(file), os.path.getsize(file)
        if self.headers.get("If-Match", tag) != tag:
            return self.error(412, "PreconditionFailed")
        if wanted and owner.ranges and begin >= size:
            return self.error(416, "InvalidRange")
        part = wanted and owner.ranges
        end = min(end, size) if part else size
        self.send_response(206 if part else 200)
        if part:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (begin, end - 1, size))
        else:
            begin = 0
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(end - begin))
        with open(file, "rb") as contents:
            if owner.states_sums:
                self.send_header("Content-MD5", base64.b64encode(hashlib.md5(contents.read()).digest()).decode())
            self.end_headers()
            contents.seek(begin)
            flip = owner.damaged(path, number)
            left = end - begin
            while left > 0:
                piece = contents.read(min(left, 65536))
                if flip and left == end - begin:
                    piece = bytes([piece[0] ^ 1]) + piece[1:]
                if owner.link:
                    owner.link.wait_for(len(piece))
                self.wfile.write(piece)
                left -= len(piece)

    def list(self, path, query):
        owner = self.server.owner
        bucket = os.path.join(owner.folder, path.strip("/"))
        prefix = query.get("prefix", "")
        first = int(query.get("continuation-token", "0"))
        if owner.made_up:
            keys = owner.made_up
        else:
            keys = sorted(os.path.relpath(os.path.join(root, name), bucket) for root, _, names in os.walk(bucket) for name in names)
            keys = [key for key in keys if key.startswith(prefix) and not ("delimiter" in query and "/" in key[len(prefix):])]
        rest = keys[first:first + owner.page]
        more = first + owner.page < len(keys)
        text = "<?xml version='1.0'?><ListBucketResult><IsTruncated>%s</IsTruncated>" % ("true" if more else "false")
        for key in rest:
            file = os.path.join(bucket, key)
            tag, size = ('"made-up"', 1000) if owner.made_up else (owner.tag_of(file), os.path.getsize(file))
            text += "<Contents><Key>%s</Key><ETag>%s</ETag><Size>%d</Size></Contents>" % (escape(key), escape(tag, {'"': "&quot;"}), size)
        if more:
            text += "<NextContinuationToken>%d</NextContinuationToken>" % (first + owner.page)
        self.answer(200, body=(text + "</ListBucketResult>").encode())


def by_hand():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0, help="ms before each answer")
    parser.add_argument("--rate", type=float, help="MB/s of all connections together")
    parser.add_argument("--errors", type=float, default=0, help="share of requests answered by 503")
    parser.add_argument("--stalls", type=float, default=0, help="share of requests that wait")
    parser.add_argument("--stall", type=float, default=5, help="seconds that they wait")
    given = parser.parse_args()
    server = ObjectServer(given.folder, given.port)
    server.latency = given.latency / 1000
    server.link = Link(given.rate * 1e6) if given.rate else None
    choose = random.Random(1)

    def fault(request):
        drawn = choose.random()
        if drawn < given.errors:
            return lambda handler: handler.error(503, "SlowDown")
        if drawn < given.errors + given.stalls:
            time.sleep(given.stall)
        return None

    server.fault = fault
    print(server.address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    by_hand()
