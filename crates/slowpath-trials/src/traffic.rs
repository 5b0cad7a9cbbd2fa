// SPDX-License-Identifier: Apache-2.0
//! Connections of this process that an agent has something to log of.

use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Slow connections, and others that come and go, until this value is dropped.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Traffic {
    /// `slow` connections whose receivers read slowly: a problem in each interval; and `rate` connections a second that open, exchange a message and close.
    pub(crate) fn start(slow: usize, rate: u32) -> io::Result<Traffic> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        // Accepted sockets inherit it.
        SockRef::from(&listener).set_recv_buffer_size(16_384)?;
        let mut pairs = Vec::new();
        for _ in 0..slow {
            pairs.push(pair(&listener)?);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let [first, second] = [stop.clone(), stop.clone()];
        let threads = vec![
            std::thread::spawn(move || stream(&mut pairs, &first)),
            std::thread::spawn(move || churn(&listener, rate, &second)),
        ];
        Ok(Traffic { stop, threads })
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn pair(listener: &TcpListener) -> io::Result<(TcpStream, TcpStream)> {
    let client = TcpStream::connect(listener.local_addr()?)?;
    Ok((client, listener.accept()?.0))
}

/// Senders that always have data, and receivers that take 8 KiB every 10 ms.
fn stream(pairs: &mut [(TcpStream, TcpStream)], stop: &AtomicBool) -> io::Result<()> {
    for (sender, receiver) in &mut *pairs {
        sender.set_nonblocking(true)?;
        receiver.set_nonblocking(true)?;
    }
    let mut taken = [0; 8_192];
    while !stop.load(Ordering::Relaxed) {
        for (sender, receiver) in &mut *pairs {
            while sender.write(&[1; 16_384]).is_ok() {}
            // Nothing may have come yet.
            let _ = receiver.read(&mut taken);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn churn(listener: &TcpListener, rate: u32, stop: &AtomicBool) -> io::Result<()> {
    let begin = Instant::now();
    for turn in 1u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (mut client, mut server) = pair(listener)?;
        client.write_all(&[1; 100])?;
        server.read_exact(&mut [0; 100])?;
        // Closed by a RST, so that no port waits in TIME_WAIT.
        SockRef::from(&client).set_linger(Some(Duration::ZERO))?;
        drop((client, server));
        let due = begin + Duration::from_secs(turn) / rate;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}
