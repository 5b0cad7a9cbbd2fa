// SPDX-License-Identifier: Apache-2.0
//! Scenarios by their names: those that are installed with the program, or lie in its source tree.

use std::path::{Path, PathBuf};

/// Folders of other scenarios, with colons between; they come first.
const VARIABLE: &str = "SLOWPATH_SCENARIOS";
/// Below a folder of scenarios, in the order in which they are searched.
const KINDS: [&str; 4] = ["", "sim", "lab", "replay"];

/// The file that an argument names: itself, or the scenario of that name.
///
/// # Errors
/// There is neither; what there is.
pub fn find(argument: &Path) -> Result<PathBuf, String> {
    let is_name = argument.components().count() == 1;
    if !is_name || argument.is_file() {
        return Ok(argument.to_owned());
    }
    find_in(argument, &folders())
}

/// Where scenarios are.
fn folders() -> Vec<PathBuf> {
    let variable = std::env::var_os(VARIABLE).unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&variable)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    let program = std::env::current_exe().ok();
    if let Some(folder) = program.as_deref().and_then(Path::parent) {
        folders.push(folder.join("../share/slowpath/scenarios"));
        // `target/release` of the source tree.
        folders.push(folder.join("../../scenarios"));
    }
    folders
}

fn find_in(name: &Path, folders: &[PathBuf]) -> Result<PathBuf, String> {
    let file = name.with_extension("toml");
    let places = || {
        folders
            .iter()
            .flat_map(|at| KINDS.map(|kind| at.join(kind)))
    };
    let found = places()
        .map(|folder| folder.join(&file))
        .find(|it| it.is_file());
    found.ok_or_else(|| {
        let mut names: Vec<String> = places().flat_map(|folder| names(&folder)).collect();
        names.sort();
        names.dedup();
        match names.is_empty() {
            true => format!(
                "there is no such file, and no scenario of that name: none is installed, and {VARIABLE} names no folder with some"
            ),
            false => format!(
                "there is no such file, and no scenario of that name; there are {}",
                names.join(", ")
            ),
        }
    })
}

/// Names of the scenarios in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path());
    let scenarios = files.filter(|path| path.extension().is_some_and(|it| it == "toml"));
    scenarios
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_finds_its_file_and_a_wrong_one_what_there_is() {
        let directory = tempfile::tempdir().unwrap();
        let sim = directory.path().join("sim");
        std::fs::create_dir(&sim).unwrap();
        for file in ["incast.toml", "other.toml", "sizes.txt"] {
            std::fs::write(sim.join(file), "").unwrap();
        }
        let folders = [directory.path().join("none"), directory.path().to_owned()];
        for name in ["incast", "incast.toml"] {
            let found = find_in(Path::new(name), &folders).unwrap();
            assert_eq!(found, sim.join("incast.toml"));
        }
        let error = find_in(Path::new("incst"), &folders).unwrap_err();
        assert!(error.ends_with("there are incast, other"), "{error}");
        let error = find_in(Path::new("incast"), &folders[..1]).unwrap_err();
        assert!(error.contains(VARIABLE), "{error}");
    }

    #[test]
    fn a_path_is_taken_as_it_is() {
        let path = Path::new("missing/incast.toml");
        assert_eq!(find(path).unwrap(), path);
    }
}
