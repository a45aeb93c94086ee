#!/usr/bin/env python3
"""docs/coming-from.md says of each field of OpenAI's, vLLM's and llama.cpp's bodies what becomes of it here: fields_test.py CHORAL [--write].

foreign_fields.txt lists them. The server itself says what it does with each, in /openapi.json, and must not know one only by accident:
a field that it would merely warn of is an error here. --write puts the table between `<!-- fields -->` and `<!-- end of fields -->`."""

import pathlib
import re
import sys
import tempfile

import served
import tiny_model

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "coming-from.md"
PLACE = re.compile(r"(?<=<!-- fields -->\n).*?(?=<!-- end of fields -->)", re.S)
LIST = pathlib.Path(__file__).with_name("foreign_fields.txt")
ROUTES = {"/v1/chat/completions": "chats", "/v1/completions": "completions"}


def foreign_fields():
    """{field: {peer: {route}}}"""
    fields, peer, route = {}, "", ""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        if ": /" in line:
            peer, route = line.split(": ")
            continue
        for name in line.split():
            fields.setdefault(name, {}).setdefault(peer, set()).add(route)
    return fields


class Known:
    """What the server says that it does with fields."""

    def __init__(self, document):
        self.ignored, self.refused = document["x-ignored-fields"], document["x-refused-fields"]
        self.served = {}
        for route in ROUTES:
            schema = document["paths"][route]["post"]["requestBody"]["content"]["application/json"]["schema"]
            self.served[route] = {*schema["properties"], *schema.get("x-also", [])}

    def fate(self, name, route):
        if name in self.served[route]:
            return "served"
        if name in self.refused:
            why = self.refused[name]
            return "refused" + (f": {why}" if why else "")
        assert name in self.ignored, f"{route} does not know the field '{name}'"
        return f"no effect: {self.ignored[name]}"


def code(text):
    return re.sub(r"(?<!\w)'([^' ]+)'", r"`\1`", text)


def table(known):
    rows = ["| field | OpenAI | vLLM | llama.cpp | here |", "|---|---|---|---|---|"]
    for name, peers in sorted(foreign_fields().items()):
        routes = sorted(set().union(*peers.values()))
        fates = {route: known.fate(name, route) for route in routes}
        same = len(set(fates.values())) == 1
        here = next(iter(fates.values())) if same else "; ".join(f"{ROUTES[route]}: {fate}" for route, fate in fates.items())
        marks = " | ".join("x" if peer in peers else "" for peer in ("OpenAI", "vLLM", "llama.cpp"))
        rows.append(f"| `{name}` | {marks} | {code(here)} |")
    return "\n" + "\n".join(rows) + "\n\n"


def check_fates(server, known):
    """What the table says is what happens, with a strict server: nothing is unknown."""
    for route, body in (("/v1/completions", {"prompt": "a", "max_tokens": 1}),
                        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1})):
        for name, peers in foreign_fields().items():
            if name in body or not any(route in routes for routes in peers.values()):
                continue
            status, headers, answer = server.call("POST", route, {**body, name: {"x": "no value of it"}})
            fate = known.fate(name, route)
            if fate.startswith("refused"):
                assert status in (400, 501) and "is not served" in answer["error"]["message"], (route, name, answer)
            elif fate.startswith("no effect"):
                assert status == 200 and headers["X-Choral-Warnings"] is None, (route, name, answer)
            assert status == 200 or "the field '" not in answer["error"]["message"], (route, name, answer)
        status, _, answer = server.call("POST", route, {**body, "temprature": 1})
        assert status == 400 and answer["error"]["param"] == "temprature" and "did you mean 'temperature'?" in answer["error"]["message"], answer


def main():
    served.CHORAL = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        server = served.Server(tiny_model.write_model(pathlib.Path(folder) / "m"), "--strict-fields")
        try:
            known = Known(server.call("GET", "/openapi.json")[2])
            made = table(known)
            check_fates(server, known)
        finally:
            server.stop()
    page = PAGE.read_text(encoding="utf-8")
    if "--write" in sys.argv[2:]:
        PAGE.write_text(PLACE.sub(lambda _: made, page), encoding="utf-8")
        return 0
    if (found := PLACE.search(page)) and found[0] == made:
        return 0
    missing = [line for line in made.splitlines() if line not in page]
    print("docs/coming-from.md has another table of fields than the server; this writes it:",
          f"  python3 tests/http/fields_test.py {sys.argv[1]} --write", "First difference:", *missing[:3], sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
