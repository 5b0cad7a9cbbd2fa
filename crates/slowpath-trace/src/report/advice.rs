// SPDX-License-Identifier: Apache-2.0
//! What to do about a finding, and who should: the live classifier's advice where it has the
//! problem, and advice on what only packets show.

use super::RankedConnection;
use super::phrases::total;
use super::selector::end;
use crate::segment::Endpoint;
use crate::tcp::{ConnectionReport, Side};
use crate::verdict::{TraceFinding, TraceProblem};
use slowpath_diagnose::{Actor, Advice, AdviceContext};
use slowpath_model::{
    ConnectionId, Finding, FourTuple, IntervalVerdict, Micros, MonoNanos, Problem, Share,
};
use slowpath_text::{bytes, plural};
use std::net::SocketAddr;

fn socket(end: Endpoint) -> SocketAddr {
    SocketAddr::new(end.address, end.port)
}

/// Who has to act, by name, and what to do.
pub fn advise(ranked: &RankedConnection, found: &TraceFinding) -> Option<(String, Advice)> {
    let report = ranked.report();
    let icmp = ranked.finished.report.verdicts.unreachable.is_some();
    match found.problem {
        TraceProblem::Unanswered if icmp => Some(unreachable(report)),
        TraceProblem::Unanswered => Some(unanswered(report)),
        TraceProblem::Refused => Some(refused(report, icmp)),
        TraceProblem::Reset => Some(reset(report, found)),
        TraceProblem::SynRetransmit => Some(syn_retransmit(report, found)),
        TraceProblem::SlowHandshake => Some(slow_handshake(report)),
        TraceProblem::ZeroWindow => Some(zero_window(report, found)),
        TraceProblem::TailLossProbe => of_live(ranked, found, Problem::FastRetransmit),
        problem => of_live(ranked, found, problem.live()?),
    }
}

fn network(report: &ConnectionReport) -> String {
    format!(
        "the operator of the network from {} to {}",
        report.client.address, report.server.address
    )
}

fn unanswered(report: &ConnectionReport) -> (String, Advice) {
    let advice = Advice {
        who: Actor::NetworkOperator,
        what: format!(
            "Nothing came back to the SYN, not even a refusal: a firewall drops it, the host {} is \
             down or has another address, or the way there or back is broken. Look for the SYN on the \
             server (tcpdump there): if it arrives, the server or its firewall drops it; if not, the \
             network does.",
            report.server.address
        ),
        source: "RFC 9293 section 3.10.7.3; RFC 6298 section 2.1",
    };
    (network(report), advice)
}

fn unreachable(report: &ConnectionReport) -> (String, Advice) {
    let advice = Advice {
        who: Actor::NetworkOperator,
        what: format!(
            "ICMP reported {} as unreachable: the router or firewall that sent it has no route, gets no \
             answer from the host (down, or another address), or forbids the connection. Its address \
             and the message's code say where and which.",
            report.server.address
        ),
        source: "RFC 792; RFC 1812 section 5.2.7.1; RFC 4443 section 3.1",
    };
    (network(report), advice)
}

fn refused(report: &ConnectionReport, icmp: bool) -> (String, Advice) {
    let server = end(report.server);
    let with = if icmp {
        "ICMP, port unreachable"
    } else {
        "a RST"
    };
    let advice = Advice {
        who: Actor::HostOperator,
        what: format!(
            "The SYN was answered with {with}: no process listens on {server}, or a firewall \
             rejects it. Start the service, correct its address or port, or open the firewall."
        ),
        source: "RFC 9293 section 3.10.7.1",
    };
    (format!("the operator of {server}"), advice)
}

fn reset(report: &ConnectionReport, found: &TraceFinding) -> (String, Advice) {
    let side = found.from.unwrap_or(Side::Server);
    let resetter = report.endpoint(side);
    let lost = |side| {
        let bytes_lost = report.sent_by(side).data.undelivered();
        (bytes_lost > 0).then(|| format!("{} of {}", bytes(bytes_lost), end(report.endpoint(side))))
    };
    let lost: Vec<String> = [Side::Client, Side::Server]
        .into_iter()
        .filter_map(lost)
        .collect();
    let lost = match lost.is_empty() {
        true => "nothing was under way".to_owned(),
        false => format!("{} were not delivered", lost.join(" and ")),
    };
    let unknown = report.from_client.control.syns + report.from_server.control.syns == 0
        && report.sent_by(side).data.packets == 0;
    let why = if unknown {
        "it does not know this connection: it has restarted, or something between (a NAT, a load \
         balancer, a firewall) has forgotten it after a pause; send keep-alives more often than that \
         forgets"
    } else {
        "its application closed the socket with data unread or was ended, or a firewall or load balancer \
         resets in its name: compare the TTL of the RST with that of its other packets, and look at \
         the application's log of that time"
    };
    let advice = Advice {
        who: match side {
            Side::Client => Actor::SenderDeveloper,
            Side::Server => Actor::AcceptingDeveloper,
        },
        what: format!(
            "{} reset the connection; {lost}. Either {why}.",
            end(resetter)
        )
        .replace(". Either it does", ". It does"),
        source: "RFC 9293 sections 3.5.2 and 3.6.1",
    };
    (format!("who runs {}", end(resetter)), advice)
}

