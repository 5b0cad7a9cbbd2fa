// SPDX-License-Identifier: Apache-2.0
//! The netlink tier on real sockets, each test in a network namespace of its own. The
//! oracle is the same kernel asked another way: getsockopt, ioctl, fstat, /proc.

#[allow(dead_code)] // each test binary uses its part
mod sockets;

use slowpath_model::{Micros, Origin, Snapshot, TcpState, Tier};
use slowpath_observe::inet_diag::{InetDiag, Options, OtherNamespaces};
use sockets::{cookie, enter_namespace, in_fresh_namespace, option, pair};
use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

fn tcp_info(socket: &TcpStream) -> libc::tcp_info {
    option(socket, libc::IPPROTO_TCP, libc::TCP_INFO)
}

fn queue(socket: &TcpStream, request: libc::Ioctl) -> u32 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ, SIOCOUTQNSD and SIOCINQ write one int.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), request, &mut bytes) };
    assert_eq!(done, 0, "ioctl: {}", io::Error::last_os_error());
    bytes.try_into().unwrap()
}

const SIOCOUTQ: libc::Ioctl = 0x5411;
const SIOCINQ: libc::Ioctl = 0x541b;
const SIOCOUTQNSD: libc::Ioctl = 0x894b;

fn of<'a>(snapshots: &'a [Snapshot], socket: &TcpStream) -> &'a Snapshot {
    let cookie = cookie(socket);
    let mut hits = snapshots.iter().filter(|s| s.id.cookie == cookie);
    let hit = hits.next().expect("the socket is in the poll");
    assert!(hits.next().is_none(), "once a poll");
    hit
}

/// Checks every statistic against getsockopt. TCP may act between two questions (a delayed
/// ACK): polls until the kernel says the same before and after.
fn agrees_with_getsockopt(diag: &mut InetDiag, socket: &TcpStream) -> Snapshot {
    loop {
        let before = tcp_info(socket);
        let mut out = Vec::new();
        diag.poll(&mut out).unwrap();
        let after = tcp_info(socket);
        if (before.tcpi_segs_in, before.tcpi_segs_out, before.tcpi_rto)
            != (after.tcpi_segs_in, after.tcpi_segs_out, after.tcpi_rto)
        {
            continue;
        }
        let snapshot = of(&out, socket).clone();
        let s = &snapshot.stats;
        let i = &after;
        assert_eq!(s.state, TcpState::from_kernel(i.tcpi_state).unwrap());
        assert_eq!(s.bytes_sent, Some(i.tcpi_bytes_sent));
        assert_eq!(s.bytes_acked, i.tcpi_bytes_acked);
        assert_eq!(s.bytes_received, i.tcpi_bytes_received);
        assert_eq!(s.bytes_retransmitted, Some(i.tcpi_bytes_retrans));
        assert_eq!(s.segments_out, u64::from(i.tcpi_segs_out));
        assert_eq!(s.segments_in, u64::from(i.tcpi_segs_in));
        assert_eq!(s.data_segments_out, u64::from(i.tcpi_data_segs_out));
        assert_eq!(s.data_segments_in, u64::from(i.tcpi_data_segs_in));
        assert_eq!(s.retransmitted, u64::from(i.tcpi_total_retrans));
        assert_eq!(s.delivered, Some(i.tcpi_delivered.into()));
        assert_eq!(s.delivered_ce, Some(i.tcpi_delivered_ce.into()));
        assert_eq!(s.dsack_duplicates, Some(i.tcpi_dsack_dups.into()));
        assert_eq!(s.reordering_events, Some(i.tcpi_reord_seen.into()));
        assert_eq!(s.out_of_order_in, Some(i.tcpi_rcv_ooopack.into()));
        assert_eq!(s.in_flight, i.tcpi_unacked);
        assert_eq!(s.cwnd, i.tcpi_snd_cwnd);
        assert_eq!(
            s.ssthresh,
            (i.tcpi_snd_ssthresh < 0x7fff_ffff).then_some(i.tcpi_snd_ssthresh)
        );
        assert_eq!(s.send_window, Some(i.tcpi_snd_wnd));
        assert_eq!(s.receive_window, Some(i.tcpi_rcv_wnd));
        assert_eq!(s.send_mss, i.tcpi_snd_mss);
        assert_eq!(s.path_mtu, i.tcpi_pmtu);
        assert_eq!(s.reordering, i.tcpi_reordering);
        assert_eq!(s.srtt, Some(Micros(i.tcpi_rtt.into())));
        assert_eq!(s.rttvar, Micros(i.tcpi_rttvar.into()));
        assert_eq!(s.min_rtt, Some(Micros(i.tcpi_min_rtt.into())));
        assert_eq!(s.rto, Micros(i.tcpi_rto.into()));
        assert!(s.busy.is_some());
        assert_eq!(s.unsent, i.tcpi_notsent_bytes);
        assert_eq!(s.rto_stats.unwrap().timeouts, u64::from(i.tcpi_total_rto));
        assert_eq!(s.send_queue, queue(socket, SIOCOUTQ));
        assert_eq!(s.unsent, queue(socket, SIOCOUTQNSD));
        assert_eq!(s.receive_queue, queue(socket, SIOCINQ));
        let send_buffer: i32 = option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF);
        let receive_buffer: i32 = option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF);
        assert_eq!(s.send_buffer, Some(send_buffer as u32));
        assert_eq!(s.receive_buffer, Some(receive_buffer as u32));
        assert_eq!(
            (snapshot.origin, snapshot.tier),
            (Origin::Unknown, Tier::InetDiag)
        );
        assert!(!snapshot.closed && snapshot.sends.is_none() && snapshot.receives.is_none());
        return snapshot;
    }
}

