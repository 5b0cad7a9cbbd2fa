#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Behaviours of sockets that no ready-made program has.

    behaviours.py server PORT STEPS [ADDRESS]       each connection in a thread
    behaviours.py client ADDRESS PORT STEPS [N]     so many connections at once
    behaviours.py again ADDRESS PORT STEPS PAUSE    one connection after another, failed ones too
    behaviours.py give-up ADDRESS PORT SECONDS      closes each socket so long after connect(2) began
    behaviours.py crowd ADDRESS PORT PAUSE          one more connection after each pause, never closed
    behaviours.py accept-slowly PORT BACKLOG PAUSE  accepts one connection after each pause
    behaviours.py pipe SIZE PAUSE                   reads standard input, so much before each pause

STEPS: JSON, a list of [word, argument...]: those of captures/programs.py, and those of `Behaviour`.
["before", OPTION, VALUE] first: an option of the socket before the handshake; "mptcp" is one.
"""

import contextlib
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "captures"))
import programs  # noqa: E402

IPPROTO_MPTCP = 262


class Behaviour(programs.Actor):
    """Does the steps on one connection; ends it when the other side does."""

    def receive(self, size):
        while size > 0:
            size -= len(self._read(min(size, 1 << 16)))

    def until(self, end):
        """What comes, until it ends with this text: a request's or an answer's last line."""
        data = b""
        while not data.endswith(end.encode()):
            data = (data + self._read(1 << 16))[-len(end):]

    def text(self, line, padding=0):
        self.connection.sendall(line.replace("PADDING", "x" * padding).encode())

    def response(self, size):
        """An HTTP response in one write."""
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n"
        self.connection.sendall(head.encode() + bytes(size))

    def stream(self):
        data = bytes(1 << 16)
        while True:
            self.connection.sendall(data)

    def read_for_ever(self, size, pause):
        while True:
            self._read(size)
            time.sleep(pause)

    def compute(self, seconds):
        """Uses so much processor time."""
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            sum(range(1000))

    def for_ever(self, steps):
        while True:
            self.act(steps)

    def _read(self, size):
        data = self.connection.recv(size)
        if not data:
            raise EOFError
        return data


def opened(address, steps):
    """A socket with the options that `steps` has first, and the other steps."""
    before = [step[1:] for step in steps if step[0] == "before"]
    steps = [step for step in steps if step[0] != "before"]
    if ["mptcp", 1] not in before:
        return programs.made(address, before), steps
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made, steps


def act(connection, steps):
    with contextlib.suppress(OSError, EOFError), connection:
        Behaviour(connection).act(steps)


def server(port, steps, address="0.0.0.0"):
    listener, steps = opened(address, json.loads(steps))
    listener.bind((address, int(port)))
    listener.listen(512)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=act, args=(connection, steps), daemon=True).start()


def client(address, port, steps, number="1"):
    threads = []
    for _ in range(int(number)):
        connection, rest = opened(address, json.loads(steps))
        connection.connect((address, int(port)))
        threads.append(threading.Thread(target=act, args=(connection, rest), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()


def again(address, port, steps, pause):
    while True:
        connection, rest = opened(address, json.loads(steps))
        try:
            connection.connect((address, int(port)))
            act(connection, rest)
        except OSError as error:
            print(error, flush=True)
            connection.close()
        time.sleep(float(pause))


def give_up(address, port, seconds):
    while True:
        with socket.socket() as connection:
            connection.setblocking(False)
            connection.connect_ex((address, int(port)))
            time.sleep(float(seconds))


def crowd(address, port, pause):
    held = []
    while True:
        held.append(socket.socket())
        held[-1].setblocking(False)
        held[-1].connect_ex((address, int(port)))
        time.sleep(float(pause))


def accept_slowly(port, backlog, pause):
    held, listener = [], programs.made("0.0.0.0", [])
    listener.bind(("0.0.0.0", int(port)))
    listener.listen(int(backlog))
    while True:
        time.sleep(float(pause))
        held.append(listener.accept())


def pipe(size, pause):
    while os.read(0, int(size)):
        time.sleep(float(pause))


if __name__ == "__main__":
    {"server": server, "client": client, "again": again, "give-up": give_up, "crowd": crowd,
     "accept-slowly": accept_slowly, "pipe": pipe}[sys.argv[1]](*sys.argv[2:])
