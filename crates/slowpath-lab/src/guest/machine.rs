// SPDX-License-Identifier: Apache-2.0
//! The emulated machine: a QEMU process that ends with this one.
//!
//! What enters: a kernel and an archive. What leaves: the lines to the guest. What is
//! promised: nothing stands in the file system for it (the archive is in memory, the lines
//! are socket pairs); QEMU is killed when the [`Machine`] is dropped and, by the kernel,
//! when the thread that started it dies.

use super::archive::Archive;
use super::{GuestError, wire};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, set_parent_process_death_signal};
use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The archive is read twice into memory, and a kernel wants some for itself.
const KERNEL_MIB: u64 = 192;
/// Of QEMU's complaints.
const COMPLAINT: u64 = 4096;

/// From closing its lines to its end.
const ENDING: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// An archive in memory.
#[derive(Debug)]
pub struct Initramfs {
    file: File,
    /// Its length.
    pub length: u64,
}

impl Initramfs {
    /// Writes the archive.
    ///
    /// # Errors
    /// A file that goes into it cannot be read; memory is short.
    pub fn of(archive: &Archive) -> Result<Self, GuestError> {
        let memory = rustix::fs::memfd_create("slowpath-guest", MemfdFlags::CLOEXEC)
            .map_err(GuestError::system("keep the guest's files in memory"))?;
        let mut out = BufWriter::with_capacity(1 << 20, File::from(memory));
        let length = archive.write(&mut out)?;
        let file = out.into_inner().map_err(|error| {
            GuestError::system("keep the guest's files in memory")(error.into_error())
        })?;
        Ok(Initramfs { file, length })
    }
}

/// What the emulated machine is made of.
#[derive(Debug)]
pub struct Parts<'a> {
    /// The emulator.
    pub qemu: &'a str,
    /// The kernel's image.
    pub kernel: &'a Path,
    /// Its files.
    pub initramfs: &'a Initramfs,
    /// MiB.
    pub memory: u32,
    /// More words for the kernel.
    pub append: &'a str,
}

/// A running QEMU.
#[derive(Debug)]
pub struct Machine {
    child: Child,
}

impl Machine {
    /// Starts it. Returns the lines for messages and for the console.
    ///
    /// # Errors
    /// The emulator is missing or does not start; the memory is too small.
    pub fn start(parts: &Parts<'_>) -> Result<(Self, UnixStream, UnixStream), GuestError> {
        let image = parts.initramfs.length.div_ceil(1 << 20);
        let wanted = 2 * image + KERNEL_MIB;
        if u64::from(parts.memory) < wanted {
            return Err(GuestError::Memory {
                memory: parts.memory,
                image,
                wanted,
            });
        }
        File::open(parts.kernel).map_err(GuestError::file("read", parts.kernel))?;
        let pair = || UnixStream::pair().map_err(GuestError::system("make a line to the guest"));
        let (talk, their_talk) = pair()?;
        let (console, their_console) = pair()?;
        let inherited = [
            parts.initramfs.file.as_raw_fd(),
            their_talk.as_raw_fd(),
            their_console.as_raw_fd(),
        ];
        let mut command = Command::new(parts.qemu);
        command
            .args(arguments(parts, inherited))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let parent = rustix::process::getpid();
        // SAFETY: between fork and exec only system calls are made (prctl, getppid, fcntl);
        // the descriptors are open until spawn has returned.
        unsafe {
            command.pre_exec(move || {
                set_parent_process_death_signal(Some(Signal::KILL))?;
                if rustix::process::getppid() != Some(parent) {
                    return Err(io::Error::from(io::ErrorKind::BrokenPipe));
                }
                inherited.into_iter().try_for_each(|fd| {
                    let fd = BorrowedFd::borrow_raw(fd);
                    fcntl_setfd(fd, FdFlags::empty()).map_err(io::Error::from)
                })
            });
        }
        let child = command.spawn().map_err(|source| {
            let program = parts.qemu.to_owned();
            match source.kind() {
                io::ErrorKind::NotFound => GuestError::QemuMissing { program },
                _ => GuestError::QemuStart { program, source },
            }
        })?;
        Ok((Machine { child }, talk, console))
    }

    /// Ends it. Returns what it complained of, if it ended by itself with an error. `closed`:
    /// it has closed its lines, and so is about to end if it has not.
    pub fn end(mut self, closed: bool) -> Option<String> {
        if closed {
            self.await_end();
        }
        let failed = match self.child.try_wait() {
            Ok(Some(status)) => !status.success(),
            _ => false,
        };
        let _ = self.child.kill();
        let _ = self.child.wait();
        let mut complaint = String::new();
        if let Some(errors) = self.child.stderr.take() {
            let _ = errors.take(COMPLAINT).read_to_string(&mut complaint);
        }
        let complaint = complaint.trim();
        (failed && !complaint.is_empty()).then(|| complaint.to_owned())
    }
}

impl Machine {
    /// Waits until it has ended, for a while. A process that cannot be waited for this way is
    /// asked without waiting.
    fn await_end(&self) {
        let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else {
            return;
        };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        let mut ended = [PollFd::new(&process, PollFlags::IN)];
        let _ = poll(&mut ended, Some(&ENDING));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn arguments(parts: &Parts<'_>, [archive, talk, console]: [RawFd; 3]) -> Vec<String> {
    // panic=-1: reboot at once, which -no-reboot turns into QEMU's end.
    let mut append = "console=ttyS0 loglevel=4 panic=-1 rdinit=/init".to_owned();
    if !parts.append.is_empty() {
        append.push(' ');
        append.push_str(parts.append);
    }
    let words = [
        "-accel",
        "tcg,thread=single",
        "-smp",
        "1",
        // With cmpxchg16b QEMU 7.2 leaves flags that the kernel crashes on in one boot of three;
        // without it in CPUID the kernel takes another way (docs/decisions/0013-guest.md).
        "-cpu",
        "max,-cx16",
        "-no-user-config",
        "-nodefaults",
        "-nic",
        "none",
        "-display",
        "none",
        "-no-reboot",
        "-device",
        "virtio-serial-pci",
    ];
    let mut arguments: Vec<String> = words.map(str::to_owned).into();
    let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    add("-m", parts.memory.to_string());
    add("-kernel", parts.kernel.to_string_lossy().into_owned());
    add("-initrd", format!("/proc/self/fd/{archive}"));
    add("-append", append);
    add("-chardev", format!("socket,id=console,fd={console}"));
    add("-serial", "chardev:console".to_owned());
    add("-chardev", format!("socket,id=talk,fd={talk}"));
    add(
        "-device",
        format!("virtserialport,chardev=talk,name={}", wire::PORT),
    );
    arguments
}
