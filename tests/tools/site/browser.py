"""A headless Chromium, driven over its debugging pipe: opens pages, evaluates scripts, and collects the console's messages."""

import json
import os
import shutil
import subprocess
import tempfile
import time


def program():
    """Chromium's program, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))), None)


class ProtocolError(Exception):
    """An error that Chromium returned for a command."""


class Browser:
    def __init__(self):
        self._profile = tempfile.TemporaryDirectory(prefix="penstock-chromium-")
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()

        def pass_on():  # the protocol uses descriptors 3 and 4
            first, second = os.dup(to_read), os.dup(to_write)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self._process = subprocess.Popen(
            [program(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             "--no-first-run", "--user-data-dir=" + self._profile.name, "about:blank"],
            preexec_fn=pass_on, pass_fds=(3, 4, to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self._number, self._buffer, self._events, self._session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()

    # ---- pages -----------------------------------------------------------------------------------------------------------

    def open(self, path):
        """Loads a file; returns the problems: errors of the console, exceptions, requests to other hosts."""
        self._events.clear()
        self.call("Page.navigate", url="file://" + path)
        self.wait_for_event("Page.loadEventFired")
        self.wait_until("document.readyState == 'complete'")
        return self.troubles()

    def troubles(self):
        found = []
        for event in self._events:
            method, about = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append("exception: " + json.dumps(about["exceptionDetails"].get("exception", about["exceptionDetails"]))[:300])
            elif method == "Log.entryAdded" and about["entry"]["level"] == "error":
                found.append("log: " + about["entry"]["text"] + " " + about["entry"].get("url", ""))
            elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "assert"):
                found.append("console: " + json.dumps(about["args"])[:300])
            elif method == "Network.requestWillBeSent" and not about["request"]["url"].startswith(("file:", "data:", "blob:", "about:")):
                found.append("asks another host: " + about["request"]["url"])
        return found

    def evaluate(self, script):
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait_until(self, script, seconds=60):
        deadline = time.monotonic() + seconds
        while True:
            try:
                if self.evaluate(f"Boolean({script})"):
                    return
                self.evaluate("new Promise(resolve => setTimeout(resolve, 50))")
            except ProtocolError:
                pass  # navigation has just begun, so its scripts are gone
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {script}; {self.troubles()}")

    # ---- protocol --------------------------------------------------------------------------------------------------------

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        number = self._number
        while True:
            answer = self._read()
            if answer.get("id") == number:
                if "error" in answer:
                    raise ProtocolError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self._events.append(answer)

    def wait_for_event(self, method):
        while not any(event["method"] == method for event in self._events):
            answer = self._read()
            if "method" in answer:
                self._events.append(answer)

    def _read(self):
        while b"\0" not in self._buffer:
            read = os.read(self._from, 1 << 16)
            if not read:
                raise AssertionError("Chromium has ended")
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)
