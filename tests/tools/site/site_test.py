"""tools/site builds the documentation, finds faults in it, and the pages work in a browser, from files.

The tests are skipped where the packages of the site cannot be installed; those with a browser, where there is no Chromium.
"""

import glob
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

import browser

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
PROGRAMS = os.environ["PENSTOCK_BIN"]

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "tools", "docs"))
import links
import prose
import snippets


def build(out):
    return subprocess.run([os.path.join(TOP, "tools", "site"), "--out", out, "--bin", PROGRAMS], capture_output=True, text=True)


class SiteTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="penstock-site-test-")
        cls.site = os.path.join(cls.folder.name, "site")
        cls.built = build(cls.site)
        if cls.built.returncode == 77:
            print(cls.built.stderr)
            os._exit(77)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def page(self, name):
        return os.path.join(self.site, name)

    def pages(self):
        return sorted(path for path in glob.glob(os.path.join(self.site, "**/*.html"), recursive=True) if not path.endswith("404.html"))

    def test_the_documentation_has_no_faults(self):
        self.assertEqual(self.built.returncode, 0, self.built.stdout + self.built.stderr)

    def test_every_verb_key_and_public_name_is_on_a_page(self):
        with open(self.page("reference/verbs.html")) as file:
            verbs = file.read()
        for verb in ("run", "map", "launch", "top", "check-config", "doctor"):
            self.assertIn(f'id="penstock-{verb}"', verbs)
        with open(self.page("reference/python.html")) as file:
            python = file.read()
        for name in ("penstock.Session", "penstock.Pool", "penstock.config_error", "penstock.torch.DataLoader"):
            self.assertIn(f">{name}<", python)
        for method in ("load_state_dict", "map_unordered", "retry_quarantined"):  # including those inherited from a private class
            self.assertIn(f'<span class="n">{method}</span>', python)
        with open(self.page("reference/cpp/session.html")) as file:
            cpp = file.read()
        for name in ("run_for", "group_state", "struct session_options", "class Session"):
            self.assertIn(name, cpp)

    def test_a_link_to_a_missing_page_or_anchor_is_found(self):
        with tempfile.TemporaryDirectory() as other:
            with open(os.path.join(other, "a.html"), "w") as file:
                file.write('<p id="here"><a href="#here"></a><a href="b.html"></a><a href="#gone"></a><script src="https://example.org/x.js"></script>')
            self.assertEqual(links.check(other), ["a.html: b.html is missing", "a.html: #gone: there is no #gone on that page",
                                                  "a.html: loads https://example.org/x.js from another host"])

    def test_a_code_block_that_is_shown_as_text_is_found(self):
        with tempfile.TemporaryDirectory() as other:
            with open(os.path.join(other, "a.html"), "w") as file:
                file.write("<p>```python import os</p>")
            self.assertEqual(links.check(other), ["a.html: a code block was not recognised: its ``` is shown"])

    def test_long_sentences_wrong_words_and_a_missing_purpose_are_found(self):
        long = "This is " + "very " * 28 + "long."
        faults = prose.faults_of(f"# A\n\nWhat it is for.\n\nThe others go on anew. {long}\n")
        self.assertEqual([fault.split(":")[1].split("(")[0].strip()[:20] for fault in faults], ["31 words in one sent", "'go on'", "'anew'"])
        self.assertEqual(prose.faults_of("# A\n\n`the others go on`\n"), ["line 3: the purpose is one sentence of at most 30 words"])
        self.assertEqual(len(prose.faults_of("# A\n\n## B\n\ntext\n")), 1)

    def test_verbs_options_keys_and_programs_that_do_not_exist_are_found(self):
        page = ("# A\n\n```\npenstock rnu x.toml\nsleep 1; RANK=0 penstock run x.toml --epocs 3 | cat   # --none\n"
                "penstock launch --gpus all -- train --what\n```\n\n```toml\n[loader]\nwrokers = 3\n```\n\n```python\nfor x in\n```\n\n"
                "See `penstock top --nonsense`, `penstock status --json`.\n")
        self.assertEqual(snippets.Checker(os.path.join(PROGRAMS, "penstock")).faults_of(page), [
            "line 4: there is no verb `penstock rnu`", "line 5: `penstock run` has no option --epocs", "line 10: unknown key 'wrokers' in [loader]",
            "line 15: not Python, from line 1 of the block", "line 18: `penstock top` has no option --nonsense"])

    def test_the_status_of_a_killed_worker_is_a_picture_of_a_real_run(self):
        with tempfile.TemporaryDirectory() as out:
            subprocess.run([os.path.join(TOP, "tools", "pictures"), "--bin", PROGRAMS, "--out", out, "killed-status"], check=True)
            with open(os.path.join(out, "killed-status.svg"), encoding="utf-8") as file:
                picture = file.read()
            self.assertRegex(picture, r"SIGSEGV, sent by process \d+; was loading sample \d+")
            self.assertRegex(picture, r"class-\d/\d+\.jpg")
            self.assertNotIn(tempfile.gettempdir(), picture)

    def test_a_folder_with_other_contents_is_not_touched(self):
        with tempfile.TemporaryDirectory() as other:
            kept = os.path.join(other, "thesis.txt")
            with open(kept, "w") as file:
                file.write("mine")
            done = build(other)
            self.assertEqual(done.returncode, 1)
            self.assertIn("is not empty and holds no site", done.stderr)
            self.assertTrue(os.path.exists(kept))

    @unittest.skipUnless(browser.program(), "there is no Chromium")
    def test_pages_render_without_console_errors_and_contact_no_host(self):
        chromium = browser.Browser()
        try:
            chosen = [self.page(name) for name in ("index.html", "reference/cpp/session.html", "reference/python.html", "measurements.html",
                                                   "ARCHITECTURE.html", "config.html")]
            seed = int(os.environ.get("PENSTOCK_TEST_SEED", random.randrange(1 << 32)))
            print("PENSTOCK_TEST_SEED=%d" % seed, flush=True)
            chosen += random.Random(seed).sample(self.pages(), 6)
            for path in chosen:
                self.assertEqual(chromium.open(path), [], path)
                self.assertGreater(chromium.evaluate("document.querySelector('article').innerText.length"), 50, path)
                self.assertEqual(chromium.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"), [], path)
        finally:
            chromium.close()

    @unittest.skipUnless(browser.program(), "there is no Chromium")
    def test_navigation_and_search_work_from_files(self):
        chromium = browser.Browser()
        try:
            self.assertEqual(chromium.open(self.page("index.html")), [])
            chromium.evaluate("[...document.querySelectorAll('.md-tabs__link')].find(a => a.innerText.trim() == 'Guides').click()")
            chromium.wait_until("location.pathname.endsWith('guides/training.html') && document.querySelector('h1')")
            chromium.evaluate("[...document.querySelectorAll('.md-nav__link')].find(a => a.innerText.trim() == 'Jobs').click()")
            chromium.wait_until("location.pathname.endsWith('/jobs.html') && document.readyState == 'complete'")
            chromium.evaluate("document.querySelector('.md-search__input').focus()")
            chromium.wait_until("!document.querySelector('.md-search-result__meta').innerText.includes('nitializing')")
            chromium.evaluate("(() => { const i = document.querySelector('.md-search__input'); i.value = 'quarantine';"
                              " i.dispatchEvent(new Event('input', {bubbles: true})); i.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})); })()")
            chromium.wait_until("document.querySelectorAll('.md-search-result__item').length > 2")
            self.assertEqual(chromium.troubles(), [])
        finally:
            chromium.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
