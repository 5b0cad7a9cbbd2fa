// SPDX-License-Identifier: Apache-2.0
//! The key `ecmp`: how flows are divided among equal ways.

use super::error::{Problem, ScenarioError};
use super::section::Value;
use slowpath_switch::Flowlets;

/// The kinds.
const KINDS: [(&str, Kind); 2] = [("flow", Kind::Flow), ("flowlet", Kind::Flowlet)];

#[derive(Clone, Copy)]
enum Kind {
    Flow,
    Flowlet,
}

/// `"flow"`, `"flowlet"`, or a table with `kind` and more; `None`: each flow keeps its way.
pub(super) fn read(value: &Value<'_>) -> Result<Option<Flowlets>, ScenarioError> {
    let mut flowlets = Flowlets::default();
    if !value.is_table() {
        return Ok(match value.choice(&KINDS)? {
            Kind::Flow => None,
            Kind::Flowlet => Some(flowlets),
        });
    }
    let section = value.section()?;
    let kind = section.need("kind")?.choice(&KINDS)?;
    let keys = [section.get("gap"), section.get("entries")];
    let [gap, entries] = &keys;
    if let Kind::Flow = kind {
        if let Some(key) = keys.iter().flatten().next() {
            return Err(key.error(Problem::Conflict("kind = \"flow\": a flow keeps its way")));
        }
        section.finish()?;
        return Ok(None);
    }
    if let Some(gap) = gap {
        flowlets.gap = gap.positive_span()?;
    }
    if let Some(entries) = entries {
        flowlets.entries = entries.small(1..=Flowlets::MAX_ENTRIES)?;
    }
    section.finish()?;
    Ok(Some(flowlets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Scenario, Substrate};
    use slowpath_switch::Span;

    const BASE: &str = "seed = 1\nduration = \"1 s\"\n[topology]\nkind = \"dumbbell\"\nleft = 1\nright = 1\n\
        [topology.links]\nrate = \"1 Gbit/s\"\ndelay = \"10 us\"\n[switch]\nbuffer = \"100 packets\"\nSWITCH\n\
        [[workload]]\nkind = \"bulk\"\nfrom = [\"left-*\"]\nto = [\"right-*\"]\n[measure]\nMEASURE\n";

    fn scenario(switch: &str, measure: &str, substrate: Substrate) -> Result<Scenario, String> {
        let text = BASE.replace("SWITCH", switch).replace("MEASURE", measure);
        let none = |_: &str| unreachable!("it names no file");
        Scenario::parse_for(&text, &none, substrate).map_err(|error| error.to_string())
    }

    #[test]
    fn every_kind_and_key_is_read() {
        let flowlets = |switch| {
            let scenario = scenario(switch, "paths = false", Substrate::Simulator).unwrap();
            scenario.network().flowlets
        };
        assert_eq!(flowlets(""), None);
        assert_eq!(flowlets("ecmp = \"flow\""), None);
        assert_eq!(flowlets("ecmp = { kind = \"flow\" }"), None);
        let default = Flowlets {
            gap: Span::from_micros(500),
            entries: 65_536,
        };
        assert_eq!(flowlets("ecmp = \"flowlet\""), Some(default));
        assert_eq!(flowlets("ecmp = { kind = \"flowlet\" }"), Some(default));
        let all = "ecmp = { kind = \"flowlet\", gap = \"20 us\", entries = 1048576 }";
        let given = Flowlets {
            gap: Span::from_micros(20),
            entries: 1 << 20,
        };
        assert_eq!(flowlets(all), Some(given));
    }

    #[test]
    fn errors_name_line_key_and_the_way_out() {
        for (switch, measure, key, wanted) in [
            (
                "ecmp = \"flowlets\"",
                "",
                "switch.ecmp:",
                "Did you mean 'flowlet'?",
            ),
            (
                "ecmp = true",
                "",
                "switch.ecmp:",
                "one of \"flow\", \"flowlet\"",
            ),
            (
                "ecmp = { gap = \"1 ms\" }",
                "",
                "switch.ecmp.kind:",
                "missing",
            ),
            (
                "ecmp = { kind = \"flowlet\", entires = 9 }",
                "",
                "switch.ecmp.entires:",
                "Did you mean 'entries'?",
            ),
            (
                "ecmp = { kind = \"flowlet\", gap = 500 }",
                "",
                "switch.ecmp.gap:",
                "\"10 us\"",
            ),
            (
                "ecmp = { kind = \"flowlet\", gap = \"0 s\" }",
                "",
                "switch.ecmp.gap:",
                "1 ps",
            ),
            (
                "ecmp = { kind = \"flowlet\", entries = 2000000 }",
                "",
                "switch.ecmp.entries:",
                "between 1 and 1048576",
            ),
            (
                "ecmp = { kind = \"flow\", gap = \"1 ms\" }",
                "",
                "switch.ecmp.gap:",
                "kind = \"flow\"",
            ),
            (
                "ecmp = \"flowlet\"",
                "paths = true",
                "measure.paths:",
                "switch.ecmp",
            ),
        ] {
            let error = scenario(switch, measure, Substrate::Simulator).map(|_| ());
            let error = error.unwrap_err();
            let line = if measure.is_empty() {
                "line 12: "
            } else {
                "line 18: "
            };
            assert!(error.starts_with(&format!("{line}{key}")), "{error}");
            assert!(error.contains(wanted), "{error}");
        }
    }

    /// A path for each flow is what the laboratories have.
    #[test]
    fn laboratories_refuse_flowlets_and_name_the_simulator() {
        for substrate in [
            Substrate::VirtualTime,
            Substrate::Emulator,
            Substrate::Network,
            Substrate::Guest,
        ] {
            let text = BASE.split("[[workload]]").next().unwrap();
            let with = |ecmp: &str| {
                let text = match substrate {
                    Substrate::VirtualTime => BASE.replace("MEASURE", ""),
                    _ => text.to_owned(),
                };
                let none = |_: &str| unreachable!("it names no file");
                let text = text.replace("SWITCH", ecmp);
                Scenario::parse_for(&text, &none, substrate).map_err(|error| error.to_string())
            };
            assert!(with("ecmp = \"flow\"").is_ok());
            for (ecmp, key) in [
                ("ecmp = \"flowlet\"", "switch.ecmp:"),
                ("ecmp = { kind = \"flowlet\" }", "switch.ecmp.kind:"),
            ] {
                let error = with(ecmp).map(|_| ()).unwrap_err();
                assert!(error.contains(key), "{error}");
                assert!(
                    error.ends_with("cannot do this, but `slowpath sim` can"),
                    "{error}"
                );
            }
        }
    }
}
