"""Checks a built site for links to missing files and anchors, resources from other hosts, and broken code blocks."""

import glob
import os
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

# Only these elements load resources; links to other sites are fine.
LOADING = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.broken_code = "```" in text
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if name in ("href", "src") and value:
                self.links.append((tag, name, value))


def check(site):
    """The faults, one line for each."""
    pages = {}
    for path in glob.glob(os.path.join(site, "**/*.html"), recursive=True):
        with open(path, encoding="utf-8") as file:
            pages[os.path.realpath(path)] = Page(file.read())
    faults = []
    for path, page in sorted(pages.items()):
        if os.path.basename(path) == "404.html":
            continue
        if page.broken_code:
            faults.append(f"{os.path.relpath(path, os.path.realpath(site))}: a code block was not recognised: its ``` is shown")
        for tag, name, link in page.links:
            fault = fault_of(path, page, tag, name, link, pages)
            if fault:
                faults.append(f"{os.path.relpath(path, os.path.realpath(site))}: {fault}")
    return faults


def fault_of(path, page, tag, name, link, pages):
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        loads = (tag, name) in LOADING and parts.scheme != "data" and not (tag == "link" and "material" in link)
        return f"loads {link} from another host" if loads else None
    if parts.path.startswith("/"):
        return f"{link} is an absolute path"
    target = os.path.realpath(os.path.join(os.path.dirname(path), unquote(parts.path))) if parts.path else path
    if not os.path.isfile(target):
        return f"{link} is missing"
    anchor = unquote(parts.fragment)
    if anchor and not anchor.startswith("__") and target in pages and anchor not in pages[target].anchors:
        return f"{link}: there is no #{anchor} on that page"
    return None


def check_markdown(top, name):
    """The broken links of a Markdown file in the repository."""
    with open(os.path.join(top, name), encoding="utf-8") as file:
        text = re.sub(r"^```.*?^```", "", file.read(), flags=re.M | re.S)
    targets = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", link)]
    return [f"{name}: {target} is missing" for target in targets
            if target and not os.path.exists(os.path.join(top, os.path.dirname(name), target))]