fn a_connection_is_measured(test: &str, listen: &str, connect: &str, expected_ip: &str) {
    in_fresh_namespace(test, || {
        let mut diag = InetDiag::open().unwrap();
        let (mut client, mut server) = pair(listen, connect);
        client.write_all(&[1; 100_000]).unwrap();
        server.read_exact(&mut [0; 60_000]).unwrap();

        let snapshot = agrees_with_getsockopt(&mut diag, &client);
        assert_eq!(
            snapshot.stats.bytes_sent,
            Some(100_000),
            "{:?}",
            snapshot.stats
        );
        let ip = expected_ip.parse().unwrap();
        let port = |address: io::Result<SocketAddr>| address.unwrap().port();
        assert_eq!(
            snapshot.tuple.local,
            SocketAddr::new(ip, port(client.local_addr()))
        );
        assert_eq!(
            snapshot.tuple.remote,
            SocketAddr::new(ip, port(client.peer_addr()))
        );
        let namespace = std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        assert_eq!(u64::from(snapshot.id.netns), namespace);
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let digits = format!("{:032x}", snapshot.id.boot_id);
        assert_eq!(digits, boot_id.trim().replace('-', ""));

        let peer = agrees_with_getsockopt(&mut diag, &server);
        assert_eq!(peer.tuple, snapshot.tuple.reversed());
        assert_eq!(peer.stats.bytes_received, 100_000);
        assert_eq!(peer.stats.receive_queue, 40_000);
    });
}

#[test]
fn ipv4() {
    a_connection_is_measured("ipv4", "127.0.0.1:0", "127.0.0.1", "127.0.0.1");
}

#[test]
fn ipv6() {
    a_connection_is_measured("ipv6", "[::1]:0", "[::1]", "::1");
}

#[test]
fn ipv4_mapped() {
    a_connection_is_measured("ipv4_mapped", "[::]:0", "[::ffff:127.0.0.1]", "127.0.0.1");
}

#[test]
fn full_queues_are_reported_on_both_ends() {
    in_fresh_namespace("full_queues_are_reported_on_both_ends", || {
        let mut diag = InetDiag::open().unwrap();
        let (mut client, server) = pair("127.0.0.1:0", "127.0.0.1");
        client.set_nonblocking(true).unwrap();
        let mut written = 0;
        loop {
            match client.write(&[7; 65_536]) {
                Ok(n) => written += n as u64,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => panic!("{e}"),
            }
        }
        let sender = agrees_with_getsockopt(&mut diag, &client).stats;
        let receiver = agrees_with_getsockopt(&mut diag, &server).stats;
        assert!(sender.unsent > 0 && sender.unsent <= sender.send_queue);
        assert!(sender.send_memory.unwrap() >= sender.send_queue);
        assert_eq!(u64::from(receiver.receive_queue), receiver.bytes_received);
        // The opener's SYN counts one byte as acknowledged.
        let acked = sender.bytes_acked - 1;
        assert_eq!(acked + u64::from(sender.send_queue), written);
        assert!(receiver.bytes_received >= acked && receiver.bytes_received <= written);
    });
}

#[test]
fn keys_lead_to_the_owner() {
    in_fresh_namespace("keys_lead_to_the_owner", || {
        let mut diag = InetDiag::open().unwrap();
        let (client, _server) = pair("127.0.0.1:0", "127.0.0.1");
        let mut out = Vec::new();
        diag.poll(&mut out).unwrap();
        let cookie = cookie(&client);
        let at = out.iter().position(|s| s.id.cookie == cookie).unwrap();
        let key = diag.keys()[at];
        let fd = std::fs::metadata(format!("/proc/thread-self/fd/{}", client.as_raw_fd()));
        let fd = fd.unwrap();
        assert_eq!(u64::from(key.inode), fd.ino());
        assert_eq!(key.uid, fd.uid());
        let name: [u8; 16] = option(&client, libc::IPPROTO_TCP, libc::TCP_CONGESTION);
        let name = name.split(|b| *b == 0).next().unwrap();
        assert_eq!(key.congestion.as_str().as_bytes(), name);
    });
}

