#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scapy's STAMP as the other end, in a virtual environment of its own under the user's cache folder.
Never a dependency of the product: a test measures against it.

  tools/scapy/peer.py --install           installs the wheel from PyPI, if it is not there
  tools/scapy/peer.py --which             prints the interpreter that has it; status 1 if there is none
  tools/scapy/peer.py reflect COUNT       reflects COUNT packets on a UDP port, which it prints first; of those
                                          whose number is in --drop N,N it sends no reply
  tools/scapy/peer.py send HOST PORT N    sends N packets and prints each reply as a JSON line

SLOWPATH_NO_INSTALL=1: installs nothing.
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

VERSION = "2.8.0"
# From NTP's epoch to that of 1970, s.
EPOCH = 2_208_988_800


def venv():
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "slowpath" / f"scapy-{VERSION}"


def python():
    """The interpreter that has the wheel, if it is installed."""
    return venv() / "bin/python" if (venv() / "done").exists() else None


def install():
    if python():
        return
    if os.environ.get("SLOWPATH_NO_INSTALL"):
        sys.exit(f"peer.py: scapy {VERSION} is missing in {venv()}")
    venv().parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", venv()], check=True)
    pip = [venv() / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"scapy=={VERSION}"], check=True)
    (venv() / "done").touch()


def ntp():
    return time.time() + EPOCH


def reflect(count, drop):
    from scapy.contrib.stamp import (ErrorEstimate, STAMPSessionReflectorTestUnauthenticated,
                                     STAMPSessionSenderTestUnauthenticated)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.settimeout(20)
    print(sock.getsockname()[1], flush=True)
    replies = 0
    for _ in range(count):
        data, peer = sock.recvfrom(2048)
        received = ntp()
        test = STAMPSessionSenderTestUnauthenticated(data)
        if test.seq in drop:
            continue
        # scapy reads times as seconds: the sender's octets go back as they came.
        reply = STAMPSessionReflectorTestUnauthenticated(
            seq=replies, ts=ntp(), err_estimate=ErrorEstimate(S=1, scale=20, multiplier=7), ssid=test.ssid,
            ts_rx=received, seq_sender=test.seq, ts_sender=test.ts, err_estimate_sender=test.err_estimate,
            ttl_sender=251, tlv_objects=test.tlv_objects)
        octets = bytearray(bytes(reply))
        octets[28:36] = data[4:12]
        sock.sendto(bytes(octets), peer)
        replies += 1


def send(host, port, count):
    from scapy.contrib.stamp import (ErrorEstimate, STAMPSessionReflectorTestUnauthenticated,
                                     STAMPSessionSenderTestUnauthenticated)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect((host, port))
    sock.settimeout(20)
    for number in range(count):
        test = STAMPSessionSenderTestUnauthenticated(
            seq=number, ts=ntp(), err_estimate=ErrorEstimate(S=0, scale=20, multiplier=9), ssid=4711)
        sock.send(bytes(test))
        data = sock.recv(2048)
        reply = STAMPSessionReflectorTestUnauthenticated(data)
        print(json.dumps({
            "length": len(data), "seq": reply.seq, "ssid": reply.ssid, "seq_sender": reply.seq_sender,
            "ttl_sender": reply.ttl_sender, "same_time": data[28:36] == bytes(test)[4:12],
            "scale_sender": reply.err_estimate_sender.scale, "ts_rx": float(reply.ts_rx), "ts": float(reply.ts),
        }), flush=True)


def main():
    match sys.argv[1:]:
        case ["--install"]:
            try:
                install()
            except (OSError, subprocess.CalledProcessError) as error:
                sys.exit(f"peer.py: cannot install scapy {VERSION}: {error}")
        case ["--which"]:
            found = python()
            if not found:
                sys.exit(f"scapy {VERSION} is not installed: tools/scapy/peer.py --install")
            print(found)
        case ["reflect", count, *rest]:
            reflect(int(count), {int(n) for n in rest[1].split(",")} if rest else set())
        case ["send", host, port, count]:
            send(host, int(port), int(count))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
