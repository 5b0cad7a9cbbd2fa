// SPDX-License-Identifier: Apache-2.0
//! A loop that sleeps until its time and sends, and nothing else: as well as this machine does it.

use crate::hosts::Hosts;
use slowpath_path::socket::{SocketOptions, StampedSocket, monotonic};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How long after its time each packet left, µs, of as many loops as there are sessions.
pub fn send_errors(hosts: &Hosts, loops: usize, rate: u32, seconds: u32) -> Vec<f64> {
    let stop = AtomicBool::new(false);
    hosts.inside(1, || {
        let sink = UdpSocket::bind((Hosts::B, 9_000)).expect("a fresh namespace");
        sink.set_read_timeout(Some(Duration::from_millis(50)))
            .expect("a socket");
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = [0; 100];
                while !stop.load(Ordering::Relaxed) {
                    let _ = sink.recv(&mut buffer);
                }
            });
            let errors = hosts.inside(0, || {
                thread::scope(|scope| {
                    let threads: Vec<_> = (0..loops)
                        .map(|_| scope.spawn(move || one(rate, seconds)))
                        .collect();
                    threads
                        .into_iter()
                        .flat_map(|thread| thread.join().expect("no panic"))
                        .collect()
                })
            });
            stop.store(true, Ordering::Relaxed);
            errors
        })
    })
}

fn one(rate: u32, seconds: u32) -> Vec<f64> {
    let options = SocketOptions::on(Hosts::A.parse().expect("an address"));
    let socket = StampedSocket::open(&options).expect("a socket");
    let peer: SocketAddr = format!("{}:9000", Hosts::B).parse().expect("an address");
    socket.connect(peer).expect("a route");
    let wall = |clock| {
        let now = rustix::time::clock_gettime(clock);
        now.tv_sec * 1_000_000_000 + now.tv_nsec
    };
    let begin = monotonic() + 300_000_000;
    let difference = wall(rustix::time::ClockId::Realtime) - monotonic();
    let interval = 1_000_000_000 / i64::from(rate);
    let mut errors = Vec::new();
    for number in 0..i64::from(rate * seconds) {
        let due = begin + number * interval;
        let time = libc::timespec {
            tv_sec: due / 1_000_000_000,
            tv_nsec: due % 1_000_000_000,
        };
        // SAFETY: `time` lives through the call.
        unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &time,
                std::ptr::null_mut(),
            );
        }
        socket.send(&[0; 14]).expect("sent");
        socket.send_stamps(|number, stamp| {
            let due = begin + i64::from(number) * interval + difference;
            errors.push((stamp - due) as f64 / 1e3);
        });
    }
    errors
}
