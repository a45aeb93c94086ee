#!/usr/bin/env python3
"""plugin_prefix_test.py CHORAL PLUGIN: PREFIX/bin/choral finds the plug-in in PREFIX/lib/choral/plugins, however it is started."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CHORAL, PLUGIN = (pathlib.Path(path).resolve() for path in sys.argv[1:3])


class PluginPrefixTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=CHORAL.parent)  # where a file may have a second name
        self.addCleanup(folder.cleanup)
        self.prefix = pathlib.Path(folder.name)
        (self.prefix / "bin").mkdir()
        try:
            os.link(CHORAL, self.prefix / "bin" / "choral")
        except OSError:
            shutil.copy2(CHORAL, self.prefix / "bin" / "choral")
        plugins = self.prefix / "lib" / "choral" / "plugins"
        plugins.mkdir(parents=True)
        shutil.copy2(PLUGIN, plugins)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("CHORAL_PLUGIN")}

    def expect_found(self, *command, **more):
        said = subprocess.run([*command, "doctor"], capture_output=True, text=True, env=self.environment, **more).stdout
        self.assertIn(PLUGIN.name.removeprefix("libchoral_plugin_").removesuffix(".so"), said)

    def test_by_its_path(self):
        self.expect_found(self.prefix / "bin" / "choral")

    def test_by_a_path_from_here(self):
        self.expect_found("bin/choral", cwd=self.prefix)

    def test_by_its_name(self):
        self.environment["PATH"] = f"{self.prefix / 'bin'}:{self.environment['PATH']}"
        self.expect_found("choral", cwd="/")

    def test_by_a_link(self):
        with tempfile.TemporaryDirectory() as elsewhere:
            link = pathlib.Path(elsewhere) / "choral"
            link.symlink_to(self.prefix / "bin" / "choral")
            self.expect_found(link)


if __name__ == "__main__":
    del sys.argv[1:3]
    unittest.main(verbosity=2)
