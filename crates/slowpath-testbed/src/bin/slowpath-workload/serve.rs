// SPDX-License-Identifier: Apache-2.0
//! The accepting side: one small thread a connection.

use crate::control::{Control, say};
use crate::options::{delay_acks, listen};
use slowpath_testbed::workload::{REQUEST_HEADER_BYTES, Ready, Report, ServeMode, ServeOptions};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Totals {
    read: AtomicU64,
    written: AtomicU64,
    transactions: AtomicU64,
    connections: AtomicU64,
    errors: AtomicU64,
}

fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

pub fn run(options: ServeOptions) -> io::Result<()> {
    let listener = listen(&options)?;
    let control = Control::start();
    let totals = Arc::new(Totals::default());
    say(&Ready {
        pid: std::process::id(),
        port: listener.local_addr()?.port(),
        connections: Vec::new(),
    })?;
    let started = Instant::now();
    let accepting = totals.clone();
    std::thread::spawn(move || accept(&listener, &options, &accepting));
    control.wait_for_stop();
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    say(&Report {
        bytes_written: get(&totals.written),
        bytes_read: get(&totals.read),
        transactions: get(&totals.transactions),
        connections: get(&totals.connections),
        errors: get(&totals.errors),
        elapsed_us: started.elapsed().as_micros() as u64,
        ..Report::default()
    })?;
    control.wait_for_end();
    Ok(())
}

fn accept(listener: &TcpListener, options: &ServeOptions, totals: &Arc<Totals>) {
    let mut held = Vec::new();
    loop {
        let Ok((stream, _)) = listener.accept() else {
            add(&totals.errors, 1);
            continue;
        };
        add(&totals.connections, 1);
        if options.mode == ServeMode::Hold {
            held.push(stream);
            continue;
        }
        let (options, totals_) = (options.clone(), totals.clone());
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        let spawned = thread.spawn(move || {
            if serve(stream, &options, &totals_).is_err() {
                add(&totals_.errors, 1);
            }
        });
        if spawned.is_err() {
            add(&totals.errors, 1);
        }
    }
}

fn serve(mut stream: TcpStream, options: &ServeOptions, totals: &Totals) -> io::Result<()> {
    let mut buffer = vec![0; options.read_bytes.unwrap_or(65_536).max(1) as usize];
    let started = Instant::now();
    let mut taken = 0u64;
    loop {
        if options.delay_acks {
            wait_delaying(&stream)?;
        }
        if options.mode == ServeMode::RequestResponse {
            if !answer(&mut stream, &mut buffer, options, totals)? {
                return Ok(());
            }
            continue;
        }
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return Ok(());
        }
        add(&totals.read, n);
        taken += n as u64;
        if options.mode == ServeMode::Echo {
            stream.write_all(&buffer[..n])?;
            add(&totals.written, n);
        }
        if let Some(rate) = options.read_rate {
            let due = started + Duration::from_secs_f64(taken as f64 / rate as f64);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }
}

/// Waits for data and leaves the socket in the mode that delays acknowledgements. An
/// expired delay ends that mode (tcp_delack_timer_handler), and a read outside of it
/// acknowledges at once (tcp_cleanup_rbuf): hence once more after the wait.
fn wait_delaying(stream: &TcpStream) -> io::Result<()> {
    delay_acks(stream)?;
    let mut fd = libc::pollfd {
        fd: stream.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one descriptor, which the stream keeps open during the call.
    if unsafe { libc::poll(&raw mut fd, 1, -1) } < 0 {
        return Err(io::Error::last_os_error());
    }
    delay_acks(stream)
}

/// Answers one request; false at the end of the stream.
fn answer(
    stream: &mut TcpStream,
    buffer: &mut [u8],
    options: &ServeOptions,
    totals: &Totals,
) -> io::Result<bool> {
    let mut header = [0; REQUEST_HEADER_BYTES];
    match stream.read_exact(&mut header) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        other => other?,
    }
    let [a, b, c, d, e, f, g, h] = header;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    let mut rest = length.saturating_sub(REQUEST_HEADER_BYTES);
    while rest > 0 {
        if options.delay_acks {
            wait_delaying(stream)?;
        }
        let room = rest.min(buffer.len());
        let n = stream.read(&mut buffer[..room])?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        rest -= n;
    }
    add(&totals.read, length);
    if options.think_ms > 0 {
        std::thread::sleep(Duration::from_millis(options.think_ms));
    }
    let response = vec![0; u32::from_be_bytes([e, f, g, h]) as usize];
    stream.write_all(&response)?;
    add(&totals.written, response.len());
    add(&totals.transactions, 1);
    Ok(true)
}
