// SPDX-License-Identifier: Apache-2.0
//! Pictures of captures that other people made: their structure, and what they count.

use slowpath_trace::engine::{self, Began};
use slowpath_trace::picture::{Drawn, Recorder, Recording, Remark, html, svg, xpl};
use slowpath_trace::read::{Input, Inputs};
use slowpath_trace::tcp::{Connection, Options, Side};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// `None`: the captures are not on this machine.
fn shared(name: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let path = folder.join(name);
    if !path.exists() {
        println!("SKIPPED {name}: shared/captures is not here");
        return None;
    }
    Some(path)
}

/// All connections, in the order of their first frames.
fn record(capture: &Path, limit: usize) -> Vec<Recording> {
    let inputs = Inputs::new(vec![Input::File(capture.to_owned())]).expect("it opens");
    let mut recordings = Vec::new();
    engine::run(
        inputs,
        &engine::Options::default(),
        |first, began| {
            let options = Options::default();
            let connection = match began {
                Began::Fresh => Connection::new(first, &options),
                Began::OnReusedPorts => Connection::on_reused_ports(first, &options),
            };
            Recorder::new(connection, limit)
        },
        |finished| recordings.push((finished.first_frame, finished.report)),
        |_| ControlFlow::Continue(()),
    )
    .expect("it reads");
    recordings.sort_by_key(|(first, _)| *first);
    recordings.into_iter().map(|(_, r)| r).collect()
}

fn plot(recording: &Recording, side: Side, graph: xpl::Graph) -> String {
    let mut out = Vec::new();
    xpl::write(recording, side, graph, &mut out).expect("memory takes it");
    String::from_utf8(out).expect("it is text")
}

/// What a plot file holds, read by the language that xplot's `demo.0` lists and its README
/// describes; panics where it is not that language.
#[derive(Default)]
struct Plot {
    texts: Vec<String>,
    /// Signs with one place, by name.
    signs: Vec<String>,
    lines: usize,
}

impl Plot {
    fn read(text: &str) -> Plot {
        const TYPES: [&str; 4] = ["double", "signed", "unsigned", "timeval"];
        const COLORS: [&str; 11] = [
            "white", "green", "red", "blue", "yellow", "purple", "orange", "magenta", "pink",
            "black", "cyan",
        ];
        const SIGNS: [&str; 15] = [
            "x", "dot", "plus", "box", "diamond", "utick", "ltick", "dtick", "rtick", "htick",
            "vtick", "uarrow", "darrow", "larrow", "rarrow",
        ];
        let mut plot = Plot::default();
        let mut lines = text.lines();
        let types: Vec<&str> = lines.next().expect("a first line").split(' ').collect();
        assert_eq!(types.len(), 2);
        assert!(types.iter().all(|t| TYPES.contains(t)), "{types:?}");
        // A timeval has six digits after its point.
        let time = |word: &str| {
            let (seconds, micros) = word.split_once('.').expect("a time");
            assert!(
                seconds.parse::<i64>().is_ok() && micros.len() == 6,
                "{word}"
            );
            assert!(micros.parse::<u32>().is_ok(), "{word}");
        };
        let value = |word: &str| assert!(word.parse::<f64>().expect("a number").is_finite());
        let mut gone = false;
        while let Some(line) = lines.next() {
            assert!(!gone, "{line} after the end");
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["title" | "xlabel" | "ylabel" | "xunits" | "yunits"] => {
                    assert!(lines.next().is_some());
                }
                [color] if COLORS.contains(color) => {}
                ["go"] => gone = true,
                ["line" | "dline", t0, y0, t1, y1] => {
                    time(t0);
                    value(y0);
                    time(t1);
                    value(y1);
                    plot.lines += 1;
                }
                [sign, t, y] if SIGNS.contains(sign) => {
                    time(t);
                    value(y);
                    plot.signs.push((*sign).to_owned());
                }
                ["atext" | "btext" | "ltext" | "rtext" | "ctext", t, y] => {
                    time(t);
                    value(y);
                    plot.texts.push(lines.next().expect("its text").to_owned());
                }
                _ => panic!("not a command: {line}"),
            }
        }
        assert!(gone);
        plot
    }

    fn texts(&self, text: &str) -> usize {
        self.texts.iter().filter(|t| *t == text).count()
    }
}

