// SPDX-License-Identifier: Apache-2.0
//! Every category of DETER's Tables 2 and 3, and what came to them since: what was done to the packets or by the applications decides which one it must be.

use super::kernel;
use super::story_runs::report;
use slowpath_explain::{Category, Explanation};
use slowpath_netsim::scenario::{Scenario, Substrate};
use std::time::Duration;

const TRACE: &str = "trace.csv";

/// Hosts `a` to `d` and `receiver` at one switch.
struct Case {
    delay: &'static str,
    tcp: &'static str,
    lines: &'static str,
    workload: &'static str,
    trace: &'static str,
}

impl Default for Case {
    fn default() -> Self {
        Case {
            delay: "10 us",
            tcp: "",
            lines: "",
            workload: "",
            trace: "",
        }
    }
}

/// Linux 4.4 as the paper has it.
const AS_IT_WAS: &str = "loss-detection = \"duplicate-acks\"\ntail-loss-probe = false\n";

/// Seven packets of one size: what comes back sooner than anything before does not count for RACK (`tcp_rack_advance`), and a smaller one would.
const SHORT: &str = "kind = \"bulk\"\nfrom = [\"a\"]\nto = [\"receiver\"]\nbytes = \"10136 B\"\n";

impl Case {
    fn scenario(&self) -> Scenario {
        let Case {
            delay,
            tcp,
            lines,
            workload,
            ..
        } = self;
        let links = ["a", "b", "c", "d", "receiver"]
            .map(|host| format!("{{ ends = [\"{host}\", \"tor\"] }}"));
        let text = format!(
            "seed = 1\nduration = \"500 ms\"\ndrain = \"5 s\"\n[topology]\nkind = \"custom\"\n\
             hosts = [\"a\", \"b\", \"c\", \"d\", \"receiver\"]\nswitches = [\"tor\"]\nlink = [{}]\n\
             [topology.links]\nrate = \"1 Gbit/s\"\ndelay = \"{delay}\"\n[switch]\nbuffer = \"4000 packets\"\n{lines}\n\
             [tcp]\npreset = \"linux\"\nmss = \"1448 B\"\nheader = \"52 B\"\nrto-initial = \"200 ms\"\n{tcp}\n[[workload]]\n{workload}",
            links.join(", ")
        );
        let files = |name: &str| match name {
            TRACE => Ok(self.trace.to_owned()),
            other => Err(std::io::Error::other(format!("no file {other}"))),
        };
        Scenario::parse_for(&text, &files, Substrate::VirtualTime).expect("a scenario")
    }

    /// Its messages; `None`: there is no laboratory kernel.
    fn messages(&self, test: &str) -> Option<Vec<Explanation>> {
        let kernel = kernel(test)?;
        let reported = report(&kernel, &self.scenario(), true, true).expect("a run");
        let mut messages: Vec<Explanation> = Vec::new();
        // Flows of one connection have its messages each.
        for message in reported.into_iter().flat_map(|reported| reported.messages) {
            if !messages.contains(&message) {
                messages.push(message);
            }
        }
        Some(messages)
    }

