"""A hub on localhost that behaves like Hugging Face's as far as clients look: listings of commits, files by resolve, large ones behind
a redirect, ranges, tokens. It can be told to misbehave, and counts what it was asked."""

import hashlib
import http.server
import json
import re
import threading
import time
import urllib.parse


def git_hash(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Repository:
    """`files`: name -> content. Those of `large` go over LFS."""

    def __init__(self, files, large=(), token=None):
        self.files, self.large, self.token = files, set(large), token
        self.commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.revisions = {"main": self.commit}

    def siblings(self, blobs):
        for name, content in self.files.items():
            entry = {"rfilename": name}
            if blobs:
                entry |= {"size": len(content), "blobId": git_hash(content)}
                if name in self.large:
                    entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
            yield entry


    def tree(self):
        for entry in self.siblings(blobs=True):
            lfs = entry.get("lfs")
            yield {"type": "file", "path": entry["rfilename"], "oid": entry["blobId"], "size": (lfs or entry)["size"],
                   **({"lfs": {"oid": lfs["sha256"], "size": lfs["size"], "pointerSize": 130}} if lfs else {})}


class Hub:
    def __init__(self, repositories):
        self.repositories = repositories
        self.asked = []  # (method, path, range)
        self.listing = None  # in place of every listing
        self.cut_after = None  # bytes of a large file …
        self.cuts = 1  # … so many times
        self.sends = {}  # name -> other content
        self.failing = 0  # so many answers are 503 first …
        self.failing_head = {}  # … with these headers
        self.times = []  # when it was asked
        self.ranges = True
        self.hold = None  # an event that large files wait for
        self.tokens_at_storage = []
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                hub.answer(self)

            do_HEAD = do_GET

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # clients that leave
        # Another host to a client, as the storage behind the hub is.
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        self.storage = f"http://localhost:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def files_asked(self):
        return [path for method, path, _ in self.asked if method == "GET" and "/resolve/" in path]

    def answer(self, request):
        url = urllib.parse.urlsplit(request.path)
        path = urllib.parse.unquote(url.path)
        self.asked.append((request.command, path, request.headers.get("Range")))
        self.times.append(time.monotonic())
        if self.failing > 0:
            self.failing -= 1
            return self.send(request, 503, b"busy", self.failing_head)
        if found := re.fullmatch(r"/storage/(\w+)", path):
            self.tokens_at_storage.append(request.headers.get("Authorization"))
            return self.send_large(request, found[1])
        if found := re.fullmatch(r"/api/models/(\S+?)/tree/\S+", path):
            repository = self.repository(request, found[1])
            return repository and self.send(request, 200, json.dumps(list(repository.tree())).encode(), {"Content-Type": "application/json"})
        if found := re.fullmatch(r"/api/models/(\S+?)(?:/revision/(\S+))?", path):
            repository = self.repository(request, found[1])
            if repository is None:
                return None
            commit = self.commit(repository, found[2] or "main")
            if commit is None:
                return self.send(request, 404, b"{}")
            blobs = "blobs" in urllib.parse.parse_qs(url.query)
            listing = {"id": found[1], "modelId": found[1], "sha": commit, "siblings": list(repository.siblings(blobs))}
            return self.send(request, 200, json.dumps(self.listing or listing).encode(), {"Content-Type": "application/json"})
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            repository = self.repository(request, found[1])
            if repository is None:
                return None
            commit, content = self.commit(repository, found[2]), repository.files.get(found[3])
            if commit is None or content is None:
                return self.send(request, 404, b"", {"X-Error-Code": "EntryNotFound"})
            head = {"X-Repo-Commit": commit}
            if found[3] in repository.large:
                digest = hashlib.sha256(content).hexdigest()
                head |= {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content)), "Location": f"{self.storage}/storage/{digest}"}
                return self.send(request, 302, b"elsewhere", head)
            return self.send(request, 200, self.sends.get(found[3], content), head | {"ETag": f'"{git_hash(content)}"'})
        return self.send(request, 404, b"")

    def repository(self, request, name):
        repository = self.repositories.get(name)
        if repository is None or (repository.token and request.headers.get("Authorization") != f"Bearer {repository.token}"):
            self.send(request, 401, b"Invalid username or password.")
            return None
        return repository

    @staticmethod
    def commit(repository, revision):
        return revision if revision == repository.commit else repository.revisions.get(revision)

    def send(self, request, status, content, head=()):
        request.send_response(status)
        for name, value in dict(head).items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)

    def send_large(self, request, digest):
        name, content = next((name, content) for r in self.repositories.values() for name, content in r.files.items()
                             if name in r.large and hashlib.sha256(content).hexdigest() == digest)
        content = self.sends.get(name, content)
        whole, status, head = len(content), 200, {}
        if self.hold is not None:
            self.hold.wait(60)
        if self.ranges and (wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))):
            begin, end = int(wanted[1]), min(int(wanted[2] or whole), whole - 1)
            content, status, head = content[begin:end + 1], 206, {"Content-Range": f"bytes {begin}-{end}/{whole}"}
        if request.command != "HEAD" and self.cut_after is not None and self.cuts > 0:
            self.cuts -= 1
            request.send_response(status)
            for header, value in head.items():
                request.send_header(header, value)
            request.send_header("Content-Length", str(len(content)))
            request.end_headers()
            request.wfile.write(content[:self.cut_after])
            request.close_connection = True
            return
        self.send(request, status, content, {"ETag": f'"{digest}"', **head})
