// SPDX-License-Identifier: Apache-2.0
//! Prints the tables of `docs/reference/log-format.md` from the columns' declarations.
//!
//! `cargo run -p slowpath-store --example columns`; with the document's path as argument it
//! replaces them there. A section is a table's name, and its table ends at an empty line.

use std::error::Error;
use std::fs;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(path) = std::env::args().nth(1) else {
        for (name, text) in slowpath_store::describe() {
            println!("## {name}\n\n{text}");
        }
        return Ok(());
    };
    let mut document = fs::read_to_string(&path)?;
    for (name, text) in slowpath_store::describe() {
        let title = format!("\n## {name}\n\n");
        let from = document.find(&title).ok_or(title.clone())? + title.len();
        let table = document[from..].find("| column |").ok_or("no table")? + from;
        let until = document[table..].find("\n\n");
        let until = until.map_or(document.len(), |n| table + n + 1);
        document.replace_range(table..until, &text);
    }
    fs::write(&path, document)?;
    Ok(())
}