#[test]
fn listeners_are_no_connections_and_the_end_is_reported_once() {
    in_fresh_namespace(
        "listeners_are_no_connections_and_the_end_is_reported_once",
        || {
            let mut diag = InetDiag::open().unwrap();
            let _listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut out = Vec::new();
            let report = diag.poll(&mut out).unwrap();
            assert_eq!((report.open, out.len()), (0, 0));

            let (mut client, mut server) = pair("127.0.0.1:0", "127.0.0.1");
            client.write_all(b"twelve bytes").unwrap();
            server.read_exact(&mut [0; 12]).unwrap();
            let report = diag.poll(&mut out).unwrap();
            assert_eq!((report.open, report.emitted, report.closed), (2, 2, 0));
            assert_eq!(
                (report.repeated, report.dropped, report.undecodable),
                (0, 0, 0)
            );

            // The client ends first and waits in TIME_WAIT, which is no connection any more.
            let client_cookie = cookie(&client);
            drop(client);
            assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
            drop(server);
            let mut last: Vec<Snapshot> = Vec::new();
            while last.iter().filter(|s| s.closed).count() < 2 {
                diag.poll(&mut last).unwrap();
            }
            last.retain(|s| s.closed);
            assert_eq!(last.len(), 2);
            let client_last = last.iter().find(|s| s.id.cookie == client_cookie).unwrap();
            assert_eq!(client_last.stats.bytes_sent, Some(12));

            out.clear();
            let report = diag.poll(&mut out).unwrap();
            assert_eq!((report.open, report.emitted, out.len()), (0, 0, 0));
        },
    );
}

#[test]
fn quiet_connections_are_left_out_if_so_asked() {
    in_fresh_namespace("quiet_connections_are_left_out_if_so_asked", || {
        let options = Options {
            changed_only: true,
            ..Options::default()
        };
        let mut diag = InetDiag::with_options(options).unwrap();
        let (mut client, server) = pair("127.0.0.1:0", "127.0.0.1");
        let (quiet, _quiet_server) = pair("127.0.0.1:0", "127.0.0.1");
        let mut out = Vec::new();
        let mut polls_until_quiet = |out: &mut Vec<Snapshot>| loop {
            out.clear();
            let report = diag.poll(out).unwrap();
            assert_eq!(report.open, 4);
            if out.is_empty() {
                break;
            }
        };
        polls_until_quiet(&mut out);
        client.write_all(b"x").unwrap();
        diag.poll(&mut out).unwrap();
        assert!(out.iter().any(|s| s.id.cookie == cookie(&client)));
        assert!(out.iter().any(|s| s.id.cookie == cookie(&server)));
        assert!(out.iter().all(|s| s.id.cookie != cookie(&quiet)));
    });
}

#[test]
fn many_connections_are_each_reported_once() {
    in_fresh_namespace("many_connections_are_each_reported_once", || {
        let mut diag = InetDiag::open().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sockets: Vec<_> = (0..1_500)
            .map(|_| {
                let client = TcpStream::connect(address).unwrap();
                (client, listener.accept().unwrap().0)
            })
            .collect();
        let mut out = Vec::new();
        let report = diag.poll(&mut out).unwrap();
        let mut cookies: Vec<_> = out.iter().map(|s| s.id.cookie).collect();
        let mut expected: Vec<_> = sockets
            .iter()
            .flat_map(|(client, server)| [cookie(client), cookie(server)])
            .collect();
        cookies.sort();
        expected.sort();
        assert_eq!(cookies, expected);
        assert_eq!(
            (report.open, report.repeated, report.dropped),
            (3_000, 0, 0)
        );
        assert!(
            out.is_sorted_by_key(|s| s.at),
            "batches carry their own time"
        );
    });
}

#[test]
fn what_exceeds_the_table_is_counted() {
    in_fresh_namespace("what_exceeds_the_table_is_counted", || {
        let options = Options {
            max_sockets: 3,
            ..Options::default()
        };
        let mut diag = InetDiag::with_options(options).unwrap();
        let _first = pair("127.0.0.1:0", "127.0.0.1");
        let _second = pair("[::1]:0", "[::1]");
        let mut out = Vec::new();
        let report = diag.poll(&mut out).unwrap();
        assert_eq!((report.open, report.emitted, report.dropped), (4, 4, 1));
    });
}

