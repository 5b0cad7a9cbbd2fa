# SPDX-License-Identifier: Apache-2.0
"""Either side of connections that fail, for tests/failures.rs.

    peers.py NAME server KIND COUNT               prints its port
    peers.py NAME client KIND COUNT ADDRESS PORT

A process takes NAME, does its part COUNT times, prints `done`, and holds what it has open until its input ends. Clients of
SIGNALLED kinds print `ready` when their servers may close.
"""

import select
import socket
import struct
import sys


# The server waits for a line before it closes.
SIGNALLED = ("undelivered", "after_answer")


def reset(connection):
    """Closes it with a RST (SO_LINGER 0, socket(7))."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def broken(connection):
    """Reads until the peer has reset it."""
    connection.setblocking(True)
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        return
    raise SystemExit("it was not reset")


def serve(kind, count):
    listener = socket.socket()
    if kind == "undelivered":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    listener.bind(("0.0.0.0", 0))
    listener.listen(count)
    print(listener.getsockname()[1], flush=True)
    accepted = []
    for _ in range(count):
        connection, _ = listener.accept()
        accepted.append(connection)
        if kind == "before_answer":
            connection.recv(100)
            reset(connection)
        elif kind == "after_answer":
            connection.recv(100)
            connection.sendall(b"answer")
    if kind in SIGNALLED:
        # The clients have filled every window, or read every answer.
        sys.stdin.readline()
        for connection in accepted:
            connection.close() if kind == "undelivered" else reset(connection)
    return accepted


def fill(connection):
    connection.setblocking(False)
    try:
        while True:
            connection.send(b"x" * 65536)
    except BlockingIOError:
        return


def ask(kind, count, peer):
    opened = []
    for _ in range(count):
        connection = socket.socket()
        opened.append(connection)
        if kind == "refuses":
            if connection.connect_ex(peer) == 0:
                raise SystemExit("it connected")
            connection.close()
            continue
        if kind in ("fails", "gives_up"):
            connection.setblocking(False)
            connection.connect_ex(peer)
            if kind == "gives_up":
                connection.close()
            continue
        connection.connect(peer)
        if kind == "aborts":
            reset(connection)
        elif kind == "undelivered":
            fill(connection)
        else:
            connection.sendall(b"question")
            if kind == "after_answer":
                connection.recv(100)
            else:
                broken(connection)
    if kind == "fails":
        for connection in opened:
            waiting = select.poll()
            waiting.register(connection, select.POLLOUT)
            waiting.poll()
            if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                raise SystemExit("it connected")
            connection.close()
    elif kind in SIGNALLED:
        print("ready", flush=True)
        for connection in opened:
            broken(connection)
    return opened


def main():
    name, side, kind, count, *peer = sys.argv[1:]
    with open("/proc/self/comm", "w", encoding="ascii") as comm:
        comm.write(name)
    if side == "server":
        held = serve(kind, int(count))
    else:
        held = ask(kind, int(count), (peer[0], int(peer[1])))
    print("done", flush=True)
    sys.stdin.read()
    del held


main()
