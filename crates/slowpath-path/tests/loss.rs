// SPDX-License-Identifier: Apache-2.0
//! Loss signatures over emulated paths: what is found is what the line was made to do.

mod emulated;

use emulated::up;
use slowpath_path::report::Way;
use slowpath_path::serve::{Policy, ServeOptions, Serving};
use slowpath_path::session::TwoWayKind;
use slowpath_path::signature::{
    DirectionSignature, Estimate, LossOptions, LossProtocol, LossReport, Signature, measure_loss,
};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Two cycles over 100 Mbit/s on which the line there does `impairment`. `None`: not on this machine.
fn measured(name: &str, impairment: &str, protocol: LossProtocol) -> Option<LossReport> {
    let text = format!(
        "[topology]\nkind = \"custom\"\nhosts = [\"a\", \"b\"]\nswitches = [\"r\"]\n\
         links = {{ rate = \"100 Mbit/s\", delay = \"2 ms\" }}\n\
         link = [{{ ends = [\"a\", \"r\"] }}, {{ ends = [\"r\", \"b\"] }}]\n\
         [switch]\nbuffer = \"1000 packets\"\n[[line]]\non = \"r -> b\"\n{impairment}\n"
    );
    let lab = up(name, &text)?;
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let at = |port| SocketAddr::new(b.ipv4().into(), port);
    let serve = ServeOptions {
        owamp: vec![at(861)],
        stamp: vec![at(862)],
        policy: Policy {
            allow: vec!["10.0.0.0/8".parse().expect("a range")],
            ..Policy::default()
        },
        ..ServeOptions::default()
    };
    let serving = b.run(|| Serving::start(serve)).expect("a thread");
    let _serving = serving.expect("ports");
    let port = if protocol == LossProtocol::OneWay {
        861
    } else {
        862
    };
    let options = LossOptions {
        whole: Duration::from_secs(22),
        ..LossOptions::new(at(port), protocol, 1)
    };
    let outcome = a.run(|| measure_loss(&options, &AtomicBool::new(false)));
    let outcome = outcome.expect("a thread").expect("a measurement");
    Some(LossReport::of("b", &outcome))
}

fn of(report: &LossReport, way: Way) -> &DirectionSignature {
    let direction = report
        .directions
        .iter()
        .find(|direction| direction.way == way);
    direction.expect("it was measured")
}

#[test]
fn a_policer_on_one_way_is_found_there_with_its_rate() {
    let limit = "police = { rate = \"18 Mbit/s\", burst = \"40 kB\" }";
    let name = "a_policer_on_one_way_is_found_there_with_its_rate";
    let Some(report) = measured(name, limit, LossProtocol::OneWay) else {
        return;
    };
    let there = of(&report, Way::There);
    assert_eq!(there.signature, Signature::Policer, "{}", report.text());
    let Some(Estimate::Policer { rate_bps, .. }) = there.estimate else {
        panic!("{}", report.text());
    };
    assert!((rate_bps / 18e6 - 1.0).abs() < 0.1, "{}", report.text());
    let back = of(&report, Way::Back).signature;
    assert_eq!(back, Signature::NoLoss, "{}", report.text());
    let json = serde_json::to_value(&report).expect("JSON");
    let direction = &json["directions"][0];
    assert_eq!(
        (&direction["way"], &direction["signature"]),
        (&"there".into(), &"policer".into())
    );
    assert!(direction["estimate"]["burst_bytes"].is_number());
    assert_eq!(direction["cells"][0]["traffic"], "single");
    for key in ["p_value", "test", "loss_share", "loss_bound", "tests"] {
        assert!(!direction[key].is_null(), "{key}");
    }
}

#[test]
fn a_reflector_shows_a_period_of_the_round_trip() {
    let name = "a_reflector_shows_a_period_of_the_round_trip";
    let stamp = LossProtocol::Reflected(TwoWayKind::Stamp);
    let Some(report) = measured(name, "loss = { every = 40 }", stamp) else {
        return;
    };
    let round = of(&report, Way::RoundTrip);
    assert_eq!(round.signature, Signature::Periodic, "{}", report.text());
    let Some(Estimate::Packets { packets }) = round.estimate else {
        panic!("{}", report.text());
    };
    assert!((packets - 40.0).abs() < 1.0, "{}", report.text());
    assert_eq!(report.directions.len(), 1);
}
