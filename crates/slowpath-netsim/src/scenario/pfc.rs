// SPDX-License-Identifier: Apache-2.0
//! The key `pfc`: switches that stop what sends into them instead of dropping.

use super::error::{Problem, ScenarioError};
use super::section::{Section, Value};
use slowpath_switch::{Pfc, Rate, Span};

/// The most bytes of a threshold: 2^50.
const MOST: u64 = 1 << 50;

/// Flow control at every port of every switch. What is `None` follows from the link: its rate, its
/// delay, and the largest packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PfcOptions {
    /// Bytes above which a class of an input stops the other end.
    pub xoff: Option<u64>,
    /// Bytes from which down it may go on.
    pub xon: Option<u64>,
    /// Bytes beyond `xoff` for what comes until the other end has stopped.
    pub headroom: Option<u64>,
}

impl PfcOptions {
    /// What holds at a port, if the largest packet has `most` bytes.
    pub fn at(self, rate: Rate, delay: Span, most: u32) -> Pfc {
        let link = Pfc::for_link(rate, delay, most);
        let two = 2 * u64::from(most);
        let (xoff, xon) = match (self.xoff, self.xon) {
            (Some(xoff), Some(xon)) => (xoff, xon),
            (Some(xoff), None) => (xoff, xoff.saturating_sub(two)),
            (None, Some(xon)) => (xon + two, xon),
            (None, None) => (link.xoff, link.xon),
        };
        Pfc {
            xoff,
            xon,
            headroom: self.headroom.unwrap_or(link.headroom),
        }
    }
}

/// `true`, `false`, or a table with what differs from what follows from each link.
pub(super) fn read(value: &Value<'_>) -> Result<Option<PfcOptions>, ScenarioError> {
    if !value.is_table() {
        return Ok(value.boolean()?.then(PfcOptions::default));
    }
    let section = value.section()?;
    let size = |section: &Section<'_>, key, least| {
        let value = section.get(key);
        value.map(|value| value.size(least..=MOST)).transpose()
    };
    let options = PfcOptions {
        xoff: size(&section, "xoff", 1)?,
        xon: size(&section, "xon", 0)?,
        headroom: size(&section, "headroom", 0)?,
    };
    if let (Some(xoff), Some(xon), Some(value)) = (options.xoff, options.xon, section.get("xon"))
        && xon > xoff
    {
        return Err(value.error(Problem::PfcThresholds { xon, xoff }));
    }
    section.finish()?;
    Ok(Some(options))
}

#[cfg(test)]
mod tests {
    use crate::engine::SwitchId;
    use crate::scenario::{Scenario, Substrate};
    use slowpath_switch::{Limit, PortId};

    /// Links of 1 Gbit/s and 10 us between hosts and switches, of 10 Gbit/s and 100 us between the
    /// switches; packets of 1,500 bytes.
    const BASE: &str = "seed = 1\nduration = \"1 s\"\n[topology]\nkind = \"dumbbell\"\nleft = 1\nright = 1\n\
        [topology.links]\nrate = \"1 Gbit/s\"\ndelay = \"10 us\"\n\
        [topology.fabric-links]\nrate = \"10 Gbit/s\"\ndelay = \"100 us\"\n[switch]\nSWITCH\n";
    const TRAFFIC: &str = "[tcp]\nmss = \"1448 B\"\nheader = \"52 B\"\n\
        [[workload]]\nkind = \"bulk\"\nfrom = [\"left-*\"]\nto = [\"right-*\"]\n";

    fn scenario(switch: &str, substrate: Substrate) -> Result<Scenario, String> {
        let traffic = match substrate {
            Substrate::Simulator | Substrate::VirtualTime => TRAFFIC,
            _ => "",
        };
        let text = BASE.replace("SWITCH", switch) + traffic;
        let none = |_: &str| unreachable!("it names no file");
        Scenario::parse_for(&text, &none, substrate).map_err(|error| error.to_string())
    }

    /// xoff, xon and headroom of the left switch: towards its host, and towards the other switch.
    fn of_ports(switch: &str) -> Vec<[u64; 3]> {
        let scenario = scenario(switch, Substrate::Simulator).unwrap();
        let pfc = scenario.network().pfc;
        let left = pfc.iter().filter(|(switch, ..)| *switch == SwitchId(0));
        let ports: Vec<PortId> = left.clone().map(|(_, port, _)| *port).collect();
        assert!(ports.is_empty() || ports == [PortId(0), PortId(1)]);
        left.map(|(.., pfc)| [pfc.xoff, pfc.xon, pfc.headroom])
            .collect()
    }

