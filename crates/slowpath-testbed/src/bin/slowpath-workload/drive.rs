// SPDX-License-Identifier: Apache-2.0
//! The opening side.

use crate::control::{Control, say};
use crate::options::{connect, reset_on_close};
use slowpath_testbed::workload::{
    DriveMode, DriveOptions, Latency, REQUEST_HEADER_BYTES, Ready, Report, StateTimes, TcpTruth,
};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub fn run(options: &DriveOptions) -> io::Result<()> {
    let control = Control::start();
    let at_once = match options.mode {
        DriveMode::Many => options.connections.unwrap_or(1),
        DriveMode::ShortLived | DriveMode::PortReuse => 0,
        _ => 1,
    };
    let mut streams = Vec::new();
    for _ in 0..at_once {
        streams.push(connect(options, options.source_port)?);
    }
    let addresses = streams
        .iter()
        .map(|s| Ok((s.local_addr()?, s.peer_addr()?)))
        .collect::<io::Result<_>>()?;
    say(&Ready {
        pid: std::process::id(),
        port: 0,
        connections: addresses,
    })?;
    control.wait_for_go();

    let mut work = Work {
        options,
        control: &control,
        report: Report::default(),
        latencies: Vec::new(),
        started: Instant::now(),
    };
    let done = AtomicBool::new(false);
    let (result, states) = std::thread::scope(|scope| {
        let sampler = (at_once == 1).then(|| {
            let (socket, done) = (streams[0].as_fd(), &done);
            scope.spawn(move || StateTimes::sample(socket, done))
        });
        let result = work.run(&streams);
        if let [stream] = &streams[..] {
            drain(stream, &control);
        }
        done.store(true, Ordering::Relaxed);
        (result, sampler.and_then(|s| s.join().ok()))
    });
    result?;

    let mut report = work.report;
    report.elapsed_us = work.started.elapsed().as_micros() as u64;
    report.connections += u64::from(at_once);
    report.latency = Latency::of(work.latencies);
    report.states = states;
    report.tcp = streams.first().and_then(|s| TcpTruth::read(s.as_fd()).ok());
    if options.mode == DriveMode::Die {
        // SAFETY: kill takes integers; the process is this one.
        unsafe { libc::kill(std::process::id() as i32, libc::SIGKILL) };
    }
    say(&report)?;
    control.wait_for_end();
    Ok(())
}

/// Waits until everything written is acknowledged, for 2 s at most, so that a report's
/// numbers are final.
fn drain(stream: &TcpStream, control: &Control) {
    let patience = Instant::now() + Duration::from_secs(2);
    while Instant::now() < patience && !control.ended() && unacknowledged(stream) > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes written and not acknowledged (tcp(7), SIOCOUTQ); 0 of a closed connection.
fn unacknowledged(stream: &TcpStream) -> i32 {
    let mut bytes = 0;
    // SAFETY: SIOCOUTQ, the same number as TIOCOUTQ, writes one int.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { bytes } else { 0 }
}

struct Work<'a> {
    options: &'a DriveOptions,
    control: &'a Control,
    report: Report,
    latencies: Vec<u64>,
    started: Instant,
}

