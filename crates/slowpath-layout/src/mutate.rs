// SPDX-License-Identifier: Apache-2.0
//! For tests: a header's text with one thing changed in a struct, which the comparison of both
//! sides has to refuse.

/// A changed text.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// What was changed.
    pub change: Change,
    /// The text with the change.
    pub text: String,
}

/// What a mutation changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Two fields that follow each other have changed places.
    Swap,
    /// A number is wider or narrower.
    Size,
    /// A number without a sign has one.
    Sign,
}

/// Types without a sign, each with one of another size and one with a sign.
const NUMBERS: [(&str, &str, &str); 11] = [
    ("u64", "u32", "s64"),
    ("u32", "u64", "s32"),
    ("u16", "u32", "s16"),
    ("u8", "u16", "s8"),
    ("__le64", "__u32", "__s64"),
    ("__le32", "__u64", "__s32"),
    ("__le16", "__u32", "__s16"),
    ("__u8", "__u16", "__s8"),
    ("__u16", "__u32", "__s16"),
    ("__u32", "__u64", "__s32"),
    ("__u64", "__u32", "__s64"),
];

/// A change of each kind for which the struct has fields; none if the text does not have the
/// struct, which begins with `struct NAME {` on a line of its own and has one declaration a line.
pub fn mutations(text: &str, name: &str) -> Vec<Mutation> {
    let lines: Vec<&str> = text.lines().collect();
    let head = format!("struct {name} {{");
    let Some(first) = lines.iter().position(|line| *line == head) else {
        return Vec::new();
    };
    let is_field = |at: &usize| {
        let line = lines[*at].trim_start();
        line.contains(';') && line.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
    };
    let fields: Vec<usize> = (first + 1..lines.len())
        .take_while(|at| !lines[*at].starts_with('}'))
        .filter(is_field)
        .collect();
    let with = |change, changed: &[(usize, String)]| {
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        for (at, line) in changed {
            lines[*at].clone_from(line);
        }
        Mutation {
            change,
            text: lines.join("\n") + "\n",
        }
    };
    let mut all = Vec::new();
    if let [a, b, ..] = fields[..] {
        let swapped = [(a, lines[b].to_owned()), (b, lines[a].to_owned())];
        all.push(with(Change::Swap, &swapped));
    }
    let numbers = fields.iter().find_map(|at| {
        let (kind, rest) = lines[*at].trim_start().split_once(' ')?;
        let (_, size, sign) = NUMBERS.iter().find(|(number, ..)| *number == kind)?;
        Some((*at, format!("\t{size} {rest}"), format!("\t{sign} {rest}")))
    });
    if let Some((at, size, sign)) = numbers {
        all.push(with(Change::Size, &[(at, size)]));
        all.push(with(Change::Sign, &[(at, sign)]));
    }
    all
}

/// What came of trying every mutation of a file.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// Mutations that the compiler or the comparison refused.
    pub refused: Vec<(String, Change)>,
    /// Those that nothing refused: there should be none.
    pub accepted: Vec<(String, Change)>,
}

/// The structs that a text marks `MIRRORED`.
pub fn marked(text: &str) -> Vec<String> {
    let marked = text.lines().filter_map(|line| {
        let name = line.strip_prefix("MIRRORED(struct, ")?;
        name.strip_suffix(");")
    });
    marked.map(str::to_owned).collect()
}

/// Mutates structs of a file, one at a time, in place; the file is afterwards as it was. `check` compiles it, or
/// what includes it, and compares both sides.
///
/// # Errors
/// If the file cannot be read or written, or is refused as it is.
pub fn try_all(
    file: &std::path::Path,
    structs: &[String],
    mut check: impl FnMut() -> Result<(), String>,
) -> Result<Trial, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    let text = std::fs::read_to_string(file).map_err(failed)?;
    check()?;
    let mut trial = Trial::default();
    for name in structs {
        for mutation in mutations(&text, name) {
            std::fs::write(file, &mutation.text).map_err(failed)?;
            let tried = match check() {
                Ok(()) => &mut trial.accepted,
                Err(_) => &mut trial.refused,
            };
            tried.push((name.to_owned(), mutation.change));
        }
    }
    std::fs::write(file, text).map_err(failed)?;
    Ok(trial)
}
