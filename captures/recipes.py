# SPDX-License-Identifier: Apache-2.0
"""What befalls packets, and who writes what when, for each capture that make.py makes."""

import dataclasses
import random


@dataclasses.dataclass
class Recipe:
    """One capture, or one at each place of `at`."""

    name: str
    rtt: float = 20.0  # milliseconds; None: virtual Ethernet without a path; 0: loopback
    client: list = None  # steps of programs.py, or the words of a command
    server: list = None  # steps; "http": Python's web server; None: nothing listens
    more: list = ()  # (seconds later, port, steps) of further clients
    rate: float = None  # bits a second, of both directions
    queue: int = None  # bytes before the link
    mark: int = None  # bytes in the queue from which packets get CE
    judge: object = None  # what befalls a packet: network.Path
    at: tuple = ("client",)
    where: str = "tcp or icmp"  # the filter of the capture
    device: str = None  # of the capture; None: the one there is
    six: bool = False
    router: bool = False
    offload: bool = False
    tbf: str = None
    mtu: int = 1500
    sysctls: tuple = ()
    prepare: tuple = ()  # commands in a namespace: (who, words...)
    late: float = 0.0  # seconds by which the capture begins after the client
    cut: str = None  # see make.py
    limit: float = 20.0  # seconds after which the client is ended


def every(*judgements):
    """The first judgement that is not None."""
    return lambda packet: next((fate for fate in (judge(packet) for judge in judgements) if fate), None)


def lose(*indices, forward=True, copies=1, fate="drop"):
    """Data segments of one direction, the first so many copies of each."""
    return lambda p: fate if p.forward == forward and p.length and p.index in indices and p.copies < copies else None


def lose_syn(copies, answer=False, port=None):
    return lambda p: "drop" if (p.syn_ack if answer else p.syn) and p.copies < copies and port in (None, p.port) else None


def lose_at_random(seed, probability, forward=True):
    choice = random.Random(seed)
    return lambda p: "drop" if p.forward == forward and p.length and choice.random() < probability else None


def outage(begin, end, ways=(True, False)):
    return lambda p: "drop" if p.forward in ways and begin <= p.time < end else None


def upload(size, *before, end=True):
    steps = [["before", *pair] for pair in before] + [["send", size]]
    return steps + ([["end_writing"], ["drain"], ["close"]] if end else [])


def read_all(*before):
    return [["before", *pair] for pair in before] + [["drain"], ["close"]]


def fetch(size, request=180, *before):
    return [["before", *pair] for pair in before] + [["send", request], ["receive", size], ["close"]]


def serve(size, request=180, *before, think=0):
    steps = [["before", *pair] for pair in before] + [["receive", request]]
    return steps + ([["sleep", think]] if think else []) + [["send", size], ["end_writing"], ["drain"], ["close"]]


RENO, CUBIC, BBR = ("congestion", "reno"), ("congestion", "cubic"), ("congestion", "bbr")
NO_TLP = ("net.ipv4.tcp_early_retrans=0",)
ECN = ("net.ipv4.tcp_ecn=1",)
NEVER = 1 << 30
# Without super-segments a send buffer holds what it says.
ONE_BY_ONE = ("ip", "link", "set", "gso_max_segs", "1", "dev")
BOTH = ("client", "server")

