// SPDX-License-Identifier: Apache-2.0

use super::*;
use proptest::prelude::*;

/// As a wide font of the style draws it: DejaVu Sans has digits of 0.636 em, at 12 pixels.
fn drawn(label: &Label) -> Area {
    let half = label.text.chars().count() as f64 * 12.0 * 0.636 / 2.0;
    let middle = (label.area.left + label.area.right) / 2.0;
    Area {
        left: middle - half,
        right: middle + half,
        ..label.area
    }
}

#[track_caller]
fn no_two_labels_meet(frame: &Frame) {
    for (number, label) in frame.labels.iter().enumerate() {
        let area = drawn(label);
        assert!(area.left >= 0.0 && area.right <= frame.width, "{label:?}");
        assert!(area.top >= 0.0 && area.bottom <= frame.height, "{label:?}");
        assert!(
            !area.intersects(&frame.inner),
            "{label:?} is in {:?}",
            frame.inner
        );
        for other in &frame.labels[..number] {
            assert!(!area.intersects(&drawn(other)), "{label:?} {other:?}");
        }
    }
}

fn tick(at: f64, text: &str) -> Tick {
    Tick {
        at,
        text: text.to_owned(),
    }
}

#[test]
fn long_names_take_further_lines_before_one_is_left_out() {
    let names = [
        "20 packets",
        "50 packets",
        "100 packets",
        "150 packets",
        "200 packets",
    ];
    // Two of 10 and three of 11 characters of 7.68 pixels, 8 between them: 439 pixels, of 400.
    let x: Vec<Tick> = (0..)
        .zip(names)
        .map(|(n, it)| tick(f64::from(n) / 4.0, it))
        .collect();
    let axes = Axes {
        width: 400.0,
        height: 250.0,
        x,
        title: "switch.buffer".to_owned(),
        ..Axes::default()
    };
    let frame = Frame::new(&axes);
    for name in names {
        assert!(frame.labels.iter().any(|it| it.text == name), "{name}");
    }
    assert_eq!(frame.height, 265.0, "one more line of 15 pixels");
    no_two_labels_meet(&frame);
}

#[test]
fn the_margin_follows_from_the_longest_label() {
    let of = |text: &str| {
        Frame::new(&Axes {
            width: 520.0,
            height: 250.0,
            y: vec![tick(0.0, "0"), tick(1.0, text)],
            right: vec![tick(1.0, "12345 drops")],
            ..Axes::default()
        })
    };
    let (short, long) = (of("1 ms"), of("999.5 Mbit/s"));
    // Eight characters more.
    let more = long.inner.left - short.inner.left;
    assert!((more - 8.0 * 0.64 * 12.0).abs() < 1e-9, "{more}");
    no_two_labels_meet(&long);
}

proptest! {
    #[test]
    fn labels_never_meet(
        x in proptest::collection::vec((0.0..=1.0f64, "[a-z0-9 .]{1,20}"), 0..30),
        y in proptest::collection::vec((0.0..=1.0f64, "[0-9a-zA-Z/ ]{1,14}"), 0..30),
        right in proptest::collection::vec((0.0..=1.0f64, "[0-9]{1,8}"), 0..8),
        title in "[a-z .]{0,20}",
    ) {
        let ticks = |list: Vec<(f64, String)>| {
            let mut list: Vec<Tick> = list.into_iter().map(|(at, text)| Tick { at, text }).collect();
            list.sort_by(|a, b| a.at.total_cmp(&b.at));
            list
        };
        let axes = Axes {
            width: 520.0,
            height: 250.0,
            x: ticks(x),
            y: ticks(y),
            right: ticks(right),
            title,
        };
        no_two_labels_meet(&Frame::new(&axes));
    }
}

#[test]
fn a_scale_ends_at_or_above_the_highest() {
    for (top, expected) in [(0.9, (0.5, 1.0)), (3.7, (1.0, 4.0)), (81.0, (50.0, 100.0))] {
        let (step, end) = scale(top, 4.0);
        assert!((step - expected.0).abs() < 1e-9, "{top}: {step}");
        assert!((end - expected.1).abs() < 1e-9, "{top}: {end}");
    }
    let texts: Vec<String> = ticks((0.5, 1.0), |it| it.to_string())
        .into_iter()
        .map(|it| it.text)
        .collect();
    assert_eq!(texts, ["0", "0.5", "1"]);
}
