// SPDX-License-Identifier: Apache-2.0
//! The arguments of a process as one line.
//!
//! Arguments with spaces, quotation marks or nothing in them stand in apostrophes as a shell wants them, so
//! that the line still says where each begins and ends.

/// The arguments as a line. One by itself stays as it is: a title that a process gave itself has spaces.
pub fn join_arguments<T: AsRef<str>>(arguments: &[T]) -> String {
    if let [only] = arguments {
        return only.as_ref().to_owned();
    }
    let quoted: Vec<String> = arguments.iter().map(|it| quoted(it.as_ref())).collect();
    quoted.join(" ")
}

fn quoted(argument: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && !matches!(c, '\'' | '"' | '\\');
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
}

/// The arguments of a line: what a shell makes of spaces, quotation marks and backslashes (POSIX.1-2024,
/// Shell Command Language 2.2). A quotation mark that is never closed reaches to the end.
pub fn split_arguments(line: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut current: Option<String> = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_whitespace() {
            arguments.extend(current.take());
            continue;
        }
        let argument = current.get_or_insert_default();
        match c {
            '\'' => argument.extend(chars.by_ref().take_while(|c| *c != '\'')),
            '"' => {
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    let escaped = c == '\\' && matches!(chars.peek(), Some('"' | '\\'));
                    argument.extend(if escaped { chars.next() } else { Some(c) });
                }
            }
            '\\' => argument.extend(chars.next()),
            c => argument.push(c),
        }
    }
    arguments.extend(current);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_where_arguments_begin() {
        for arguments in [
            &["sh", "-c", "read line", "named"][..],
            &["a", "", "b"],
            &["it's", "\"x\"", "\\", "'"],
            &["--passphrase", "two words"],
            &["x", "größe\u{a0}x", "a\tb\nc"],
        ] {
            assert_eq!(split_arguments(&join_arguments(arguments)), arguments);
        }
        assert_eq!(
            join_arguments(&["sh", "-c", "echo it's"]),
            r"sh -c 'echo it'\''s'"
        );
    }

    #[test]
    fn a_title_has_no_quotation_marks() {
        let title = "nginx: worker process";
        assert_eq!(join_arguments(&[title]), title);
        assert_eq!(split_arguments(title), ["nginx:", "worker", "process"]);
        assert_eq!(join_arguments::<&str>(&[]), "");
    }

    #[test]
    fn shells_forms_are_read() {
        assert_eq!(
            split_arguments(r#"a "b \"c\" d" e\ f 'g"#),
            ["a", "b \"c\" d", "e f", "g"]
        );
        assert_eq!(split_arguments("  a   b  "), ["a", "b"]);
        assert!(split_arguments("").is_empty());
    }
}
