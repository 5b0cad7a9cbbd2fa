// SPDX-License-Identifier: Apache-2.0
//! Files that are read whole, up to a bound.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The error within an [`io::Error`] of [`ErrorKind::FileTooLarge`]: which bound it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has more than {} MiB, the most that is read of it", .most >> 20)]
pub struct TooLarge {
    /// The bound, in bytes: a multiple of 1 MiB.
    pub most: u64,
}

/// The bytes of a regular file, or of a pipe or device up to its end; `most` bytes of either, a
/// multiple of 1 MiB.
///
/// # Errors
/// It cannot be read, or is longer: then the kind is [`ErrorKind::FileTooLarge`].
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::new(ErrorKind::FileTooLarge, TooLarge { most });
    let file = File::open(path)?;
    // What is no regular file has no length.
    let length = file.metadata()?.len();
    if length > most {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    // One more than may be shows that there is more.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(too_large());
    }
    Ok(bytes)
}

/// As [`read`], of a file in UTF-8.
///
/// # Errors
/// Those of [`read`], or it is something else than text: then the kind is
/// [`ErrorKind::InvalidData`].
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_has_no_end_is_read_up_to_the_bound() {
        let error = read(Path::new("/dev/zero"), MIB).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("more than 1 MiB"), "{error}");
    }

    #[test]
    fn the_bound_itself_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, vec![b'a'; MIB as usize]).unwrap();
        assert_eq!(read_text(&file, MIB).unwrap().len() as u64, MIB);
        std::fs::write(&file, vec![b'a'; MIB as usize + 1]).unwrap();
        assert_eq!(
            read_text(&file, MIB).unwrap_err().kind(),
            ErrorKind::FileTooLarge
        );
    }

    #[test]
    fn what_is_no_text_or_no_file_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, [0xff, 0xfe]).unwrap();
        assert_eq!(
            read_text(&file, MIB).unwrap_err().kind(),
            ErrorKind::InvalidData
        );
        assert_eq!(
            read(folder.path(), MIB).unwrap_err().kind(),
            ErrorKind::IsADirectory
        );
    }
}
