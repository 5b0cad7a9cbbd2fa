// SPDX-License-Identifier: Apache-2.0
//! How much of a command line goes on: arguments can hold secrets. Pure.

use slowpath_model::{Owner, Ownership, Process};

/// How much of a command line is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandLines {
    /// The program's name, without its arguments.
    #[default]
    Program,
    /// Arguments too, but for those that look like secrets: the values of options whose name
    /// speaks of a password, key, token or the like, passwords within URLs, and long words
    /// of many kinds of characters. No rule finds every secret.
    NoSecrets,
    /// All of it.
    Full,
}

/// What stands for a word that is left out.
const HIDDEN: &str = "***";

/// Words that a secret's name contains.
const TELLTALES: [&str; 9] = [
    "pass", "pwd", "secret", "token", "key", "auth", "cred", "cookie", "bearer",
];

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
        CommandLines::Program => line.split(' ').next().unwrap_or_default().to_owned(),
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

/// The line with the words that look like secrets replaced.
fn without_secrets(line: &str) -> String {
    let mut words = Vec::new();
    // How many of the next words are a secret.
    let mut hidden = 0;
    for (i, word) in line.split(' ').enumerate() {
        let named = |name: &str| {
            let name = name.to_ascii_lowercase();
            TELLTALES.iter().any(|t| name.contains(t))
        };
        let shown = if hidden > 0 {
            hidden -= 1;
            HIDDEN.to_owned()
        } else if i == 0 {
            word.to_owned()
        } else if let Some((name, _)) = word.split_once(['=', ':']).filter(|(n, _)| named(n)) {
            // `Authorization: Bearer WORD` is a header in one argument.
            hidden = if word.ends_with(':') { 2 } else { 0 };
            format!("{}{HIDDEN}", &word[..=name.len()])
        } else if word.starts_with('-') && named(word) {
            hidden = 1;
            word.to_owned()
        } else if named_short(word) {
            format!("{}{HIDDEN}", &word[..2])
        } else if let Some(url) = without_password(word) {
            url
        } else if looks_random(word) {
            HIDDEN.to_owned()
        } else {
            word.to_owned()
        };
        words.push(shown);
    }
    words.join(" ")
}

/// `-pWORD` (mysql) and `-uNAME:WORD` (curl).
fn named_short(word: &str) -> bool {
    let value = |prefix| word.strip_prefix(prefix).filter(|v: &&str| !v.is_empty());
    value("-p").is_some_and(|v| !v.bytes().all(|b| b.is_ascii_digit()))
        || value("-u").is_some_and(|v| v.contains(':'))
}

/// `scheme://user:password@host` without the password.
fn without_password(word: &str) -> Option<String> {
    let (scheme, rest) = word.split_once("://")?;
    let (user, host) = rest.split_once('@')?;
    let (name, _) = user.split_once(':')?;
    Some(format!("{scheme}://{name}:{HIDDEN}@{host}"))
}

/// Twenty characters or more that are letters and digits mixed, and no path.
fn looks_random(word: &str) -> bool {
    let word = word.rsplit('=').next().unwrap_or(word);
    word.len() >= 20
        && !word.contains('/')
        && word.bytes().any(|b| b.is_ascii_digit())
        && word.bytes().any(|b| b.is_ascii_alphabetic())
        && word
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'='))
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
    fn secrets_are_hidden_where_they_show() {
        for (line, expected) in [
            ("psql -h db --password=hunter2", "psql -h db --password=***"),
            ("x --api-key hunter2 file", "x --api-key *** file"),
            ("mysql -phunter2 -P 3306 shop", "mysql -p*** -P 3306 shop"),
            ("ssh -p22 host", "ssh -p22 host"),
            ("curl -uann:hunter2 http://h/", "curl -u*** http://h/"),
            ("curl https://ann:hunter2@h/p", "curl https://ann:***@h/p"),
            (
                "curl -H Authorization: Bearer hunter2 u",
                "curl -H Authorization:*** *** *** u",
            ),
            (
                "env DB_PASSWORD=hunter2 server",
                "env DB_PASSWORD=*** server",
            ),
            ("x AKIAIOSFODNN7EXAMPLEQ", "x ***"),
            (
                "java -jar /srv/shop-1.2.jar --port 80",
                "java -jar /srv/shop-1.2.jar --port 80",
            ),
        ] {
            assert_eq!(kept(line, CommandLines::NoSecrets), expected, "{line}");
        }
    }

    #[test]
    fn an_owner_without_a_secret_is_shared() {
        let plain = owner("x y");
        assert!(redacted(&plain, CommandLines::NoSecrets).is_same(&plain));
        let unknown = Owner::default();
        assert!(redacted(&unknown, CommandLines::Program).is_same(&unknown));
    }
}
