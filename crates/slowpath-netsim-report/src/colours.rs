// SPDX-License-Identifier: Apache-2.0
//! Colours of series, by their names: the same name has the same colour in all charts of a page,
//! and on other pages.
//!
//! The colours are those of the style (`--c0` to `--c7`): they differ also for people
//! with protanopia or deuteranopia, on light and on dark pages; a test computes that. They are for
//! categories. What is more or less of something has a scale of one hue (`--low` to `--high`).

use serde::Serialize;
use std::collections::BTreeMap;

/// Colours of the style.
pub const COLOURS: usize = 8;

/// What a line of a series looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pen {
    /// Which colour of the style.
    pub colour: usize,
    /// How often all colours have been used before: such lines are dashed.
    pub round: usize,
}

impl Pen {
    /// The colour in CSS.
    pub fn css(self) -> String {
        format!("var(--c{})", self.colour % COLOURS)
    }

    /// The dashes in SVG; none for the first eight series.
    pub fn dashes(self) -> &'static str {
        ["none", "6 4", "2 3", "9 3 2 3"][self.round.min(3)]
    }
}

/// The pens of a page's series.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Colours(BTreeMap<String, Pen>);

impl Colours {
    /// One for each name: the colour that its letters choose, or the next that is free.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all = BTreeMap::new();
        let mut used = [0; COLOURS];
        for name in names {
            if all.contains_key(name) {
                continue;
            }
            let round = used.iter().copied().min().unwrap_or(0);
            let first = hash(name);
            let free = (first..first + COLOURS).map(|it| it % COLOURS);
            let colour = free.clone().find(|it| used[*it] == round);
            let colour = colour.unwrap_or(first);
            used[colour] += 1;
            all.insert(name.to_owned(), Pen { colour, round });
        }
        Colours(all)
    }

    /// A series' pen.
    pub fn pen(&self, name: &str) -> Pen {
        let known = self.0.get(name).copied();
        known.unwrap_or(Pen {
            colour: hash(name),
            round: 0,
        })
    }
}

/// FNV-1a (Fowler, Noll, Vo; 64 bits), as a colour.
fn hash(name: &str) -> usize {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    (hash % COLOURS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::STYLE;

    #[test]
    fn a_name_has_its_colour_whatever_else_is_there() {
        let few = Colours::of(["queries"]);
        let many = Colours::of(["queries", "background", "bulk", "queries"]);
        assert_eq!(few.pen("queries"), many.pen("queries"));
        let names: Vec<String> = (0..20).map(|it| format!("flow {it}")).collect();
        let all = Colours::of(names.iter().map(String::as_str));
        let mut pens: Vec<_> = names.iter().map(|it| all.pen(it)).collect();
        pens.sort_by_key(|it| (it.round, it.colour));
        pens.dedup();
        assert_eq!(pens.len(), 20, "no two look the same");
        let solid = |it: &&Pen| it.dashes() == "none";
        assert_eq!(pens.iter().filter(solid).count(), COLOURS);
    }

    type Rgb = [f64; 3];

    /// The values of a theme's colours, from the style.
    fn theme(dark: bool) -> Vec<(String, Rgb)> {
        let (light, rest) = STYLE.split_once(":root[data-theme").unwrap();
        let text = if dark {
            rest.split_once('}').unwrap().0
        } else {
            light
        };
        let declared = text.split(['{', ';', '}']);
        let colour = |declared: &str| {
            let (name, value) = declared.trim().split_once(": #")?;
            let part = |at| u8::from_str_radix(value.get(at..at + 2)?, 16).ok();
            let parts = [part(0)?, part(2)?, part(4)?];
            // IEC 61966-2-1.
            let linear = parts.map(|it| match f64::from(it) / 255.0 {
                low if low <= 0.04045 => low / 12.92,
                it => ((it + 0.055) / 1.055).powf(2.4),
            });
            Some((name.to_owned(), linear))
        };
        declared.filter_map(colour).collect()
    }

    fn times(matrix: [Rgb; 3], colour: Rgb) -> Rgb {
        matrix.map(|row| {
            let sum: f64 = row.iter().zip(colour).map(|(a, b)| a * b).sum();
            sum.clamp(0.0, 1.0)
        })
    }

    /// CIE L*a*b* of 1976, D65.
    fn lab(colour: Rgb) -> Rgb {
        let [x, y, z] = times(
            [
                [
                    0.412_456_4 / 0.950_47,
                    0.357_576_1 / 0.950_47,
                    0.180_437_5 / 0.950_47,
                ],
                [0.212_672_9, 0.715_152_2, 0.072_175],
                [
                    0.019_333_9 / 1.088_83,
                    0.119_192 / 1.088_83,
                    0.950_304_1 / 1.088_83,
                ],
            ],
            colour,
        )
        .map(|t| match t {
            t if t > 216.0 / 24389.0 => t.cbrt(),
            t => (24389.0 / 27.0 * t + 16.0) / 116.0,
        });
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    fn luminance([r, g, b]: Rgb) -> f64 {
        0.2126 * r + 0.7152 * g + 0.0722 * b
    }

    /// Machado, Oliveira and Fernandes 2009, severity 1: no blindness, protanopia, deuteranopia.
    const SIGHTS: [[Rgb; 3]; 3] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ],
        [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ],
    ];

    /// A difference of 2.3 is just noticeable (Mahy et al. 1994); lines are thin and far from each other.
    const LEAST_DIFFERENCE: f64 = 15.0;

    #[test]
    fn colours_differ_also_for_the_colour_blind_and_from_the_page() {
        for dark in [false, true] {
            let all = theme(dark);
            let named = |wanted: &str| all.iter().find(|it| it.0 == wanted).unwrap().1;
            let series = |it: &&(String, Rgb)| {
                it.0.strip_prefix("--c")
                    .is_some_and(|n| n.parse::<usize>().is_ok())
            };
            let series: Vec<&(String, Rgb)> = all.iter().filter(series).collect();
            assert_eq!(series.len(), COLOURS);
            for (number, (name, colour)) in series.iter().enumerate() {
                for page in ["--page", "--panel"] {
                    // WCAG 2.1, 1.4.11: graphics have a contrast of 3.
                    let mut two = [luminance(*colour), luminance(named(page))];
                    two.sort_by(f64::total_cmp);
                    let contrast = (two[1] + 0.05) / (two[0] + 0.05);
                    assert!(contrast >= 3.0, "{name} on {page}, {dark}: {contrast}");
                }
                for (other, second) in &series[..number] {
                    for sight in SIGHTS {
                        let [a, b] = [colour, second].map(|it| lab(times(sight, *it)));
                        let squares: f64 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
                        let difference = squares.sqrt();
                        assert!(
                            difference >= LEAST_DIFFERENCE,
                            "{name} {other}: {difference}"
                        );
                    }
                }
            }
        }
    }
}
