// SPDX-License-Identifier: Apache-2.0
//! The manual page and shell completions, both from the definition of the command line.

use crate::args::Cli;
use clap::CommandFactory;
use clap_mangen::Man;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

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

/// Writes a page a command into a directory, as an installation has them: `slowpath.1`, which
/// lists the commands, `slowpath-watch.1` and so on.
///
/// # Errors
/// When the directory cannot be made or a page not be written.
pub fn pages(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, None, directory)
}

/// The page of a command, and below it those of its subcommands.
fn write_pages(command: &clap::Command, parent: Option<&str>, directory: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut out = Vec::new();
    let man = Man::new(command.clone())
        .source(concat!("slowpath ", env!("CARGO_PKG_VERSION")))
        .manual("slowpath");
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    notes(".SH NOTES", command, &mut out)?;
    let mut related: Vec<&str> = parent.into_iter().collect();
    related.extend(
        command
            .get_subcommands()
            .filter_map(|s| s.get_display_name()),
    );
    if !related.is_empty() {
        writeln!(out, ".SH \"SEE ALSO\"")?;
        let related: Vec<String> = related
            .iter()
            .map(|name| format!("\\fB{}\\fR(1)", name.replace('-', "\\-")))
            .collect();
        writeln!(out, "{}", related.join(",\n"))?;
    }
    fs::write(directory.join(format!("{name}.1")), out)?;
    for sub in command.get_subcommands() {
        write_pages(sub, Some(name), directory)?;
    }
    Ok(())
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
    fn an_installation_has_a_page_a_command() {
        let directory = tempfile::tempdir().unwrap();
        pages(directory.path()).unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        let main = read("slowpath.1");
        for command in Cli::command().get_subcommands() {
            let name = format!("slowpath-{}", command.get_name());
            let page = read(&format!("{name}.1"));
            assert!(page.contains(&format!(".TH {name} 1")), "{name}");
            assert!(main.contains(&name.replace('-', "\\-")), "{name}");
        }
        // Commands below commands, and what stands after a command's options.
        assert!(read("slowpath-lab-up.1").contains("fBslowpath\\-lab\\fR(1)"));
        assert!(read("slowpath-watch.1").contains("Filters are ss(8) expressions"));
    }

    #[test]
    fn completions_know_the_commands() {
        let mut out = Vec::new();
        completions(clap_complete::Shell::Bash, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("overhead") && text.contains("--tcp-info"));
    }
}
