// SPDX-License-Identifier: Apache-2.0
//! Real translation by nftables, each test in network namespaces of its own. The oracle is
//! the other end: what it is bound to is the real peer.

#[allow(dead_code)] // each test binary uses its part
mod sockets;

use slowpath_model::{FourTuple, MonoNanos};
use slowpath_observe::conntrack::{Answer, Conntrack, OpenError};
use slowpath_observe::monotonic;
use sockets::{enter_namespace, in_fresh_namespace};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;

/// Runs a program in this thread's namespace, with that input.
fn run(program: &str, arguments: &str, input: &str) {
    let mut child = Command::new(program)
        .args(arguments.split_whitespace())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success(), "{program} {arguments}");
}

fn ip(arguments: &str) {
    run("ip", arguments, "");
}

fn nft(rules: &str) {
    run("nft", "-f -", rules);
}

/// Whether the machine has what the tests need; says so if not.
fn able(test: &str) -> bool {
    for program in ["nft", "ip"] {
        let found = Command::new(program)
            .arg("-V")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if found.is_err() {
            println!("SKIPPED {test}: no program {program}");
            return false;
        }
    }
    let probe = "table inet probe { chain c { type nat hook output priority 0; }; }";
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(probe.as_bytes()).unwrap();
    drop(stdin);
    if !child.wait().unwrap().success() {
        println!("SKIPPED {test}: nftables cannot translate here");
        return false;
    }
    run("nft", "delete table inet probe", "");
    true
}

fn in_able_namespace(test: &str, body: impl FnOnce() + Send) {
    in_fresh_namespace(test, || {
        if able(test) {
            body();
        }
    });
}

fn netns() -> u32 {
    std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino() as u32
}

fn tuple(socket: &TcpStream) -> FourTuple {
    FourTuple::new(socket.local_addr().unwrap(), socket.peer_addr().unwrap())
}

/// A connection from an address through another to a listener.
fn connect(from: IpAddr, to: SocketAddr, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = connect_from(from, to);
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

/// A connection of a socket bound to an address.
fn connect_from(from: IpAddr, to: SocketAddr) -> TcpStream {
    let domain = if from.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    // SAFETY: no memory is passed; the descriptor is owned from here on.
    let socket = unsafe {
        let fd = libc::socket(domain, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0);
        <TcpStream as std::os::fd::FromRawFd>::from_raw_fd(fd)
    };
    with_sockaddr(SocketAddr::new(from, 0), |address, length| {
        // SAFETY: the address is valid for its length.
        assert_eq!(0, unsafe {
            libc::bind(socket.as_raw_fd(), address, length)
        });
    });
    with_sockaddr(to, |address, length| {
        // SAFETY: the address is valid for its length.
        let done = unsafe { libc::connect(socket.as_raw_fd(), address, length) };
        assert_eq!(
            done,
            0,
            "{from} to {to}: {}",
            std::io::Error::last_os_error()
        );
    });
    socket
}

fn with_sockaddr(address: SocketAddr, work: impl FnOnce(*const libc::sockaddr, u32)) {
    match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            work((&raw const raw).cast(), size_of_val(&raw) as u32);
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: 0,
            };
            work((&raw const raw).cast(), size_of_val(&raw) as u32);
        }
    }
}

/// Checks both ends: the other end's own address is the real peer, and it is reported
/// only where the socket has another one.
fn both_ends(conntrack: &mut Conntrack, netns: u32, ends: &(TcpStream, TcpStream)) -> [bool; 2] {
    conntrack.begin(monotonic());
    [(&ends.0, &ends.1), (&ends.1, &ends.0)].map(|(near, far)| {
        let real = far.local_addr().unwrap();
        let translated = near.peer_addr().unwrap() != real;
        let expected = if translated {
            Answer::Peer(real)
        } else {
            Answer::Same
        };
        let answer = conntrack.real_peer(netns, &tuple(near));
        assert_eq!(answer, expected, "{:?} of {:?}", tuple(near), tuple(far));
        translated
    })
}

