// SPDX-License-Identifier: Apache-2.0
//! The key `aqm`: how queues are managed.

use super::error::{Problem, ScenarioError};
use super::section::{Section, Value};
use super::units::fraction;
use slowpath_switch::aqm::{Aqm, CoDel, Pie, Red};

/// The kinds.
const KINDS: [(&str, Kind); 3] = [
    ("codel", Kind::CoDel),
    ("pie", Kind::Pie),
    ("red", Kind::Red),
];

#[derive(Clone, Copy)]
enum Kind {
    CoDel,
    Pie,
    Red,
}

/// `"codel"`, `"pie"`, or a table with `kind` and more.
pub(super) fn read(value: &Value<'_>) -> Result<Aqm, ScenarioError> {
    if !value.is_table() {
        return match value.choice(&KINDS)? {
            Kind::CoDel => Ok(Aqm::CoDel(CoDel::default())),
            Kind::Pie => Ok(Aqm::Pie(Pie::default())),
            Kind::Red => Err(value.error(Problem::RedThresholds)),
        };
    }
    let section = value.section()?;
    let aqm = match section.need("kind")?.choice(&KINDS)? {
        Kind::CoDel => Aqm::CoDel(codel(&section)?),
        Kind::Pie => Aqm::Pie(pie(&section)?),
        Kind::Red => Aqm::Red(red(&section)?),
    };
    section.finish()?;
    Ok(aqm)
}

fn codel(section: &Section<'_>) -> Result<CoDel, ScenarioError> {
    let mut codel = CoDel::default();
    for (key, field) in [
        ("target", &mut codel.target),
        ("interval", &mut codel.interval),
    ] {
        if let Some(value) = section.get(key) {
            *field = value.positive_span()?;
        }
    }
    flag(section, "ecn", &mut codel.ecn)?;
    Ok(codel)
}

fn pie(section: &Section<'_>) -> Result<Pie, ScenarioError> {
    let mut pie = Pie::default();
    for (key, field) in [("target", &mut pie.target), ("update", &mut pie.update)] {
        if let Some(value) = section.get(key) {
            *field = value.positive_span()?;
        }
    }
    if let Some(value) = section.get("burst") {
        pie.burst = value.span()?;
    }
    flag(section, "ecn", &mut pie.ecn)?;
    Ok(pie)
}

fn red(section: &Section<'_>) -> Result<Red, ScenarioError> {
    let (min, max) = match (section.get("min"), section.get("max")) {
        (Some(min), Some(max)) => (min, max),
        _ => return Err(section.error(Problem::RedThresholds)),
    };
    let mut red = Red::new(min.threshold(0)?, max.threshold(1)?);
    if let Some(value) = section.get("probability") {
        // Above 0 and at most 1.
        red.probability = ((value.share()? * 2f64.powi(32)).round() as u64).max(1);
    }
    if let Some(value) = section.get("weight") {
        red.weight = weight(&value)?;
    }
    if let Some(value) = section.get("mean-packet") {
        // At most 65,535.
        red.mean_packet = value.size(1..=65_535)? as u32;
    }
    flag(section, "gentle", &mut red.gentle)?;
    flag(section, "ecn", &mut red.ecn)?;
    Ok(red)
}

fn flag(section: &Section<'_>, key: &'static str, flag: &mut bool) -> Result<(), ScenarioError> {
    if let Some(value) = section.get(key) {
        *flag = value.boolean()?;
    }
    Ok(())
}

