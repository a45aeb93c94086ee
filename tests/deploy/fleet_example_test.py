#!/usr/bin/env python3
"""examples/fleet/run.sh with a tiny model: fleet_example_test.py CHORAL [unittest arguments]. 77 without HAProxy."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import unittest

import fleet
import served

fleet.need_program("haproxy")
FILES = fleet.Files()
RUN = fleet.PROJECT / "examples" / "fleet" / "run.sh"


def reserved_port():
    """A port that HAProxy can take and nobody else: it listens with SO_REUSEPORT too."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", 0))
    return made


class FleetExampleTest(unittest.TestCase):
    def run_it(self, *args):
        with contextlib.closing(reserved_port()) as edge, contextlib.closing(reserved_port()) as figures:
            return subprocess.run([RUN, *args], env={**os.environ, "CHORAL": served.CHORAL, "CHORAL_THREADS": "1", "TOKENS": "3500", "EDGE_PORT": str(edge.getsockname()[1]),
                                                     "EDGE_FIGURES_PORT": str(figures.getsockname()[1])},
                                  capture_output=True, timeout=served.LONG)

    def test_the_text_goes_on(self):
        done = self.run_it("haproxy", str(FILES.model))
        said = done.stdout.decode("utf-8", "replace")
        self.assertEqual(done.returncode, 0, said + done.stderr.decode("utf-8", "replace"))
        killed, went_on = re.search(r"\[(replica\d) is killed\]", said)[1], re.search(r"\[(replica\d) went on", said)[1]
        self.assertNotEqual(killed, went_on)
        self.assertIn("bytes, the same as those of the answer", said)

    def test_what_is_missing_is_said(self):
        for args, said in ((("nginx",), "no 'nginx'"), (("haproxy", "/nowhere"), "there is no /nowhere")):
            done = self.run_it(*args)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr.decode())


if __name__ == "__main__":
    served.CHORAL = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