    /// The slowest one is of that category and has these causes and no others; what was tried held.
    fn is(&self, test: &str, category: Category, causes: &[&str]) -> Option<Duration> {
        let messages = self.messages(test)?;
        let slowest = messages.iter().max_by_key(|it| it.message.duration());
        let message = slowest.expect("a message");
        assert_eq!(message.category, category, "{message:#?}");
        let found: Vec<&str> = message.chain().map(|link| link.name()).collect();
        assert_eq!(found, causes, "{message:#?}");
        let failed = message
            .waits
            .iter()
            .filter(|wait| wait.confirmed == Some(false));
        assert_eq!(failed.count(), 0, "{message:#?}");
        message.message.duration()
    }
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// `TCP_RTO_MIN` (include/net/tcp.h).
const RTO_MIN: Duration = Duration::from_millis(200);

/// The last two of seven are lost: nothing comes back that would report it.
const LAST_TWO: &str =
    "[[line]]\non = \"a -> tor\"\nloss = { packets = [6, 7], at-least = \"100 B\" }\n";

#[test]
fn tail_drops() {
    let case = Case {
        tcp: AS_IT_WAS,
        lines: LAST_TWO,
        workload: SHORT,
        ..Case::default()
    };
    if let Some(took) = case.is("tail_drops", Category::TailDrops, &["tail_drops"]) {
        assert!(took >= RTO_MIN, "{took:?}");
    }
}

/// The same today: a probe two round trips later (RFC 8985 section 7.2).
#[test]
fn loss_probe() {
    let case = Case {
        lines: LAST_TWO,
        workload: SHORT,
        ..Case::default()
    };
    if let Some(took) = case.is("loss_probe", Category::LossProbe, &["tail_drops"]) {
        assert!(took < ms(50), "{took:?}");
    }
}

/// The route's least timeout at the sender only, as in section 2.1.
const EARLY: &str = "rto-min = \"16 ms\"\nreceiver-rto-min = \"200 ms\"\n";

/// Packets 20 and 21 of 21, the last ones. The first is sent again by a timeout, and its acknowledgment is delayed; for round trips of 8 ms not so long that the next
/// timeout comes before it. Acknowledgments at once, and there is nothing but the loss.
#[test]
fn delayed_ack_after_a_timeout() {
    let line = "[[line]]\non = \"a -> tor\"\nloss = { packets = [20, 21], at-least = \"100 B\" }\n";
    let short = ["tail_drops", "delayed_ack_after_timeout", "timeout_backoff"];
    let cases = [
        ("200 us", "", Category::Timeout, &short[..]),
        ("2 ms", "", Category::DelayedAcks, &short[..2]),
        (
            "200 us",
            "delayed-ack = \"off\"\n",
            Category::TailDrops,
            &short[..1],
        ),
    ];
    for (delay, more, category, causes) in cases {
        let case = Case {
            delay,
            tcp: format!("{AS_IT_WAS}{EARLY}{more}").leak(),
            lines: line,
            workload: "kind = \"bulk\"\nfrom = [\"a\"]\nto = [\"receiver\"]\nbytes = \"30 kB\"\n",
            ..Case::default()
        };
        case.is("delayed_ack_after_a_timeout", category, causes);
    }
}

/// The last two are lost, and the acknowledgment of the one before is delayed: that one is sent again first. It reports nothing of those behind it.
#[test]
fn tail_drops_behind_a_delayed_ack() {
    let case = Case {
        delay: "2 ms",
        tcp: format!("{AS_IT_WAS}{EARLY}").leak(),
        lines: "[[line]]\non = \"a -> tor\"\nloss = { packets = [69, 70], at-least = \"100 B\" }\n",
        workload: "kind = \"bulk\"\nfrom = [\"a\"]\nto = [\"receiver\"]\nbytes = \"100 kB\"\n",
        ..Case::default()
    };
    let test = "tail_drops_behind_a_delayed_ack";
    case.is(test, Category::TailDrops, &["delayed_ack", "tail_drops"]);
}

/// Twenty packets, the window is ten: for a while nothing of the receiver arrives.
const DEAF: &str = "[[line]]\non = \"receiver -> tor\"\nloss = \"100 %\"\n\
     [[line]]\non = \"receiver -> tor\"\nat = \"100 ms\"\nloss = { every = 1000000000 }\n";
const TWO_WINDOWS: &str =
    "kind = \"bulk\"\nfrom = [\"a\"]\nto = [\"receiver\"]\nbytes = \"28 kB\"\n";

#[test]
fn ack_drops() {
    let case = Case {
        tcp: AS_IT_WAS,
        lines: DEAF,
        workload: TWO_WINDOWS,
        ..Case::default()
    };
    if let Some(took) = case.is("ack_drops", Category::AckDrops, &["ack_drops"]) {
        assert!(took >= RTO_MIN, "{took:?}");
    }
}

/// Today the probe comes, with new data where there is some.
#[test]
fn ack_drops_and_a_loss_probe() {
    let case = Case {
        delay: "1 ms",
        lines: DEAF,
        workload: "kind = \"bulk\"\nfrom = [\"a\"]\nto = [\"receiver\"]\nbytes = \"60 kB\"\n",
        ..Case::default()
    };
    let test = "ack_drops_and_a_loss_probe";
    case.is(test, Category::LossProbe, &["ack_drops"]);
}

/// A single packet is lost, and so is what is sent again, twice.
#[test]
fn timeout_backoff() {
    let case = Case {
        tcp: AS_IT_WAS,
        lines: "[[line]]\non = \"a -> tor\"\nloss = { packets = [1, 2, 3], at-least = \"100 B\" }\n",
        workload: "kind = \"bulk\"\nfrom = [\"a\"]\nto = [\"receiver\"]\nbytes = \"1 kB\"\n",
        ..Case::default()
    };
    let causes = [
        "tail_drops",
        "retransmission_lost",
        "timeout_backoff",
        "retransmission_lost",
        "timeout_backoff",
    ];
    if let Some(took) = case.is("timeout_backoff", Category::Timeout, &causes) {
        // RFC 6298 section 5.5: once, twice, four times.
        assert!(took >= 7 * RTO_MIN, "{took:?}");
    }
}

/// Ten packets that make one window: without the loss they take half a round trip, with it one and a half.
#[test]
fn fast_retransmission() {
    let case = Case {
        delay: "10 ms",
        lines: "[[line]]\non = \"a -> tor\"\nloss = { packets = [3], at-least = \"100 B\" }\n",
        workload: "kind = \"bulk\"\nfrom = [\"a\"]\nto = [\"receiver\"]\nbytes = \"14 kB\"\n",
        ..Case::default()
    };
    if let Some(took) = case.is("fast_retransmission", Category::FastRetransmission, &[]) {
        assert!(took >= ms(60) && took < ms(70), "{took:?}");
    }
}

/// The same without RACK, where duplicates are counted: three come one after the other, a round trip after anything else happened. Nothing is late about that, whichever packet was lost,
/// and the round trip is that of the handshake: what is acknowledged with the lost packet waited for it.
#[test]
fn fast_retransmission_by_duplicates() {
    for lost in [1, 3, 7] {
        let lines = format!(
            "[[line]]\non = \"a -> tor\"\nloss = {{ packets = [{lost}], at-least = \"100 B\" }}\n"
        );
        let case = Case {
            delay: "10 ms",
            tcp: AS_IT_WAS,
            lines: lines.leak(),
            workload: "kind = \"bulk\"\nfrom = [\"a\"]\nto = [\"receiver\"]\nbytes = \"14 kB\"\n",
            ..Case::default()
        };
        let test = "fast_retransmission_by_duplicates";
        if let Some(took) = case.is(test, Category::FastRetransmission, &[]) {
            assert!(took >= ms(60) && took < ms(70), "{took:?}");
        }
    }
}

/// The only packet of a message is lost, and 50 ms later another message of many makes duplicates at once: not too few came, they came late.
#[test]
fn late_fast_retransmission_by_other_data() {
    let case = Case {
        tcp: AS_IT_WAS,
        lines: "[[line]]\non = \"a -> tor\"\nloss = { packets = [1], at-least = \"100 B\" }\n",
        workload: "kind = \"trace\"\nfile = \"trace.csv\"\nkeep-connections = true\n",
        trace: "time,from,to,bytes\n0,a,receiver,1000\n0.05,a,receiver,10000\n",
        ..Case::default()
    };
    let late = Category::LateFastRetransmission;
    let test = "late_fast_retransmission_by_other_data";
    if let Some(took) = case.is(test, late, &["tail_drops"]) {
        assert!(took > ms(50) && took < ms(51), "{took:?}");
    }
}

/// An application that reads 16 kB every 0.7 ms (183 Mbit/s) on a line of 1 Gbit/s: each single wait is short.
#[test]
fn receive_window_bit_by_bit() {
    let case = Case {
        tcp: "receive-window = { initial = \"64 kB\", max = \"64 kB\" }\nreading = { bytes = \"16 kB\", every = \"700 us\" }\n",
        workload: "kind = \"bulk\"\nfrom = [\"a\"]\nto = [\"receiver\"]\nbytes = \"2 MB\"\n",
        ..Case::default()
    };
    let Some(messages) = case.messages("receive_window_bit_by_bit") else {
        return;
    };
    assert_eq!(messages.len(), 1);
    let message = &messages[0];
    assert_eq!(message.category, Category::ReceiveWindow, "{message:#?}");
    let took = message.message.duration().expect("it ended");
    let waited: Duration = message.waits.iter().map(|wait| wait.duration()).sum();
    assert!(
        2 * waited > took && waited <= took,
        "{waited:?} of {took:?}"
    );
}

/// Three others come to the same link: nothing is lost, and everybody gets a quarter.
#[test]
fn congestion() {
    let case = Case {
        workload: "kind = \"trace\"\nfile = \"trace.csv\"\n",
        trace: "time,from,to,bytes\n0,a,receiver,4000000\n0.0005,b,receiver,8000000\n0.0005,c,receiver,8000000\n0.0005,d,receiver,8000000\n",
        ..Case::default()
    };
    let Some(messages) = case.messages("congestion") else {
        return;
    };
    let message = messages.iter().find(|it| it.message.bytes.end == 4_000_000);
    let message = message.expect("the first");
    assert_eq!(message.category, Category::Congestion, "{message:#?}");
    assert_eq!(message.chain().count(), 0, "{message:#?}");
    assert!(
        message.slowdown().is_some_and(|it| it > 2.0),
        "{message:#?}"
    );
}

/// A message that arrives whole and is kept waiting by the one before, whose only packet was lost.
#[test]
fn behind_an_earlier_message() {
    let case = Case {
        tcp: AS_IT_WAS,
        lines: "[[line]]\non = \"a -> tor\"\nloss = { packets = [1], at-least = \"100 B\" }\n",
        workload: "kind = \"trace\"\nfile = \"trace.csv\"\nkeep-connections = true\n",
        trace: "time,from,to,bytes\n0,a,receiver,1000\n0.05,a,receiver,1000\n",
        ..Case::default()
    };
    let Some(messages) = case.messages("behind_an_earlier_message") else {
        return;
    };
    let found: Vec<Category> = messages.iter().map(|it| it.category).collect();
    assert_eq!(
        found,
        [Category::TailDrops, Category::EarlierMessage],
        "{messages:#?}"
    );
}

/// Full segments, so that Nagle holds none: two duplicates are too few, and both messages that made them are there all the time.
#[test]
fn several_behind_an_earlier_message() {
    let case = Case {
        tcp: AS_IT_WAS,
        lines: "[[line]]\non = \"a -> tor\"\nloss = { packets = [1], at-least = \"100 B\" }\n",
        workload: "kind = \"trace\"\nfile = \"trace.csv\"\nkeep-connections = true\n",
        trace: "time,from,to,bytes\n0,a,receiver,1448\n0.05,a,receiver,1448\n0.1,a,receiver,1448\n",
        ..Case::default()
    };
    let Some(messages) = case.messages("several_behind_an_earlier_message") else {
        return;
    };
    let found: Vec<Category> = messages.iter().map(|it| it.category).collect();
    let behind = Category::EarlierMessage;
    assert_eq!(found, [Category::Timeout, behind, behind], "{messages:#?}");
    for (message, begun) in messages[1..].iter().zip([50, 100]) {
        let waited: Duration = message.waits.iter().map(|it| it.duration()).sum();
        assert!(waited >= RTO_MIN - ms(begun), "{message:#?}");
    }
}

/// Short messages on idle links are not slow, whatever they weigh; and one that never arrives is unfinished.
#[test]
fn not_slow_and_unfinished() {
    for bytes in [100, 1_000, 2_000, 3_000, 10_000, 14_480, 20_000] {
        let workload = format!(
            "kind = \"bulk\"\nfrom = [\"a\"]\nto = [\"receiver\"]\nbytes = \"{bytes} B\"\n"
        );
        let case = Case {
            workload: workload.leak(),
            ..Case::default()
        };
        if case
            .is("not_slow_and_unfinished", Category::NotSlow, &[])
            .is_none()
        {
            return;
        }
    }
    let case = Case {
        lines: "[[line]]\non = \"a -> tor\"\nloss = \"100 %\"\n",
        workload: SHORT,
        ..Case::default()
    };
    let messages = case.messages("not_slow_and_unfinished").expect("a kernel");
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].category, Category::Unfinished);
}
