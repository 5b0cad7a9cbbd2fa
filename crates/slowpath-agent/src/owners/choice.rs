// SPDX-License-Identifier: Apache-2.0
//! Which holder of a socket is its owner. Pure; the reasons are in `docs/reference/owners.md`.
//!
//! 1. A service manager holds sockets for others: it counts only if no other process holds the
//!    socket, or if it opened the connection itself.
//! 2. The only holder left is the owner.
//! 3. Of several, the one that opened the connection is.
//! 4. Otherwise none is: no descriptor says which of them uses it.

use slowpath_model::Holder;

/// One process that has a descriptor of the socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub holder: Holder,
    pub manages_services: bool,
}

/// Whether both are one process, whatever program it runs.
pub(crate) fn is_same_process(a: &Holder, b: &Holder) -> bool {
    a.pid == b.pid && a.start_ns == b.start_ns
}

/// The owner among the holders of a socket that `opener` opened, if that was observed. `None` if
/// there is more than one that it might be.
pub(crate) fn owner<'a>(
    candidates: &'a [Candidate],
    opener: Option<&Holder>,
) -> Option<&'a Candidate> {
    let opened = |c: &Candidate| opener.is_some_and(|o| is_same_process(o, &c.holder));
    let others = candidates.iter().any(|c| !c.manages_services);
    let counts = |c: &&Candidate| !others || !c.manages_services || opened(c);
    let mut left = candidates.iter().filter(counts);
    match (left.next(), left.next()) {
        (only, None) => only,
        _ => candidates.iter().filter(counts).find(|c| opened(c)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, start_ns: u64) -> Candidate {
        Candidate {
            holder: Holder {
                pid,
                start_ns,
                program: 0,
                cgroup: 0,
                command: [0; 16],
            },
            manages_services: false,
        }
    }

    fn manager(pid: u32) -> Candidate {
        Candidate {
            manages_services: true,
            ..process(pid, 1)
        }
    }

    fn chosen(candidates: &[Candidate], opener: Option<Candidate>) -> Option<u32> {
        owner(candidates, opener.map(|c| c.holder).as_ref()).map(|c| c.holder.pid)
    }

    #[test]
    fn the_only_holder_is_the_owner_whoever_opened() {
        let [a, b] = [process(1, 1), process(2, 1)];
        assert_eq!(chosen(&[a], None), Some(1));
        assert_eq!(chosen(&[b], Some(a)), Some(2), "passed on");
        assert_eq!(chosen(&[], Some(a)), None);
    }

    #[test]
    fn of_several_the_opener_is_the_owner() {
        let [a, b] = [process(1, 1), process(2, 1)];
        assert_eq!(chosen(&[b, a], Some(a)), Some(1));
        assert_eq!(chosen(&[b, a], None), None);
        let reused = process(1, 9);
        assert_eq!(
            chosen(&[b, reused], Some(a)),
            None,
            "the same pid, another process"
        );
    }

    #[test]
    fn a_service_manager_holds_for_others() {
        let service = process(2, 1);
        assert_eq!(chosen(&[manager(1), service], None), Some(2));
        assert_eq!(chosen(&[manager(1)], None), Some(1));
        assert_eq!(chosen(&[manager(1), manager(3)], None), None);
        assert_eq!(chosen(&[manager(1), service, process(3, 1)], None), None);
        assert_eq!(chosen(&[manager(1), service], Some(manager(1))), Some(1));
    }
}