/// A family's addresses in the tests with one namespace: `.1` to `.4` are on the loopback
/// device, `.9` on none.
struct Plan {
    family: &'static str,
    prefix: &'static str,
    length: u8,
}

const PLANS: [Plan; 2] = [
    Plan {
        family: "ip",
        prefix: "10.77.0.",
        length: 32,
    },
    Plan {
        family: "ip6",
        prefix: "fd00:77::",
        length: 128,
    },
];

impl Plan {
    fn address(&self, number: u8) -> IpAddr {
        format!("{}{number}", self.prefix).parse().unwrap()
    }

    fn at(&self, number: u8, port: u16) -> SocketAddr {
        SocketAddr::new(self.address(number), port)
    }

    fn listen(&self, number: u8) -> (TcpListener, u16) {
        let listener = TcpListener::bind(self.at(number, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    fn any(&self) -> IpAddr {
        if self.family == "ip" { "0.0.0.0" } else { "::" }
            .parse()
            .unwrap()
    }

    fn prepare(&self) {
        for number in 1..=4 {
            ip(&format!(
                "address add {}/{} dev lo{}",
                self.address(number),
                self.length,
                if self.length == 128 { " nodad" } else { "" },
            ));
        }
        ip(&format!(
            "route add {}/{} dev lo",
            self.address(9),
            self.length
        ));
    }
}

#[test]
fn dnat_redirect_snat_and_masquerade_in_the_own_namespace() {
    in_able_namespace("dnat_redirect_snat_and_masquerade", || {
        let own = netns();
        let mut conntrack = Conntrack::open().unwrap();
        for plan in &PLANS {
            plan.prepare();
            let (listener, port) = plan.listen(2);
            let loopback = match plan.family {
                "ip" => "127.0.0.1:0",
                _ => "[::1]:0",
            };
            let redirected = TcpListener::bind(loopback).unwrap();
            let redirect = redirected.local_addr().unwrap().port();
            let family = plan.family;
            let server = plan.at(2, port);
            let (fake, snat) = (plan.address(9), plan.address(4));
            nft(&format!(
                "table {family} t {{
                    chain out {{
                        type nat hook output priority -100;
                        {family} daddr {fake} tcp dport {{ 80, 83 }} dnat to {server}
                        {family} daddr {fake} tcp dport 81 redirect to :{redirect}
                    }}
                    chain post {{
                        type nat hook postrouting priority 100;
                        {family} saddr {source} {family} daddr {fake2} tcp dport {port} snat to {snat}
                        {family} saddr {masked} {family} daddr {fake2} tcp dport {port} masquerade
                    }}
                }}",
                source = plan.address(3),
                masked = plan.address(4),
                fake2 = plan.address(2),
            ));
            let any = plan.any();
            let one = plan.address(1);

            let untouched = connect(one, server, &listener);
            assert_eq!(both_ends(&mut conntrack, own, &untouched), [false, false]);

            let dnat = connect(one, plan.at(9, 80), &listener);
            assert_eq!(both_ends(&mut conntrack, own, &dnat), [true, false]);

            let redirect = connect(any, plan.at(9, 81), &redirected);
            assert!(both_ends(&mut conntrack, own, &redirect)[0]);

            let snat = connect(plan.address(3), server, &listener);
            assert_eq!(both_ends(&mut conntrack, own, &snat), [false, true]);

            let masquerade = connect(plan.address(4), server, &listener);
            assert_eq!(both_ends(&mut conntrack, own, &masquerade), [false, true]);

            let both = connect(plan.address(3), plan.at(9, 83), &listener);
            assert_eq!(both_ends(&mut conntrack, own, &both), [true, true]);
        }
        let counts = conntrack.counts();
        assert_eq!((counts.asked, counts.failed), (24, 0));
    });
}

#[test]
fn a_namespace_without_entries_is_not_asked() {
    in_able_namespace("a_namespace_without_entries_is_not_asked", || {
        let mut conntrack = Conntrack::open().unwrap();
        let ends = sockets::pair("127.0.0.1:0", "127.0.0.1");
        assert_eq!(both_ends(&mut conntrack, netns(), &ends), [false, false]);
        assert_eq!(conntrack.counts().asked, 0);
    });
}

/// A thread's namespace with a link to the one of the test.
struct Host {
    thread: std::thread::JoinHandle<()>,
    orders: std::sync::mpsc::Sender<Box<dyn FnOnce() + Send>>,
    id: i32,
    netns: u32,
}

impl Host {
    fn start() -> Self {
        let (orders, received) = channel::<Box<dyn FnOnce() + Send>>();
        let (ready, started) = channel();
        let thread = std::thread::spawn(move || {
            enter_namespace().unwrap();
            // SAFETY: no arguments.
            ready.send((unsafe { libc::gettid() }, netns())).unwrap();
            for order in received {
                order();
            }
        });
        let (id, netns) = started.recv().unwrap();
        Host {
            thread,
            orders,
            id,
            netns,
        }
    }

    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (reply, result) = channel();
        let order = move || drop(reply.send(work()));
        self.orders.send(Box::new(order)).unwrap();
        result.recv().unwrap()
    }