FAILURES = [
    Recipe("unanswered-80ms", 80, [["send", 10]], judge=lose_syn(NEVER), sysctls=("net.ipv4.tcp_syn_retries=2",)),
    Recipe("unanswered-ipv6-2ms", 2, [["send", 10]], judge=lose_syn(NEVER), six=True, sysctls=("net.ipv4.tcp_syn_retries=1",)),
    Recipe("unanswered-icmp-20ms", 20, [["send", 10]], router=True,
           prepare=(("router", "ip", "route", "add", "unreachable", "198.51.100.20/32"),)),
    Recipe("unanswered-syn-ack-20ms", 20, [["send", 10]], read_all(), judge=lose_syn(NEVER, answer=True), at=("server",),
           sysctls=("net.ipv4.tcp_syn_retries=2",)),
    Recipe("refused-2ms", 2, [["send", 10]]),
    Recipe("refused-ipv6-80ms", 80, [["send", 10]], six=True, at=("server",)),
    Recipe("refused-four-20ms", 20, [["send", 10]], more=[(0.1, 8081, [["send", 10]]), (0.2, 8082, [["send", 10]]), (0.3, 8083, [["send", 10]])]),
    Recipe("reset-upload-20ms", 20, upload(300_000), [["receive", 60_000], ["reset"]], rate=8e6),
    Recipe("reset-download-80ms", 80, [["send", 180], ["receive", 60_000], ["reset"]], serve(500_000), rate=8e6, at=("server",)),
    Recipe("reset-unread-request-2ms", 2, [["send", 5000], ["drain"], ["close"]], [["receive", 1000], ["sleep", 0.2], ["close"]]),
    Recipe("mixed-20ms", 20, fetch(30_000), serve(30_000), judge=lose_syn(NEVER, port=8081), sysctls=("net.ipv4.tcp_syn_retries=2",),
           more=[(0.05, 8081, [["send", 10]]), (0.1, 8082, [["send", 10]])]),
]

HANDSHAKES = [
    Recipe("syn-lost-20ms", 20, fetch(20_000), serve(20_000), judge=lose_syn(1)),
    Recipe("syn-lost-twice-80ms", 80, fetch(8000), serve(8000), judge=lose_syn(2)),
    Recipe("syn-ack-lost-2ms", 2, fetch(40_000), serve(40_000), judge=lose_syn(1, answer=True), at=BOTH),
    Recipe("syn-lost-ipv6-80ms", 80, upload(30_000), read_all(), judge=lose_syn(1), six=True, at=("server",)),
]

SMALL = [["repeat", 15, [["send", 90], ["send", 60], ["receive", 400]]], ["close"]]
SMALL_SERVER = [["repeat", 15, [["receive", 150], ["send", 400]]], ["drain"], ["close"]]
PARTS = [["repeat", 12, [["send", 200], ["receive", 900]]], ["close"]]
PARTS_SERVER = [["repeat", 12, [["receive", 200], ["send", 250], ["send", 650]]], ["drain"], ["close"]]

WAITS = [
    Recipe("write-write-read-veth", None, SMALL, SMALL_SERVER),
    Recipe("write-write-read-20ms", 20, SMALL, SMALL_SERVER),
    Recipe("write-write-read-ipv6-2ms", 2, SMALL, SMALL_SERVER, six=True, at=("server",)),
    Recipe("write-write-read-between-20ms", 20, SMALL, SMALL_SERVER, router=True, at=("router",)),
    Recipe("answer-in-parts-2ms", 2, PARTS, PARTS_SERVER),
    Recipe("answer-in-parts-80ms", 80, PARTS, PARTS_SERVER, at=("server",)),
    Recipe("nagle-80ms", 80, [["repeat", 120, [["send", 70], ["sleep", 0.01]]], ["close"]], read_all()),
    Recipe("nagle-ipv6-20ms", 20, [["repeat", 150, [["send", 50], ["sleep", 0.004]]], ["close"]], read_all(), six=True, at=("server",)),
    Recipe("zero-window-20ms", 20, upload(500_000), [["before", "rcvbuf", 40_000], ["receive", 100_000], ["sleep", 3], ["drain"], ["close"]], rate=2e7),
    Recipe("zero-window-between-ipv6-20ms", 20, fetch(300_000, 180, ("rcvbuf", 40_000))[:-2] + [["receive", 80_000], ["sleep", 1.4], ["receive", 220_000], ["close"]],
           serve(300_000), rate=2e7, router=True, at=("router",), six=True),
    Recipe("zero-window-short-2ms", 2, upload(400_000),
           [["before", "rcvbuf", 40_000], ["repeat", 3, [["receive", 60_000], ["sleep", 0.6]]], ["drain"], ["close"]], rate=4e7, at=("server",)),
    Recipe("zero-window-loopback", 0, upload(1_500_000), [["receive", 200_000], ["sleep", 1.2], ["drain"], ["close"]]),
    Recipe("slow-reader-80ms", 80, [["before", "rcvbuf", 30_000], ["send", 180], ["read_slowly", 200_000, 8000, 0.1], ["close"]], serve(200_000)),
    Recipe("small-receive-buffer-80ms", 80, upload(300_000), read_all(("rcvbuf", 10_000))),
    Recipe("small-receive-buffer-ipv6-20ms", 20, fetch(400_000, 180, ("rcvbuf", 12_000)), serve(400_000), six=True, at=("server",)),
    Recipe("small-send-buffer-80ms", 80, upload(250_000, ("sndbuf", 16_000)), read_all(), prepare=(("client", *ONE_BY_ONE, "right0"),)),
    Recipe("small-send-buffer-20ms", 20, fetch(600_000), serve(600_000, 180, ("sndbuf", 24_000)), prepare=(("server", *ONE_BY_ONE, "left0"),)),
    Recipe("server-thinks-20ms", 20, fetch(30_000), serve(30_000, think=1.8)),
    Recipe("server-thinks-twice-80ms", 80, [["repeat", 2, [["send", 300], ["receive", 5000]]], ["close"]],
           [["repeat", 2, [["receive", 300], ["sleep", 1.6], ["send", 5000]]], ["drain"], ["close"]], at=("server",)),
    Recipe("server-pauses-ipv6-2ms", 2, fetch(80_000), [["receive", 180], ["send", 40_000], ["sleep", 2.5], ["send", 40_000], ["end_writing"], ["drain"], ["close"]], six=True),
    Recipe("server-thinks-veth", None, fetch(2000), serve(2000, think=3.0)),
]

