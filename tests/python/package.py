"""What tests of the Python package share: a tiny model with adapters, and the program to hold answers against."""

import contextlib
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import tiny_model  # noqa: E402

CHORAL = ""  # the program; set by main()
PROMPTS = ["once upon", "a time there", "was", "one base and many voices", "x"]


class PackageTest(unittest.TestCase):
    """With a model and two adapters in a folder of their own."""

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.model = tiny_model.write_model(pathlib.Path(cls.folder) / "tiny", context=32768)
        cls.adapters = {}
        for seed, name in enumerate(["loud", "quiet"], start=1):
            cls.adapters[name] = str(tiny_model.write_adapter(pathlib.Path(cls.folder) / name, seed=seed))

    def raises(self, kind, *says):
        """A context in which `kind` is raised, whose message says this."""

        @contextlib.contextmanager
        def checked():
            with self.assertRaises(kind) as caught:
                yield caught
            for text in says:
                self.assertIn(text, str(caught.exception))

        return checked()


def main():
    global CHORAL
    CHORAL = sys.argv.pop()
    if not hasattr(unittest.TestCase, "enterClassContext"):  # Python 3.10
        def enter(cls, context):
            value = context.__enter__()
            cls.addClassCleanup(context.__exit__, None, None, None)
            return value
        unittest.TestCase.enterClassContext = classmethod(enter)
    program = unittest.main(exit=False, verbosity=1)
    sys.exit(not program.result.wasSuccessful())