fn syn_retransmit(report: &ConnectionReport, found: &TraceFinding) -> (String, Advice) {
    let (what, by) = match found.from {
        Some(Side::Server) => ("SYN-ACK", report.server),
        _ => ("SYN", report.client),
    };
    let again = found
        .events
        .map_or(String::new(), |n| format!(" {}", plural(n, "time")));
    let waited = found.time.map(Micros::from);
    let waited = waited.map_or(String::new(), |t| format!(", which cost {t}"));
    let advice = Advice {
        who: Actor::NetworkOperator,
        what: format!(
            "{} sent its {what} again{again}{waited}: the first wait is a whole second. The {what} or \
             its answer was lost; look for drops on the way, and whether the listener's queues \
             overflow (nstat TcpExtListenOverflows, TcpExtListenDrops).",
            end(by)
        ),
        source: "RFC 6298 section 2.1; Linux tcp_v4_conn_request",
    };
    (network(report), advice)
}

fn slow_handshake(report: &ConnectionReport) -> (String, Advice) {
    let advice = Advice {
        who: Actor::NetworkOperator,
        what:
            "The handshake took seconds although nothing was sent again: look at which half of it \
               waited. A proxy or firewall that holds the SYN until it has asked elsewhere, a host \
               that was suspended, or a path that was just being set up (a dial-up link, VPN)."
                .to_owned(),
        source: "RFC 1122 section 4.2.3.1; RFC 9293 section 3.5",
    };
    (network(report), advice)
}

fn zero_window(report: &ConnectionReport, found: &TraceFinding) -> (String, Advice) {
    let side = found.from.unwrap_or(Side::Client);
    let receiver = report.endpoint(side.peer());
    let closed = report.sent_by(side.peer()).window.closed;
    let advice = Advice {
        who: Actor::ReceiverSide,
        what: format!(
            "{} closed its window {}: its process did not read at all for that long. Look at what it \
             waits for (CPU, disk, locks, another connection); a larger receive buffer only helps if \
             the pauses are short.",
            end(receiver),
            plural(closed.max(1), "time")
        ),
        source: "RFC 9293 section 3.8.6.1; SNAP sections 5.3 and 6.3",
    };
    (format!("the receiver, {}", end(receiver)), advice)
}

/// The live classifier's advice on a problem of a direction.
fn of_live(
    ranked: &RankedConnection,
    found: &TraceFinding,
    problem: Problem,
) -> Option<(String, Advice)> {
    let report = ranked.report();
    let side = found.from?;
    let verdict = ranked.verdict(side);
    let finding = verdict.finding(problem).copied().unwrap_or(Finding {
        problem,
        share: Share::Measured(found.time.map(Micros::from).unwrap_or(Micros::ZERO)),
        events: found.events,
    });
    let length = u64::try_from(total(verdict).as_nanos()).unwrap_or(u64::MAX);
    let interval = IntervalVerdict {
        connection: ConnectionId {
            boot_id: 0,
            netns: 0,
            cookie: ranked.number,
            start: MonoNanos(0),
        },
        from: MonoNanos(0),
        to: MonoNanos(length),
        dominating: verdict.dominating,
        findings: verdict.findings.clone(),
        unmeasured: verdict.unmeasured,
        deltas: verdict.deltas,
    };
    let context = AdviceContext {
        min_rtt: verdict.deltas.baseline_rtt,
        ..AdviceContext::default()
    };
    let advice = slowpath_diagnose::advise(&finding, &interval, &context);
    let ends = [side, side.peer()].map(|s| socket(report.endpoint(s)));
    let who = match advice.who {
        Actor::HostOperator => format!("the operator of {}", ends[0].ip()),
        who => slowpath_text::who(who, None, Some(FourTuple::new(ends[0], ends[1]))),
    };
    Some((who, advice))
}
