// SPDX-License-Identifier: Apache-2.0
//! Networks to command: the real-time emulator, Linux in virtual time, a guest kernel.
//!
//! What enters: scenarios as [`slowpath_netsim::scenario`] reads them, and programs to run.
//! What leaves: networks of namespaces in real time ([`emulator`]); the results of Linux's own
//! TCP in virtual time, its recordings, and replays of recordings ([`virtual_time`]); the output of commands under another kernel
//! ([`guest`]).
//!
//! What is promised: one network model ([`slowpath_switch::fabric`]) and one scenario format
//! for all; what one of them cannot do is an error; what they leave behind is what they
//! were asked for. None of them models TCP.

pub mod emulator;
pub mod guest;
pub mod virtual_time;
