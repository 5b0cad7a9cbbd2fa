// SPDX-License-Identifier: Apache-2.0
//! What ran out when the kernel refused something: the limit, and how to raise it.

use rustix::process::{Resource, getrlimit};
use std::fs;

/// The limit behind an error number of the kernel; `None` if that means something else.
pub fn exhausted(errno: i32) -> Option<String> {
    Some(match errno {
        libc::EMFILE => {
            let limit = getrlimit(Resource::Nofile).current;
            let limit = limit.map_or_else(|| "any number".to_owned(), |n| n.to_string());
            format!(
                "too many open files: this process may have {limit} (RLIMIT_NOFILE); \
                 raise that with `ulimit -n`, or LimitNOFILE= of the unit"
            )
        }
        libc::ENFILE => {
            let limit = fs::read_to_string("/proc/sys/fs/file-max").unwrap_or_default();
            format!(
                "too many open files of all processes: {} (the sysctl fs.file-max)",
                limit.trim()
            )
        }
        libc::ENOMEM => {
            "the kernel has no memory for it: raise the limit of this process's cgroup \
                         (MemoryMax= of the unit), or free some"
                .to_owned()
        }
        _ => return None,
    })
}

/// A message with the limit behind it, where its cause is one. Libraries hand on the kernel's number in
/// their text only, as [`std::io::Error`] writes it.
pub fn with_limit(message: &str) -> String {
    let numbers = message.split("(os error ").skip(1);
    let mut numbers = numbers.filter_map(|rest| rest.split(')').next()?.parse().ok());
    match numbers.find_map(exhausted) {
        Some(limit) => format!("{message}: {limit}"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Error;

    #[test]
    fn limits_are_named_with_the_way_to_raise_them() {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(0).to_string();
        let message = format!("opening x: {}", Error::from_raw_os_error(libc::EMFILE));
        let text = with_limit(&message);
        assert!(text.starts_with(&message), "{text}");
        assert!(
            text.contains(&limit) && text.contains("ulimit -n"),
            "{text}"
        );
        assert!(exhausted(libc::ENFILE).unwrap().contains("fs.file-max"));
        assert!(exhausted(libc::ENOMEM).unwrap().contains("memory"));
        let other = Error::from_raw_os_error(libc::EPERM).to_string();
        assert_eq!(with_limit(&other), other);
        assert_eq!(
            with_limit("(os error x) (os error"),
            "(os error x) (os error"
        );
    }
}
