#!/usr/bin/env python3
"""`choral chat` at a terminal: terminal_test.py CHORAL [unittest arguments]. A pseudo-terminal stands for the person: keys, pastes, Ctrl-C."""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

import program
import tiny_model

TEMP = tempfile.TemporaryDirectory()
MODEL = pathlib.Path(TEMP.name) / "tiny"
ADAPTERS = pathlib.Path(TEMP.name) / "adapters"
UP, CTRL_A, CTRL_C, CTRL_D, CTRL_R = "\x1b[A", "\x01", "\x03", "\x04", "\x12"
FLAGS = ("--temperature", "0", "--max-tokens", "4", "--ignore-eos", "--adapter-root", ADAPTERS)


class Terminal:
    """A chat at a terminal of so many columns."""

    def __init__(self, history, *args, columns=80):
        self.fd, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        env = {**os.environ, "CHORAL_HISTORY": str(history), "TERM": "xterm", "INPUTRC": "/dev/null", "LC_ALL": "C.UTF-8"}
        env.pop("COLUMNS", None)
        self.process = subprocess.Popen([program.CHORAL, "chat", MODEL, *map(str, FLAGS + args)], stdin=child, stdout=child, stderr=child,
                                        env=env, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(child)
        self.seen = ""

    def expect(self, pattern, timeout=60):
        """Reads on until `pattern` comes; gives what came up to its end, without colours and cursor keys."""
        end = time.monotonic() + timeout
        while True:
            plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.seen)
            if found := re.search(pattern, plain):
                self.seen = plain[found.end():]
                return plain[:found.end()]
            if time.monotonic() > end or not select.select([self.fd], [], [], end - time.monotonic())[0]:
                raise AssertionError(f"no {pattern!r} came, but {plain!r}")
            try:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"it ended without {pattern!r}: {plain!r}") from None

    def type(self, text):
        data = text.encode()
        while data:
            data = data[os.write(self.fd, data[:512]):]

    def end(self, keys=CTRL_D):
        """Ends it; gives the exit code."""
        self.type(keys)
        while True:
            try:
                if not os.read(self.fd, 65536):
                    break
            except OSError:
                break
        os.close(self.fd)
        return self.process.wait(60)


class TerminalTest(unittest.TestCase):
    def setUp(self):
        self.history = pathlib.Path(TEMP.name) / self.id()

    def chat(self, *args, **kwargs):
        terminal = Terminal(self.history, *args, **kwargs)
        terminal.expect(r"Ctrl-D ends\.\s+> ")
        return terminal

    def messages(self, terminal):
        saved = pathlib.Path(TEMP.name) / "saved.json"
        saved.unlink(missing_ok=True)
        terminal.type(f"/save {saved}\r")
        terminal.expect(r"messages? saved to [^)]*\)\s+> ")
        return [m["content"] for m in json.loads(saved.read_text())["messages"] if m["role"] == "user"]

    def test_keys_edit_and_history_outlives_the_session(self):
        terminal = self.chat()
        terminal.type("ello" + CTRL_A + "H\r")
        terminal.expect(r"cut after 4 tokens[^)]*\)\s+> ")
        terminal.type(UP + " again\r")
        terminal.expect(r"cut after 4 tokens[^)]*\)\s+> ")
        self.assertEqual(self.messages(terminal), ["Hello", "Hello again"])
        self.assertEqual(terminal.end(), 0)
        self.assertEqual(self.history.stat().st_mode & 0o777, 0o600)
        terminal = self.chat()
        terminal.type(CTRL_R + "again\r")
        terminal.expect(r"cut after 4 tokens[^)]*\)\s+> ")
        self.assertEqual(self.messages(terminal), ["Hello again"])
        self.assertEqual(terminal.end("/quit\r"), 0)

    def test_a_paste_is_one_message_of_any_length(self):
        terminal = self.chat(columns=20)
        terminal.type("\x1b[200~one\ntwo é\n\x1b[201~three\r")
        terminal.expect(r"cut after 4 tokens[^)]*\)\s+> ")
        self.assertEqual(self.messages(terminal), ["one\ntwo é\nthree"])
        terminal.type("x" * 6000 + "\r")
        terminal.expect(r"60\d\d tokens[^>]*> ", timeout=120)  # too long for this model, and so it came whole
        self.assertEqual(terminal.end(), 0)

    def test_completion(self):
        terminal = self.chat()
        terminal.type("/ad\t swi\t\r")
        terminal.expect(r"\(swift answers\)\s+swift> ")
        self.assertEqual(terminal.end(), 0)

    def test_ctrl_c_empties_the_line_and_says_how_to_end(self):
        terminal = self.chat()
        terminal.type("half a mess")
        terminal.expect("half a mess")
        terminal.type(CTRL_C)
        terminal.expect(r"\^C\s+> ")
        terminal.type(CTRL_C)
        terminal.expect(r"Ctrl-D or /quit ends\)\s+> ")
        terminal.type("Hello\r")
        terminal.expect(r"cut after 4 tokens[^)]*\)\s+> ")
        self.assertEqual(self.messages(terminal), ["Hello"])
        self.assertEqual(terminal.end(), 0)

    def test_the_terminal_is_as_it_was_when_a_signal_ends_the_chat(self):
        terminal = self.chat()
        raw = termios.tcgetattr(terminal.fd)[3]
        self.assertFalse(raw & termios.ICANON, "the editor reads keys")
        terminal.process.send_signal(signal.SIGTERM)
        self.assertEqual(terminal.process.wait(60), -signal.SIGTERM)
        self.assertTrue(termios.tcgetattr(terminal.fd)[3] & termios.ICANON)
        os.close(terminal.fd)


if __name__ == "__main__":
    program.CHORAL = sys.argv.pop(1)
    tiny_model.write_model(MODEL)
    tiny_model.write_adapter(ADAPTERS / "swift", seed=2)
    tiny_model.write_adapter(ADAPTERS / "calm", seed=1)
    unittest.main()