    /// A link `name` with the addresses `.1` here and `.2` there, of both families.
    fn link(&self, name: &'static str, number: u8) {
        ip(&format!(
            "link add {name} type veth peer name eth0 netns {}",
            self.id
        ));
        ip(&format!("address add 10.78.{number}.1/24 dev {name}"));
        ip(&format!(
            "address add fd00:78:{number}::1/64 dev {name} nodad"
        ));
        ip(&format!("link set {name} up"));
        self.run(move || {
            ip(&format!("address add 10.78.{number}.2/24 dev eth0"));
            ip(&format!(
                "address add fd00:78:{number}::2/64 dev eth0 nodad"
            ));
            ip("link set eth0 up");
            ip(&format!("route add default via 10.78.{number}.1"));
            ip(&format!("route add default via fd00:78:{number}::1"));
        });
    }

    fn end(self) {
        drop(self.orders);
        self.thread.join().unwrap();
    }
}

/// A published port of a container, as a host makes it: DNAT to the container, and
/// masquerade, so that the container sees the host's address.
#[test]
fn what_the_host_translates_is_reported_at_both_ends() {
    in_able_namespace("what_the_host_translates_is_reported_at_both_ends", || {
        let (client, server) = (Host::start(), Host::start());
        client.link("toclient", 1);
        server.link("toserver", 2);
        for knob in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/net/{knob}"), "1").unwrap();
        }
        for (family, host, from, to) in [
            ("ip", "10.78.1.1", "10.78.1.2", "10.78.2.2"),
            ("ip6", "fd00:78:1::1", "fd00:78:1::2", "fd00:78:2::2"),
        ] {
            let [host, from, to]: [IpAddr; 3] = [host, from, to].map(|a| a.parse().unwrap());
            let mut conntrack = Conntrack::open().unwrap();
            let listener = server.run(move || TcpListener::bind((to, 0)).unwrap());
            let target = listener.local_addr().unwrap();
            nft(&format!(
                "table {family} t {{
                    chain pre {{
                        type nat hook prerouting priority -100;
                        {family} daddr {host} tcp dport 8080 dnat to {target}
                    }}
                    chain post {{
                        type nat hook postrouting priority 100;
                        oifname toserver {family} saddr {from} ct status dnat masquerade
                    }}
                }}"
            ));
            let published = (host, 8080).into();
            let near = client.run(move || connect_from(from, published));
            let (far, _) = listener.accept().unwrap();
            assert_ne!(far.peer_addr().unwrap(), near.local_addr().unwrap());
            conntrack.begin(monotonic());
            assert_eq!(
                conntrack.real_peer(client.netns, &tuple(&near)),
                Answer::Peer(target)
            );
            // Its namespace is wanted only now, and searches come a second after one another.
            let mut now = monotonic();
            loop {
                now = MonoNanos(now.0 + 1_000_000_000);
                conntrack.begin(now);
                match conntrack.real_peer(server.netns, &tuple(&far)) {
                    Answer::Later => {}
                    answer => {
                        assert_eq!(answer, Answer::Peer(near.local_addr().unwrap()));
                        break;
                    }
                }
            }

            // The same without translation is the control: past it, to the server itself.
            let near = client.run(move || connect_from(from, target));
            let (far, _) = listener.accept().unwrap();
            assert_eq!(far.peer_addr().unwrap(), near.local_addr().unwrap());
            for (host, end) in [(&client, &near), (&server, &far)] {
                let answer = conntrack.real_peer(host.netns, &tuple(end));
                assert_eq!(answer, Answer::Same);
            }
            assert_eq!(conntrack.counts().failed, 0);
        }
        client.end();
        server.end();
    });
}

