# SPDX-License-Identifier: Apache-2.0
"""Network namespaces joined by emulated paths: TAP devices and a thread that carries their frames.

The kernel's own netem is not everywhere, and cannot lose "the fourth data segment". A path here
has a delay, a rate with a queue, and a recipe's own judgement of each packet.
"""

import ctypes
import fcntl
import heapq
import ipaddress
import itertools
import os
import select
import struct
import subprocess
import threading
import time

TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
OFFLOADS = 0x01 | 0x02 | 0x04  # checksums, TSO of IPv4 and IPv6
VNET_HDR = 10
CLONE_NEWNET = 0x40000000
FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
LIBC = ctypes.CDLL(None, use_errno=True)


def run(*command):
    subprocess.run(command, check=True, capture_output=True, text=True)


class Packet:
    """A TCP segment on its way, as a recipe's judgement sees it."""

    def __init__(self, forward, flags, seq, length, port):
        self.forward = forward  # from the client
        self.flags, self.seq, self.length = flags, seq, length
        self.port = port  # the server's
        self.index = 0  # of data segments of this direction, from 1; one that is sent again keeps it
        self.copies = 0  # how often exactly this passed before
        self.acks = 0  # of a pure ACK: its number in this direction, from 1
        self.time = 0.0  # seconds since the path's first segment

    @property
    def syn(self):
        return self.flags & (SYN | ACK) == SYN

    @property
    def syn_ack(self):
        return self.flags & (SYN | ACK) == SYN | ACK


def segment(frame, forward):
    """The TCP segment of an Ethernet frame, or None."""
    kind = frame[12:14]
    if kind == b"\x08\x00" and frame[23] == 6:
        start = 14 + (frame[14] & 15) * 4
        end = 14 + int.from_bytes(frame[16:18], "big")
    elif kind == b"\x86\xdd" and frame[20] == 6:
        start, end = 54, 54 + int.from_bytes(frame[18:20], "big")
    else:
        return None
    seq = int.from_bytes(frame[start + 4:start + 8], "big")
    header = (frame[start + 12] >> 4) * 4
    # A super-segment may state no length.
    length = max(end, len(frame) if end <= start else end) - start - header
    port = int.from_bytes(frame[start + 2:start + 4] if forward else frame[start:start + 2], "big")
    return Packet(forward, frame[start + 13], seq, length, port)


def marked(frame):
    """The frame with CE, if its sender speaks ECN."""
    frame = bytearray(frame)
    if frame[12:14] == b"\x08\x00" and frame[15] & 3:
        frame[15] |= 3
        frame[24:26] = b"\0\0"
        total = sum(struct.unpack("!10H", frame[14:34]))
        total = (total & 0xFFFF) + (total >> 16)
        frame[24:26] = struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF)
    elif frame[12:14] == b"\x86\xdd" and frame[15] & 0x30:
        frame[15] |= 0x30
    return bytes(frame)


class Direction:
    """One way of a path: a queue before a link of some rate, then a delay."""

    def __init__(self, delay, rate=None, queue=None, mark=None):
        self.delay, self.rate, self.queue, self.mark = delay, rate, queue, mark
        self.free = 0.0
        self.passed, self.index, self.acks = {}, 0, 0

    def number(self, packet):
        key = (packet.port, packet.flags & SYN, packet.seq, packet.length)
        if not packet.length and not packet.flags & (SYN | FIN | RST):
            self.acks += 1
            packet.acks = self.acks
            return
        if key not in self.passed and packet.length:
            self.index += 1
        packet.index, packet.copies = self.passed.get(key, (self.index if packet.length else 0, 0))
        self.passed[key] = (packet.index, packet.copies + 1)

    def leave(self, now, frame):
        """When a frame arrives at the other end, and the frame; None if the queue is full."""
        if self.rate is None:
            return now + self.delay, frame
        waiting = max(0.0, self.free - now) * self.rate / 8
        if self.queue is not None and waiting + len(frame) > self.queue:
            return None
        if self.mark is not None and waiting > self.mark:
            frame = marked(frame)
        self.free = max(now, self.free) + len(frame) * 8 / self.rate
        return self.free + self.delay, frame


class Path(threading.Thread):
    """Carries the frames of two TAP devices. `judge(packet)` says what befalls a segment:
    None (nothing), "drop", "twice", "mark" (CE), or seconds that it is late."""

    def __init__(self, taps, forward, back, judge=None, offload=False):
        super().__init__(daemon=True)
        self.taps, self.ways, self.judge = taps, (forward, back), judge
        self.skip = VNET_HDR if offload else 0
        self.quit, self.start_of_all = threading.Event(), None

    def run(self):
        due, order = [], itertools.count()
        poll = select.poll()
        for tap in self.taps:
            poll.register(tap, select.POLLIN)
        while not self.quit.is_set():
            now = time.monotonic()
            while due and due[0][0] <= now:
                _, _, tap, frame = heapq.heappop(due)
                try:
                    os.write(tap, frame)
                except OSError:
                    pass  # the device is down, or full: as a link would lose it
            wait = min(0.2, due[0][0] - time.monotonic()) if due else 0.2
            if wait < 0.0004 and due:
                ready = poll.poll(0)
            else:
                ready = poll.poll(max(0, int(wait * 1000)))
            for tap, _ in ready:
                side = self.taps.index(tap)
                try:
                    frame = os.read(tap, 70_000)
                except OSError:
                    continue
                for when, copy in self.treated(frame, side):
                    heapq.heappush(due, (when, next(order), self.taps[1 - side], copy))

    def treated(self, frame, side):
        """The copies of a frame that arrive, with their times."""
        now, way = time.monotonic(), self.ways[side]
        packet = segment(frame[self.skip:], side == 0)
        fate = None
        if packet is not None:
            self.start_of_all = self.start_of_all or now
            packet.time = now - self.start_of_all
            way.number(packet)
            fate = self.judge(packet) if self.judge else None
        if fate == "drop":
            return []
        left = way.leave(now, frame[self.skip:])
        if left is None:
            return []
        when, carried = left[0], frame[:self.skip] + (marked(left[1]) if fate == "mark" else left[1])
        late = fate if isinstance(fate, float) else 0.0
        return [(when + late, carried)] * (2 if fate == "twice" else 1)

    def stop(self):
        self.quit.set()
        self.join(2)
        for tap in self.taps:
            os.close(tap)


