// SPDX-License-Identifier: Apache-2.0
//! Verdicts on captures made by others: what their descriptions say is in them.

use slowpath_model::Problem;
use slowpath_trace::engine::{self, Began};
use slowpath_trace::read::{Input, Inputs};
use slowpath_trace::segment::Segment;
use slowpath_trace::tcp::{self, Side};
use slowpath_trace::verdict::{Judged, Options, Trial};
use std::ops::ControlFlow;
use std::path::PathBuf;

fn judge(name: &str) -> Option<Vec<Judged>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let path = folder.join(name);
    if !path.exists() {
        println!("SKIPPED {name}: shared/captures is not here");
        return None;
    }
    let inputs = Inputs::new(vec![Input::File(path)]).expect("opens");
    let begin =
        |s: &Segment<'_>, _: Began| Trial::new(s, &tcp::Options::default(), &Options::default());
    let mut judged = Vec::new();
    engine::run(
        inputs,
        &engine::Options::default(),
        begin,
        |finished| judged.push(finished.report),
        |_| ControlFlow::Continue(()),
    )
    .expect("reads");
    Some(judged)
}

fn dominating(name: &str) -> Option<Vec<Problem>> {
    let judged = judge(name)?;
    let sides = [Side::Client, Side::Server];
    let both = |j: &Judged| sides.map(|s| j.verdicts.sent_by(s).dominating);
    Some(judged.iter().flat_map(both).collect())
}

/// "Five RTO retransmissions at 0.206, 0.806, 2.006, 4.406, 9.211 s".
#[test]
fn retransmission_timeouts() {
    if let Some(found) = dominating("packets/tcp_retransmissions.pcapng") {
        assert!(found.contains(&Problem::Timeout), "{found:?}");
    }
}

/// "Three duplicate ACKs, then one fast retransmission".
#[test]
fn a_fast_retransmission() {
    if let Some(found) = dominating("packets/tcp_dupack.pcapng") {
        assert!(found.contains(&Problem::FastRetransmit), "{found:?}");
    }
}

#[test]
fn every_line_is_as_long_as_its_connection() {
    for name in [
        "tcptrace/discard.solaris.dmp.gz",
        "tcptrace/fast_reuse.dmp.gz",
        "tcptrace/first_seg_ooo.dmp.gz",
        "tcptrace/hardware_dups.dmp.gz",
        "tcptrace/http.dmp.gz",
        "tcptrace/psc.fddi.dmp.gz",
        "packets/http_espn.pcapng",
        "packets/tcp_ports.pcapng",
    ] {
        for judged in judge(name).unwrap_or_default() {
            for side in [Side::Client, Side::Server] {
                let verdict = judged.verdicts.sent_by(side);
                let total = verdict.line.shares().total();
                assert_eq!(total, judged.report.duration(), "{name}");
                let bytes = judged.report.sent_by(side).data.unique_bytes;
                assert!(verdict.messages.bytes <= bytes, "{name}");
            }
        }
    }
}
