// SPDX-License-Identifier: Apache-2.0
use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use slowpath_model::{MonoNanos, Share};
use slowpath_views::scripted::{INTERVAL, ScriptedSource, finding, live, verdict};
use slowpath_views::source::{HistoryPoint, OwnedConnection};

struct Bench {
    screen: Screen,
    source: ScriptedSource,
    terminal: Terminal<TestBackend>,
}

impl Bench {
    fn new(connections: Vec<OwnedConnection>) -> Self {
        let mut bench = Bench {
            screen: Screen::new(Selection::default(), true, vec![]),
            source: ScriptedSource::new(vec![connections]),
            terminal: Terminal::new(TestBackend::new(160, 40)).unwrap(),
        };
        bench.poll();
        bench
    }

    fn poll(&mut self) {
        let report = self.source.poll().unwrap();
        self.screen.polled(&self.source, &report, INTERVAL);
    }

    fn press(&mut self, keys: &[KeyCode]) -> Flow {
        let mut flow = Flow::Continue;
        for key in keys {
            flow = self.screen.key(KeyEvent::from(*key), &self.source);
        }
        flow
    }

    fn type_in(&mut self, text: &str) {
        for c in text.chars() {
            self.press(&[KeyCode::Char(c)]);
        }
    }

    fn lines(&mut self) -> Vec<String> {
        let screen = &mut self.screen;
        let source = &self.source;
        self.terminal.draw(|f| screen.draw(f, source)).unwrap();
        let buffer = self.terminal.backend().buffer();
        let width = usize::from(buffer.area.width);
        buffer
            .content
            .chunks(width)
            .map(|row| row.iter().map(|c| c.symbol()).collect())
            .collect()
    }

    fn line_with(&mut self, text: &str) -> Option<usize> {
        self.lines().iter().position(|l| l.contains(text))
    }
}

fn two() -> Vec<OwnedConnection> {
    let mut fine = live(1, "sshd", "10.0.0.1:22", "10.0.0.9:5000");
    fine.latest = Some(verdict(1, INTERVAL, vec![]));
    let mut slow = live(2, "backup", "[2001:db8::1]:4000", "[2001:db8::2]:443");
    slow.latest = Some(verdict(
        2,
        INTERVAL,
        vec![finding(
            Problem::ReceiverWindowLimited,
            Share::Measured(Micros(INTERVAL.0 * 3 / 5)),
        )],
    ));
    slow.history = (0..50u64)
        .map(|i| HistoryPoint {
            at: MonoNanos(i),
            cwnd: i as u32,
            srtt: Some(Micros(1000 + i)),
            send_queue: 1,
            receive_queue: 0,
            shares: std::array::from_fn(|problem| match problem {
                0 => 0.4,
                5 => 0.6,
                _ => 0.0,
            }),
            bytes_per_second: 1.0,
        })
        .collect();
    vec![fine, slow]
}

#[test]
fn the_slow_connection_stands_above_the_fine_one() {
    let mut bench = Bench::new(two());
    let slow = bench.line_with("backup[2]").unwrap();
    assert!(slow < bench.line_with("sshd[1]").unwrap());
    let line = &bench.lines()[slow];
    assert!(
        line.contains("ReceiverWindowLimited") && line.contains("60%"),
        "{line}"
    );
    assert!(line.contains("[2001:db8::2]:443"), "{line}");
    assert!(
        bench
            .line_with("could not measure: DelayedAck (no BPF)")
            .is_some()
    );
}

#[test]
fn columns_sort_and_turn() {
    let mut bench = Bench::new(two());
    // Right from VERDICT: LIFE, PROCESS.
    bench.press(&[KeyCode::Right, KeyCode::Right]);
    assert!(bench.line_with("backup[2]") < bench.line_with("sshd[1]"));
    bench.press(&[KeyCode::Char('r')]);
    assert!(bench.line_with("backup[2]") > bench.line_with("sshd[1]"));
}