impl Work<'_> {
    fn run(&mut self, streams: &[TcpStream]) -> io::Result<()> {
        match self.options.mode {
            DriveMode::RequestResponse | DriveMode::Die => self.requests(&streams[0], None),
            DriveMode::WriteWriteRead => {
                let header = self.options.header_bytes.unwrap_or(8);
                self.requests(&streams[0], Some(header as usize))
            }
            DriveMode::OneWay => self.one_way(&streams[0]),
            DriveMode::Bulk => self.bulk(&streams[0]),
            DriveMode::Many => self.many(streams),
            DriveMode::ShortLived => self.short_lived(),
            DriveMode::PortReuse => self.port_reuse(),
        }
    }

    /// Whether to go on, before the transaction with that number.
    fn more(&self, done: u64) -> bool {
        let timely = self
            .options
            .seconds
            .is_none_or(|s| self.started.elapsed().as_secs_f64() < s);
        timely && !self.control.stopped() && self.options.requests.is_none_or(|n| done < n)
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(self.options.pause_ms.unwrap_or(5))
    }

    fn request(&self) -> (Vec<u8>, Vec<u8>) {
        let length = self.options.request_bytes.unwrap_or(200) as usize;
        let length = length.max(REQUEST_HEADER_BYTES);
        let wanted = self.options.response_bytes.unwrap_or(1_000);
        let mut request = vec![0; length];
        request[..4].copy_from_slice(&(length as u32).to_be_bytes());
        request[4..8].copy_from_slice(&wanted.to_be_bytes());
        (request, vec![0; wanted as usize])
    }

    fn write(&mut self, mut stream: &TcpStream, data: &[u8]) -> io::Result<()> {
        let before = Instant::now();
        stream.write_all(data)?;
        self.report.blocked_us += before.elapsed().as_micros() as u64;
        self.report.bytes_written += data.len() as u64;
        Ok(())
    }

    fn transact(
        &mut self,
        mut stream: &TcpStream,
        first: Option<usize>,
        (request, response): (&[u8], &mut [u8]),
    ) -> io::Result<()> {
        let before = Instant::now();
        let (head, tail) = request.split_at(first.unwrap_or(0).min(request.len()));
        if !head.is_empty() {
            self.write(stream, head)?;
        }
        self.write(stream, tail)?;
        stream.read_exact(response)?;
        self.latencies.push(before.elapsed().as_micros() as u64);
        self.report.bytes_read += response.len() as u64;
        self.report.transactions += 1;
        Ok(())
    }

    fn requests(&mut self, stream: &TcpStream, first: Option<usize>) -> io::Result<()> {
        let (request, mut response) = self.request();
        while self.more(self.report.transactions) {
            self.transact(stream, first, (&request, &mut response))?;
            let pause = self.pause();
            if pause > Duration::ZERO {
                self.control.sleep_until(Instant::now() + pause);
            }
        }
        Ok(())
    }

    fn one_way(&mut self, stream: &TcpStream) -> io::Result<()> {
        let message = vec![0; self.options.request_bytes.unwrap_or(200) as usize];
        let mut due = Instant::now();
        while self.more(self.report.transactions) {
            self.write(stream, &message)?;
            self.report.transactions += 1;
            due += self.pause();
            self.control.sleep_until(due);
        }
        Ok(())
    }

    fn bulk(&mut self, stream: &TcpStream) -> io::Result<()> {
        let chunk = vec![0; self.options.write_bytes.unwrap_or(65_536).max(1) as usize];
        let limit = self.options.bytes.unwrap_or(u64::MAX);
        while self.report.bytes_written < limit && self.more(self.report.transactions) {
            let left = limit - self.report.bytes_written;
            let length = left.min(chunk.len() as u64) as usize;
            self.write(stream, &chunk[..length])?;
            self.report.transactions += 1;
            if let Some(rate) = self.options.rate {
                let seconds = self.report.bytes_written as f64 / rate as f64;
                let due = self.started + Duration::from_secs_f64(seconds);
                self.control.sleep_until(due);
            }
        }
        Ok(())
    }

    fn many(&mut self, streams: &[TcpStream]) -> io::Result<()> {
        let message = vec![0; self.options.request_bytes.unwrap_or(200) as usize];
        for stream in streams {
            self.write(stream, &message)?;
            self.report.transactions += 1;
        }
        Ok(())
    }

    fn short_lived(&mut self) -> io::Result<()> {
        let lifetime = Duration::from_millis(self.options.lifetime_ms.unwrap_or(5));
        let (request, mut response) = self.request();
        let mut done = 0;
        while self.more(done) {
            let opened = Instant::now();
            let stream = connect(self.options, self.options.source_port)?;
            self.transact(&stream, None, (&request, &mut response))?;
            std::thread::sleep((opened + lifetime).saturating_duration_since(Instant::now()));
            drop(stream);
            done += 1;
            self.report.connections += 1;
            self.control.sleep_until(Instant::now() + self.pause());
        }
        Ok(())
    }

    fn port_reuse(&mut self) -> io::Result<()> {
        let (request, mut response) = self.request();
        let mut port = self.options.source_port;
        let mut done = 0;
        while self.more(done) {
            let stream = connect(self.options, port)?;
            port = Some(stream.local_addr()?.port());
            self.transact(&stream, None, (&request, &mut response))?;
            // A reset leaves no TIME_WAIT that would hold the 4-tuple.
            reset_on_close(&stream)?;
            drop(stream);
            done += 1;
            self.report.connections += 1;
        }
        Ok(())
    }
}