/// A power of a half, as its exponent.
fn weight(value: &Value<'_>) -> Result<u32, ScenarioError> {
    let text = value.string()?;
    let parts = fraction(text).filter(|(above, below)| *above == 1 && below.is_power_of_two());
    let exponent = parts.map(|(_, below)| below.trailing_zeros());
    exponent
        .filter(|exponent| (1..=16).contains(exponent))
        .ok_or_else(|| value.error(Problem::Weight(text.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::SwitchId;
    use crate::scenario::{Scenario, Substrate};
    use slowpath_switch::{PortId, Span, Threshold};

    const BASE: &str = "seed = 1\nduration = \"1 s\"\n[topology]\nkind = \"dumbbell\"\nleft = 1\nright = 1\n\
        [topology.links]\nrate = \"1 Gbit/s\"\ndelay = \"10 us\"\n[topology.fabric-links]\nLINK\n[switch]\n\
        buffer = \"100 packets\"\nSWITCH\n[[workload]]\nkind = \"bulk\"\nfrom = [\"left-*\"]\nto = [\"right-*\"]\n";

    fn scenario(link: &str, switch: &str, substrate: Substrate) -> Result<Scenario, String> {
        let text = BASE.replace("LINK", link).replace("SWITCH", switch);
        let none = |_: &str| unreachable!("it names no file");
        Scenario::parse_for(&text, &none, substrate).map_err(|error| error.to_string())
    }

    /// The ports of both switches: to the host, and to the other switch.
    fn managed(link: &str, switch: &str) -> Vec<(u32, u16, Aqm)> {
        let network = scenario(link, switch, Substrate::Simulator)
            .unwrap()
            .network();
        let plain = |(SwitchId(switch), PortId(port), aqm): &(SwitchId, PortId, Aqm)| {
            (*switch, *port, *aqm)
        };
        network.managed.iter().map(plain).collect()
    }

    #[test]
    fn every_kind_and_key_is_read() {
        let codel = Aqm::CoDel(CoDel::default());
        assert_eq!(managed("", "").len(), 0);
        assert_eq!(
            managed("", "aqm = \"codel\"")
                .iter()
                .filter(|it| it.2 == codel)
                .count(),
            4
        );
        let fabric = managed("aqm = \"pie\"", "");
        assert_eq!(
            fabric.iter().map(|it| it.2).collect::<Vec<_>>(),
            [Aqm::Pie(Pie::default()); 2]
        );
        // A link's own key holds instead.
        let own = managed("marking = \"3 packets\"", "aqm = \"codel\"");
        assert_eq!(own.len(), 2);
        let all = "aqm = { kind = \"red\", min = \"30 kB\", max = \"90 kB\", probability = 0.5, \
            weight = \"1/4\", mean-packet = \"500 B\", gentle = false, ecn = false }";
        let red = Red {
            min: Threshold::Bytes(30_000),
            max: Threshold::Bytes(90_000),
            probability: 1 << 31,
            weight: 2,
            mean_packet: 500,
            gentle: false,
            ecn: false,
        };
        assert_eq!(managed("", all)[0].2, Aqm::Red(red));
        let all =
            "aqm = { kind = \"codel\", target = \"1 ms\", interval = \"20 ms\", ecn = false }";
        let codel = CoDel {
            target: Span::from_millis(1),
            interval: Span::from_millis(20),
            ecn: false,
        };
        assert_eq!(managed("", all)[0].2, Aqm::CoDel(codel));
    }

    #[test]
    fn errors_name_the_way_out() {
        for (link, switch, substrate, wanted) in [
            (
                "",
                "aqm = \"red\"",
                Substrate::Simulator,
                "min = \"30 packets\"",
            ),
            (
                "",
                "aqm = \"codle\"",
                Substrate::Simulator,
                "Did you mean 'codel'?",
            ),
            (
                "",
                "aqm = \"pie\"\nmarking = \"3 packets\"",
                Substrate::Simulator,
                "marking",
            ),
            (
                "",
                "aqm = { kind = \"pie\", targt = \"1 ms\" }",
                Substrate::Simulator,
                "'target'",
            ),
            (
                "aqm = { kind = \"red\", min = \"1 packet\", max = \"5 packets\", weight = \"0.002\" }",
                "",
                Substrate::Simulator,
                "1/512",
            ),
            (
                "aqm = \"pie\"",
                "",
                Substrate::VirtualTime,
                "virtual time cannot do this",
            ),
            (
                "",
                "aqm = \"pie\"",
                Substrate::VirtualTime,
                "virtual time cannot do this",
            ),
        ] {
            let error = scenario(link, switch, substrate).map(|_| ()).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
