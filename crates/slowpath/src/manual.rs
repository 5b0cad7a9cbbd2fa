// SPDX-License-Identifier: Apache-2.0
//! The manual page and shell completions, both from the definition of the command line.

use crate::args::Cli;
use clap::CommandFactory;
use clap_mangen::Man;
use std::io::{self, Write};

/// Writes one page, in roff, with every command in it.
///
/// # Errors
/// When the output refuses.
pub fn page(out: &mut dyn Write) -> io::Result<()> {
    let mut command = Cli::command();
    command.build();
    let main = Man::new(command.clone());
    main.render_title(out)?;
    main.render_name_section(out)?;
    main.render_synopsis_section(out)?;
    main.render_description_section(out)?;
    for sub in command.get_subcommands() {
        if sub.get_name() == "help" {
            continue;
        }
        let mut text = Vec::new();
        let man = Man::new(sub.clone());
        man.render_synopsis_section(&mut text)?;
        man.render_description_section(&mut text)?;
        man.render_options_section(&mut text)?;
        writeln!(out, ".SH \"SLOWPATH {}\"", sub.get_name().to_uppercase())?;
        // Sections of a command are subsections of the page.
        let text = String::from_utf8_lossy(&text);
        // Each section defines the apostrophe anew; the page's first one has done it.
        let lines = text
            .lines()
            .filter(|l| !l.starts_with(".ie \\n(.g") && !l.starts_with(".el .ds Aq"));
        for line in lines {
            match line.strip_prefix(".SH ") {
                Some(title) => writeln!(out, ".SS {title}")?,
                None => writeln!(out, "{line}")?,
            }
        }
        notes(".SS NOTES", sub, out)?;
    }
    notes(".SH EXAMPLES", &command, out)?;
    main.render_version_section(out)
}

/// What stands after the options, its lines as they are.
fn notes(head: &str, command: &clap::Command, out: &mut dyn Write) -> io::Result<()> {
    let Some(text) = command.get_after_help() else {
        return Ok(());
    };
    writeln!(out, "{head}\n.nf")?;
    for line in text.to_string().lines() {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        // A dot or an apostrophe at the beginning would be a command.
        writeln!(out, "\\&{line}")?;
    }
    writeln!(out, ".fi")
}

/// Writes a completion script.
///
/// # Errors
/// When the output refuses.
pub fn completions(shell: clap_complete::Shell, out: &mut dyn Write) -> io::Result<()> {
    // The generator panics on a broken pipe: write to memory first.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "slowpath", &mut script);
    out.write_all(&script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_command_and_its_options() {
        let mut out = Vec::new();
        page(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for command in ["UP", "WATCH", "WHY", "REPORT", "OVERHEAD"] {
            assert!(
                text.contains(&format!(".SH \"SLOWPATH {command}\"")),
                "{command}"
            );
        }
        assert!(text.contains("tcp\\-info") && text.contains(".TH slowpath 1"));
    }

    #[test]
    fn completions_know_the_commands() {
        let mut out = Vec::new();
        completions(clap_complete::Shell::Bash, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("overhead") && text.contains("--tcp-info"));
    }
}
