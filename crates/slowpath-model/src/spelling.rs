// SPDX-License-Identifier: Apache-2.0
//! Which word was meant.

/// Letters from which on a part of a word stands for it.
const PART: usize = 3;

/// By Jaro and Winkler (0 to 1), from which on a word is taken for another one misspelt. `clap` suggests from 0.7 on; here words are shorter.
const LIKE: f64 = 0.8;

/// The known word that was probably meant by `given`, whatever its case; `None`: none is like it.
pub fn nearest(given: &str, known: &[&'static str]) -> Option<&'static str> {
    let given = given.to_lowercase();
    let likeness = |word: &&'static str| {
        let alike = strsim::jaro_winkler(&given, &word.to_lowercase());
        (*word, alike)
    };
    let best = known.iter().map(likeness);
    let best = best.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let like = (best.1 >= LIKE).then_some(best.0);
    // A part of a word, such as 'reno'.
    like.or_else(|| {
        let is_part = given.len() >= PART;
        let contains = |word: &&'static str| is_part && word.to_lowercase().contains(&given);
        known.iter().copied().find(contains)
    })
}

/// The end of a sentence about a word that is unknown: the one that was probably meant, and all.
///
/// ```
/// let known = ["Timeout", "ZeroWindow"];
/// let said = slowpath_model::did_you_mean("zero-window", &known);
/// assert_eq!(said, ". Did you mean 'ZeroWindow'? There are Timeout, ZeroWindow");
/// ```
pub fn did_you_mean(given: &str, known: &[&'static str]) -> String {
    let all = known.join(", ");
    match nearest(given, known) {
        Some(word) => format!(". Did you mean '{word}'? There are {all}"),
        None => format!("; there are {all}"),
    }
}
