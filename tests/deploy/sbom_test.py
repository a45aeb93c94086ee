#!/usr/bin/env python3
"""packaging/sbom.py of this build: valid CycloneDX, and complete against what the linker finds: sbom_test.py CHORAL [unittest arguments].
77 where no Debian packages are."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import fleet
import served

cyclonedx_validation = served.need("cyclonedx.validation.json")
cyclonedx_schema = served.need("cyclonedx.schema")
BUILD = pathlib.Path(sys.argv[1]).resolve().parents[1]
SBOM = fleet.PROJECT / "packaging" / "sbom.py"


def make(build=BUILD):
    return subprocess.run([sys.executable, SBOM, build], capture_output=True, text=True, timeout=served.LONG)


class SbomTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        done = make()
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        cls.text, cls.sbom = done.stdout, json.loads(done.stdout)

    def uses(self, use):
        """What of that use is in which component."""
        return {(part["name"], value["value"]) for part in self.sbom["components"] for value in part["properties"] if value["name"] == f"choral:{use}"}

    def test_it_is_valid(self):
        validator = cyclonedx_validation.JsonStrictValidator(cyclonedx_schema.SchemaVersion.V1_6)
        self.assertIsNone(validator.validate_str(self.text))
        self.assertIsNotNone(validator.validate_str(self.text.replace('"bom-ref"', '"bom_ref"')), "nothing is validated")

    def test_every_library_that_is_loaded_is_in_it(self):
        loaded = {str(pathlib.Path(path).resolve()) for path in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", sys.argv[1]], check=True, capture_output=True, text=True).stdout)}
        self.assertGreater(len(loaded), 10)
        self.assertEqual({file for _, file in self.uses("linked")}, loaded)
        by_name = {part["name"]: part for part in self.sbom["components"]}
        native = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()
        for package in ("libssl3", "libsqlite3-0", "libfmt9", "libc6"):
            # Of this architecture: another's may be there too.
            version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", f"{package}:{native}"], check=True, capture_output=True, text=True).stdout
            self.assertEqual(by_name[package]["version"], version)

    def test_what_is_compiled_or_bundled_or_opened_is_in_it(self):
        self.assertLessEqual({"libboost1.81-dev", "nlohmann-json3-dev", "libcli11-dev", "libhwy-dev"}, {name for name, _ in self.uses("compiled")})
        self.assertEqual({name for name, _ in self.uses("opened")}, {"libcurl4", "libzmq5", "xgrammar", "apache-tvm-ffi"})
        self.assertEqual({part["purl"] for part in self.sbom["components"] if part["purl"].startswith("pkg:pypi/")},
                         {f"pkg:pypi/{pin.replace('==', '@')}" for pin in re.search(r"kGrammarPackages=\((.*)\)", (fleet.PROJECT / "dev").read_text())[1].split()})
        if (BUILD / "src" / "serve" / "console" / "main.js").exists():
            self.assertEqual({name for name, _ in self.uses("bundled")}, {"node-preact", "node-marked", "node-dompurify", "libjs-katex", "node-highlight.js"})
        self.assertNotIn("libgtest-dev", {part["name"] for part in self.sbom["components"]}, "it is no part of the program")

    def test_everything_is_named_once(self):
        names = [part["bom-ref"] for part in self.sbom["components"]]
        self.assertEqual(names, sorted(set(names)))
        self.assertEqual(self.sbom["dependencies"], [{"ref": "choral", "dependsOn": names}])
        self.assertEqual(make().stdout, self.text, "the same build gives the same document")

    def test_a_folder_that_is_no_build_is_said(self):
        done = make(fleet.PROJECT)
        self.assertEqual(done.returncode, 1)
        self.assertIn("name a build folder", done.stderr)


if __name__ == "__main__":
    if not shutil.which("dpkg-query") or not shutil.which("ninja"):
        print("skipped: no dpkg-query or no ninja here")
        sys.exit(77)
    served.CHORAL = sys.argv.pop(1)
    sys.argv.insert(1, served.CHORAL)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
