// SPDX-License-Identifier: Apache-2.0
//! A process that does with sockets and processes what commands say, one command a line over
//! the Unix socket `DIRECTORY/NAME`: `slowpath-actor DIRECTORY NAME LIFE`. It answers
//! `ok VALUE` or `error WHAT`, and ends when the pipe with the descriptor LIFE does.
//!
//! It is single-threaded, so that forks are plain, and calls the kernel directly: what a
//! library does with descriptors must not come in between.

mod calls;
mod life;
mod ring;

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

/// Where it is reached, and what it lives by.
#[derive(Clone, Copy)]
struct Stage<'a> {
    directory: &'a Path,
    life: i32,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, directory, name, life] = arguments.as_slice() else {
        eprintln!("usage: slowpath-actor DIRECTORY NAME LIFE");
        std::process::exit(2);
    };
    let Ok(life) = life.parse() else {
        eprintln!("slowpath-actor: {life} is no descriptor");
        std::process::exit(2);
    };
    // SAFETY: asks for no signal of children, so that none stays behind as a zombie.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
    let directory = Path::new(directory);
    play(Stage { directory, life }, name);
}

/// Takes commands until `exit`.
fn play(stage: Stage<'_>, name: &str) -> ! {
    if let Err(error) = life::tie(stage.life) {
        eprintln!("{name}: ties its life to the test's: {error}");
        std::process::exit(1);
    }
    let path = stage.directory.join(name);
    // A program that this process ran before may have left it.
    let _ = std::fs::remove_file(&path);
    let Ok(listener) = UnixListener::bind(&path) else {
        std::process::exit(1);
    };
    let Ok((stream, _)) = listener.accept() else {
        std::process::exit(1);
    };
    converse(stage, name, &listener, &stream);
    // No one can send it a command any more.
    std::process::exit(0);
}

fn converse(stage: Stage<'_>, name: &str, listener: &UnixListener, stream: &UnixStream) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(line)) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        let fork = |child: &str, flags, pid| fork(stage, child, (listener, stream), flags, pid);
        let (answer, next) = match words.as_slice() {
            ["fork", child] => (fork(child, 0, None), Next::Go),
            // With a pid that is free.
            ["fork-as", child, pid] => (fork(child, 0, pid.parse().ok()), Next::Go),
            // A process of its own that shares the table of descriptors.
            ["share", child] => (fork(child, libc::CLONE_FILES, None), Next::Go),
            // The first process of a pid namespace.
            ["pid-namespace", child] => (fork(child, libc::CLONE_NEWPID, None), Next::Go),
            ["exec", program] => (Ok(0), Next::Exec((*program).to_owned(), None)),
            ["exec", program, stdin] => {
                let next = Next::Exec((*program).to_owned(), stdin.parse().ok());
                (Ok(0), next)
            }
            ["exit"] => (Ok(0), Next::Exit),
            words => (Call::parse(words).and_then(Call::run), Next::Go),
        };
        if let Next::Exec(..) = next {
            // Before the answer: who reaches for the new program must not meet this one.
            let _ = std::fs::remove_file(stage.directory.join(name));
        }
        let answer = match answer {
            Ok(value) => format!("ok {value}\n"),
            Err(error) => format!("error {line}: {error}\n"),
        };
        if { stream }.write_all(answer.as_bytes()).is_err() {
            return;
        }
        match next {
            Next::Go => {}
            Next::Exec(program, stdin) => exec(stage, name, &program, stdin),
            Next::Exit => std::process::exit(0),
        }
    }
}

/// `struct clone_args` of clone3(2), up to the last member used.
#[repr(C)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
}

/// A child that takes commands under its own name; gives its pid once it does.
fn fork(
    stage: Stage<'_>,
    child: &str,
    (listener, stream): (&UnixListener, &UnixStream),
    flags: i32,
    pid: Option<i32>,
) -> std::io::Result<i64> {
    use std::os::fd::AsRawFd;
    let path: PathBuf = stage.directory.join(child);
    let arguments = CloneArgs {
        flags: flags.unsigned_abs().into(),
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD.unsigned_abs().into(),
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: pid.as_ref().map_or(0, |pid| &raw const *pid as u64),
        set_tid_size: pid.is_some().into(),
    };
    let size = size_of::<CloneArgs>();
    // SAFETY: like fork, with a child that shares no memory; the process has one thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size) };
    if check(pid)? == 0 {
        if flags & libc::CLONE_FILES == 0 {
            // SAFETY: these are the parent's; the child uses none of them again.
            unsafe {
                libc::close(listener.as_raw_fd());
                libc::close(stream.as_raw_fd());
            }
        }
        play(stage, child);
    }
    while !path.exists() {
        std::thread::yield_now();
    }
    Ok(pid)
}

/// Turns to another program: this one, under another file name.
fn exec(stage: Stage<'_>, name: &str, program: &str, stdin: Option<i32>) -> ! {
    use std::os::unix::process::CommandExt;
    let file = stage.directory.join(program);
    let mut command = std::process::Command::new(&file);
    command.arg(stage.directory).arg(name);
    command.arg(stage.life.to_string());
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
