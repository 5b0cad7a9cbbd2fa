// SPDX-License-Identifier: Apache-2.0
//! The programs whose connections are recorded, as processes of their own: bulk transfers, and answers of web-search sizes at a chosen rate.
//! Each says at its end what it moved and its processor time.

use slowpath_netsim::workload::SizeDistribution;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The receiving process: `serve-child CONNECTIONS`.
pub const SERVE: &str = "serve-child";
/// The sending process: `send-child PORT SECONDS CONNECTIONS RATE`; a rate of 0 is bulk, others are bytes a second of answers.
pub const SEND: &str = "send-child";

const CHUNK: usize = 256 * 1024;
const REQUEST: usize = 100;

/// Answers' sizes: the web-search workload (DCTCP, SIGCOMM 2010, figure 4).
const WEB_SEARCH: &str = include_str!("../../../../scenarios/sim/web-search.txt");

/// Processor time in seconds of this process: the system's share, or all of it.
pub fn own_time(all: bool) -> f64 {
    // SAFETY: `usage` is plain data, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let user = if all { seconds(usage.ru_utime) } else { 0.0 };
    seconds(usage.ru_stime) + user
}

/// Takes what comes; a connection whose first byte is 1 wants answers: their sizes come.
pub fn serve(connections: usize) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?.port());
    let streams = listener.incoming().take(connections);
    let threads: Vec<_> = streams
        .map(|stream| std::thread::spawn(move || answer(stream?)))
        .collect();
    for thread in threads {
        let _ = thread.join();
    }
    println!("{}", own_time(false));
    Ok(())
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    let mut kind = [0];
    stream.read_exact(&mut kind)?;
    if kind[0] == 0 {
        while stream.read(&mut buffer)? > 0 {}
        return Ok(());
    }
    let mut request = [0; REQUEST];
    while stream.read_exact(&mut request).is_ok() {
        let size = request
            .first_chunk()
            .map_or(0, |it| u32::from_le_bytes(*it));
        let mut left = size as usize;
        while left > 0 {
            let part = left.min(CHUNK);
            stream.write_all(&buffer[..part])?;
            left -= part;
        }
    }
    Ok(())
}

/// Bytes a second, and the system time.
pub fn send(port: u16, seconds: f64, connections: usize, rate: f64) -> io::Result<()> {
    let begun = Instant::now();
    let threads: Vec<_> = (0..connections)
        .map(|number| {
            std::thread::spawn(move || {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
                stream.set_nodelay(true)?;
                if rate > 0.0 {
                    ask(stream, seconds, rate / connections as f64, number as u64)
                } else {
                    push(stream, seconds)
                }
            })
        })
        .collect();
    let mut bytes = 0.0;
    for thread in threads {
        let moved: io::Result<f64> = thread.join().map_err(|_| io::ErrorKind::Other)?;
        bytes += moved?;
    }
    let rate = bytes / begun.elapsed().as_secs_f64();
    println!("{rate} {}", own_time(false));
    Ok(())
}

fn push(mut stream: TcpStream, seconds: f64) -> io::Result<f64> {
    let chunk = vec![0; CHUNK];
    let begun = Instant::now();
    let mut bytes = 0.0;
    stream.write_all(&[0])?;
    while begun.elapsed().as_secs_f64() < seconds {
        stream.write_all(&chunk)?;
        bytes += CHUNK as f64;
    }
    Ok(bytes)
}

/// Answers one after the other, each begun no earlier than the rate allows.
fn ask(mut stream: TcpStream, seconds: f64, rate: f64, seed: u64) -> io::Result<f64> {
    let sizes = SizeDistribution::parse(WEB_SEARCH).map_err(io::Error::other)?;
    let mut buffer = vec![0; CHUNK];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let begun = Instant::now();
    let mut bytes = 0.0;
    stream.write_all(&[1])?;
    while begun.elapsed().as_secs_f64() < seconds {
        // xorshift64 (Marsaglia, 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let share = ((state >> 11) + 1) as f64 / (1u64 << 53) as f64;
        let size = u32::try_from(sizes.quantile(share)).unwrap_or(u32::MAX);
        let mut request = [0; REQUEST];
        request[..4].copy_from_slice(&size.to_le_bytes());
        stream.write_all(&request)?;
        let mut left = size as usize;
        while left > 0 {
            let room = left.min(CHUNK);
            let read = stream.read(&mut buffer[..room])?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= read;
        }
        bytes += f64::from(size);
        let due = Duration::from_secs_f64(bytes / rate);
        std::thread::sleep(
            due.saturating_sub(begun.elapsed())
                .min(Duration::from_secs_f64(seconds)),
        );
    }
    Ok(bytes)
}
