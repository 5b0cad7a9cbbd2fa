// SPDX-License-Identifier: Apache-2.0
//! The report: one HTML file that needs nothing else, no network and no server.

use super::charts::Charts;
use super::summary::Summary;
use serde::Serialize;

const PAGE: &str = include_str!("report.html");
const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// What the page shows, as JSON in the page.
#[derive(Serialize)]
struct Data<'a> {
    summary: &'a Summary,
    charts: &'a Charts,
}

/// The page of a run of the scenario with that text.
pub fn page(summary: &Summary, charts: &Charts, text: &str) -> String {
    let data = Data { summary, charts };
    // Numbers, names and arrays of them are always JSON.
    let data = serde_json::to_string(&data).unwrap_or_default();
    let title = escaped(&summary.scenario);
    let mut page = String::with_capacity(PAGE.len() + STYLE.len() + SCRIPT.len() + data.len());
    let mut rest = PAGE;
    // What is put in is not looked at again: it may hold what looks like a place.
    while let Some((before, after)) = rest.split_once("{{") {
        page.push_str(before);
        let (place, after) = after.split_once("}}").unwrap_or((after, ""));
        match place {
            "title" => page.push_str(&title),
            "style" => page.push_str(STYLE),
            "script" => page.push_str(SCRIPT),
            "version" => page.push_str(env!("CARGO_PKG_VERSION")),
            "scenario" => page.push_str(&escaped(text)),
            "data" => page.push_str(&in_script(&data)),
            other => page.push_str(other),
        }
        rest = after;
    }
    page.push_str(rest);
    page
}

/// Text between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// JSON between script tags: no tag can begin in it.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_filled_and_nothing_else() {
        let places = PAGE.matches("{{").count();
        assert_eq!(places, PAGE.matches("}}").count());
        for place in ["title", "style", "script", "version", "scenario", "data"] {
            assert!(PAGE.contains(&format!("{{{{{place}}}}}")), "{place}");
        }
        assert!(!SCRIPT.contains("</"), "it would end the script");
    }

    #[test]
    fn nothing_can_leave_its_place() {
        assert_eq!(
            escaped("<a href=\"&\">"),
            "&lt;a href=&quot;&amp;&quot;&gt;"
        );
        assert_eq!(in_script("\"</script>\""), "\"\\u003c/script>\"");
    }
}