LOSSES = [
    Recipe("one-loss-20ms", 20, upload(500_000), read_all(), rate=2e7, judge=lose(80)),
    Recipe("one-loss-80ms", 80, fetch(400_000), serve(400_000), rate=1e7, judge=lose(100, forward=False), at=BOTH),
    Recipe("three-losses-2ms", 2, fetch(600_000), serve(600_000), rate=3e7, judge=lose(90, 91, 200, forward=False), at=("router",), router=True),
    Recipe("loss-no-sack-20ms", 20, upload(400_000), read_all(), rate=1e7, judge=lose(70), sysctls=("net.ipv4.tcp_sack=0",)),
    Recipe("loss-no-timestamps-20ms", 20, fetch(300_000), serve(300_000), rate=1e7, judge=lose(90, forward=False), sysctls=("net.ipv4.tcp_timestamps=0",)),
    Recipe("loss-offload-20ms", 20, upload(900_000), read_all(), judge=lose(9), offload=True),
    Recipe("tail-loss-probe-20ms", 20, fetch(20_000), serve(20_000), judge=lose(14, forward=False)),
    Recipe("tail-loss-timer-20ms", 20, fetch(20_000), serve(20_000), judge=lose(14, forward=False), sysctls=NO_TLP),
    Recipe("tail-of-three-timer-20ms", 20, fetch(20_000), serve(20_000), judge=lose(12, 13, 14, forward=False), sysctls=NO_TLP, at=BOTH),
    Recipe("twice-with-loss-ipv6-20ms", 20, fetch(90_000), serve(90_000), rate=8e6, judge=lose(30, forward=False), router=True, at=("router",), device="any", six=True),
    Recipe("tail-loss-ipv6-80ms", 80, fetch(30_000), serve(30_000), judge=lose(20, 21, 22, forward=False), six=True, at=("server",)),
    Recipe("request-lost-2ms", 2, fetch(3000), serve(3000), judge=lose(1), sysctls=NO_TLP, at=("server", "client")),
    Recipe("timer-chain-20ms", 20, fetch(5000), serve(5000), judge=lose(1, copies=4), sysctls=NO_TLP),
    Recipe("timer-chain-80ms", 80, fetch(15_000), serve(15_000), judge=lose(1, forward=False, copies=3), at=("server",)),
    Recipe("outage-20ms", 20, upload(700_000), read_all(), rate=4e6, queue=60_000, judge=outage(0.8, 2.8)),
    Recipe("outage-80ms", 80, fetch(500_000), serve(500_000), rate=3e6, queue=80_000, judge=outage(1.0, 2.2), router=True, at=("router",)),
    Recipe("one-sided-timer-20ms", 20, upload(25_000), read_all(), judge=lose(17, 18, copies=2), where="tcp and src host 192.0.2.10", sysctls=NO_TLP),
    Recipe("random-loss-20ms", 20, upload(500_000), read_all(), rate=2e7, judge=lose_at_random(7, 0.01)),
    Recipe("random-loss-80ms", 80, fetch(300_000), serve(300_000), rate=2e7, judge=lose_at_random(11, 0.02, forward=False)),
    Recipe("full-queue-20ms", 20, upload(700_000, RENO), read_all(), rate=6e6, queue=25_000),
    Recipe("twice-with-loss-20ms", 20, upload(150_000), read_all(), rate=8e6, judge=lose(50), router=True, at=("router",), device="any"),
    Recipe("reordering-20ms", 20, upload(400_000), read_all(), rate=1e7, judge=lose(60, 110, 160, 200, fate=0.003), at=("server",)),
    Recipe("reordering-80ms", 80, fetch(300_000), serve(300_000), rate=1e7, judge=lose(80, 130, 170, forward=False, fate=0.0025)),
    Recipe("reordering-ipv6-2ms", 2, fetch(200_000), serve(200_000), rate=2e7, judge=lose(40, 80, 120, forward=False, fate=0.0012), six=True),
]

