// SPDX-License-Identifier: Apache-2.0
//! How much of a processor a process gets, from `/proc` and the cgroup file system.

use slowpath_model::Micros;
use std::fs;
use std::path::Path;

/// How long a process has waited for a processor since it began: ready to run (its main thread), or kept from
/// it by its cgroup's CPU quota, whichever was longer; `None` if it is gone or not ours to read. A kernel may count the
/// latter within the former, so that they do not add up.
pub fn wait(pid: u32) -> Option<Micros> {
    let process = Path::new("/proc").join(pid.to_string());
    let ready = fs::read_to_string(process.join("schedstat")).ok();
    let ready = ready.and_then(|text| ready_time(&text));
    ready.max(quota(pid, throttled_time))
}

/// From `/proc/PID/schedstat`: nanoseconds on a processor, and waiting for one
/// (Documentation/scheduler/sched-stats.rst).
fn ready_time(text: &str) -> Option<Micros> {
    let nanos: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Micros(nanos / 1_000))
}

/// The part of the periods of its cgroup's CPU quota in which a process ran out of it, 0..=1, since the cgroup was made;
/// `None` without a quota, or if the process is gone.
pub fn throttled(pid: u32) -> Option<f64> {
    quota(pid, throttled_part)
}

/// What `of` finds in the `cpu.stat` of a process's cgroup, of version 2 or 1.
fn quota<T>(pid: u32, of: impl Fn(&str) -> Option<T>) -> Option<T> {
    let cgroups =
        fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("cgroup")).ok()?;
    cgroups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        let roots: &[&str] = match controllers {
            "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
            of if of.split(',').any(|c| c == "cpu") => {
                &["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"]
            }
            _ => return None,
        };
        let stat = |root: &&str| fs::read_to_string(Path::new(root).join(path).join("cpu.stat"));
        roots.iter().find_map(|root| of(&stat(root).ok()?))
    })
}

/// A number of `cpu.stat`.
fn number(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
}

/// The part of the periods of the CPU quota in which it ran out, 0..=1; `None` without a quota
/// (Documentation/scheduler/sched-bwc.rst).
fn throttled_part(text: &str) -> Option<f64> {
    let periods = number(text, "nr_periods").filter(|n| *n > 0)?;
    Some((number(text, "nr_throttled")? as f64 / periods as f64).min(1.0))
}

/// For how long the quota kept its processes from running, on any processor: microseconds in version 2 of
/// cgroups, nanoseconds in version 1 (the same document).
fn throttled_time(text: &str) -> Option<Micros> {
    let of_first = || number(text, "throttled_time").map(|nanos| nanos / 1_000);
    number(text, "throttled_usec").or_else(of_first).map(Micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_ran_out_in_half_of_its_periods_is_a_half() {
        let text = "usage_usec 1\nnr_periods 40\nnr_throttled 20\nthrottled_usec 7\n";
        assert_eq!(throttled_part(text), Some(0.5));
        assert_eq!(throttled_part("nr_periods 0\nnr_throttled 0\n"), None);
        assert_eq!(throttled_part(""), None);
    }

    #[test]
    fn a_processor_is_waited_for_on_its_queue_or_without_a_quota() {
        assert_eq!(ready_time("227795 2971726 1\n"), Some(Micros(2_971)));
        assert_eq!(ready_time(""), None);
        let second = "usage_usec 1\nnr_throttled 20\nthrottled_usec 7000\n";
        assert_eq!(throttled_time(second), Some(Micros(7_000)));
        let first = "nr_periods 10\nnr_throttled 10\nthrottled_time 830498286\n";
        assert_eq!(throttled_time(first), Some(Micros(830_498)));
        assert_eq!(throttled_time("usage_usec 1\n"), None);
        let before = wait(std::process::id());
        assert!(before.is_none() || wait(std::process::id()) >= before);
        assert_eq!(wait(u32::MAX), None);
    }
}