#[test]
fn the_filter_line_filters_and_says_what_is_wrong() {
    let mut bench = Bench::new(two());
    bench.press(&[KeyCode::Char('/')]);
    bench.type_in("dport = :nosuch");
    bench.press(&[KeyCode::Enter]);
    assert!(bench.line_with("`nosuch` is neither a port").is_some());
    for _ in 0..6 {
        bench.press(&[KeyCode::Backspace]);
    }
    bench.type_in("443");
    bench.press(&[KeyCode::Enter]);
    assert!(bench.line_with("backup[2]").is_some());
    assert!(bench.line_with("sshd[1]").is_none());
    // Escape leaves the filter as it was.
    bench.press(&[KeyCode::Char('/'), KeyCode::Char('x'), KeyCode::Esc]);
    assert!(bench.line_with("sshd[1]").is_none());
}

#[test]
fn the_detail_shows_shares_curves_evidence_and_advice() {
    let mut bench = Bench::new(two());
    bench.press(&[KeyCode::Enter]);
    let text = bench.lines().join("\n");
    for wanted in [
        "backup[2]",
        "ReceiverWindowLimited",
        "congestion window",
        "RTT",
        "send queue",
        "receive queue",
        "the receiver, [2001:db8::2]:443",
    ] {
        assert!(text.contains(wanted), "{wanted} lacks in\n{text}");
    }
    assert!(text.chars().any(|c| ('▁'..='█').contains(&c)), "no curve");
    bench.press(&[KeyCode::Esc]);
    assert!(bench.line_with("sshd[1]").is_some());
}

#[test]
fn the_selection_follows_its_connection() {
    let mut bench = Bench::new(two());
    bench.press(&[KeyCode::Down, KeyCode::Down]);
    let selected = bench.screen.selected;
    assert_eq!(selected.map(|id| id.cookie), Some(1));
    bench.press(&[KeyCode::Char('r')]);
    assert_eq!(bench.screen.selected, selected);
    assert_eq!(bench.screen.position(), Some(0));
}

#[test]
fn a_closed_connection_stays_a_while() {
    let mut slow = two();
    let fine = slow.remove(0);
    let mut bench = Bench {
        screen: Screen::new(Selection::default(), false, vec![]),
        source: ScriptedSource::new(vec![vec![fine.clone(), slow.remove(0)], vec![fine]]),
        terminal: Terminal::new(TestBackend::new(160, 20)).unwrap(),
    };
    bench.poll();
    bench.poll();
    assert!(bench.line_with("backup[2]").is_some());
    for _ in 0..CLOSED_STAYS {
        bench.poll();
    }
    assert!(bench.line_with("backup[2]").is_none());
    // Two intervals of the one that stays, one of the one that closed.
    assert_eq!(bench.screen.closing.problem_connections(), 1);
    assert_eq!(
        bench.screen.closing.total().totals.observed,
        Micros(INTERVAL.0 * 3)
    );
}

#[test]
fn keys_hold_help_and_quit() {
    let mut bench = Bench::new(two());
    bench.press(&[KeyCode::Char('?')]);
    assert!(bench.line_with("the network lost segments").is_some());
    bench.press(&[KeyCode::Char('?'), KeyCode::Char(' ')]);
    assert!(bench.line_with("HELD").is_some());
    assert_eq!(bench.press(&[KeyCode::Char('q')]), Flow::Stop);
}

#[test]
fn the_smallest_terminals_do_not_panic() {
    for (width, height) in [(1, 1), (5, 2), (20, 5), (80, 4)] {
        let mut bench = Bench::new(two());
        bench.screen.command_output("line".to_owned());
        bench.terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        for keys in [
            &[KeyCode::Down][..],
            &[KeyCode::Enter],
            &[KeyCode::Char('?')],
            &[KeyCode::Esc, KeyCode::Char('/'), KeyCode::Char('x')],
        ] {
            bench.press(keys);
            bench.lines();
        }
    }
}

#[test]
fn thousands_of_rows_scroll() {
    let many = (1..=5_000)
        .map(|i| live(i, "p", &format!("10.0.0.1:{i}"), "10.0.0.2:80"))
        .collect();
    let mut bench = Bench::new(many);
    bench.press(&[KeyCode::End]);
    let last = bench.screen.rows.last().unwrap().process.clone();
    assert!(bench.line_with(&last).is_some());
    bench.press(&[KeyCode::Home]);
    let first = bench.screen.rows[0].process.clone();
    assert!(bench.line_with(&first).is_some());
}
