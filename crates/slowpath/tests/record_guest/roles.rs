// SPDX-License-Identifier: Apache-2.0
//! What runs in the guest: blocking calls of several kinds.

use crate::programs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    let [request, answer] = [0, 4].map(|at| {
        let word = head[at..].first_chunk().expect("eight bytes");
        u32::from_le_bytes(*word) as usize
    });
    let mut buffer = vec![0; request.max(answer).max(65_536)];
    if answer == 0 {
        while stream.read(&mut buffer)? > 0 {}
        return Ok(());
    }
    while stream.read_exact(&mut buffer[..request]).is_ok() {
        stream.write_all(&buffer[..answer])?;
    }
    Ok(())
}

fn open(address: &str, request: usize, answer: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connects");
    let head = [request, answer].map(|bytes| (bytes as u32).to_le_bytes());
    stream.write_all(&head.concat()).expect("sends");
    stream
}

/// Its name, and its arguments behind it.
pub fn play(role: &str) {
    let words: Vec<&str> = role.split_whitespace().collect();
    let number = |place: usize| words[place].parse::<usize>().expect("a number");
    match words[0] {
        "serve" => {
            let listener = TcpListener::bind(words[1]).expect("binds");
            println!("ready");
            let streams = listener.incoming().take(number(2));
            let threads: Vec<_> = streams
                .map(|stream| stream.expect("a connection"))
                .map(|stream| std::thread::spawn(move || answer(stream)))
                .collect();
            for thread in threads {
                let _ = thread.join();
            }
        }
        "send" => {
            let mut stream = open(words[1], 0, 0);
            let chunk = vec![0; number(3)];
            let mut left = number(2);
            while left > 0 {
                let part = left.min(chunk.len());
                stream.write_all(&chunk[..part]).expect("sends");
                left -= part;
            }
        }
        "ask" => {
            let (request, answer) = (number(3), number(4));
            let mut stream = open(words[1], request, answer);
            let mut buffer = vec![0; request.max(answer)];
            for _ in 0..number(2) {
                stream.write_all(&buffer[..request]).expect("sends");
                stream.read_exact(&mut buffer[..answer]).expect("an answer");
            }
        }
        "programs" => programs::client(words[1], words[2], number(3)),
        "programs-serve" => {
            programs::serve(words[1], number(2), words.get(3).unwrap_or(&""));
        }
        other => panic!("no workload {other}"),
    }
}
