// SPDX-License-Identifier: Apache-2.0
//! Secrets in command lines, found by how programs are given them. Pure.
//!
//! Arguments are judged one by one, as the program got them. From left to right:
//!
//! 1. What follows an option that takes a secret is one: an option whose name speaks of a password, key,
//!    token or the like ([`NAMES`]), and those of some programs ([`OPTIONS`]).
//! 2. After such a name and `=` or `:`, the rest of the argument is: `--token=X`, `PGPASSWORD=X`, a header,
//!    a connection string, a query.
//! 3. After `-p` and `-P`, in the same argument or the next, whatever is no port, path or number;
//!    after `-u`, `-U` and `--user`, what follows a colon or a percent sign.
//! 4. The password between a name and a host: `ann:X@h`, also within a URL.
//! 5. Words that begin as tokens of well-known services do, or are long, without a slash and of letters
//!    and digits.
//!
//! An argument of several words (a script, a title) is judged as a line of its own. What none of these
//! finds is in `docs/reference/owners.md`, and in the tests.

use slowpath_model::{join_arguments, split_arguments};

/// What stands for a secret.
const HIDDEN: &str = "***";

/// What a secret's name contains.
const NAMES: [&str; 10] = [
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "auth",
    "cred",
    "cookie",
    "bearer",
    "signature",
];

/// Options of programs that take a secret and have no name that says so.
const OPTIONS: [(&str, &[&str]); 5] = [
    ("sshpass", &["-p"]),
    ("redis-cli", &["-a"]),
    ("valkey-cli", &["-a"]),
    ("ldap", &["-w"]),
    ("openssl", &["-k", "-K"]),
];

/// How tokens of services begin: GitHub, GitLab, Slack, OpenAI and Stripe, AWS, Google, Vault, npm; a JSON
/// web token (RFC 7519: base64url of `{"`).
const BEGINNINGS: [&str; 16] = [
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "sk-",
    "sk_",
    "AKIA",
    "ASIA",
    "AIza",
    "hvs.",
    "npm_",
    "eyJ",
    "dop_v1_",
];
/// What is shorter is no token of theirs.
const TOKEN: usize = 16;
/// Long words of letters and digits.
const LONG: usize = 20;
/// Scripts within scripts; what is deeper is hidden.
const DEPTH: usize = 4;

/// The line with `***` for what looks like a secret.
pub(crate) fn without_secrets(line: &str) -> String {
    let arguments = split_arguments(line);
    let shown = judged(&arguments, DEPTH);
    if shown == arguments {
        return line.to_owned();
    }
    join_arguments(&shown)
}

/// What the next argument is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Judged by itself.
    Any,
    /// The number that are secret.
    Secret(u8),
    /// A secret, unless it is a port, a path or a number.
    AfterP,
    /// A name, and perhaps a secret behind it.
    AfterUser,
}

fn judged(arguments: &[String], depth: usize) -> Vec<String> {
    let program = arguments.first().map_or("", |it| file_name(it));
    let mut next = Next::Any;
    let mut shown = Vec::with_capacity(arguments.len());
    for (number, argument) in arguments.iter().enumerate() {
        let (text, after) = match next {
            _ if number == 0 => (argument.clone(), Next::Any),
            Next::Secret(left) if left > 1 => (HIDDEN.to_owned(), Next::Secret(left - 1)),
            Next::Secret(_) => (HIDDEN.to_owned(), Next::Any),
            Next::AfterP if !is_port_or_path(argument) => (HIDDEN.to_owned(), Next::Any),
            Next::AfterUser if user_end(argument).is_some() => {
                (up_to(argument, user_end(argument)), Next::Any)
            }
            _ => one(program, argument, depth),
        };
        shown.push(text);
        next = after;
    }
    shown
}

/// An argument as it is shown, and what the next one is.
fn one(program: &str, argument: &str, depth: usize) -> (String, Next) {
    if let Some(end) = named_value(argument) {
        let (head, _) = one(program, &argument[..end], depth);
        return (head + HIDDEN, Next::Any);
    }
    if argument.contains(char::is_whitespace) {
        let Some(depth) = depth.checked_sub(1) else {
            return (HIDDEN.to_owned(), Next::Any);
        };
        let words = split_arguments(argument);
        // A word of a script may be an option; its first is a program.
        let shown = judged(&words, depth);
        let text = if shown == words {
            argument.to_owned()
        } else {
            join_arguments(&shown)
        };
        return (text, Next::Any);
    }
    word(program, argument)
}

