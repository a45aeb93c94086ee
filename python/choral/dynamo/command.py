"""`python -m choral.dynamo`: its flags. Dynamo's are those of its own workers, with their variables; the engine's are LLM's arguments."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import sys
from typing import Any

from choral import _choral
from choral.errors import ChoralError
from choral.options import ENGINE_ARGUMENTS

_OF_ENGINE = "engine."  # before their names in a namespace
_ASKED_OTHERWISE = {"chat_template"}  # the frontend's work


def main() -> None:
    given = vars(_parser().parse_args())
    engine = {name.removeprefix(_OF_ENGINE): given.pop(name) for name in list(given) if name.startswith(_OF_ENGINE)}
    try:
        from dynamo.runtime.logging import configure_dynamo_logging  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        sys.exit(f"choral.dynamo: Dynamo's runtime is not installed ({error}); pip install 'choral[dynamo]'")
    from choral.dynamo.serving import ServingOptions, serve

    configure_dynamo_logging()
    options = ServingOptions(engine={name: value for name, value in engine.items() if value is not None}, **given)
    try:
        asyncio.run(serve(options))
    except ChoralError as error:
        sys.exit(f"choral.dynamo: {error.message}")
    # The engine is closed. Dynamo's runtime keeps what it was given, which the interpreter's end would report as leaks.
    logging.shutdown()
    os._exit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m choral.dynamo", description="A worker of Dynamo: one engine, its base and its adapters.")
    add = parser.add_argument
    add("--model", required=True, help="a folder, a GGUF file, or org/name in the local Hugging Face cache")
    add("--served-model-name", default="", metavar="NAME", help="the base's name (default: the model's own)")
    add("--model-files", default="", metavar="DIR", help="where frontends read tokenizer and chat template (default: the model's folder)")
    add("--lora", type=_named_path, action="append", default=[], metavar="NAME=PATH", dest="adapters", help="an adapter")
    add("--drain-timeout", type=float, default=30.0, metavar="S", dest="drain_timeout_s",
        help="on SIGTERM answers may end for so long, then the rest goes on at other workers (default: 30)")  # fmt: skip

    dynamo = parser.add_argument_group("Dynamo").add_argument
    dynamo("--endpoint", type=_endpoint, default=_variable("ENDPOINT", f"dyn://{_variable('NAMESPACE', 'dynamo')}.choral.generate"),
           metavar="dyn://NAMESPACE.COMPONENT.ENDPOINT")  # fmt: skip
    dynamo("--discovery-backend", choices=["kubernetes", "etcd", "file"], default=_variable("DISCOVERY_BACKEND", "etcd"))
    dynamo("--request-plane", choices=["tcp", "nats"], default=_variable("REQUEST_PLANE", "tcp"))
    dynamo("--event-plane", choices=["nats", "zmq"], default=_variable("EVENT_PLANE", None))
    dynamo("--custom-jinja-template", metavar="FILE", dest="chat_template", help="the frontend's chat template, in place of the model's")
    dynamo("--dyn-tool-call-parser", metavar="NAME", dest="tool_call_parser", default=_variable("TOOL_CALL_PARSER", None))
    dynamo("--dyn-reasoning-parser", metavar="NAME", dest="reasoning_parser", default=_variable("REASONING_PARSER", None))

    engine = parser.add_argument_group("the engine", "LLM's arguments: docs/python.md")
    defaults = _choral.EngineOptions()
    for name in sorted(ENGINE_ARGUMENTS - _ASKED_OTHERWISE):
        _add_engine_flag(engine, name, getattr(defaults, name))
    return parser


def _add_engine_flag(group: Any, name: str, default: Any) -> None:
    flag, dest = "--" + name.replace("_", "-"), _OF_ENGINE + name
    if isinstance(default, bool):
        group.add_argument(flag, dest=dest, action=argparse.BooleanOptionalAction, default=None)
    else:
        group.add_argument(flag, dest=dest, type=type(default), metavar="TEXT" if isinstance(default, str) else "N")


def _named_path(text: str) -> tuple[str, str]:
    name, sign, path = text.partition("=")
    if not (name and sign and path):
        raise argparse.ArgumentTypeError(f"give NAME=PATH, not {text!r}")
    return name, path


def _endpoint(text: str) -> str:
    if not re.fullmatch(r"(dyn://)?[^./]+\.[^./]+\.[^./]+", text):
        raise argparse.ArgumentTypeError(f"give dyn://NAMESPACE.COMPONENT.ENDPOINT, not {text!r}")
    return text


def _variable(name: str, otherwise: str | None) -> str | None:
    return os.environ.get(f"DYN_{name}") or otherwise
