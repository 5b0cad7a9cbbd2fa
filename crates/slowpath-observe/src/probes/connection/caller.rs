// SPDX-License-Identifier: Apache-2.0
//! The mirror of who opened and closed a connection, and its typed form.

use super::layouts;
use layouts::caller_flag::{CALLER_HANDED_ON, CALLER_KERNEL};
use layouts::origin::ORIGIN_OPENED;
use slowpath_layout::mirror;
use slowpath_model::{Claim, Closer, Holder};

mirror! {
    /// `struct caller`.
    pub(crate) struct Caller = layouts::CALLER {
        start_ns: u64,
        cgroup: u64,
        socket_cgroup: u64,
        listener: u64,
        closer_start_ns: u64,
        pid: u32,
        program: u32,
        flags: u32,
        closer_pid: u32,
        command: [u8; 16],
    }
}

impl Caller {
    pub(super) fn claim(&self, origin: u32) -> Option<Claim> {
        let holder = Holder {
            pid: self.pid,
            start_ns: self.start_ns,
            program: self.program,
            cgroup: self.cgroup,
            command: self.command,
        };
        let some = |id: u64| (id != 0).then_some(id);
        let socket_cgroup = some(self.socket_cgroup);
        let closer = (self.closer_pid != 0).then_some(Closer {
            pid: self.closer_pid,
            start_ns: self.closer_start_ns,
        });
        if self.flags & CALLER_KERNEL != 0 {
            Some(Claim::Kernel)
        } else if self.pid == 0 && origin == ORIGIN_OPENED {
            None
        } else if self.pid == 0 {
            Some(Claim::UnknownOpener {
                listener: some(self.listener),
                socket_cgroup,
                closer,
            })
        } else {
            match closer.filter(|_| self.flags & CALLER_HANDED_ON != 0) {
                Some(closer) => Some(Claim::HandedOn {
                    opener: holder,
                    closer,
                }),
                None => Some(Claim::Opener(holder)),
            }
        }
    }
}
