// SPDX-License-Identifier: Apache-2.0
//! What to do about a listener that turns connections away.

use crate::{Actor, Advice};
use slowpath_model::{ListenerDeltas, Problem};

const ACCEPT_SOURCE: &str = "listen(2); tcp(7) on tcp_abort_on_overflow; sk_acceptq_is_full";
const SYN_SOURCE: &str =
    "RFC 4987 sections 3.2 and 3.6; tcp(7) on tcp_syncookies; tcp_conn_request";

/// Says what to do about a finding on a listener, and who should; `None` for problems that
/// no listener has.
pub fn advise_listener(problem: Problem, deltas: &ListenerDeltas) -> Option<Advice> {
    match problem {
        Problem::AcceptQueueOverflow => Some(accept_queue(deltas)),
        Problem::SynQueueOverflow => Some(syn_queue(deltas)),
        _ => None,
    }
}

fn accept_queue(d: &ListenerDeltas) -> Advice {
    let limited = d.settings.somaxconn.filter(|max| d.backlog >= *max);
    let stayed = d.accept_queue_before > d.backlog && d.accept_queue > d.backlog;
    let mut what = if stayed {
        format!(
            "The accept queue ({} connections) was full at the beginning and at the end: the \
             application accepts more slowly than connections come. Accept in a loop of its own, \
             or in more threads or processes (SO_REUSEPORT gives each a queue); a longer queue \
             only delays this.",
            d.accept_queue
        )
    } else {
        let raise = match limited {
            Some(max) => format!(
                "raise net.core.somaxconn, which is {max} and bounds it, and the number given to \
                 listen(2)"
            ),
            None => "give a larger number to listen(2)".to_owned(),
        };
        format!(
            "{} connections waited for accept at the end of the interval, and the queue holds {}: \
             a burst was longer than the backlog ({}). To take such bursts, {raise}; and look for \
             pauses of the application between its calls of accept.",
            d.accept_queue,
            u64::from(d.backlog) + 1,
            d.backlog
        )
    };
    what += match d.settings.abort_on_overflow {
        Some(true) => " Clients see a reset (net.ipv4.tcp_abort_on_overflow).",
        _ => " Clients wait a second or more before they try again.",
    };
    Advice {
        who: if !stayed && limited.is_some() {
            Actor::HostOperator
        } else {
            Actor::AcceptingDeveloper
        },
        what,
        source: ACCEPT_SOURCE,
    }
}

fn syn_queue(d: &ListenerDeltas) -> Advice {
    let mut what = match d.syn_queue {
        Some(queue) => format!(
            "{queue} handshakes are half-open and the SYN queue holds {}",
            d.backlog
        ),
        None => format!("The SYN queue holds {}", d.backlog),
    };
    what += " (the backlog given to listen(2), at most net.core.somaxconn). ";
    // Most SYN/ACKs were repeated: their clients do not answer.
    let unanswered = d
        .syn_queue
        .zip(d.young)
        .is_some_and(|(queue, young)| queue > 0 && u64::from(young) * 2 < u64::from(queue));
    if unanswered {
        what += "Most of their SYN/ACKs went unanswered and were sent again: a SYN flood from \
                 forged addresses, or the way back to the clients loses packets. ";
    }
    let cookies = d.settings.syncookies;
    let fits = d
        .settings
        .max_syn_backlog
        .filter(|max| cookies == Some(0) && d.backlog > *max / 4 * 3);
    what += &match cookies {
        Some(0) => "SYNs were dropped: set net.ipv4.tcp_syncookies to 1, so that they are \
                    answered without taking room"
            .to_owned(),
        _ => "They were answered by SYN cookies, whose connections go without window scaling and \
              SACK unless the client sends timestamps"
            .to_owned(),
    };
    if let Some(max) = fits {
        what += &format!(
            ", or raise net.ipv4.tcp_max_syn_backlog ({max}), of which three quarters are for \
             clients not met before"
        );
    }
    what += if unanswered {
        "."
    } else {
        ". If these clients are wanted, raise the backlog and net.core.somaxconn."
    };
    Advice {
        who: if unanswered {
            Actor::NetworkOperator
        } else {
            Actor::HostOperator
        },
        what,
        source: SYN_SOURCE,
    }
}
