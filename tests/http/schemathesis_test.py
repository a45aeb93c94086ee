#!/usr/bin/env python3
"""Schemathesis against the server's own /openapi.json: schemathesis_test.py CHORAL [examples an endpoint]. Thousands of bodies, right
and wrong ones: none may get a 5xx, or a status, a content type or a body that the document does not name, and the server must answer as
before afterwards."""

import pathlib
import subprocess
import sys

import served

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"

served.need("schemathesis")


def main():
    served.CHORAL = sys.argv[1]
    examples = sys.argv[2] if len(sys.argv) > 2 else "60"
    files = served.Files()
    server = served.Server(files.model, "--adapter-root", files.root, "--access-log", "off", "--request-timeout", "20")
    before = server.post("/v1/completions", prompt="Hello", temperature=0, max_tokens=4)["choices"]
    program = pathlib.Path(sys.executable).with_name("schemathesis")
    done = subprocess.run([program, "run", f"http://127.0.0.1:{server.port}/openapi.json", "--checks", CHECKS, "--max-examples", examples,
                           "--seed", "1", "--no-color", "--suppress-health-check", "all", "--phases", "fuzzing,coverage",
                           "--generation-database", "none", "--exclude-path", "/readyz", "--exclude-path", "/pause"],
                          cwd=files.folder, text=True, capture_output=True)
    print(done.stdout[-6000:], done.stderr[-2000:])
    after = server.post("/v1/completions", prompt="Hello", temperature=0, max_tokens=4)["choices"]
    code = server.stop()
    return 0 if done.returncode == 0 and before == after and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
