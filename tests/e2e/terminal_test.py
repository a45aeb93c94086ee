#!/usr/bin/env python3
"""The program at a terminal: terminal_test.py CHORAL [unittest arguments]. A pseudo-terminal stands for the person: keys, pastes, Ctrl-C,
widths, colours."""

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
import unicodedata
import unittest

import program
import tiny_model

TEMP = tempfile.TemporaryDirectory()
MODEL = pathlib.Path(TEMP.name) / "tiny"
STORY = pathlib.Path(TEMP.name) / "story"
ADAPTERS = pathlib.Path(TEMP.name) / "adapters"
UP, CTRL_A, CTRL_C, CTRL_D, CTRL_R = "\x1b[A", "\x01", "\x03", "\x04", "\x12"
FLAGS = ("--temperature", "0", "--max-tokens", "4", "--ignore-eos", "--adapter-root", ADAPTERS)
PROMPT = r"Ctrl-D\s+ends\.[^>]*> "  # keys that come before it are the terminal's own, and may be lost


class Terminal:
    """A command at a terminal of so many columns."""

    def __init__(self, *args, columns=80, **env):
        self.fd, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        outer = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
        env = {**outer, "TERM": "xterm", "INPUTRC": "/dev/null", "LC_ALL": "C.UTF-8", **env}
        self.process = subprocess.Popen([program.CHORAL, *map(str, args)], stdin=child, stdout=child, stderr=child, env=env,
                                        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(child)
        self.seen = ""

    def rest(self):
        """All that comes until it ends by itself."""
        data = b""
        while True:
            try:
                data += os.read(self.fd, 65536)
            except OSError:
                break
        os.close(self.fd)
        self.process.wait(60)
        return data.decode(errors="replace").replace("\r\n", "\n")

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
            if not select.select([self.fd], [], [], 60)[0]:
                self.process.kill()
                raise AssertionError(f"it goes on after {keys!r}")
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
        terminal = Terminal("chat", MODEL, *FLAGS, *args, CHORAL_HISTORY=str(self.history), **kwargs)
        terminal.expect(PROMPT)
        return terminal

    def messages(self, terminal):
        saved = pathlib.Path(TEMP.name) / "saved.json"
        saved.unlink(missing_ok=True)
        terminal.type(f"/save {saved}\r")
        terminal.expect(r"messages?\s+saved\s+to\s+[^)]*\)\s+> ")
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
        terminal.expect(r"cut\s+after\s+4\s+tokens[^)]*\)\s+> ")
        self.assertEqual(self.messages(terminal), ["one\ntwo é\nthree"])
        terminal.type("x" * 6000 + "\r")
        terminal.expect(r"60\d\d\s+tokens[^>]*> ", timeout=120)  # too long for this model, and so it came whole
        self.assertEqual(terminal.end(), 0)

    def test_completion(self):
        terminal = self.chat()
        terminal.type("/ad\t swi\t\r")
        terminal.expect(r"\(swift answers\)\s+swift> ")
        self.assertEqual(terminal.end(), 0)

    def test_small_models_are_said_to_want_no_dice(self):
        terminal = Terminal("chat", MODEL, *FLAGS, CHORAL_HISTORY="")
        self.assertNotIn("dice", terminal.expect(PROMPT), "it was asked greedily")
        self.assertEqual(terminal.end(), 0)
        terminal = Terminal("chat", MODEL, "--max-tokens", "4", CHORAL_HISTORY="")
        self.assertRegex(terminal.expect(PROMPT), r"loses\s+the\s+thread\s+when\s+dice\s+choose")
        terminal.type("/set temperature 0\r")
        terminal.expect(r"temperature 0,[^>]*> ")
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


def write_story(folder):
    """The tiny model with words for tokens that would be control characters."""
    tiny_model.write_model(folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    for token, i in list(vocabulary.items()):
        if not token.isascii():
            del vocabulary[token]
            vocabulary["Ġ" + "".join(chr(97 + i * k % 26) for k in range(1, 3 + i % 8)) + chr(97 + i % 25) + chr(97 + i // 25)] = i
    path.write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")


def plain(text):
    """Without colours, and without what a bar wrote over itself."""
    return re.sub(r"[^\n]*\r\x1b\[K", "", re.sub(r"\x1b\[[0-9;]*m", "", text)).replace("\r", "")


def width(text):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def words(text):
    return text.split()


class WidthTest(unittest.TestCase):
    def assert_fits(self, text, columns, but=r"(?!)"):
        for line in text.splitlines():
            self.assertTrue(width(line) <= columns or re.search(but, line), f"{width(line)} columns: {line}")

    def test_help_has_the_terminals_width_and_all_its_words(self):
        for command in ((), ("generate",), ("serve",), ("adapter", "check")):
            piped = program.choral(*command, "--help").stdout
            for columns in (60, 100, 160):
                shown = Terminal(*command, "--help", columns=columns).rest()
                self.assert_fits(shown, columns, but=r"^  --?\w\S*( \S+)*$")  # names of one flag stay together
                self.assertEqual(words(shown), words(piped))
            self.assertEqual(Terminal(*command, "--help", columns=60, COLUMNS="100").rest(), Terminal(*command, "--help", columns=100).rest())

    def test_usage_names_the_program(self):
        for command in ("generate", "adapter", "adapter check", "config show"):
            self.assertRegex(program.choral(*command.split(), "--help").stdout, rf"(?m)^Usage: choral {command} \[")

    def test_an_answer_ends_its_lines_between_words(self):
        flags = ("generate", STORY, "-p", "The", "-n", "120", "--temperature", "0", "--ignore-eos", "-q")
        piped = program.choral(*flags).stdout
        for columns in (20, 33, 80):
            shown = Terminal(*flags, columns=columns).rest()
            self.assert_fits(shown, columns)
            self.assertEqual(words(shown), words(piped))
            self.assertNotEqual(shown, piped)

    def test_the_programs_own_words_fit(self):
        for columns in (50, 80):
            self.assert_fits(plain(Terminal("doctor", MODEL, columns=columns).rest()), columns)
            self.assert_fits(plain(Terminal("generate", MODEL, "-p", "x", "--dtype", "int3", columns=columns).rest()), columns)
            self.assert_fits(plain(Terminal("chat", MODEL, "--lora", "x=/no/such", columns=columns).rest()), columns)
            bench = plain(Terminal("bench", MODEL, "--quick", "--ops", "--batch", "1,8", columns=columns).rest())
            self.assert_fits(bench, columns)
            for heading in ("tokens/s", "GFLOP/s", "attention", "ms of a step, calls"):
                self.assertIn(heading, bench)

    def test_marks_have_colours_where_they_are_seen(self):
        self.assertIn("\x1b[32m✓\x1b[0m CPU ", Terminal("doctor", "-q").rest())
        for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.assertIn("✓ CPU ", Terminal("doctor", "-q", **env).rest())
        self.assertIn("\x1b[31m✗\x1b[0m model ", Terminal("doctor", "/no/such", "-q", NO_COLOR="").rest())
        self.assertNotIn("\x1b", program.choral("doctor", "-q").stdout)
        warned = ("generate", STORY, "-p", "x", "-n", "1", "-q", "--lora", ADAPTERS / "swift")  # made for another base
        self.assertIn("\x1b[33m", Terminal(*warned).rest())
        self.assertNotIn("\x1b[33m", Terminal(*warned, NO_COLOR="1").rest())

    def test_compared_answers_are_one_text_however_they_come(self):
        flags = ("generate", STORY, "-p", "x", "-n", "60", "--temperature", "0", "--ignore-eos", "-q", "--adapter-root", ADAPTERS,
                 "--compare", "base,swift,calm")
        for columns in (50, 130):
            whole = program.choral(*flags, env={"COLUMNS": str(columns)}).stdout
            self.assertEqual(Terminal(*flags, columns=columns, CHORAL_LOG_LEVEL="off").rest(), whole)


if __name__ == "__main__":
    program.CHORAL = sys.argv.pop(1)
    tiny_model.write_model(MODEL)
    write_story(STORY)
    tiny_model.write_adapter(ADAPTERS / "swift", seed=2)
    tiny_model.write_adapter(ADAPTERS / "calm", seed=1)
    unittest.main()
