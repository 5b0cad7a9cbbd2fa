// SPDX-License-Identifier: Apache-2.0
//! Advice on the problems past SNAP's six.

use super::{Actor, Advice, AdviceContext, average_write, bytes, times};
use slowpath_model::{Deltas, Finding, IntervalVerdict, Micros, Problem, Share};

pub(super) fn advise(
    finding: &Finding,
    verdict: &IntervalVerdict,
    context: &AdviceContext,
) -> Advice {
    let deltas = &verdict.deltas;
    match finding.problem {
        Problem::SmallWrites => small_writes(finding, verdict),
        Problem::IdleBurst => idle_burst(finding, deltas),
        Problem::ZeroWindow => zero_window(finding, deltas),
        Problem::Reordering => reordering(finding, verdict),
        Problem::EcnMarked => ecn_marked(finding, deltas),
        Problem::ReceiverAppSlow => receiver_app(deltas),
        Problem::SynRetransmit => syn_retransmit(finding),
        _ => congestion_window(verdict, context),
    }
}

fn congestion_window(verdict: &IntervalVerdict, context: &AdviceContext) -> Advice {
    let deltas = &verdict.deltas;
    let window = u64::from(deltas.cwnd) * u64::from(deltas.send_mss);
    let mut what = format!(
        "Data waited for the congestion window ({}), pacing or the device, while the receiver \
         had room and nothing was being repaired: the network's own speed, or a window that \
         grows too slowly. ",
        bytes(window)
    );
    let path = deltas.baseline_rtt.or(context.min_rtt);
    let queued = path
        .zip(deltas.srtt)
        .filter(|(path, now)| now.0 / 2 >= path.0.max(1));
    let who = if let Some((path, now)) = queued {
        what += &format!(
            "The RTT is {now}, {} of it queueing: the path is full. More needs a faster link, or \
             fewer who share it",
            Micros(now.0 - path.0)
        );
        Actor::NetworkOperator
    } else {
        if let Some(rtt) = path.filter(|r| *r > Micros::ZERO) {
            let rate = u128::from(window) * 1_000_000 / u128::from(rtt.0);
            what += &format!(
                "At an RTT of {rtt} without queues that window carries {}/s: ",
                bytes(u64::try_from(rate).unwrap_or(u64::MAX))
            );
        }
        what += "compare with what the path has. If it has more, a window that began small or \
                 was reduced has not grown yet: keep connections open and in use, send less in \
                 pieces with pauses (net.ipv4.tcp_slow_start_after_idle), or choose another \
                 congestion control";
        Actor::HostOperator
    };
    what.push('.');
    Advice {
        who,
        what,
        source: "RFC 5681 section 3.1; RFC 4898 SndLimTimeCwnd; SNAP section 3 (CwinLimitTime)",
    }
}

fn small_writes(finding: &Finding, verdict: &IntervalVerdict) -> Advice {
    let deltas = &verdict.deltas;
    let average = average_write(deltas).map_or_else(String::new, |write| {
        format!(
            " ({} on average, a segment holds {})",
            bytes(write),
            bytes(deltas.send_mss.into())
        )
    });
    let spared = finding.events.unwrap_or(0);
    let cost = crate::rules::small_writes::cost(spared);
    let held = match finding.share {
        Share::Measured(time) => time.saturating_sub(cost),
        Share::Coarse => Micros::ZERO,
    };
    let what = if held > cost {
        format!(
            "Small writes{average} were held back for {held}: Nagle's algorithm lets less than a \
             segment wait until the small one before it is acknowledged (or TCP_CORK until more \
             comes). Write each message with one call (writev, or a buffer that is flushed at \
             its end); where a message must go out at once, set TCP_NODELAY as well."
        )
    } else {
        format!(
            "{spared} writes could have been spared{average}: each costs a system call and, with \
             TCP_NODELAY, a segment of its own at both ends. Collect what belongs to one message in a \
             buffer and write it with one call (writev, MSG_MORE), or leave TCP_NODELAY off."
        )
    };
    Advice {
        who: Actor::SenderDeveloper,
        what,
        source: "RFC 9293 section 3.7.4; tcp(7) on TCP_NODELAY and TCP_CORK; SNAP section 6.2",
    }
}

fn idle_burst(finding: &Finding, deltas: &Deltas) -> Advice {
    Advice {
        who: Actor::HostOperator,
        what: format!(
            "After an idle time the whole window ({} segments now) was sent at once, and segments \
             of that burst were lost {}. Keep net.ipv4.tcp_slow_start_after_idle=1 (BBR does not \
             heed it), pace the sender (fq with SO_MAX_PACING_RATE), or let the application \
             write large messages in pieces; at the network, a queue that holds such a burst.",
            deltas.cwnd,
            times(finding.events.unwrap_or(1).max(1))
        ),
        source: "SNAP sections 5.2 and 6.1; RFC 5681 section 4.1; RFC 7661",
    }
}

