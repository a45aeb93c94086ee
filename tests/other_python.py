"""For comparisons that need packages which the tests' own Python lacks."""

import os
import sys


def go_on_elsewhere(missing, hint=""):
    """Runs this program again in the Python that CHORAL_PEFT_PYTHON names; without one, or there too, exits with 77: skipped."""
    if other := os.environ.pop("CHORAL_PEFT_PYTHON", None):
        os.execv(other, [other, *sys.argv])
    print(f"skipped: no Python package '{missing.name}' here{hint}")
    sys.exit(77)
