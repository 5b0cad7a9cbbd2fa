// SPDX-License-Identifier: Apache-2.0
//! Everything that wakes a live view, in one channel.

use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Something happened beside the passing of time.
#[derive(Debug)]
pub enum Event {
    /// A signal asks to stop.
    Stop,
    /// A key was pressed.
    Key(crossterm::event::KeyEvent),
    /// The terminal has another size.
    Resized,
    /// The watched command has ended.
    CommandEnded(ExitStatus),
    /// The watched command wrote a line.
    CommandOutput(String),
}

/// A channel on which SIGINT, SIGTERM and SIGHUP arrive as [`Event::Stop`].
///
/// # Errors
/// When the signals cannot be taken over.
pub fn with_signals() -> std::io::Result<(Sender<Event>, Receiver<Event>)> {
    let (sender, receiver) = channel();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let on_signal = sender.clone();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for _ in signals.forever() {
                if on_signal.send(Event::Stop).is_err() {
                    break;
                }
            }
        })?;
    Ok((sender, receiver))
}

/// Sends keys and size changes of the terminal on the channel until it is closed.
///
/// # Errors
/// When no thread can be had.
pub fn read_keys(sender: Sender<Event>) -> std::io::Result<()> {
    use crossterm::event::{Event as Terminal, KeyEventKind, read};
    thread::Builder::new()
        .name("keys".to_owned())
        .spawn(move || {
            while let Ok(event) = read() {
                let event = match event {
                    Terminal::Key(key) if key.kind != KeyEventKind::Release => Event::Key(key),
                    Terminal::Resize(..) => Event::Resized,
                    _ => continue,
                };
                if sender.send(event).is_err() {
                    break;
                }
            }
        })?;
    Ok(())
}