/// Ends a thread that works while it is true, also if an assertion fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Dumps taken while the kernel's table changes may skip or repeat sockets; what was known
/// before and lives on must neither be missed nor be taken for closed.
#[test]
fn churn_hides_no_connection() {
    in_fresh_namespace("churn_hides_no_connection", || {
        // A namespace made from this one gets a hash of 16 buckets (Linux 6.1), in which
        // dumps stumble; with the usual 262,144 they hardly ever do.
        let few_buckets = std::fs::write("/proc/sys/net/ipv4/tcp_child_ehash_entries", "16");
        if few_buckets.is_ok() {
            enter_namespace().unwrap();
        }
        let mut diag = InetDiag::open().unwrap();
        let steady: Vec<_> = (0..400).map(|_| pair("127.0.0.1:0", "127.0.0.1")).collect();
        let cookies: HashSet<u64> = steady
            .iter()
            .flat_map(|(client, server)| [cookie(client), cookie(server)])
            .collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut out = Vec::new();
        diag.poll(&mut out).unwrap();
        let polling = AtomicBool::new(true);
        std::thread::scope(|scope| {
            // Threads made here share the namespace.
            let churn = scope.spawn(|| {
                let mut made = 0u64;
                while polling.load(Ordering::Relaxed) {
                    let client = TcpStream::connect(address).unwrap();
                    let (server, _) = listener.accept().unwrap();
                    drop((server, client));
                    made += 1;
                }
                made
            });
            let _stop = StopAtEnd(&polling);
            for _ in 0..100 {
                out.clear();
                diag.poll(&mut out).unwrap();
                let mut reported = HashSet::new();
                for snapshot in &out {
                    assert!(reported.insert(snapshot.id.cookie), "once a poll");
                    let is_steady = cookies.contains(&snapshot.id.cookie);
                    assert!(!(is_steady && snapshot.closed), "alive, yet called closed");
                }
                assert!(cookies.is_subset(&reported));
            }
            polling.store(false, Ordering::Relaxed);
            assert!(churn.join().unwrap() > 0);
        });
    });
}

/// A namespace that appears is looked into, one without sockets is not dumped, and one that
/// vanishes is let go: all that from another namespace, with the connections' own cookies.
#[test]
fn other_namespaces_are_found_followed_and_let_go() {
    use std::sync::mpsc::channel;
    in_fresh_namespace("other_namespaces_are_found_followed_and_let_go", || {
        let options = Options {
            changed_only: true,
            ..Options::default()
        };
        let own = std::fs::metadata("/proc/thread-self/ns/net").unwrap();
        let mut others = OtherNamespaces::new(options);
        let (sockets, opened) = channel();
        let (end, ended) = channel::<()>();
        // A namespace of a process of its own: threads' namespaces are no way to be found.
        let mut child = std::process::Command::new("unshare")
            .args(["--net", "sleep", "1000"])
            .spawn()
            .unwrap();
        let path = format!("/proc/{}/ns/net", child.id());
        let inode =
            |path: &str| std::fs::metadata(path).map(|m| std::os::unix::fs::MetadataExt::ino(&m));
        let first = std::os::unix::fs::MetadataExt::ino(&own);
        let parent = inode("/proc/self/ns/net").unwrap();
        while inode(&path).is_ok_and(|i| i == parent || i == first) {
            std::thread::yield_now();
        }
        let there = inode(&path).unwrap() as u32;
        let file = std::fs::File::open(&path).unwrap();
        let holder = std::thread::spawn(move || {
            // SAFETY: changes this thread's namespace only.
            let done = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(done, 0);
            sockets::bring_up_loopback().unwrap();
            let pair = pair("127.0.0.1:0", "127.0.0.1");
            sockets.send((cookie(&pair.0), cookie(&pair.1))).unwrap();
            let _ = ended.recv();
            drop(pair);
        });
        let (client, server) = opened.recv().unwrap();
        let mut inodes = HashMap::new();
        others.poll(|s, inode| {
            if s.id.netns == there {
                inodes.insert(s.id.cookie, inode);
            }
        });
        assert!(inodes.len() == 2 && inodes.contains_key(&client) && inodes.contains_key(&server));
        assert!(inodes.values().all(|inode| *inode != 0));
        assert!(others.looks_into(there));

        // The process goes, the connection stays: it is still followed.
        child.kill().unwrap();
        child.wait().unwrap();
        others.search_next();
        let report = others.poll(|_, _| {});
        assert!(report.open >= 2 && others.looks_into(there));

        // The connection goes, too, and with it the namespace.
        end.send(()).unwrap();
        holder.join().unwrap();
        let mut closed = HashSet::new();
        while others.looks_into(there) {
            others.poll(|s, _| {
                if s.closed && s.id.netns == there {
                    closed.insert(s.id.cookie);
                }
            });
        }
        assert!(closed.contains(&client) && closed.contains(&server));
    });
}
