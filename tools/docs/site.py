"""Builds the documentation site: stages docs/ with the generated pages, runs mkdocs, checks the result. See tools/site."""

import argparse
import glob
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile

import mkdocs.commands.build
import mkdocs.config

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import charts
import cpp_api
import links
import navigation
import prose
import python_api
import snippets
import verbs

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.dirname(os.path.abspath(__file__))
README_LINES = 150


def main():
    logging.basicConfig(level=logging.WARNING, format="tools/site: %(message)s")
    logging.getLogger("griffe").setLevel(logging.ERROR)  # hides warnings about arguments that share a line of a docstring
    parser = argparse.ArgumentParser(prog="tools/site", description="Builds the documentation as a static site, and checks it.")
    parser.add_argument("--out", required=True, help="the folder for the site; an existing site in it is replaced")
    parser.add_argument("--bin", help="the folder of the program penstock")
    given = parser.parse_args()
    out = os.path.abspath(given.out)
    if os.path.isdir(out) and os.listdir(out) and not os.path.exists(os.path.join(out, "sitemap.xml")):
        sys.exit(f"tools/site: {out} is not empty and holds no site: refusing to replace it")
    with tempfile.TemporaryDirectory(prefix="penstock-site-") as stage:
        penstock = program(given.bin)
        pages = stage_pages(stage, penstock)
        build(stage, out)
        faults = readme_faults() + chart_faults() + snippet_faults(penstock) + prose.check_pages(stage, pages) + links.check(out)
    for fault in faults:
        print(fault)
    if faults:
        sys.exit(f"tools/site: {len(faults)} faults in the documentation")
    print(f"{out}/index.html")


def readme_faults():
    """Faults of the README. It is a landing page: short, worded like the other pages, with working links."""
    with open(os.path.join(TOP, "README.md"), encoding="utf-8") as file:
        text = file.read()
    faults = [f"README.md: {fault}" for fault in prose.faults_of(text)]
    if len(text.splitlines()) > README_LINES:
        faults.append(f"README.md: {len(text.splitlines())} lines, more than {README_LINES}: move something to docs/")
    return faults + links.check_markdown(TOP, "README.md") + links.check_markdown(TOP, "CONTRIBUTING.md")


def snippet_faults(penstock):
    checker = snippets.Checker(penstock)
    names = glob.glob("docs/**/*.md", root_dir=TOP, recursive=True) + ["README.md", "CONTRIBUTING.md", "python/README.md"]
    faults = []
    for name in sorted(names):
        with open(os.path.join(TOP, name), encoding="utf-8") as file:
            faults += [f"{name}: {fault}" for fault in checker.faults_of(file.read())]
    return faults


def chart_faults():
    """Faults of the charts in docs/pictures: they must match the figures in the lab notes."""
    faults = []
    for name, text in charts.all_of(TOP):
        path = os.path.join(TOP, "docs", "pictures", name)
        if not os.path.exists(path) or open(path, encoding="utf-8").read() != text:
            faults.append(f"docs/pictures/{name}: does not match the figures: run tools/pictures charts killed-worker")
    return faults


def program(folder):
    """The built penstock, which prints its own verbs and schema."""
    found = [os.path.join(folder, "penstock")] if folder else glob.glob(os.path.join(TOP, "build/*/bin/penstock"))
    found = [path for path in found if os.access(path, os.X_OK)]
    if not found:
        sys.exit("tools/site: there is no program penstock, which prints the reference of its verbs: "
                 "build it (cmake --preset release && cmake --build --preset release), or say where it is with --bin FOLDER")
    return max(found, key=os.path.getmtime)


# ---- staging ---------------------------------------------------------------------------------------------------------

def stage_pages(stage, penstock):
    """Copies docs/ and writes the generated pages. Returns the hand-written pages, relative to the stage."""
    shutil.copytree(os.path.join(TOP, "docs"), stage, dirs_exist_ok=True)
    shutil.copytree(os.path.join(HERE, "assets"), os.path.join(stage, "assets"), dirs_exist_ok=True)
    by_hand = sorted(os.path.relpath(path, stage) for path in glob.glob(os.path.join(stage, "**/*.md"), recursive=True))
    include_sections(stage, by_hand)
    add_purposes(stage)
    write(stage, "reference/verbs.md", verbs.page(penstock))
    write(stage, "reference/schema.json", subprocess.run([penstock, "schema"], capture_output=True, text=True, check=True).stdout)
    write(stage, "reference/schemas.md", verbs.schemas_page(TOP))
    write(stage, "reference/python.md", python_api.page(os.path.join(TOP, "python")))
    for name, text in cpp_api.pages(os.path.join(TOP, "runtime/include/penstock")):
        write(stage, os.path.join("reference/cpp", name), text)
    Sources(stage).take_in(by_hand)
    return by_hand


# Purpose lines for pages that have none of their own.
PURPOSES = {
    "decisions/*.md": "A decision about the design, with its reasons and its cost.",
}


def add_purposes(stage):
    for pattern, purpose in PURPOSES.items():
        for path in glob.glob(os.path.join(stage, pattern)):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            write(stage, os.path.relpath(path, stage), re.sub(r"^(# .*)\n", lambda title: title[1] + "\n\n" + purpose + "\n", text, count=1, flags=re.M))