NOTES = [["repeat", 20, [["send", 120], ["sleep", 0.11]]], ["close"]]
# After an exchange a receiver delays its next ACK; nothing here waits for that one.
LATE = [["before", "nodelay", 1], ["repeat", 10, [["send", 100], ["receive", 100], ["send", 120], ["sleep", 0.12]]], ["close"]]
LATE_SERVER = [["before", "nodelay", 1], ["repeat", 10, [["receive", 100], ["send", 100], ["receive", 120]]], ["drain"], ["close"]]
PARCELS = [["before", "nodelay", 1], ["repeat", 8, [["send", 100], ["receive", 100], ["send", 7240], ["sleep", 0.24]]], ["close"]]
PARCELS_SERVER = [["before", "nodelay", 1], ["repeat", 8, [["receive", 100], ["send", 100], ["receive", 7240]]], ["drain"], ["close"]]
THOUGHT = [["before", "nodelay", 1], ["repeat", 6, [["send", 200], ["receive", 900]]], ["close"]]
THINKER = [["before", "nodelay", 1], ["repeat", 6, [["receive", 200], ["sleep", 0.15], ["send", 900]]], ["drain"], ["close"]]
TYPED = [["repeat", 12, [["send", 1], ["receive", 1], ["sleep", 0.21]]], ["send", 1], ["receive", 400], ["close"]]
ECHO = [["repeat", 12, [["receive", 1], ["send", 1]]], ["receive", 1], ["send", 400], ["drain"], ["close"]]
PAGES = [["repeat", 4, [["send", 350], ["receive", 12_000], ["sleep", 1.4]]], ["close"]]
PAGES_SERVER = [["repeat", 4, [["receive", 350], ["send", 12_000]]], ["drain"], ["close"]]
CALLS = [["before", "nodelay", 1], ["repeat", 60, [["send", 100], ["receive", 300]]], ["close"]]
CALLS_SERVER = [["before", "nodelay", 1], ["repeat", 60, [["receive", 100], ["send", 300]]], ["drain"], ["close"]]
KEEPALIVE = [["option", "keepalive", 1], ["option", "keepidle", 1], ["option", "keepintvl", 1]]
HTTP = "http://192.0.2.20:8080/"

