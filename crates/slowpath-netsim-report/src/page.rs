// SPDX-License-Identifier: Apache-2.0
//! A run as a page: one HTML file that needs no network and no server.

use super::charts::Charts;
use super::colours::Colours;
use super::summary::Summary;
use serde::Serialize;
use slowpath_text::{PAGE_POLICY, clean, html, html_lines};

const PAGE: &str = include_str!("page.html");
/// The style of all report pages.
pub const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The data of the page, embedded as JSON.
#[derive(Serialize)]
struct Data<'a> {
    summary: &'a Summary,
    charts: &'a Charts,
    colours: Colours,
}

/// The page of a run; `text` is the scenario's.
pub fn page(summary: &Summary, charts: &Charts, text: &str) -> String {
    let workloads = summary.workloads.iter().map(|it| it.name.as_str());
    let lines = charts.series.iter().flat_map(|chart| &chart.lines);
    let colours = Colours::of(workloads.chain(lines.map(|line| line.name.as_str())));
    let data = Data {
        summary,
        charts,
        colours,
    };
    // Numbers, names and arrays of them always serialise.
    let data = serde_json::to_string(&data).unwrap_or_default();
    let title = html(&summary.scenario);
    let mut page = String::with_capacity(PAGE.len() + STYLE.len() + SCRIPT.len() + data.len());
    let mut rest = PAGE;
    // Inserted text is not searched for placeholders: it may hold braces.
    while let Some((before, after)) = rest.split_once("{{") {
        page.push_str(before);
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        match name {
            "title" => page.push_str(&title),
            "policy" => page.push_str(PAGE_POLICY),
            "style" => page.push_str(STYLE),
            "script" => page.push_str(SCRIPT),
            "version" => page.push_str(env!("CARGO_PKG_VERSION")),
            "scenario" => page.push_str(&html_lines(text)),
            "data" => page.push_str(&in_script(&data)),
            other => page.push_str(other),
        }
        rest = after;
    }
    page.push_str(rest);
    page
}

/// Escapes JSON between script tags, so that no tag can begin in it; its control characters are escaped
/// already.
fn in_script(json: &str) -> String {
    clean(json).replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_is_filled() {
        let placeholders = PAGE.matches("{{").count();
        assert_eq!(placeholders, PAGE.matches("}}").count());
        for name in [
            "title", "policy", "style", "script", "version", "scenario", "data",
        ] {
            assert!(PAGE.contains(&format!("{{{{{name}}}}}")), "{name}");
        }
        assert!(!SCRIPT.contains("</"), "it would end the script");
    }

    #[test]
    fn inserted_text_cannot_close_its_tag() {
        assert_eq!(in_script("\"</script>\""), "\"\\u003c/script>\"");
    }
}