def include_sections(stage, pages):
    """Puts sections of the README where a page says `<!-- the section "X" of README.md -->`, so that each exists only once."""
    with open(os.path.join(TOP, "README.md"), encoding="utf-8") as file:
        sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", file.read(), re.M | re.S))
    for page in pages:
        with open(os.path.join(stage, page), encoding="utf-8") as file:
            text = file.read()
        wanted = re.findall(r'<!-- the section "(.+?)" of README.md -->', text)
        for name in wanted:
            if name not in sections:
                sys.exit(f"tools/site: docs/{page} includes the section \"{name}\" of README.md, but there is no such section")
            text = text.replace(f'<!-- the section "{name}" of README.md -->', links_from(page, sections[name].strip()))
        if wanted:
            write(stage, page, text)


def links_from(page, section):
    """The README's links into docs/, relative to `page` of the site."""
    here = os.path.dirname(page) or "."
    return re.sub(r"\]\(docs/([^)#]+)", lambda link: f"]({os.path.relpath(link[1], here)}", section)


def write(stage, name, text):
    path = os.path.join(stage, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class Sources:
    """Links from pages into the repository become links to pages that show the file or the folder."""

    LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")
    LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".cu": "cpp", ".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml",
                 ".sh": "bash", ".sbatch": "bash", ".txt": "cmake", ".json": "json", ".def": "cpp"}

    def __init__(self, stage):
        self._stage = stage
        self._shown = set()

    def take_in(self, pages):
        for page in pages:
            path = os.path.join(self._stage, page)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            # Remove the second word after a fence's language: tests need it to find programs, but mkdocs does not know it.
            text = re.sub(r"^```(\w+) +\S.*$", r"```\1", text, flags=re.M)
            changed = self._rewritten(text, page, os.path.dirname(os.path.join("docs", page)))
            with open(path, "w", encoding="utf-8") as file:
                file.write(changed)

    def _rewritten(self, text, page, folder):
        """`folder`: what the links are relative to, in the repository. Code blocks stay as they are."""
        parts = re.split(r"(^```.*?^```)", text, flags=re.M | re.S)
        for i in range(0, len(parts), 2):
            parts[i] = self.LINK.sub(lambda match: self._link(match, page, folder), parts[i])
        return "".join(parts)

    def _link(self, match, page, folder):
        target, _, anchor = match[2].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        target = os.path.normpath(os.path.join(folder, target))
        if target == "README.md":
            shown = "index.md"
        elif target.startswith("docs/"):
            if not os.path.isdir(os.path.join(TOP, target)):
                shown = target[len("docs/"):]
            else:
                shown = os.path.join(target[len("docs/"):], "README.md")
                if not os.path.exists(os.path.join(self._stage, shown)):
                    write(self._stage, shown, folder_page(target))
        elif os.path.exists(os.path.join(TOP, target)):
            shown = self._page_of(target)
        else:
            return match[0]  # mkdocs complains
        relative = os.path.relpath(shown, os.path.dirname(page) or ".")
        return f"{match[1]}({relative}{'#' + anchor if anchor else ''})"

    def _page_of(self, target):
        is_text = target.endswith(".md")
        shown = os.path.join("source", target if is_text else target + ".md")
        if shown in self._shown:
            return shown
        self._shown.add(shown)
        path = os.path.join(TOP, target)
        if os.path.isdir(path):
            return self._folder(target, shown)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if is_text:
            write(self._stage, shown, self._rewritten(text, shown, os.path.dirname(target)))
        else:
            language = self.LANGUAGES.get(os.path.splitext(target)[1], "bash" if text.startswith("#!") else "text")
            write(self._stage, shown, f"# {target}\n\nThe file as it is in the repository.\n\n````{language}\n{text}\n````\n")
        return shown

    def _folder(self, target, shown):
        lines = [f"# {target}/", "", "What this folder of the repository contains.", ""]
        for name in sorted(os.listdir(os.path.join(TOP, target))):
            inner = os.path.join(target, name)
            if os.path.isfile(os.path.join(TOP, inner)):
                lines.append(f"- [{name}]({os.path.relpath(self._page_of(inner), os.path.dirname(shown))})")
            elif not name.startswith("__"):
                lines.append(f"- {name}/")
        write(self._stage, shown, "\n".join(lines) + "\n")
        return shown


def folder_page(target):
    """A list of a folder of docs/, for the links that name the folder."""
    lines = [f"# {navigation.FOLDERS.get(target, target)}", "", "Each page of this part, in order.", ""]
    for name in sorted(os.listdir(os.path.join(TOP, target))):
        if name.endswith(".md"):
            lines.append(f"- [{navigation.title_of(os.path.join(TOP, target, name))}]({name})")
    return "\n".join(lines) + "\n"


# ---- mkdocs ----------------------------------------------------------------------------------------------------------

def build(stage, out):
    # Folders that are linked already have a list of their pages. Make one for the others, too: the navigation needs it.
    for target in navigation.FOLDERS:
        shown = os.path.join(stage, target[len("docs/"):], "README.md")
        if os.path.isdir(os.path.dirname(shown)) and not os.path.exists(shown):
            write(stage, os.path.relpath(shown, stage), folder_page(target))
    config = mkdocs.config.load_config(
        os.path.join(HERE, "mkdocs.yml"), docs_dir=stage, site_dir=out, nav=navigation.of(stage), strict=True)
    try:
        mkdocs.commands.build.build(config)
    except mkdocs.exceptions.Abort:
        sys.exit("tools/site: mkdocs reported the faults above")


main()