fn word(program: &str, word: &str) -> (String, Next) {
    let as_it_is = |next| (word.to_owned(), next);
    if is_secret_option(program, word) {
        return as_it_is(Next::Secret(1));
    }
    if word.ends_with(':') && is_secret(&word[..word.len() - 1]) {
        // A header in a title: `Authorization: Bearer X`.
        return as_it_is(Next::Secret(2));
    }
    match word {
        "-p" | "-P" => return as_it_is(Next::AfterP),
        "-u" | "-U" | "--user" | "--username" | "--proxy-user" => {
            return as_it_is(Next::AfterUser);
        }
        _ => {}
    }
    let glued = ["-p", "-P"].iter().find_map(|it| word.strip_prefix(it));
    if glued.is_some_and(|value| !is_port_or_path(value)) {
        return (up_to(word, Some(2)), Next::Any);
    }
    let user = ["-u", "-U", "--user=", "--username=", "--proxy-user="];
    let end = user.iter().find_map(|it| {
        let value = word.strip_prefix(it)?;
        user_end(value).map(|end| it.len() + end)
    });
    if end.is_some() {
        return (up_to(word, end), Next::Any);
    }
    if let Some(text) = without_password(word) {
        return (text, Next::Any);
    }
    if looks_random(word) {
        return (HIDDEN.to_owned(), Next::Any);
    }
    as_it_is(Next::Any)
}

fn up_to(text: &str, end: Option<usize>) -> String {
    let end = end.unwrap_or(text.len());
    format!("{}{HIDDEN}", &text[..end])
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a name speaks of a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "sig" || NAMES.iter().any(|it| name.contains(it))
}

fn is_secret_option(program: &str, word: &str) -> bool {
    let of_program =
        |(name, options): &(&str, &[&str])| program.starts_with(name) && options.contains(&word);
    let named = word.starts_with('-') && !word.starts_with("--no-") && is_secret(word);
    named || OPTIONS.iter().any(of_program)
}

/// Where the value begins that has the name of a secret before it.
fn named_value(argument: &str) -> Option<usize> {
    let in_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let separators = argument.match_indices(['=', ':']);
    let mut ends = separators.filter(|(at, separator)| {
        let (before, value) = (&argument[..*at], &argument[at + 1..]);
        // In JSON the name is quoted.
        let before = before.trim_end_matches([' ', '"', '\'']);
        let start = before.trim_end_matches(in_name).len();
        let is_value = match *separator {
            // Not a host and its port, nor one path for another.
            ":" => !is_port(value) && !value.starts_with('/'),
            _ => true,
        };
        !value.is_empty() && is_value && is_secret(&before[start..])
    });
    ends.next().map(|(at, _)| at + 1)
}

/// `80`, `80/path`: what follows a host.
fn is_port(text: &str) -> bool {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
    digits.len() < text.len() && (digits.is_empty() || digits.starts_with(['/', ',', '?']))
}

/// What `-p` and `-P` are also followed by: `22`, `8080:80/tcp`, `127.0.0.1:80:80`, `1-100`, `/path`, an option.
fn is_port_or_path(text: &str) -> bool {
    let numbers = text.split('/').next().unwrap_or(text);
    let of_ports = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b':' | b'-' | b',');
    text.is_empty() || text.starts_with(['/', '.', '~', '-']) || numbers.bytes().all(of_ports)
}

/// Where the password begins in `name:X` or `name%X`; a user and a group by number have none.
fn user_end(text: &str) -> Option<usize> {
    let at = text.find([':', '%'])?;
    let (name, value) = (&text[..at], &text[at + 1..]);
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let is_user = !(name.contains(['=', '/']) || number(name) && number(value));
    (is_user && !value.is_empty() && !value.starts_with("//")).then_some(at + 1)
}

/// `scheme://name:X@host` and `name:X@host` without the password, which may contain anything.
fn without_password(word: &str) -> Option<String> {
    let start = word.find("://").map_or(0, |at| at + 3);
    let (before, host) = word[start..].rsplit_once('@')?;
    let (name, password) = match before.split_once(':') {
        Some((name, password)) => (name, password),
        // A token in the place of the name.
        None if start > 0 && looks_random(before) => ("", before),
        None => return None,
    };
    let hides = !password.is_empty() && (start > 0 || !name.contains('/'));
    let colon = if before.contains(':') { ":" } else { "" };
    hides.then(|| format!("{}{name}{colon}{HIDDEN}@{host}", &word[..start]))
}

/// A token of a service; or long, letters and digits mixed, and no path.
fn looks_random(word: &str) -> bool {
    let word = word.rsplit('=').next().unwrap_or(word);
    if word.len() >= TOKEN && BEGINNINGS.iter().any(|it| word.starts_with(it)) {
        return true;
    }
    word.len() >= LONG
        && !word.contains('/')
        && word.bytes().any(|b| b.is_ascii_digit())
        && word.bytes().any(|b| b.is_ascii_alphabetic())
        && word
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'='))
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