#[test]
fn every_graph_of_every_capture_is_in_xplots_language() {
    for name in [
        "tcptrace/6syns.dmp.gz",
        "tcptrace/badsyns.dmp.gz",
        "tcptrace/discard.solaris.dmp.gz",
        "tcptrace/hardware_dups.dmp.gz",
        "tcptrace/psc.fddi.dmp.gz",
        "packets/http_espn.pcapng",
    ] {
        let Some(capture) = shared(name) else { return };
        for recording in record(&capture, 1 << 20) {
            for side in [Side::Client, Side::Server] {
                for graph in xpl::Graph::ALL {
                    Plot::read(&plot(&recording, side, graph));
                }
            }
        }
    }
}

/// "rexmt data pkts" in the output of tcptrace's authors, of the connection with most; and
/// for two captures what their own descriptions say.
#[test]
fn as_many_marks_as_others_count_retransmissions() {
    for (name, connection, again) in [
        ("tcptrace/psc.fddi.dmp.gz", 1, 32),
        ("tcptrace/discard.solaris.dmp.gz", 4, 51),
        // 486 frames that hardware duplicated are none.
        ("tcptrace/hardware_dups.dmp.gz", 1, 0),
        ("packets/tcp_retransmissions.pcapng", 1, 5),
        ("packets/tcp_dupack.pcapng", 1, 1),
    ] {
        let Some(capture) = shared(name) else { return };
        let recordings = record(&capture, 1 << 20);
        let recording = &recordings[connection - 1];
        let marks = |side| Plot::read(&plot(recording, side, xpl::Graph::Sequence)).texts("R");
        assert_eq!(marks(Side::Client) + marks(Side::Server), again, "{name}");
    }
}

/// As many of each sign as in the graph that Debian's `tcptrace -G` (6.6.7) draws of psc.fddi.
/// tcptrace also numbers the blocks of an ACK, which is left out here.
#[test]
fn the_graph_has_the_signs_of_tcptraces() {
    let Some(capture) = shared("tcptrace/psc.fddi.dmp.gz") else {
        return;
    };
    let plot = Plot::read(&plot(
        &record(&capture, 1 << 20)[0],
        Side::Client,
        xpl::Graph::Sequence,
    ));
    let count = |sign: &str| plot.signs.iter().filter(|s| *s == sign).count();
    assert_eq!(count("darrow"), 239);
    assert_eq!(count("uarrow"), 236);
    assert_eq!(count("diamond"), 4);
    assert_eq!(count("box"), 1);
    assert_eq!(count("htick"), 564);
    assert_eq!((count("dtick"), count("utick")), (189, 188));
    assert_eq!(plot.lines, 1230);
    let texts = ["S", "R", "3", "SYN", "FIN"].map(|text| plot.texts(text));
    assert_eq!(texts, [77, 32, 1, 1, 1]);
}

fn page(recording: &Recording, remarks: &[Remark]) -> String {
    let drawn = Drawn {
        number: 1,
        title: "Timeout </script><b>",
        recording,
        remarks,
    };
    let mut out = Vec::new();
    html::write("a & b", "one", &[drawn], &mut out).expect("memory takes it");
    String::from_utf8(out).expect("it is text")
}

#[test]
fn the_page_needs_nothing_else_and_its_text_stays_text() {
    let Some(capture) = shared("tcptrace/psc.fddi.dmp.gz") else {
        return;
    };
    let recordings = record(&capture, 1 << 20);
    let remark = Remark {
        text: "</script><img src=x>".to_owned(),
        side: Some(Side::Client),
        from: recordings[0].begin(),
        to: recordings[0].end(),
        frames: vec![304],
    };
    let page = page(&recordings[0], &[remark]);
    for outside in [
        "http:", "https:", "src=\"", "href=\"", "@import", "url(", "fetch(", "<img",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("default-src 'none'"));
    assert_eq!(
        page.matches("<script").count(),
        page.matches("</script>").count()
    );
    // One of packed data, one of facts, three of code.
    assert_eq!(page.matches("</script>").count(), 5);
    assert!(page.contains("\"points\":529"));
}