QUIET = [
    Recipe("notes-2ms", 2, [["before", "nodelay", 1], *NOTES], read_all(), at=BOTH),
    Recipe("notes-80ms", 80, [["before", "nodelay", 1], *NOTES], read_all(), at=("server",)),
    Recipe("notes-with-nagle-20ms", 20, NOTES, read_all()),
    Recipe("late-acks-2ms", 2, LATE, LATE_SERVER, at=BOTH),
    Recipe("late-acks-ipv6-20ms", 20, LATE, LATE_SERVER, six=True),
    Recipe("late-acks-80ms", 80, LATE, LATE_SERVER, at=("server",)),
    Recipe("parcels-20ms", 20, PARCELS, PARCELS_SERVER),
    Recipe("calls-veth", None, CALLS, CALLS_SERVER),
    Recipe("calls-2ms", 2, CALLS, CALLS_SERVER, at=("server",)),
    Recipe("calls-ipv6-20ms", 20, CALLS, CALLS_SERVER, six=True, at=BOTH),
    Recipe("typed-80ms", 80, TYPED, ECHO, at=BOTH),
    Recipe("typed-2ms", 2, TYPED, ECHO, at=("server",)),
    Recipe("page-after-page-20ms", 20, PAGES, PAGES_SERVER),
    Recipe("page-after-page-ipv6-80ms", 80, PAGES, PAGES_SERVER, six=True, at=("server",)),
    Recipe("slow-upload-20ms", 20, upload(90_000), read_all(), rate=250e3, at=BOTH),
    Recipe("slow-download-80ms", 80, fetch(120_000), serve(120_000), rate=500e3),
    Recipe("slow-link-tbf", None, upload(80_000), read_all(), tbf="500kbit", at=("server",)),
    Recipe("deep-queue-20ms", 20, upload(350_000), read_all(), rate=1.5e6, at=BOTH),
    Recipe("deep-queue-ipv6-80ms", 80, fetch(300_000), serve(300_000), rate=1e6, six=True),
    Recipe("marked-reno-20ms", 20, upload(900_000, RENO), read_all(RENO), rate=6e6, mark=15_000, sysctls=ECN, at=BOTH),
    Recipe("marked-cubic-80ms", 80, fetch(700_000), serve(700_000), rate=6e6, mark=40_000, sysctls=ECN),
    Recipe("additive-reno-80ms", 80, upload(1_200_000, RENO), read_all(RENO), judge=lose(70, fate="mark"), sysctls=ECN, at=BOTH),
    Recipe("plateau-cubic-80ms", 80, upload(1_500_000), read_all(), judge=lose(150, fate="mark"), sysctls=ECN),
    Recipe("satellite-600ms", 600, fetch(60_000), serve(60_000), at=BOTH),
    Recipe("short-think-2ms", 2, THOUGHT, THINKER, at=BOTH),
    Recipe("short-think-ipv6-80ms", 80, THOUGHT, THINKER, six=True),
    Recipe("keepalive-20ms", 20, [*KEEPALIVE, ["send", 100], ["receive", 100], ["sleep", 4.5], ["close"]], [["receive", 100], ["send", 100], ["drain"], ["close"]]),
    Recipe("idle-then-more-80ms", 80, [["send", 100], ["receive", 5000], ["sleep", 3.2], ["send", 100], ["receive", 5000], ["close"]],
           [["receive", 100], ["send", 5000], ["receive", 100], ["send", 5000], ["drain"], ["close"]], at=("server",)),
    Recipe("half-closed-20ms", 20, [["send", 2000], ["end_writing"], ["drain"], ["close"]], [["drain"], ["send", 60_000], ["close"]], at=BOTH),
    Recipe("half-closed-stays-2ms", 2, [["send", 2000], ["end_writing"], ["receive", 500], ["sleep", 0.4], ["close"]], [["drain"], ["send", 500], ["sleep", 3.0], ["close"]]),
    Recipe("reset-after-end-20ms", 20, [["send", 300], ["receive", 4000], ["sleep", 0.1], ["reset"]], [["receive", 300], ["send", 4000], ["close"]]),
    Recipe("reset-after-end-80ms", 80, [["send", 300], ["receive", 9000], ["sleep", 0.3], ["reset"]], [["receive", 300], ["send", 9000], ["close"]], at=("server",)),
    Recipe("begins-late-20ms", 20, upload(900_000), read_all(), rate=8e6, late=0.35),
    Recipe("ends-early-80ms", 80, fetch(400_000), serve(400_000), rate=8e6, cut="half"),
    Recipe("last-is-a-syn-2ms", 2, fetch(12_000), serve(12_000), more=[(0.5, 8080, fetch(12_000))], cut="last-syn"),
    Recipe("loopback", 0, upload(1_000_000), read_all()),
    Recipe("loopback-calls", 0, CALLS, CALLS_SERVER),
    Recipe("loopback-ipv6", 0, fetch(2_000_000), serve(2_000_000), six=True),
    Recipe("offload-veth", None, upload(2_000_000), read_all()),
    Recipe("offload-20ms", 20, fetch(900_000), serve(900_000), offload=True, at=BOTH),
    Recipe("long-80ms", 80, upload(700_000), read_all(), rate=4e7, at=BOTH),
    Recipe("long-ipv6-20ms", 20, fetch(600_000), serve(600_000), rate=2e7, six=True, at=("server",)),
    Recipe("no-options-20ms", 20, upload(200_000), read_all(), rate=1e7, sysctls=("net.ipv4.tcp_sack=0", "net.ipv4.tcp_timestamps=0")),
    Recipe("small-segments-20ms", 20, fetch(80_000), serve(80_000), rate=4e6, mtu=576),
    Recipe("one-sided-80ms", 80, upload(120_000), read_all(), rate=8e6, where="tcp and src host 192.0.2.10"),
    Recipe("frames-twice-20ms", 20, fetch(100_000), serve(100_000), rate=8e6, router=True, at=("router",), device="any"),
    Recipe("frames-twice-ipv6-20ms", 20, upload(90_000), read_all(), rate=8e6, router=True, at=("router",), device="any", six=True),
    Recipe("acks-only-20ms", 20, upload(150_000), read_all(), rate=1e7, where="tcp and src host 192.0.2.20"),
    Recipe("duplicated-2ms", 2, upload(100_000), read_all(), rate=1e7, judge=lose(20, 40, 60, fate="twice"), at=("server",)),
    Recipe("between-80ms", 80, fetch(150_000), serve(150_000), rate=1e7, router=True, at=("router",)),
    Recipe("bbr-20ms", 20, upload(500_000, BBR), read_all(), rate=1e7),
    Recipe("chunks-20ms", 20, [["send", 180], ["receive", 200_000], ["close"]],
           [["receive", 180], ["repeat", 10, [["send", 20_000], ["sleep", 0.25]]], ["drain"], ["close"]], rate=1e7),
    Recipe("both-ways-20ms", 20, [["repeat", 8, [["send", 9000], ["receive", 9000]]], ["close"]], [["repeat", 8, [["send", 9000], ["receive", 9000]]], ["drain"], ["close"]], rate=1e7),
    Recipe("many-short-veth", None, fetch(700), serve(700), more=[(0.1 * n, 8080, fetch(700 * n)) for n in range(1, 8)]),
    Recipe("nothing-said-20ms", 20, [["sleep", 0.3], ["close"]], read_all()),
    Recipe("curl-20ms", 20, ["curl", "-s", "-o", "/dev/null", HTTP + "page.html", "-o", "/dev/null", HTTP + "picture.bin"], "http", at=BOTH),
    Recipe("curl-2ms", 2, ["curl", "-s", "-o", "/dev/null", HTTP + "large.bin"], "http", at=("server",)),
    Recipe("wget-80ms", 80, ["wget", "-q", "-O", "/dev/null", HTTP + "page.html", HTTP + "picture.bin"], "http", at=BOTH),
    Recipe("brief-stop-20ms", 20, upload(300_000), [["receive", 100_000], ["sleep", 0.03], ["drain"], ["close"]], rate=1e7),
]

ALL = FAILURES + HANDSHAKES + WAITS + LOSSES + QUIET
