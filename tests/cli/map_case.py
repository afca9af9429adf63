"""Shared by the tests of penstock map: running it, and reading its output and summary."""

from harness import *

ODD_JOBS = os.path.join(BIN, "odd-jobs")
FIELDS = ["index", "status", "attempts", "result", "error", "input"]


class MapTest(PenstockTest):
    def path(self, name):
        return os.path.join(self.folder, name)

    def config(self, more=""):
        return self.write("jobs.toml", '[loader]\ncommand = ["%s"]\n[loader.restart]\nintensity = { max = 1000, within = "60s" }\n'
                                       '[log]\nlevel = "error"\n%s' % (ODD_JOBS, more))

    def script(self, text):
        path = self.write("script.sh", "#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return path

    def lines(self, name="out.jsonl"):
        with open(self.path(name)) as file:
            found = [json.loads(line) for line in file.read().splitlines()]
        for line in found:
            self.assertEqual(list(line), FIELDS)
        return found

    def map(self, *arguments, items=None, expect=EXIT_OK, workers=2, timeout=60):
        """Runs `penstock map` with the items as input and out.jsonl as output. Returns the output's lines and the summary."""
        if items is not None:
            self.write("in", "".join(item + "\n" for item in items))
        code, out, err = self.penstock("map", *arguments, "--input", self.path("in"), "--output", self.path("out.jsonl"),
                                       "--workers", workers, "--json", "--quiet", timeout=timeout)
        self.assertEqual(code, expect, err + out)
        self.assertEqual(out.count("\n"), 1, out)
        summary = json.loads(out)
        self.assertEqual(summary["schema"], "penstock.map/1")
        found = self.lines()
        self.assertEqual(summary["jobs"], len(found))
        for status, count in summary["counts"].items():
            self.assertEqual(count, sum(line["status"] == status for line in found), status)
        self.err = err
        return found, summary

    def refused(self, *arguments, expect=EXIT_USAGE):
        code, out, err = self.penstock("map", *arguments, "--json")
        self.assertEqual(code, expect, out + err)
        return json.loads(out)["error"]["message"]
