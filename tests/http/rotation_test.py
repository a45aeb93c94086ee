#!/usr/bin/env python3
"""Keys and certificates that change while requests are served: rotation_test.py CHORAL [unittest arguments]. Nobody sends a signal."""

import contextlib
import http.client
import json
import os
import ssl
import subprocess
import sys
import threading
import time
import unittest

import served

FILES = served.Files(context=4096)
OLD, NEW = "old-key-0123456789abcdef", "new-key-0123456789abcdef"
LONG_BODY = {"prompt": "x", "max_tokens": 3000, "ignore_eos": True, "stream": True}


class Secret:
    """A folder as the kubelet mounts a Secret: files are links into ..data, a link that is replaced as a whole."""

    def __init__(self, name):
        self.folder = FILES.folder / name
        self.folder.mkdir()
        self.turns = 0

    def put(self, **files):
        self.turns += 1
        inner = self.folder / f"..{self.turns}"
        inner.mkdir()
        for name, text in files.items():
            (inner / name).write_text(text)
            os.chmod(inner / name, 0o440)
        (self.folder / "..data_tmp").symlink_to(inner.name)
        (self.folder / "..data_tmp").rename(self.folder / "..data")
        for name in files:
            with contextlib.suppress(FileExistsError):
                (self.folder / name).symlink_to(f"..data/{name}")
        return self.folder


def certificate(name):
    """PEM of a certificate and of its key."""
    made = [subprocess.run(["openssl", *command], input=text, check=True, capture_output=True, timeout=served.LONG).stdout
            for command, text in ((("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"), None),)]
    made.insert(0, subprocess.run(["openssl", "req", "-x509", "-days", "2", "-subj", f"/CN={name}", "-key", "/dev/stdin"], input=made[0],
                                  check=True, capture_output=True, timeout=served.LONG).stdout)
    return tuple(pem.decode() for pem in made)


def shown(port):
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=served.LONG)


class Asking:
    """A client that asks again and again over one connection; what came of it at the end."""

    def __init__(self, connection, key=""):
        self.connection, self.key, self.statuses, self.ended = connection, key, [], threading.Event()
        self.thread = threading.Thread(target=self._ask)
        self.thread.start()

    def _ask(self):
        with contextlib.closing(self.connection):
            while not self.ended.is_set():
                try:
                    self.connection.request("GET", "/v1/models", headers={"X-Api-Key": self.key})
                    answer = self.connection.getresponse()
                    answer.read()
                    self.statuses.append(answer.status)
                except (OSError, http.client.HTTPException) as error:
                    self.statuses.append(f"{error!r}")
                    return
                time.sleep(0.002)

    def end(self):
        self.ended.set()
        self.thread.join(served.LONG)
        return self.statuses


class RotationTest(unittest.TestCase):
    def start(self, *args):
        server = served.Server(FILES.model, *args)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def wait_for(self, what):
        end = time.monotonic() + served.LONG
        while not what():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def test_a_key_is_replaced_under_traffic(self):
        secret = Secret("keys")
        server = self.start("--api-key-file", secret.put(keys=f"{OLD}\n") / "keys")
        self.assertFalse(any("chmod" in line for line in server.said), server.said)

        def status(key):
            return server.call("GET", "/v1/models", headers={"X-Api-Key": key})[0]

        self.assertEqual((status(OLD), status(NEW)), (200, 401))
        connection = server.connection()
        connection.request("POST", "/v1/completions", json.dumps(LONG_BODY), {**served.JSON, "X-Api-Key": OLD})
        stream = connection.getresponse()
        stream.readline()
        old = Asking(server.connection(), OLD)
        secret.put(keys=f"{OLD}\n{NEW}\n")
        self.wait_for(lambda: status(NEW) == 200)
        new = Asking(server.connection(), NEW)
        self.assertEqual(status(OLD), 200, "both are known for a while")
        secret.put(keys=f"{NEW}\n")
        self.wait_for(lambda: status(OLD) == 401)
        self.assertEqual(set(new.end()), {200})
        self.wait_for(lambda: old.statuses and old.statuses[-1] != 200)  # it has its turn when the machine lets it
        statuses = old.end()
        self.assertEqual([now for now, before in zip(statuses, [None, *statuses]) if now != before], [200, 401], "known until it was not")
        self.assertTrue(stream.read().rstrip().endswith(b"data: [DONE]"), "what had begun goes on")
        connection.close()

    def test_keys_that_cannot_be_used_change_nothing(self):
        secret = Secret("broken-keys")
        server = self.start("--api-key-file", secret.put(keys=f"{OLD}\n") / "keys")
        asking = Asking(server.connection(), OLD)
        secret.put(keys="bad line of many words\n")
        self.wait_for(lambda: any("keys: line 1" in line and "what was read before stays" in line for line in server.said))
        (secret.folder / "..data").unlink()
        self.wait_for(lambda: any("cannot examine" in line for line in server.said))
        self.assertEqual(server.call("GET", "/v1/models", headers={"X-Api-Key": NEW})[0], 401)
        secret.put(keys=f"{OLD}\n{NEW}\n")
        self.wait_for(lambda: server.call("GET", "/v1/models", headers={"X-Api-Key": NEW})[0] == 200)
        self.assertEqual(set(asking.end()), {200})
        self.assertEqual(sum("line 1" in line for line in server.said), 1, "it is complained of once")

    def test_a_certificate_is_replaced_under_traffic(self):
        secret = Secret("tls")
        first, second, third = (certificate(name) for name in ("first", "second", "third"))
        folder = secret.put(**{"tls.crt": first[0], "tls.key": first[1]})
        server = self.start("--ssl-certfile", folder / "tls.crt", "--ssl-keyfile", folder / "tls.key")
        self.assertEqual(shown(server.port), first[0])
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        asking = Asking(http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=served.LONG))
        secret.put(**{"tls.crt": second[0], "tls.key": second[1]})
        self.wait_for(lambda: shown(server.port) == second[0])
        secret.put(**{"tls.crt": third[0], "tls.key": second[1]})
        self.wait_for(lambda: any("does not belong to the certificate" in line or "cannot be used with" in line for line in server.said))
        self.assertEqual(shown(server.port), second[0])
        secret.put(**{"tls.crt": third[0], "tls.key": third[1]})
        self.wait_for(lambda: shown(server.port) == third[0])
        self.assertEqual(set(asking.end()), {200}, "an open connection goes on")


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
