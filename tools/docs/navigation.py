"""The order of the pages. Pages that are not listed here come last, under "More"."""

import glob
import os
import re

FOLDERS = {"docs/decisions": "Decisions", "docs/semantics": "Rules by topic"}

NAVIGATION = [
    ("Home", "index.md"),
    ("Start", [
        ("Install", "start/install.md"),
        ("Five minutes in Python", "start/python.md"),
        ("Five minutes in C++", "start/cpp.md"),
        ("Five minutes with a config", "start/config.md"),
        ("What works today", "features.md"),
    ]),
    ("Guides", [
        ("Training programs", "guides/training.md"),
        ("Photographs", "guides/photos.md"),
        ("Your own dataset", "datasets.md"),
        ("Python in depth", "python.md"),
        ("Jobs", "jobs.md"),
        ("Jobs from a shell", "map.md"),
        ("Several GPUs", "groups.md"),
        ("Loader hosts", "hosts.md"),
        ("Kubernetes and Slurm", "guides/clusters.md"),
        ("Watching a run", "operating.md"),
        ("Finding a bad sample", "guides/bad-sample.md"),
        ("Embedding in C++", "embedding.md"),
        ("Troubleshooting", "troubleshooting.md"),
        ("Troubleshooting in Python", "python-scenarios.md"),
    ]),
    ("Reference", [
        ("Config keys", "config.md"),
        ("Verbs and exit codes", "reference/verbs.md"),
        ("Python API", "reference/python.md"),
        ("C++ API", "reference/cpp/*"),
        ("JSON for programs", "json.md"),
        ("Schemas", "reference/schemas.md"),
        ("Formats", "formats.md"),
        ("Metrics", "metrics.md"),
        ("Checks of doctor", "doctor.md"),
        ("Glossary", "glossary.md"),
    ]),
    ("Design", [
        ("Architecture", "ARCHITECTURE.md"),
        ("Rules", "semantics/*"),
        ("Threat model", "threat-model.md"),
        ("Decisions", "decisions/*"),
        ("Releases", "releasing.md"),
    ]),
    ("Measurements", [
        ("Charts", "measurements.md"),
        ("Lab notes", "benchmarks.md"),
    ]),
]


def title_of(path):
    """A page's first heading, without Markdown's marks."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("# "):
                number = re.match(r"(\d{4})-", os.path.basename(path))  # of a decision
                if number:
                    line = "# %d. %s" % (int(number[1]), re.sub(r"^[\d.]+ +", "", line[2:]))
                return re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", line[2:].strip())
    return os.path.basename(path)


def of(stage):
    """mkdocs' nav for the existing pages."""
    used = set()

    def pages(pattern):
        found = sorted(glob.glob(os.path.join(stage, pattern + ("" if pattern.endswith(".md") else ".md"))))
        found.sort(key=lambda path: not path.endswith(("README.md", "index.md")))
        names = [os.path.relpath(path, stage) for path in found]
        used.update(names)
        return names

    def entry(title, what):
        if isinstance(what, str) and "*" not in what:
            return [{title: name} for name in pages(what)]
        if isinstance(what, str):
            what = [what]
        inner = []
        for each in what:
            if isinstance(each, tuple):
                inner += entry(*each)
            else:
                inner += [{title_of(os.path.join(stage, name)): name} for name in pages(each)]
        return [{title: inner}] if inner else []

    nav = [one for title, what in NAVIGATION for one in entry(title, what)]
    everything = {os.path.relpath(path, stage) for path in glob.glob(os.path.join(stage, "**/*.md"), recursive=True)}
    left = sorted(name for name in everything - used if not name.startswith("source/"))
    if left:
        nav.append({"More": [{title_of(os.path.join(stage, name)): name} for name in left]})
    return nav
