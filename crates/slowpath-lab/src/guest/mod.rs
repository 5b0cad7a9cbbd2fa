// SPDX-License-Identifier: Apache-2.0
//! A command under another kernel: Debian's stock one, in QEMU.
//!
//! What enters: a command, programs and files to take along, names of kernel modules.
//! What leaves: the command's output, its exit status, and everything that it wrote to
//! `/out`. The guest is what the host's kernel may lack: netem, DCTCP, fentry, kprobes. It
//! has one processor, no network and no disk; it runs as any user, since QEMU only computes.
//!
//! The way of a run: [`Guest::run_with`] gathers programs with their libraries
//! (`programs`, `elf`) and modules with theirs (`kernel`) in an archive in memory
//! (`archive`), starts QEMU on it (`machine`), and talks with the guest's first process
//! (`init`) over a virtio serial port (`conversation`, `wire`), writing results as they come
//! (`results`).
//!
//! What is promised: a kernel that panics, hangs or never comes up has an error of its own, with the
//! last lines of its console; a command that takes too long is stopped and what it wrote so
//! far is kept; results are checked by length and CRC; nothing is left behind, however this
//! process ends. What is not: time. Processor time in the guest is 5 to 20 times that of
//! the host (docs/reference/lab-guest.md).

mod archive;
mod console;
mod conversation;
mod elf;
mod error;
mod init;
mod kernel;
mod machine;
mod programs;
mod results;
mod terminal;
mod wire;

#[cfg(test)]
mod tests;

pub use conversation::Patience;
pub use error::{GuestError, LastLines};
pub use init::{NAME as INIT_NAME, role};
pub use kernel::Kernel;
pub use results::Results;
pub use wire::Status;

use archive::{Archive, Content};
use conversation::{Lines, converse};
use kernel::Modules;
use machine::{Initramfs, Machine, Parts};
use programs::Programs;
use results::Receiver;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use terminal::Raw;
use wire::{ORDER, Order};

/// The emulator.
pub const QEMU: &str = "qemu-system-x86_64";
/// MiB of memory, unless said otherwise.
pub const MEMORY: u32 = 1024;

/// Loaded before the command runs, unless said otherwise: what tests ask for by looking
/// (`/dev/net/tun`, the list of congestion controls) and not by using.
pub const MODULES: [&str; 4] = ["tun", "tcp_dctcp", "tcp_bbr", "tcp_diag"];

/// Modules that lie ready for when the kernel asks for them.
const READY: [&str; 11] = [
    "kernel/net/",
    "kernel/lib/",
    "kernel/crypto/",
    "kernel/drivers/net/bonding/",
    "kernel/drivers/net/dummy",
    "kernel/drivers/net/geneve",
    "kernel/drivers/net/ifb",
    "kernel/drivers/net/macvlan",
    "kernel/drivers/net/tun",
    "kernel/drivers/net/veth",
    "kernel/drivers/net/vrf",
];

/// Which of the command's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// How the command ended.
    pub status: Status,
    /// What came out of `/out`.
    pub results: Results,
    /// The kernel's release.
    pub release: String,
    /// Gathering the guest's files.
    pub prepared: Duration,
    /// Bytes of the guest's files.
    pub image_bytes: u64,
    /// From QEMU's start until the command's.
    pub boot: Duration,
    /// From the command's start until everything was out.
    pub ran: Duration,
}

/// A finished run with its output.
#[derive(Clone, Debug)]
pub struct Output {
    /// How it went.
    pub finished: Finished,
    /// Standard output, at most [`Guest::OUTPUT`] bytes.
    pub stdout: Vec<u8>,
    /// Standard error, at most as much.
    pub stderr: Vec<u8>,
    /// Bytes of both that were more than that.
    pub lost: u64,
}

