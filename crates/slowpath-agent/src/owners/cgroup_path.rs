// SPDX-License-Identifier: Apache-2.0
//! What a cgroup's path names: systemd unit, container, pod. Pure.
//!
//! Names follow systemd's control group names (systemd.unit(5), the escape of leading
//! underscores from `cg_unescape`), the container runtimes' own (`docker-ID.scope`,
//! `cri-containerd-ID.scope`, `crio-ID.scope`, `libpod-ID.scope`, `/docker/ID`, `lxc.payload.NAME`)
//! and the kubelet's (`kubepods-burstable-podUID.slice`, `/kubepods/podUID/ID`). What is
//! innermost counts: a unit of the user's manager before `user@1000.service`.

use slowpath_model::{Cgroup, CgroupSource, Container};
use std::sync::Arc;

/// Digits of a container id (an OCI runtime's is a SHA-256 in hexadecimal).
const ID_DIGITS: usize = 64;

/// Units that processes run in.
const UNIT_TYPES: [&str; 5] = [".service", ".scope", ".socket", ".mount", ".swap"];

/// What the path names.
pub(crate) fn cgroup(path: &str, source: CgroupSource) -> Cgroup {
    let components: Vec<&str> = path.split('/').filter(|c| !c.is_empty()).collect();
    let mut cgroup = Cgroup {
        path: path.into(),
        source,
        unit: None,
        container: None,
        pod: None,
    };
    for (i, component) in components.iter().enumerate() {
        let above = i.checked_sub(1).map(|i| components[i]);
        if let Some(unit) = unit(component) {
            cgroup.unit = Some(unit);
        }
        if let Some(container) = container(above, component) {
            cgroup.container = Some(container);
        }
        if let Some(pod) = pod(component) {
            cgroup.pod = Some(pod);
        }
    }
    cgroup
}

/// Whether the process of this cgroup manages services: it holds sockets for them, not for
/// itself. systemd and its user managers run in an `init.scope` of their own.
pub(crate) fn is_service_manager(path: &str) -> bool {
    path.rsplit('/').next() == Some("init.scope")
}

/// The path that says most of those in `/proc/PID/cgroup` (cgroups(7)): that of the unified
/// hierarchy, unless it is the root; then systemd's, then the longest.
pub(crate) fn choose(text: &str) -> Option<&str> {
    let paths = || {
        text.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers) = (fields.next()?, fields.next()?);
            Some((number, controllers, fields.next()?))
        })
    };
    let is_below_root = |path: &&str| *path != "/";
    let unified = paths().find(|p| p.0 == "0" && p.1.is_empty()).map(|p| p.2);
    let systemd = || paths().find(|p| p.1 == "name=systemd").map(|p| p.2);
    unified
        .filter(is_below_root)
        .or_else(|| systemd().filter(is_below_root))
        .or_else(|| paths().map(|p| p.2).max_by_key(|p| p.len()))
}

fn unit(component: &str) -> Option<Arc<str>> {
    let name = component.strip_prefix('_').unwrap_or(component);
    let known = UNIT_TYPES
        .iter()
        .any(|t| name.strip_suffix(t).is_some_and(|n| !n.is_empty()));
    known.then(|| name.into())
}

fn container(above: Option<&str>, component: &str) -> Option<Container> {
    let found = |id: &str, runtime: Option<&str>| {
        Some(Container {
            id: id.into(),
            runtime: runtime.map(Into::into),
        })
    };
    if let Some(name) = component.strip_prefix("lxc.payload.") {
        return found(name, Some("lxc"));
    }
    if above == Some("lxc") {
        return found(component, Some("lxc"));
    }
    if let Some(name) = component
        .strip_prefix("systemd-nspawn@")
        .and_then(|n| n.strip_suffix(".service"))
    {
        return found(name, Some("systemd-nspawn"));
    }
    // RUNTIME-ID.scope, or SLICE:RUNTIME:ID where runc was ordered to use systemd and did not.
    let name = component.strip_suffix(".scope").unwrap_or(component);
    let id = name.get(name.len().checked_sub(ID_DIGITS)?..)?;
    if !id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let prefix = &name[..name.len() - ID_DIGITS];
    match prefix.strip_suffix(['-', ':']) {
        // The monitor is not in the container that it watches.
        Some(prefix) if prefix.ends_with("conmon") => None,
        Some(prefix) => found(
            id,
            Some(runtime(prefix.rsplit(':').next().unwrap_or(prefix))),
        ),
        None if prefix.is_empty() => found(id, above.filter(|a| *a == "docker")),
        None => None,
    }
}

/// The runtime's name, from what it puts before the id.
fn runtime(prefix: &str) -> &str {
    match prefix {
        "cri-containerd" | "nerdctl" => "containerd",
        "libpod" | "libpod-payload" => "podman",
        "crio" => "cri-o",
        other => other,
    }
}