#[test]
fn a_drawing_is_well_formed_and_bounded() {
    let Some(capture) = shared("packets/http_espn.pcapng") else {
        return;
    };
    for recording in record(&capture, 1 << 20) {
        let mut out = Vec::new();
        let drawn = Drawn {
            number: 1,
            title: "<&>",
            recording: &recording,
            remarks: &[],
        };
        svg::write(&drawn, &mut out).expect("memory takes it");
        let text = String::from_utf8(out).expect("it is text");
        well_formed(&text);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert!(text.len() < 1 << 20);
    }
}

/// Every tag that is opened is closed, in order.
fn well_formed(text: &str) {
    let mut open = Vec::new();
    for tag in text.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// With room for a quarter of the points the payload and the marked segments stay.
#[test]
fn thinning_loses_no_bytes_and_no_marks() {
    let Some(capture) = shared("tcptrace/psc.fddi.dmp.gz") else {
        return;
    };
    let whole = &record(&capture, 1 << 20)[0];
    let thin = &record(&capture, 420)[0];
    assert_eq!(whole.points.len(), 529);
    assert!(thin.points.len() <= 420);
    assert_eq!(thin.left_out, 0);
    let drawn = |r: &Recording| r.points.iter().map(|p| u64::from(p.segments)).sum::<u64>();
    assert_eq!(drawn(thin), 529);
    assert_eq!(thin.joined, 529 - thin.points.len() as u64);
    let bytes = |r: &Recording| r.points.iter().map(|p| p.length).sum::<u64>();
    assert_eq!(bytes(thin), bytes(whole));
    let again = |r: &Recording| r.points.iter().filter(|p| p.sent_again()).count();
    assert_eq!((again(thin), again(whole)), (32, 32));
}

/// And with far too little room, what is missing is counted.
#[test]
fn what_has_no_room_is_counted() {
    let Some(capture) = shared("tcptrace/psc.fddi.dmp.gz") else {
        return;
    };
    let recording = &record(&capture, 64)[0];
    let drawn: u64 = recording.points.iter().map(|p| u64::from(p.segments)).sum();
    assert_eq!(drawn + recording.left_out, 529);
    assert!(page(recording, &[]).contains("are not drawn"));
}

/// "total packets" in the output of tcptrace's authors, which draws an arrow for each.
#[test]
fn the_time_line_has_an_arrow_for_each_packet() {
    for (name, packets) in [
        ("tcptrace/psc.fddi.dmp.gz", [240, 289]),
        ("packets/tcp_handshake.pcapng", [2, 1]),
    ] {
        let Some(capture) = shared(name) else { return };
        let recordings = record(&capture, 1 << 20);
        let mut out = Vec::new();
        xpl::time_line(&recordings[0], &mut out).expect("memory takes it");
        let text = String::from_utf8(out).expect("it is text");
        let lines = |start: &str| text.lines().filter(|l| l.starts_with(start)).count();
        assert_eq!(["rarrow 60 ", "larrow 40 "].map(lines), packets, "{name}");
        // A line to each arrow, and one for each end.
        assert_eq!(lines("line "), packets[0] + packets[1] + 2, "{name}");
        assert!(text.starts_with("unsigned dtime\ntitle\n") && text.ends_with("go\n"));
        let syn = text.lines().find(|l| l.starts_with("SYN ")).expect("a SYN");
        assert!(syn.starts_with("SYN 0:"), "{syn}");
    }
    assert_eq!(xpl::time_line_name(1), "a_b_tline.xpl");
    assert_eq!(xpl::time_line_name(2), "c_d_tline.xpl");
}