impl Output {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// A guest to be.
#[derive(Clone, Debug)]
pub struct Guest {
    command: Vec<String>,
    kernel: Option<Kernel>,
    qemu: String,
    init: Option<PathBuf>,
    programs: Vec<(PathBuf, String)>,
    tools: Vec<String>,
    files: Vec<(PathBuf, String)>,
    modules: Vec<String>,
    environment: BTreeMap<String, String>,
    out: Option<PathBuf>,
    memory: u32,
    append: String,
    patience: Patience,
    terminal: bool,
}

impl Guest {
    /// Bytes of each output that [`Guest::run`] keeps.
    pub const OUTPUT: usize = 16 << 20;

    /// A guest that runs a command. Its program, if it is not taken along otherwise, is
    /// looked for on this machine and taken along.
    pub fn new<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        Guest {
            command: command.into_iter().map(Into::into).collect(),
            kernel: None,
            qemu: QEMU.to_owned(),
            init: None,
            programs: Vec::new(),
            tools: Vec::new(),
            files: Vec::new(),
            modules: Vec::new(),
            environment: BTreeMap::new(),
            out: None,
            memory: MEMORY,
            append: String::new(),
            patience: Patience::default(),
            terminal: false,
        }
    }

    /// Another kernel than the one that `make lab-guest` fetched.
    #[must_use]
    pub fn kernel(mut self, kernel: Kernel) -> Self {
        self.kernel = Some(kernel);
        self
    }

    /// Another emulator than [`QEMU`].
    #[must_use]
    pub fn qemu(mut self, program: impl Into<String>) -> Self {
        self.qemu = program.into();
        self
    }

    /// The program that is the first process: one whose `main` begins with [`role`].
    #[must_use]
    pub fn init(mut self, program: impl Into<PathBuf>) -> Self {
        self.init = Some(program.into());
        self
    }

    /// A program of ours, with its libraries, to a path in the guest. It comes without
    /// symbols and debugging information.
    #[must_use]
    pub fn program(mut self, from: impl Into<PathBuf>, to: impl Into<String>) -> Self {
        self.programs.push((from.into(), to.into()));
        self
    }