/// A process in a network namespace of its own, ended with this.
struct OtherNamespace(Child);

impl Drop for OtherNamespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl OtherNamespace {
    fn start() -> Self {
        // It says a line once it is there.
        let mut child = Command::new("unshare")
            .args([
                "--net",
                "sh",
                "-c",
                "ip link set lo up; echo; exec sleep 1000",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        let stdout = child.stdout.as_mut().unwrap();
        stdout.read_exact(&mut line).unwrap();
        OtherNamespace(child)
    }

    fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/proc/{}/ns/net", self.0.id());
        let file = std::fs::File::open(path).unwrap();
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    // SAFETY: changes this thread's namespace only.
                    let done = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
                    assert_eq!(done, 0);
                    work()
                })
                .join()
                .unwrap()
        })
    }
}

#[test]
fn other_namespaces_are_asked_themselves_and_let_go() {
    in_able_namespace("other_namespaces_are_asked_themselves_and_let_go", || {
        let mut conntrack = Conntrack::open().unwrap();
        let there = OtherNamespace::start();
        let mut in_container = Conntrack::open().unwrap().with_host(there.0.id());
        let plan = &PLANS[0];
        let (inode, ends) = there.within(|| {
            plan.prepare();
            let (listener, port) = plan.listen(2);
            nft(&format!(
                "table ip t {{ chain out {{
                    type nat hook output priority -100;
                    ip daddr {} tcp dport 80 dnat to {}
                }}; }}",
                plan.address(9),
                plan.at(2, port)
            ));
            let ends = connect(plan.address(1), plan.at(9, 80), &listener);
            (netns(), ends)
        });
        assert_eq!(both_ends(&mut conntrack, inode, &ends), [true, false]);
        assert_eq!(conntrack.other_namespaces(), 1);
        // As the host of one that is itself in a container: of its own connections, and of
        // those of a namespace that cannot be found.
        for netns in [inode, 1] {
            assert_eq!(both_ends(&mut in_container, netns, &ends), [true, false]);
        }
        assert_eq!(in_container.counts().failed, 0);
        drop(there);
        conntrack.begin(MonoNanos(monotonic().0 + 2_000_000_000));
        assert_eq!(conntrack.other_namespaces(), 0);
    });
}

#[test]
fn without_the_capability_it_says_so() {
    in_able_namespace("without_the_capability_it_says_so", || {
        // Version 3 (`_LINUX_CAPABILITY_VERSION_3`) of this thread; effective, permitted,
        // inheritable, low words first.
        let header = [0x2008_0522u32, 0];
        let mut sets = [0u32; 6];
        // SAFETY: both are as long as the kernel's structs; the change is this thread's.
        unsafe {
            let (header, sets) = (header.as_ptr(), sets.as_mut_ptr());
            assert_eq!(libc::syscall(libc::SYS_capget, header, sets), 0);
            *sets &= !(1 << 12);
            assert_eq!(libc::syscall(libc::SYS_capset, header, sets), 0);
        }
        let refused = Conntrack::open().unwrap_err();
        assert!(matches!(refused, OpenError::Permission), "{refused}");
        assert!(refused.to_string().contains("CAP_NET_ADMIN"));
    });
}
