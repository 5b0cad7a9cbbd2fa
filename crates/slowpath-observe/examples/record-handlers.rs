// SPDX-License-Identifier: Apache-2.0
//! The handlers' recorder by itself: raw events of connections to a port into a file while a command runs. And a workload of blocking calls for it.
//!
//! ```text
//! record-handlers record PORT FILE COMMAND...
//! record-handlers serve ADDRESS CONNECTIONS
//! record-handlers send ADDRESS BYTES CHUNK
//! record-handlers ask ADDRESS TIMES REQUEST ANSWER
//! ```

use slowpath_observe::handlers::Recorder;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

fn record(port: u16, file: &str, command: &[String]) -> Result<i32, Box<dyn Error>> {
    let mut recorder = Recorder::open(&[port])?;
    let mut out = std::io::BufWriter::new(std::fs::File::create(file)?);
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let mut child = Command::new(program).args(arguments).spawn()?;
    let status = loop {
        out.write_all(&recorder.take()?)?;
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    // What the kernel still has to say of closed connections.
    std::thread::sleep(Duration::from_millis(500));
    out.write_all(&recorder.take()?)?;
    out.flush()?;
    let losses = recorder.losses();
    eprintln!(
        "events lost: {}, programs left out: {}, made good: {}",
        losses.ring,
        losses.missed,
        recorder.healed()
    );
    Ok(status.code().unwrap_or(1))
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    let [a, b, c, d, e, f, g, h] = head;
    let request = u32::from_le_bytes([a, b, c, d]) as usize;
    let answer = u32::from_le_bytes([e, f, g, h]) as usize;
    if answer == 0 {
        let mut buffer = vec![0; 65536];
        while stream.read(&mut buffer)? > 0 {}
        return Ok(());
    }
    let mut buffer = vec![0; request.max(answer)];
    while stream.read_exact(&mut buffer[..request]).is_ok() {
        stream.write_all(&buffer[..answer])?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize| -> Result<usize, Box<dyn Error>> {
        Ok(arguments.get(place).ok_or("too few arguments")?.parse()?)
    };
    match arguments.first().map(String::as_str) {
        Some("record") if arguments.len() > 3 => {
            let code = record(number(1)? as u16, &arguments[2], &arguments[3..])?;
            std::process::exit(code);
        }
        Some("serve") => {
            let listener = TcpListener::bind(&arguments[1])?;
            println!("ready");
            let mut threads = Vec::new();
            for stream in listener.incoming().take(number(2)?) {
                let stream = stream?;
                threads.push(std::thread::spawn(move || answer(stream)));
            }
            for thread in threads {
                let _ = thread.join();
            }
        }
        Some("send") => {
            let mut stream = TcpStream::connect(&arguments[1])?;
            stream.write_all(&[0; 8])?;
            let chunk = vec![0; number(3)?];
            let mut left = number(2)?;
            while left > 0 {
                let part = left.min(chunk.len());
                stream.write_all(&chunk[..part])?;
                left -= part;
            }
        }
        Some("ask") => {
            let mut stream = TcpStream::connect(&arguments[1])?;
            let (request, answer) = (number(3)?, number(4)?);
            let mut head = (request as u32).to_le_bytes().to_vec();
            head.extend((answer as u32).to_le_bytes());
            stream.write_all(&head)?;
            let mut buffer = vec![0; request.max(answer)];
            for _ in 0..number(2)? {
                stream.write_all(&buffer[..request])?;
                stream.read_exact(&mut buffer[..answer])?;
            }
        }
        _ => return Err("see the file's first lines".into()),
    }
    Ok(())
}