    /// Programs that are installed here (`ip`, `tc`), by name, with their libraries.
    #[must_use]
    pub fn tools<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.tools.extend(names.into_iter().map(Into::into));
        self
    }

    /// A file or a folder, byte for byte, to a path in the guest; with the libraries of the
    /// programs in it.
    #[must_use]
    pub fn file(mut self, from: impl Into<PathBuf>, to: impl Into<String>) -> Self {
        self.files.push((from.into(), to.into()));
        self
    }

    /// Modules to load before the command runs, besides [`MODULES`].
    #[must_use]
    pub fn modules<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.modules.extend(names.into_iter().map(Into::into));
        self
    }

    /// A variable of the command's environment, which has otherwise only PATH, HOME, TERM and
    /// LANG.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// Where to write what the command leaves in `/out`.
    #[must_use]
    pub fn out(mut self, folder: impl Into<PathBuf>) -> Self {
        self.out = Some(folder.into());
        self
    }

    /// MiB of memory.
    #[must_use]
    pub fn memory(mut self, mib: u32) -> Self {
        self.memory = mib;
        self
    }

    /// How long the command may take.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.patience.command = Some(limit);
        self
    }

    /// How long to wait for everything else.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// More words for the kernel.
    #[must_use]
    pub fn append(mut self, words: impl Into<String>) -> Self {
        self.append = words.into();
        self
    }

    /// Gives the command a terminal, fed by standard input.
    #[must_use]
    pub fn terminal(mut self) -> Self {
        self.terminal = true;
        self
    }

    /// Why no guest can run here, in words for a `SKIPPED` line.
    pub fn missing() -> Option<String> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|folder| folder.join(QEMU).is_file()) {
            let program = QEMU.to_owned();
            return Some(GuestError::QemuMissing { program }.to_string());
        }
        Kernel::cached().err().map(|error| error.to_string())
    }

    /// Runs the command and keeps its output.
    ///
    /// # Errors
    /// As [`Guest::run_with`].
    pub fn run(&self) -> Result<Output, GuestError> {
        let mut stdout = Vec::new();
        let mut stderr = Vec::new();
        let mut lost = 0;
        let finished = self.run_with(&mut |stream, bytes| {
            let kept = match stream {
                Stream::Stdout => &mut stdout,
                Stream::Stderr => &mut stderr,
            };
            let room = bytes.len().min(Self::OUTPUT - kept.len());
            kept.extend_from_slice(&bytes[..room]);
            lost += (bytes.len() - room) as u64;
            Ok(())
        })?;
        Ok(Output {
            finished,
            stdout,
            stderr,
            lost,
        })
    }

    /// Runs the command, passing its output on as it comes. Blocks until the end; QEMU dies
    /// with the calling thread.
    ///
    /// # Errors
    /// Something is missing here; the guest broke; the command ran out of time. A command
    /// that fails is no error.
    pub fn run_with(
        &self,
        sink: &mut dyn FnMut(Stream, &[u8]) -> io::Result<()>,
    ) -> Result<Finished, GuestError> {
        let begun = std::time::Instant::now();
        let kernel = self.kernel.clone().map_or_else(Kernel::cached, Ok)?;
        let initramfs = Initramfs::of(&self.archive(&kernel)?)?;
        let receiver = self.out.as_deref().map(Receiver::new).transpose()?;
        let prepared = begun.elapsed();
        let parts = Parts {
            qemu: &self.qemu,
            kernel: &kernel.image,
            initramfs: &initramfs,
            memory: self.memory,
            append: &self.append,
        };
        let (machine, talk, console) = Machine::start(&parts)?;
        let raw = self.terminal.then(Raw::take);
        let lines = Lines {
            talk,
            console,
            typed: raw.as_ref().map(|raw| raw.input().as_fd()),
        };
        let ending = converse(lines, self.patience, receiver, sink);
        drop(raw);
        let closed = matches!(ending, Err(GuestError::Ended { .. }));
        let complaint = machine.end(closed);
        let ending = match (ending, complaint) {
            (Err(GuestError::Ended { .. }), Some(reason)) => Err(GuestError::Qemu { reason }),
            (ending, _) => ending,
        }?;
        Ok(Finished {
            status: ending.status,
            results: ending.results,
            release: ending.hello.release,
            prepared,
            image_bytes: initramfs.length,
            boot: ending.boot,
            ran: ending.ran,
        })
    }

    fn archive(&self, kernel: &Kernel) -> Result<Archive, GuestError> {
        let mut archive = Archive::default();
        let mut programs = Programs::default();
        archive.character_device("/dev/console", 5, 1)?;
        for (path, text) in [
            ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
            ("/etc/group", "root:x:0:\n"),
            ("/etc/hosts", "127.0.0.1 localhost guest\n::1 localhost\n"),
        ] {
            archive.file(path, 0o644, Content::Bytes(text.into()))?;
        }
        for (from, to) in &self.programs {
            programs.take_to(&mut archive, from, to)?;
        }
        for (from, to) in &self.files {
            programs.copy(&mut archive, from, to)?;
        }
        for name in &self.tools {
            programs.take(&mut archive, name)?;
        }
        let mut order = Order {
            version: wire::VERSION,
            command: self.command.clone(),
            terminal: self.terminal.then(Raw::size),
            results: self.out.is_some(),
            ..Order::default()
        };
        self.take_command(&mut archive, &mut programs, &mut order)?;
        self.take_init(&mut archive, &mut programs)?;
        self.take_modules(&mut archive, kernel, &mut order)?;
        order.environment = self.environment(&programs);
        let order = serde_json::to_vec(&order).unwrap_or_default();
        archive.file(ORDER, 0o644, Content::Bytes(order))?;
        Ok(archive)
    }

    /// The command's own program comes along unasked, unless one of its name is there.
    fn take_command(
        &self,
        archive: &mut Archive,
        programs: &mut Programs,
        order: &mut Order,
    ) -> Result<(), GuestError> {
        let program = order.command.first_mut().ok_or(GuestError::NoCommand)?;
        let there = if program.contains('/') {
            archive.has(program)
        } else {
            let mut folders = programs::PATH.split(':');
            folders.any(|folder| archive.has(&format!("{folder}/{program}")))
        };
        if !there {
            *program = programs.take(archive, program)?;
        }
        Ok(())
    }

    fn take_init(&self, archive: &mut Archive, programs: &mut Programs) -> Result<(), GuestError> {
        let place = format!("/usr/sbin/{INIT_NAME}");
        let init = self.init.clone().map_or_else(find_init, Ok)?;
        // A program of several roles that comes along anyway comes once.
        let same = |path: &Path| match (path.canonicalize(), init.canonicalize()) {
            (Ok(a), Ok(b)) => a == b,
            _ => false,
        };
        match self.programs.iter().find(|(from, _)| same(from)) {
            Some((_, to)) => archive.link(&place, to)?,
            None => programs.take_to(archive, &init, &place)?,
        }
        archive.link("/init", &place)?;
        if !archive.has(init::MODPROBE) {
            archive.link(init::MODPROBE, &place)?;
        }
        Ok(())
    }

    fn take_modules(
        &self,
        archive: &mut Archive,
        kernel: &Kernel,
        order: &mut Order,
    ) -> Result<(), GuestError> {
        let Some(folder) = &kernel.modules else {
            return match self.modules.first() {
                Some(name) => Err(GuestError::NoModules { name: name.clone() }),
                None => Ok(()),
            };
        };
        let modules = Modules::read(folder)?;
        // Another kernel may lack one of these, or have it built in.
        let usual = MODULES.iter().filter_map(|name| modules.find(name).ok()?);
        order.load = usual.map(str::to_owned).collect();
        for name in &self.modules {
            let found = modules.find(name)?.map(str::to_owned);
            order.load.extend(found);
        }
        let ready: Vec<&str> = modules.below(&READY).collect();
        for name in order.load.iter().map(String::as_str).chain(ready) {
            for (name, file, reported) in modules.closure(name) {
                if order.modules.contains_key(name) {
                    continue;
                }
                let length = fs::metadata(&file).map_err(GuestError::file("read", &file))?;
                let content = Content::Host(file, length.len());
                archive.file(&reported.file, 0o644, content)?;
                order.modules.insert(name.to_owned(), reported);
            }
        }
        let aliases = modules.aliases_of(&order.modules);
        order.aliases = aliases.map(|(a, m)| (a.to_owned(), m.to_owned())).collect();
        Ok(())
    }

    fn environment(&self, programs: &Programs) -> BTreeMap<String, String> {
        let term = match self.terminal {
            true => std::env::var("TERM").unwrap_or_else(|_| "linux".to_owned()),
            false => "dumb".to_owned(),
        };
        let mut environment: BTreeMap<String, String> = [
            ("PATH", programs::PATH),
            ("HOME", "/root"),
            ("LANG", "C.UTF-8"),
            ("TERM", &term),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let folders: Vec<&str> = programs.extra_folders().collect();
        if !folders.is_empty() {
            environment.insert("LD_LIBRARY_PATH".to_owned(), folders.join(":"));
        }
        environment.extend(self.environment.clone());
        environment
    }
}

/// `SLOWPATH_GUEST_INIT`; the running program, if it is the command `slowpath`, which plays
/// that role too; else the program beside it or, for a test, one folder up.
fn find_init() -> Result<PathBuf, GuestError> {
    if let Some(path) = std::env::var_os("SLOWPATH_GUEST_INIT") {
        return Ok(path.into());
    }
    let me = std::env::current_exe().map_err(GuestError::system("find the running program"))?;
    me.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(INIT_NAME))
        .find(|path| path.is_file())
        .or_else(|| (me.file_name()? == "slowpath").then(|| me.clone()))
        .ok_or(GuestError::InitMissing { beside: me })
}
