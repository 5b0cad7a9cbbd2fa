#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client or a server that does what a list of steps says, on real sockets.

    programs.py client ADDRESS PORT STEPS      programs.py server ADDRESS PORT STEPS

STEPS: JSON, a list of [word, argument...]; `Actor` says what each word does. A server takes
each connection with the same steps, one after another, and prints `ready` when it listens.
"""

import json
import socket
import struct
import sys
import time

OPTIONS = {
    "nodelay": (socket.IPPROTO_TCP, socket.TCP_NODELAY), "sndbuf": (socket.SOL_SOCKET, socket.SO_SNDBUF),
    "rcvbuf": (socket.SOL_SOCKET, socket.SO_RCVBUF), "maxseg": (socket.IPPROTO_TCP, socket.TCP_MAXSEG),
    "cork": (socket.IPPROTO_TCP, socket.TCP_CORK), "keepalive": (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
    "keepidle": (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), "keepintvl": (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
    "quickack": (socket.IPPROTO_TCP, socket.TCP_QUICKACK), "window_clamp": (socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP),
}


class Actor:
    """Does the steps on one connection."""

    def __init__(self, connection):
        self.connection = connection

    def act(self, steps):
        for word, *arguments in steps:
            getattr(self, word)(*arguments)

    def option(self, name, value):
        self.connection.setsockopt(*OPTIONS[name], value)

    def send(self, size):
        self.connection.sendall(bytes(size))

    def receive(self, size):
        """Exactly so many bytes."""
        while size > 0:
            read = self.connection.recv(min(size, 1 << 16))
            if not read:
                return
            size -= len(read)

    def read_slowly(self, size, each, pause):
        """So many bytes, `each` at a time, with a pause before each."""
        while size > 0:
            time.sleep(pause)
            read = self.connection.recv(min(size, each))
            if not read:
                return
            size -= len(read)

    def drain(self):
        """Everything until the other side ends."""
        while self.connection.recv(1 << 16):
            pass

    def sleep(self, seconds):
        time.sleep(seconds)

    def repeat(self, times, steps):
        for _ in range(times):
            self.act(steps)

    def end_writing(self):
        self.connection.shutdown(socket.SHUT_WR)

    def reset(self):
        """Closes with a reset, whatever was not sent."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def close(self):
        self.connection.close()


def made(address, before):
    """A socket with its congestion control, and the options that must be there before the handshake."""
    made_of = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    made_of.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for name, value in before:
        if name == "congestion":
            made_of.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, value.encode())
        elif name == "from_port":
            made_of.bind(("", value))
        else:
            made_of.setsockopt(*OPTIONS[name], value)
    return made_of


def main():
    role, address, port, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
    before = [["congestion", "cubic"]]
    while steps and steps[0][0] == "before":
        before.append(steps.pop(0)[1:])
    if role == "client":
        connection = made(address, before)
        try:
            connection.connect((address, port))
            Actor(connection).act(steps)
        except OSError as error:
            print(error)
        return
    listener = made(address, before)
    listener.bind((address, port))
    listener.listen(64)
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        try:
            Actor(connection).act(steps)
        except OSError as error:
            print(error)
        connection.close()


if __name__ == "__main__":
    main()
