// SPDX-License-Identifier: Apache-2.0
//! A process that does with sockets and processes what it is told, one command a line over
//! the Unix socket `DIRECTORY/NAME`: `slowpath-actor DIRECTORY NAME`. It answers `ok VALUE`
//! or `error WHAT`.
//!
//! It is single-threaded, so that forks are plain, and calls the kernel directly: what a
//! library does with descriptors must not come in between.

mod calls;

use calls::{Call, check};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// What the actor is to do when it has answered.
enum Next {
    Go,
    Exec(String, Option<i32>),
    Exit,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, directory, name] = arguments.as_slice() else {
        eprintln!("usage: slowpath-actor DIRECTORY NAME");
        std::process::exit(2);
    };
    // SAFETY: asks not to be told of children, so that none stays behind as a zombie.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
    play(Path::new(directory), name);
}

/// Takes commands until it is told to exit.
fn play(directory: &Path, name: &str) -> ! {
    let path = directory.join(name);
    // A program that this process ran before may have left it.
    let _ = std::fs::remove_file(&path);
    let Ok(listener) = UnixListener::bind(&path) else {
        std::process::exit(1);
    };
    let Ok((stream, _)) = listener.accept() else {
        std::process::exit(1);
    };
    converse(directory, name, &listener, &stream);
    // Nobody has anything to tell it any more.
    std::process::exit(0);
}

fn converse(directory: &Path, name: &str, listener: &UnixListener, stream: &UnixStream) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(line)) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        let (answer, next) = match words.as_slice() {
            ["fork", child] => (fork(directory, child, listener, stream, 0), Next::Go),
            // A process of its own that shares the table of descriptors.
            ["share", child] => {
                let flags = libc::CLONE_FILES;
                (fork(directory, child, listener, stream, flags), Next::Go)
            }
            // The first process of a pid namespace.
            ["pid-namespace", child] => {
                let flags = libc::CLONE_NEWPID;
                (fork(directory, child, listener, stream, flags), Next::Go)
            }
            ["exec", program] => (Ok(0), Next::Exec((*program).to_owned(), None)),
            ["exec", program, stdin] => {
                let next = Next::Exec((*program).to_owned(), stdin.parse().ok());
                (Ok(0), next)
            }
            ["exit"] => (Ok(0), Next::Exit),
            words => (Call::parse(words).and_then(Call::run), Next::Go),
        };
        let answer = match answer {
            Ok(value) => format!("ok {value}\n"),
            Err(error) => format!("error {line}: {error}\n"),
        };
        if { stream }.write_all(answer.as_bytes()).is_err() {
            return;
        }
        match next {
            Next::Go => {}
            Next::Exec(program, stdin) => exec(directory, name, &program, stdin),
            Next::Exit => std::process::exit(0),
        }
    }
}

/// A child that takes commands under its own name; gives its pid once it does.
fn fork(
    directory: &Path,
    child: &str,
    listener: &UnixListener,
    stream: &UnixStream,
    flags: i32,
) -> std::io::Result<i64> {
    use std::os::fd::AsRawFd;
    let path: PathBuf = directory.join(child);
    let flags = flags | libc::SIGCHLD;
    // SAFETY: like fork, with a child that shares no memory; the process has one thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if check(pid)? == 0 {
        if flags & libc::CLONE_FILES == 0 {
            // SAFETY: these are the parent's; the child uses none of them again.
            unsafe {
                libc::close(listener.as_raw_fd());
                libc::close(stream.as_raw_fd());
            }
        }
        play(directory, child);
    }
    while !path.exists() {
        std::thread::yield_now();
    }
    Ok(pid)
}

/// Turns to another program: this one, under another file name.
fn exec(directory: &Path, name: &str, program: &str, stdin: Option<i32>) -> ! {
    use std::os::unix::process::CommandExt;
    let file = directory.join(program);
    let mut command = std::process::Command::new(&file);
    command.arg(directory).arg(name);
    if let Some(fd) = stdin {
        // SAFETY: plain numbers; the descriptor stays open as standard input.
        unsafe {
            libc::dup2(fd, 0);
            libc::close(fd);
        }
    }
    let error = command.exec();
    eprintln!("{}: {error}", file.display());
    std::process::exit(1);
}