    /// On a line of 1 Gbit/s and 10 us are 1,250 bytes, on one of 10 Gbit/s and 100 us 125,000.
    /// Headroom: twice that, 64 for the frame, two packets. xon: twice that, 64, one packet; xoff two
    /// packets more.
    #[test]
    fn what_is_not_given_follows_from_the_link() {
        let headroom = [2_500 + 64 + 3_000, 250_000 + 64 + 3_000];
        let xon = [2_500 + 64 + 1_500, 250_000 + 64 + 1_500];
        let default = [0, 1].map(|link| [xon[link] + 3_000, xon[link], headroom[link]]);
        assert_eq!(of_ports("pfc = true"), default);
        assert_eq!(of_ports("pfc = {}"), default);
        assert_eq!(of_ports("buffer = \"1 MB\"\npfc = false"), [[0; 3]; 0]);
        let given = |keys: &str| of_ports(&format!("pfc = {{ {keys} }}"));
        let same = [0, 1].map(|link| [20_000, 17_000, headroom[link]]);
        assert_eq!(given("xoff = \"20 kB\""), same);
        assert_eq!(given("xon = \"17 kB\""), same);
        assert_eq!(given("xoff = \"2 kB\"")[0][1], 0);
        let all = "xoff = \"20 kB\", xon = \"20 kB\", headroom = \"0 B\"";
        assert_eq!(given(all), [[20_000, 20_000, 0]; 2]);
    }

    /// What is bounded by its inputs needs no buffers by output, but may have them.
    #[test]
    fn a_buffer_is_optional() {
        let limit = |switch| {
            scenario(switch, Substrate::Simulator)
                .unwrap()
                .switch
                .buffer
        };
        assert_eq!(limit("pfc = true"), Limit::NONE);
        assert_eq!(
            limit("pfc = true\nbuffer = \"9 packets\""),
            Limit::packets(9)
        );
        let error = scenario("pfc = false", Substrate::Simulator)
            .map(|_| ())
            .unwrap_err();
        assert!(
            error.contains("one of buffer, shared-buffer, pfc is needed"),
            "{error}"
        );
    }

    #[test]
    fn errors_name_line_key_and_the_way_out() {
        for (switch, key, wanted) in [
            ("pfc = \"on\"", "switch.pfc:", "true or false is wanted"),
            (
                "pfc = { xof = \"9 kB\" }",
                "switch.pfc.xof:",
                "Did you mean 'xoff'?",
            ),
            ("pfc = { xoff = \"9 packets\" }", "switch.pfc.xoff:", "kB"),
            (
                "pfc = { xoff = 9000 }",
                "switch.pfc.xoff:",
                "Write it with its unit",
            ),
            (
                "pfc = { xoff = \"0 B\" }",
                "switch.pfc.xoff:",
                "between 1 B and",
            ),
            (
                "pfc = { xoff = \"9 kB\", xon = \"10 kB\" }",
                "switch.pfc.xon:",
                "at most xoff, which is 9000 B",
            ),
            ("pfc = true\ndetour = true", "switch.pfc:", "detour"),
        ] {
            let error = scenario(switch, Substrate::Simulator)
                .map(|_| ())
                .unwrap_err();
            assert!(error.starts_with(&format!("line 14: {key}")), "{error}");
            assert!(error.contains(wanted), "{error}");
        }
        assert!(scenario("pfc = true\ndetour = false", Substrate::Simulator).is_ok());
    }

    #[test]
    fn laboratories_refuse_flow_control_and_name_the_simulator() {
        for substrate in [
            Substrate::VirtualTime,
            Substrate::Emulator,
            Substrate::Network,
            Substrate::Guest,
        ] {
            for key in ["pfc = true", "pfc = { xoff = \"9 kB\" }"] {
                let with = format!("buffer = \"9 packets\"\n{key}");
                let error = scenario(&with, substrate).map(|_| ()).unwrap_err();
                assert!(error.contains("switch.pfc: "), "{error}");
                assert!(
                    error.ends_with("cannot do this, but `slowpath sim` can"),
                    "{error}"
                );
            }
        }
    }
}