/// `kubepods-burstable-pod0f2d_..._91.slice` or `pod0f2d-...-91`; systemd's escape of `-`
/// there is `_`.
fn pod(component: &str) -> Option<Arc<str>> {
    let name = component.strip_suffix(".slice");
    let uid = match name {
        Some(name) if name.starts_with("kubepods") => name.rsplit_once("-pod")?.1,
        Some(_) => return None,
        None => component.strip_prefix("pod")?,
    };
    // A UUID, or for static pods a hash of 32 digits.
    let digits = uid.bytes().filter(u8::is_ascii_hexdigit).count();
    let others = uid.bytes().filter(|b| matches!(b, b'-' | b'_')).count();
    (digits == 32 && digits + others == uid.len()).then(|| uid.replace('_', "-").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f2a9c5be0d1476c8a9b0c1d2e3f405162738495a6b7c8d9e0f1a2b3c4d5e6f7";
    const POD: &str = "0f2d1c3b-4a59-4687-9b8a-7c6d5e4f3a21";

    /// Unit, container id and runtime, pod.
    fn names(path: &str) -> [Option<String>; 4] {
        let c = cgroup(path, CgroupSource::Process);
        let (id, runtime) = match c.container {
            Some(c) => (Some(c.id), c.runtime),
            None => (None, None),
        };
        [c.unit, id, runtime, c.pod].map(|t| t.map(|t| t.to_string()))
    }

    /// That the path names this unit and, of the container `ID`, this runtime ("" if it names
    /// none); and whether it names the pod `POD`.
    fn is(path: String, unit: Option<&str>, runtime: Option<&str>, in_pod: bool) {
        let id = runtime.map(|_| ID.to_owned());
        let runtime = runtime.filter(|r| !r.is_empty()).map(str::to_owned);
        let pod = in_pod.then(|| POD.to_owned());
        let expected = [unit.map(str::to_owned), id, runtime, pod];
        assert_eq!(names(&path), expected, "{path}");
    }

    #[test]
    fn units_are_read_from_paths() {
        is("/".into(), None, None, false);
        is(
            "/system.slice/nginx.service".into(),
            Some("nginx.service"),
            None,
            false,
        );
        is(
            "/system.slice/a.service/payload/x".into(),
            Some("a.service"),
            None,
            false,
        );
        is(
            "/system.slice/_cpu.service".into(),
            Some("cpu.service"),
            None,
            false,
        );
        is("/.service".into(), None, None, false);
        is(
            "/user.slice/user-1.slice/user@1.service/app.slice/x.scope".into(),
            Some("x.scope"),
            None,
            false,
        );
    }

    #[test]
    fn containers_and_pods_are_read_from_paths() {
        let under = POD.replace('-', "_");
        is(format!("/docker/{ID}"), None, Some("docker"), false);
        is(
            format!("/docker/{ID}/init.scope"),
            Some("init.scope"),
            Some("docker"),
            false,
        );
        let scope = format!("docker-{ID}.scope");
        is(
            format!("/system.slice/{scope}"),
            Some(&scope),
            Some("docker"),
            false,
        );
        is(
            format!("/machine.slice/libpod-conmon-{ID}.scope"),
            Some(&format!("libpod-conmon-{ID}.scope")),
            None,
            false,
        );
        let scope = format!("libpod-{ID}.scope");
        is(
            format!("/machine.slice/{scope}/container"),
            Some(&scope),
            Some("podman"),
            false,
        );
        let scope = format!("cri-containerd-{ID}.scope");
        is(
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{under}.slice/{scope}"
            ),
            Some(&scope),
            Some("containerd"),
            true,
        );
        is(
            format!("/kubepods/besteffort/pod{POD}/{ID}"),
            None,
            Some(""),
            true,
        );
        is(
            format!("/system.slice:docker:{ID}"),
            None,
            Some("docker"),
            false,
        );
        is(format!("/docker/{}", &ID[1..]), None, None, false);
        is("/kubepods/podium/x".into(), None, None, false);
    }

    #[test]
    fn a_container_may_have_a_name_only() {
        for path in [
            "/lxc.payload.web",
            "/lxc/web",
            "/system.slice/systemd-nspawn@web.service",
        ] {
            assert_eq!(names(path)[1].as_deref(), Some("web"), "{path}");
        }
        assert_eq!(names("/lxc.monitor.web")[1], None);
    }

    #[test]
    fn the_path_that_says_most_is_chosen() {
        for (text, path) in [
            ("0::/a\n", Some("/a")),
            ("4:memory:/m/x\n1:name=systemd:/s\n0::/\n", Some("/s")),
            ("4:memory:/m/x\n1:name=systemd:/\n0::/\n", Some("/m/x")),
            ("4:memory:/m/x\n1:name=systemd:/s\n0::/u\n", Some("/u")),
            ("0::/\n", Some("/")),
            ("0::/a:b\n", Some("/a:b")),
            ("", None),
        ] {
            assert_eq!(choose(text), path, "{text}");
        }
    }

    #[test]
    fn managers_are_in_scopes_of_their_own() {
        assert!(is_service_manager("/init.scope"));
        assert!(is_service_manager(
            "/user.slice/user-1.slice/user@1.service/init.scope"
        ));
        assert!(!is_service_manager("/init.scope/x"));
    }
}