fn zero_window(finding: &Finding, deltas: &Deltas) -> Advice {
    let how_often = match finding.events {
        Some(n) if n > 0 => format!(" {}", times(n)),
        _ => String::new(),
    };
    Advice {
        who: Actor::ReceiverSide,
        what: format!(
            "The receiver closed its window{how_often} while {} waited here: its process does not \
             read at all for a while. Look at what it waits for (CPU, disk, locks, another \
             connection); a larger receive buffer only helps if the pauses are short.",
            bytes(deltas.send_queue.into())
        ),
        source: "RFC 9293 section 3.8.6.1; SNAP sections 5.3 and 6.3",
    }
}

fn reordering(finding: &Finding, verdict: &IntervalVerdict) -> Advice {
    let mut what = match finding.events {
        Some(n) => format!("Segments overtook each other {}", times(n)),
        None => "Segments overtook each other".to_owned(),
    };
    if verdict.finding(Problem::FastRetransmit).is_some() {
        what += ", and what was late was taken for lost: retransmissions here need not mean that \
                 the path loses anything";
    }
    what += ". Look for packets of one connection on several links (bonding in round-robin mode, \
             per-packet load balancing, several queues of one interface), or for a link that \
             retransmits by itself. net.ipv4.tcp_reordering raises what Linux expects at first.";
    Advice {
        who: Actor::NetworkOperator,
        what,
        source: "RFC 4737; RFC 8985 section 6; ip-sysctl on tcp_reordering",
    }
}

fn ecn_marked(finding: &Finding, deltas: &Deltas) -> Advice {
    let mut what = match finding.events {
        Some(1) => "1 segment was".to_owned(),
        Some(n) => format!("{n} segments were"),
        None => "Segments were".to_owned(),
    };
    what += " marked by a queue on the path (ECN)";
    if let (Some(n), Some(sent)) = (finding.events, deltas.bytes_sent.filter(|s| *s > 0)) {
        let all = sent.div_ceil(deltas.send_mss.max(1).into()).max(n);
        what += &format!(
            ", about {:.2} % of those sent",
            100.0 * n as f64 / all as f64
        );
    }
    what += ", and the window was reduced for it. Marks instead of losses are as they should be; \
             that there is congestion is the finding: look which link the marked connections \
             share, and whether its marking threshold fits its speed.";
    Advice {
        who: Actor::NetworkOperator,
        what,
        source: "RFC 3168 section 6.1; RFC 8257",
    }
}

fn receiver_app(deltas: &Deltas) -> Advice {
    let mut what = format!(
        "This host received data faster than its process read it: {} are unread, and little \
         room is left for more",
        bytes(deltas.receive_queue.into())
    );
    if let Some((read, calls)) = deltas.bytes_read.zip(deltas.reads.filter(|n| *n > 0)) {
        what += &format!(
            "; it read {} in {}, {} at a time",
            bytes(read),
            match calls {
                1 => "1 call".to_owned(),
                n => format!("{n} calls"),
            },
            bytes(read / calls)
        );
    }
    what += ". Look at what the process does between its reads (CPU, disk, locks, a connection it \
             writes to in turn); read more at a time.";
    Advice {
        who: Actor::ReceiverSide,
        what,
        source: "SNAP section 6.3; RFC 9293 section 3.8.6",
    }
}

fn syn_retransmit(finding: &Finding) -> Advice {
    let n = finding.events.unwrap_or(0);
    let again = match n {
        0 => "The SYN is still not answered".to_owned(),
        n => format!(
            "The opening segment (SYN or SYN-ACK) was sent again {}",
            times(n)
        ),
    };
    let waited = match finding.share {
        Share::Measured(time) if time > Micros::ZERO => {
            format!(", and the connection waited for it for {time} of this interval")
        }
        _ => String::new(),
    };
    let what = format!(
        "{again}{waited}: the first wait is a whole second. Look whether the listener overflows \
         (nstat TcpExtListenOverflows, TcpExtListenDrops at the accepting host), whether a \
         firewall drops SYNs, or the path loses them; keep connections open instead of opening \
         new ones."
    );
    Advice {
        who: Actor::NetworkOperator,
        what,
        source: "RFC 6298 section 2; RFC 9293 section 3.10.7.3",
    }
}