def open_tap(namespace, name, offload):
    """A TAP device in a namespace; this thread comes back to its own."""
    with open("/proc/self/ns/net", "rb") as own, open(f"/run/netns/{namespace}", "rb") as other:
        if LIBC.setns(other.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {namespace}")
        try:
            tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            flags = IFF_TAP | IFF_NO_PI | (IFF_VNET_HDR if offload else 0)
            fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
            if offload:
                fcntl.ioctl(tap, TUNSETOFFLOAD, OFFLOADS)
        finally:
            LIBC.setns(own.fileno(), CLONE_NEWNET)
    return tap


class Network:
    """A client and a server, and if asked for a router between them; gone when left."""

    def __init__(self, prefix, six=False, router=False, sysctls=(), mtu=1500):
        self.names = {who: f"{prefix}-{who}" for who in ("client", "router", "server")}
        if not router:
            del self.names["router"]
        self.six, self.mtu, self.paths, self.sysctls = six, mtu, [], sysctls
        near, far = ("fd00:77::", "fd00:78::") if six else ("192.0.2.", "198.51.100.")
        self.addresses = {"client": near + "10", "server": (far if router else near) + "20"}
        self.gateways = {"client": near + "1", "server": far + "1"}

    def __enter__(self):
        for name in self.names.values():
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            self.sysctl(name, "net.ipv4.tcp_no_metrics_save=1", "net.ipv4.tcp_ecn=0", *self.sysctls)
        if "router" in self.names:
            self.sysctl(self.names["router"], "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        return self

    def __exit__(self, *_):
        for path in self.paths:
            path.stop()
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def sysctl(self, name, *settings):
        for setting in settings:
            run("ip", "netns", "exec", name, "sysctl", "-qw", setting)

    def join(self, forward, back, judge=None, offload=False):
        """Joins client and server directly, or client and router, then router and server."""
        ends = [who for who in ("client", "router", "server") if who in self.names]
        for number, (a, b) in enumerate(itertools.pairwise(ends)):
            taps = [open_tap(self.names[a], f"right{number}", offload), open_tap(self.names[b], f"left{number}", offload)]
            self.address(a, f"right{number}", 2 * number + 1)
            self.address(b, f"left{number}", 2 * number + 2)
            self.neighbour(a, b, number)
            hop = (forward, back) if number == 0 else (Direction(forward.delay), Direction(back.delay))
            # What befalls packets, befalls them between the router and the server.
            judged = judge if number == len(ends) - 2 else None
            self.paths.append(Path(taps, *hop, judged, offload))
            self.paths[-1].start()

    def veth(self, rate=None):
        """Joins client and server by a pair of virtual Ethernet devices, if asked for behind a slow link."""
        a, b = self.names["client"], self.names["server"]
        run("ip", "-n", a, "link", "add", "right0", "type", "veth", "peer", "name", "left0", "netns", b)
        for who, device, number in (("client", "right0", 1), ("server", "left0", 2)):
            self.address(who, device, number)
            if rate:
                run("ip", "netns", "exec", self.names[who], "tc", "qdisc", "add", "dev", device, "root", "tbf",
                    "rate", rate, "burst", "5kb", "latency", "3s")
        self.neighbour("client", "server", 0)

    def address(self, who, device, number):
        name, bits = self.names[who], "64" if self.six else "24"
        if who == "router":
            address = self.gateways["client" if device.startswith("left") else "server"]
        else:
            address = self.addresses[who]
        run("ip", "-n", name, "link", "set", device, "address", f"02:00:5e:00:53:{number:02x}", "mtu", str(self.mtu))
        run("ip", "-n", name, "address", "add", f"{address}/{bits}", "dev", device, *(["nodad"] if self.six else []))
        run("ip", "-n", name, "link", "set", device, "up")
        if "router" in self.names and who != "router":
            run("ip", "-n", name, "route", "add", "default", "via", self.gateways[who])

    def neighbour(self, a, b, number):
        """Fixed neighbours: no packet waits for a resolution."""
        sides = ((a, f"right{number}", b, 2 * number + 2, "left"), (b, f"left{number}", a, 2 * number + 1, "right"))
        for who, device, other, station, side in sides:
            address = (self.gateways["client" if side == "left" else "server"] if other == "router"
                       else self.addresses[other])
            ipaddress.ip_address(address)
            run("ip", "-n", self.names[who], "neighbour", "replace", address, "lladdr", f"02:00:5e:00:53:{station:02x}",
                "dev", device, "nud", "permanent")
