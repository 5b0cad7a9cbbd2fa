// SPDX-License-Identifier: Apache-2.0
//! The folder of recordings that were kept: whole files or none, the oldest deleted for newer ones.

use slowpath_files::OutputFile;
use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// How a recording's name ends, and that of its description.
const RECORDING: &str = ".rec";
const DESCRIPTION: &str = ".json";
/// How the name of a file begins or ends that is not whole: in earlier versions, and where the file
/// system has no files without a name.
const DRAFTS: (&str, &str) = (".draft-", ".draft");

/// Why the folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("recordings cannot be kept in {}: {source}", folder.display())]
pub struct FolderError {
    folder: PathBuf,
    source: io::Error,
}

/// The folder; it belongs to one agent.
pub(super) struct Folder {
    path: PathBuf,
    limit: u64,
    /// By name, which begins with the time of opening: without its ending, and the bytes of both files.
    files: VecDeque<(String, u64)>,
    pub(super) bytes: u64,
    pub(super) deleted: u64,
}

impl Folder {
    /// Makes it if it is not there, readable by its owner only, and takes in what is there.
    pub(super) fn open(path: PathBuf, limit: u64) -> Result<Folder, FolderError> {
        let opened = slowpath_files::create_folder(&path);
        let read = opened.and_then(|()| Folder::read(&path));
        let files = read.map_err(|source| FolderError {
            folder: path.clone(),
            source,
        })?;
        let bytes = files.iter().map(|(_, bytes)| bytes).sum();
        Ok(Folder {
            path,
            limit,
            files,
            bytes,
            deleted: 0,
        })
    }

    fn read(path: &Path) -> io::Result<VecDeque<(String, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(DRAFTS.0) || name.starts_with('.') && name.ends_with(DRAFTS.1) {
                // Of an agent that was killed.
                fs::remove_file(entry.path())?;
            } else if let Some(stem) = name.strip_suffix(RECORDING) {
                let description = fs::metadata(path.join(format!("{stem}{DESCRIPTION}")));
                let bytes = entry.metadata()?.len()
                    + description.map_or(0, |description| description.len());
                files.push((stem.to_owned(), bytes));
            }
        }
        files.sort();
        Ok(files.into())
    }

    pub(super) fn count(&self) -> u64 {
        self.files.len() as u64
    }

    /// Writes a recording and its description, in the place of what has the same name.
    pub(super) fn write(
        &mut self,
        stem: &str,
        recording: &[u8],
        description: &[u8],
    ) -> io::Result<PathBuf> {
        // The description first: no recording is ever without it.
        self.whole(&format!("{stem}{DESCRIPTION}"), description)?;
        let file = self.whole(&format!("{stem}{RECORDING}"), recording)?;
        if let Some(place) = self.files.iter().position(|(name, _)| name == stem)
            && let Some((_, bytes)) = self.files.remove(place)
        {
            self.bytes -= bytes;
        }
        let bytes = (recording.len() + description.len()) as u64;
        self.bytes += bytes;
        let after = self.files.partition_point(|(name, _)| name.as_str() < stem);
        self.files.insert(after, (stem.to_owned(), bytes));
        self.make_room(stem)?;
        Ok(file)
    }

    fn make_room(&mut self, newest: &str) -> io::Result<()> {
        while self.bytes > self.limit {
            let Some(place) = self.files.iter().position(|(name, _)| name != newest) else {
                return Ok(());
            };
            let Some((stem, bytes)) = self.files.remove(place) else {
                return Ok(());
            };
            self.bytes -= bytes;
            self.deleted += 1;
            for ending in [RECORDING, DESCRIPTION] {
                match fs::remove_file(self.path.join(format!("{stem}{ending}"))) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn whole(&self, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        let mut file = OutputFile::create(&path)?;
        file.write_all(bytes)?;
        file.sync()?;
        file.commit().map(|()| path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn the_oldest_goes_for_a_newer_one_and_is_counted() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new");
        fs::create_dir(&path).unwrap();
        fs::write(path.join(".draft-x.rec"), "half").unwrap();
        fs::write(path.join(".slowpath-7-0.draft"), "half").unwrap();
        fs::write(path.join("else"), "not ours").unwrap();
        let mut folder = Folder::open(path.clone(), 250).unwrap();
        for stem in ["2", "1", "3"] {
            folder.write(stem, &[0; 90], &[0; 10]).unwrap();
        }
        // 1 is older than 2, though it was written later.
        assert_eq!(names(&path), ["2.json", "2.rec", "3.json", "3.rec", "else"]);
        assert_eq!((folder.bytes, folder.count(), folder.deleted), (200, 2, 1));
        // The same one again, longer.
        folder.write("3", &[0; 140], &[0; 10]).unwrap();
        assert_eq!((folder.bytes, folder.count(), folder.deleted), (250, 2, 1));
        // Another agent finds them; one that is too large for the folder is kept by itself.
        let mut folder = Folder::open(path.clone(), 250).unwrap();
        assert_eq!((folder.bytes, folder.count()), (250, 2));
        folder.write("4", &[0; 900], &[0; 10]).unwrap();
        assert_eq!(names(&path), ["4.json", "4.rec", "else"]);
        assert_eq!(folder.deleted, 2);
    }

    #[test]
    fn a_folder_that_cannot_be_is_named() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Folder::open(file.join("in"), 1).err().unwrap().to_string();
        assert!(error.contains("file/in"), "{error}");
    }
}
