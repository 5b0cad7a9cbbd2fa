// SPDX-License-Identifier: Apache-2.0

use super::*;

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// A run that leaves these files, each with that text.
fn run(folder: &Path, maker: &str, files: &[&str], text: &str) -> Result<(), ResultsError> {
    let results = ResultsFolder::open(folder, maker)?;
    for name in files {
        write(&results.draft().join(name), text).unwrap();
    }
    results.commit()
}

#[test]
fn a_folder_is_new_empty_or_of_the_same_command() {
    let all = tempfile::tempdir().unwrap();
    let at = |name: &str| all.path().join(name);
    // Not there, two levels deep, and there but empty.
    run(&at("a/b"), "one", &["x"], "1").unwrap();
    fs::create_dir(at("empty")).unwrap();
    run(&at("empty"), "one", &["x"], "1").unwrap();
    // The same command again, another one, and a folder that none of them wrote.
    run(&at("empty"), "one", &["x"], "2").unwrap();
    let error = run(&at("empty"), "two", &["x"], "3").unwrap_err();
    assert!(
        error.is_usage() && error.to_string().contains("`one`"),
        "{error}"
    );
    fs::create_dir(at("mine")).unwrap();
    fs::write(at("mine/letter"), "precious").unwrap();
    let error = run(&at("mine"), "one", &["letter"], "3").unwrap_err();
    assert!(
        error.is_usage() && error.to_string().contains("letter"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(at("mine/letter")).unwrap(), "precious");
    assert_eq!(fs::read_to_string(at("empty/x")).unwrap(), "2");
    assert_eq!(names(&at("mine")), ["letter"]);
    // A file is no folder.
    let error = run(&at("mine/letter"), "one", &[], "").unwrap_err();
    assert!(!error.is_usage(), "{error}");
}

#[test]
fn a_run_replaces_the_one_before_and_nothing_else() {
    let all = tempfile::tempdir().unwrap();
    let folder = all.path().join("results");
    run(&folder, "one", &["both", "first"], "1").unwrap();
    fs::write(folder.join("notes"), "mine").unwrap();
    fs::set_permissions(folder.join("both"), Permissions::from_mode(0o644)).unwrap();
    run(&folder, "one", &["both", "second"], "2").unwrap();
    assert_eq!(names(&folder), [LIST, "both", "notes", "second"]);
    assert_eq!(fs::read_to_string(folder.join("both")).unwrap(), "2");
    let mode = |name: &str| fs::metadata(folder.join(name)).unwrap().mode() & 0o777;
    assert_eq!([mode("both"), mode("second")], [0o644, 0o600]);
    assert_eq!(
        fs::read_to_string(folder.join(LIST)).unwrap(),
        "one\nboth\nsecond\n"
    );
}

#[test]
fn folders_among_results_are_replaced_as_a_whole() {
    let all = tempfile::tempdir().unwrap();
    let folder = all.path().join("results");
    for name in ["old", "new"] {
        let results = ResultsFolder::open(&folder, "one").unwrap();
        fs::create_dir(results.draft().join("deep")).unwrap();
        fs::write(results.draft().join("deep").join(name), "").unwrap();
        results.commit().unwrap();
    }
    assert_eq!(names(&folder.join("deep")), ["new"]);
}

#[test]
fn a_run_that_does_not_end_leaves_what_was_there() {
    let all = tempfile::tempdir().unwrap();
    let folder = all.path().join("results");
    run(&folder, "one", &["x"], "1").unwrap();
    let results = ResultsFolder::open(&folder, "one").unwrap();
    write(&results.draft().join("x"), "2").unwrap();
    drop(results);
    assert_eq!(names(&folder), [LIST, "x"]);
    assert_eq!(fs::read_to_string(folder.join("x")).unwrap(), "1");
    // A killed one has no lock any more; one that runs has.
    let killed = folder.join(format!("{OWN}1-0.draft"));
    fs::create_dir(&killed).unwrap();
    let running = ResultsFolder::open(&folder, "one").unwrap();
    assert!(!killed.exists());
    let second = ResultsFolder::open(&folder, "one").unwrap();
    assert!(running.draft().exists() && running.draft() != second.draft());
}

#[test]
fn a_list_leads_to_nothing_outside_the_folder() {
    let all = tempfile::tempdir().unwrap();
    let folder = all.path().join("results");
    fs::create_dir(&folder).unwrap();
    let victim = all.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let planted = format!("one\n../victim\n{}\n.\n..\na/b\n{LIST}\n", victim.display());
    fs::write(folder.join(LIST), planted).unwrap();
    assert_eq!(check(&folder, "one").unwrap(), BTreeSet::new());
    run(&folder, "one", &["x"], "1").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn a_claimed_folder_goes_on() {
    let all = tempfile::tempdir().unwrap();
    let folder = all.path().join("sweep");
    claim(&folder, "one", &["runs"]).unwrap();
    fs::write(folder.join("runs"), "1").unwrap();
    claim(&folder, "one", &["runs"]).unwrap();
    assert_eq!(fs::read_to_string(folder.join("runs")).unwrap(), "1");
    assert!(claim(&folder, "two", &["runs"]).unwrap_err().is_usage());
}
