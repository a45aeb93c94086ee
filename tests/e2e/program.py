"""The program under test, and what tests of it share: runs that must succeed, runs that must fail with a code and say why."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

CHORAL = ""  # set by the test's main


def choral(*args, stdin="", env=None, cwd=None):
    return subprocess.run([CHORAL, *map(str, args)], input=stdin, cwd=cwd, capture_output=True, text=True, encoding="utf-8", errors="replace",
                          timeout=300, env={**os.environ, **(env or {})})


def json_lines(text):
    """Each line's value. str.splitlines() would break at U+2028 and its like, which JSON may hold as they are."""
    return [json.loads(line) for line in text.split("\n") if line]


class Page:
    """A page that `--html` wrote, read strictly: well-formed, with nothing that runs or that is fetched."""

    TAGS = set("html head meta title style body main footer h1 h2 h3 p div section table caption thead tbody tr th td mark details summary ul li "
               "figure figcaption svg g rect line".split())
    ATTRIBUTES = set("lang charset http-equiv content name scope class style title dir viewBox preserveAspectRatio role aria-label x y width "
                     "height x1 x2 y1 y2".split())

    def __init__(self, path):
        self.text = pathlib.Path(path).read_text(encoding="utf-8")
        assert self.text.startswith("<!DOCTYPE html>\n<html")
        self.root = xml.etree.ElementTree.fromstring(self.text)
        for element in self.root.iter():
            assert element.tag in self.TAGS, element.tag
            assert set(element.attrib) <= self.ATTRIBUTES, element.attrib
        assert "url(" not in self.text and "@import" not in self.text

    def words(self, tag):
        return ["".join(element.itertext()) for element in self.root.iter(tag)]

    def tables(self):
        """Of each: its caption, and rows with the headings as keys."""
        for table in self.root.iter("table"):
            names = [cell.text or "" for cell in table.findall("thead/tr/th")]
            rows = [dict(zip(names, (cell.text or "" for cell in row))) for row in table.findall("tbody/tr")]
            yield table.findtext("caption", ""), rows


class ProgramTest(unittest.TestCase):
    def run_ok(self, *args, **kwargs):
        done = choral(*args, **kwargs)
        self.assertEqual(done.returncode, 0, f"{args}: {done.stdout}{done.stderr}")
        return done

    def run_fails(self, code, *args, says=(), **kwargs):
        done = choral(*args, **kwargs)
        self.assertEqual(done.returncode, code, f"{args}: {done.stdout}{done.stderr}")
        for text in says:
            self.assertIn(text, done.stderr)
        return done

    def run_jsonl(self, model, lines, *flags, code=0):
        """Gives the records and what was said on stderr."""
        with tempfile.TemporaryDirectory() as folder:
            source, target = pathlib.Path(folder) / "in.jsonl", pathlib.Path(folder) / "out.jsonl"
            source.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
            done = choral("generate", model, "--input", source, "--output", target, *flags)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertEqual(sorted(os.listdir(folder)), ["in.jsonl", "out.jsonl"])
            return json_lines(target.read_text(encoding="utf-8")), done.stderr
