// SPDX-License-Identifier: Apache-2.0
//! How much of a command line goes on: arguments can hold secrets. Pure.

use super::secrets::without_secrets;
use slowpath_model::{Owner, Ownership, Process, split_arguments};

/// How much of a command line is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandLines {
    /// The program's name, without its arguments.
    #[default]
    Program,
    /// Arguments too, but for those that look like secrets (docs/reference/owners.md). No rule finds
    /// every secret.
    NoSecrets,
    /// All of it.
    Full,
}

/// The owner with its command line cut down.
pub fn redacted(owner: &Owner, keep: CommandLines) -> Owner {
    let Ok(process) = &owner.process else {
        return owner.clone();
    };
    let Some(line) = &process.command_line else {
        return owner.clone();
    };
    let kept = match keep {
        CommandLines::Full => return owner.clone(),
        CommandLines::Program => split_arguments(line).into_iter().next().unwrap_or_default(),
        CommandLines::NoSecrets => without_secrets(line),
    };
    if kept == **line {
        return owner.clone();
    }
    Owner::new(Ownership {
        process: Ok(Process {
            command_line: Some(kept.into()),
            ..process.clone()
        }),
        ..(**owner).clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(line: &str) -> Owner {
        let mut process = Owner::named(7, "x").process().unwrap().clone();
        process.command_line = Some(line.into());
        Owner::of_process(process)
    }

    fn kept(line: &str, keep: CommandLines) -> String {
        let owner = redacted(&owner(line), keep);
        let line = &owner.process().unwrap().command_line;
        line.as_deref().unwrap_or_default().to_owned()
    }

    #[test]
    fn arguments_stay_behind_unless_asked_for() {
        let line = "/usr/bin/psql -h db --password=hunter2 postgres://a:b@c/d";
        assert_eq!(kept(line, CommandLines::default()), "/usr/bin/psql");
        assert_eq!(kept(line, CommandLines::Full), line);
    }

    #[test]
    fn an_owner_without_a_secret_is_shared() {
        let plain = owner("x y");
        assert!(redacted(&plain, CommandLines::NoSecrets).is_same(&plain));
        let unknown = Owner::default();
        assert!(redacted(&unknown, CommandLines::Program).is_same(&unknown));
    }
}
