// SPDX-License-Identifier: Apache-2.0

use super::*;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_file_is_for_its_owner_unless_the_one_before_was_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, "first").unwrap();
    assert_eq!(mode(&file), 0o600);
    set_mode(&file, 0o4644);
    write(&file, "second").unwrap();
    assert_eq!(mode(&file), 0o644);
    assert_eq!(std::fs::read(&file).unwrap(), b"second");
    assert_eq!(names(folder.path()), ["file"]);
    let deep = folder.path().join("a/b");
    create_folder(&deep).unwrap();
    assert_eq!([mode(&deep), mode(deep.parent().unwrap())], [0o700, 0o700]);
}

#[test]
fn what_is_not_whole_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    for before in [None, Some("before")] {
        if let Some(before) = before {
            std::fs::write(&file, before).unwrap();
        }
        let failed = write_with(&file, |out| {
            out.write_all(&[0; 100_000])?;
            Err::<(), io::Error>(ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::StorageFull);
        let left = std::fs::read_to_string(&file).ok();
        assert_eq!(left.as_deref(), before);
        assert_eq!(names(folder.path()).len(), usize::from(before.is_some()));
    }
}

#[test]
fn a_kill_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut out = OutputFile::create(&folder.path().join("file")).unwrap();
    out.write_all(b"half").unwrap();
    if out.draft.as_ref().is_some_and(|it| it.passing.is_some()) {
        println!("SKIPPED a_kill_leaves_nothing: this file system has no files without a name");
        return;
    }
    // A killed process runs no destructor.
    assert_eq!(names(folder.path()), Vec::<String>::new());
    std::mem::forget(out);
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn where_drafts_have_names_no_planted_one_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let victim = folder.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    let planted = format!(".slowpath-{}-0.draft", std::process::id());
    symlink(&victim, folder.path().join(planted)).unwrap();
    let file = folder.path().join("file");
    // The second one takes the place of the first, for which a draft needs a name.
    for text in ["one", "two"] {
        write(&file, text).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(names(folder.path()).len(), 3);
    }
}

#[test]
fn devices_and_pipes_are_written_to() {
    let full = Path::new("/dev/full");
    let error = write(full, "x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    let is_device = |path: &Path| {
        let kind = std::fs::symlink_metadata(path).unwrap().file_type();
        kind.is_char_device()
    };
    assert!(is_device(full));
    write(Path::new("/dev/null"), "x").unwrap();
    assert!(is_device(Path::new("/dev/null")));

    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap()
    });
    write(&pipe, "through").unwrap();
    assert_eq!(reader.join().unwrap(), b"through");
    assert_eq!(names(folder.path()), ["pipe"]);
}

#[test]
fn an_own_link_stays_and_what_it_leads_to_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (link, file) = (folder.path().join("link"), folder.path().join("file"));
    symlink("file", &link).unwrap();
    for text in ["new", "again"] {
        write(&link, text).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        assert!(link.is_symlink());
    }
    symlink("round", folder.path().join("round")).unwrap();
    let error = write(&folder.path().join("round"), "x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
    assert!(write(folder.path(), "x").is_err());
}

#[test]
fn another_users_link_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (link, victim) = (folder.path().join("link"), folder.path().join("victim"));
    std::fs::write(&victim, "precious").unwrap();
    symlink(&victim, &link).unwrap();
    // Of a user without rights.
    if std::os::unix::fs::lchown(&link, Some(65534), None).is_err() {
        println!("SKIPPED another_users_link_is_not_followed: only root can make one");
        return;
    }
    let error = write(&link, "x").unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn what_may_not_be_written_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    set_mode(&file, 0o400);
    if rustix::process::geteuid().is_root() {
        println!("SKIPPED what_may_not_be_written_is_not_replaced: root may write everything");
        return;
    }
    let error = write(&file, "x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
}

#[test]
fn a_folder_that_took_the_name_meanwhile_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let out = OutputFile::create(&file).unwrap();
    symlink("/dev/null", &file).unwrap();
    assert!(out.commit().is_err());
    assert!(file.is_symlink());
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn an_output_that_would_overwrite_an_input_or_another_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("input"), "precious").unwrap();
    std::fs::write(at("report"), "of before").unwrap();
    symlink("input", at("link")).unwrap();
    std::fs::hard_link(at("input"), at("hard")).unwrap();
    let input = at("input");
    for name in ["input", "link", "hard", "./input"] {
        let refused = refuse(&[&at(name)], &[&input]).unwrap_err();
        assert!(matches!(refused, RefusedOutput::IsRead(_)), "{name}");
    }
    let report = at("report");
    let twice = refuse(&[&report, &report], &[&input]).unwrap_err();
    assert!(matches!(twice, RefusedOutput::Twice(_)) && twice.is_usage());
    let new = at("new");
    let twice = refuse(&[&new, &new], &[]).unwrap_err();
    assert!(matches!(twice, RefusedOutput::Twice(_)));
    // A folder has that name; below a file there is none.
    for wrong in [folder.path().to_owned(), at("input/x")] {
        assert!(!refuse(&[&wrong], &[]).unwrap_err().is_usage());
    }
    // An earlier output is replaced, a folder may still be made, a device takes everything.
    let (deep, null) = (at("deep/er"), Path::new("/dev/null"));
    refuse(&[&report, &new, &deep, null, null], &[&input, null]).unwrap();
    assert_eq!(names(folder.path()), ["hard", "input", "link", "report"]);
    assert_eq!(std::fs::read(report).unwrap(), b"of before");
}
