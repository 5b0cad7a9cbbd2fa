// SPDX-License-Identifier: Apache-2.0
//! The kernel that boots, and its modules.
//!
//! What enters: a folder as depmod leaves it. What leaves: which files are needed for a
//! module and in which order, or the names that look like one that does not exist.

use super::GuestError;
use super::wire::ModuleFile;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its image (bzImage).
    pub image: PathBuf,
    /// The folder with its `modules.dep`.
    pub modules: Option<PathBuf>,
}

impl Kernel {
    /// The kernel that `make lab-guest` fetched.
    ///
    /// # Errors
    /// There is none.
    pub fn cached() -> Result<Self, GuestError> {
        let folder = cache();
        let missing = || GuestError::KernelMissing {
            folder: folder.clone(),
        };
        let image = first_of(&folder.join("boot"), "vmlinuz-").ok_or_else(missing)?;
        let modules = first_of(&folder.join("lib/modules"), "").ok_or_else(missing)?;
        Ok(Kernel {
            image,
            modules: Some(modules),
        })
    }
}

/// Where `make lab-guest` keeps the kernel in use: `SLOWPATH_GUEST`, else in the user's cache.
fn cache() -> PathBuf {
    if let Some(folder) = std::env::var_os("SLOWPATH_GUEST") {
        return folder.into();
    }
    let absolute = |path: &PathBuf| path.is_absolute();
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(absolute)
        .or_else(home)
        .unwrap_or_default()
        .join("slowpath/guest/current")
}

fn first_of(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.into_iter().next()
}

/// Names are compared as the kernel spells them.
fn spelt(name: &str) -> String {
    name.replace('-', "_")
}

fn name_of(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    spelt(base.split(".ko").next().unwrap_or(base))
}

/// What depmod knows of a kernel's modules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    folder: PathBuf,
    /// The file of each, relative to the folder, and the modules it needs, first to load
    /// first.
    files: BTreeMap<String, (String, Vec<String>)>,
    built_in: BTreeSet<String>,
    /// Aliases without patterns in them.
    aliases: BTreeMap<String, String>,
}

impl Modules {
    /// Reads `modules.dep`, `modules.builtin` and `modules.alias`.
    ///
    /// # Errors
    /// The first is missing or unreadable.
    pub fn read(folder: &Path) -> Result<Self, GuestError> {
        let list = folder.join("modules.dep");
        let dependencies = fs::read_to_string(&list).map_err(GuestError::file("read", &list))?;
        let optional = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        Ok(Self::parse(
            folder,
            &dependencies,
            &optional("modules.builtin"),
            &optional("modules.alias"),
        ))
    }

    fn parse(folder: &Path, dependencies: &str, built_in: &str, aliases: &str) -> Self {
        let mut modules = Modules {
            folder: folder.to_owned(),
            ..Modules::default()
        };
        for line in dependencies.lines() {
            let Some((file, needs)) = line.split_once(':') else {
                continue;
            };
            // depmod lists the direct ones first, each before what it needs itself.
            let needs = needs.split_whitespace().rev().map(name_of).collect();
            modules
                .files
                .insert(name_of(file), (file.to_owned(), needs));
        }
        modules.built_in = built_in.lines().map(name_of).collect();
        for line in aliases.lines() {
            let mut words = line.split_whitespace();
            if let (Some("alias"), Some(alias), Some(module)) =
                (words.next(), words.next(), words.next())
                && !alias.contains(['*', '?', '['])
            {
                modules.aliases.insert(spelt(alias), spelt(module));
            }
        }
        modules
    }

    /// The module of a name or alias; `None` if it is built in.
    ///
    /// # Errors
    /// There is none; with those that look alike.
    pub fn find(&self, name: &str) -> Result<Option<&str>, GuestError> {
        let wanted = spelt(name);
        let wanted = match self.aliases.get(&wanted) {
            Some(module) if !self.files.contains_key(&wanted) => module.clone(),
            _ => wanted,
        };
        if let Some((found, _)) = self.files.get_key_value(&wanted) {
            return Ok(Some(found));
        }
        if self.built_in.contains(&wanted) {
            return Ok(None);
        }
        Err(GuestError::UnknownModule {
            name: name.to_owned(),
            similar: self.similar(&wanted),
        })
    }

    /// The module and all it needs, as (name, file on this machine, its parameters in the guest).
    pub fn closure(&self, name: &str) -> Vec<(&str, PathBuf, ModuleFile)> {
        let Some((_, needs)) = self.files.get(name) else {
            return Vec::new();
        };
        needs
            .iter()
            .map(String::as_str)
            .chain([name])
            .filter_map(|name| {
                let (name, (file, needs)) = self.files.get_key_value(name)?;
                let module = ModuleFile {
                    file: format!("/lib/modules/{file}"),
                    needs: needs.clone(),
                };
                Some((name.as_str(), self.folder.join(file), module))
            })
            .collect()
    }

    /// Modules whose file is below one of the folders.
    pub fn below<'a>(&'a self, folders: &'a [&str]) -> impl Iterator<Item = &'a str> {
        self.files
            .iter()
            .filter(|(_, (file, _))| folders.iter().any(|folder| file.starts_with(folder)))
            .map(|(name, _)| name.as_str())
    }

    /// Aliases of one of the modules.
    pub fn aliases_of<'a>(
        &'a self,
        modules: &'a BTreeMap<String, ModuleFile>,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.aliases
            .iter()
            .filter(|(_, module)| modules.contains_key(*module))
            .map(|(alias, module)| (alias.as_str(), module.as_str()))
    }

    fn similar(&self, wanted: &str) -> Vec<String> {
        /// More would hide the right one.
        const MOST: usize = 4;
        let mut near: Vec<(usize, &String)> = self
            .files
            .keys()
            .filter_map(|name| {
                let within = wanted.len() > 2 && name.split('_').any(|part| part == wanted);
                let distance = if within { 0 } else { distance(name, wanted) };
                (distance <= 1 + wanted.len() / 4).then_some((distance, name))
            })
            .collect();
        near.sort();
        near.into_iter()
            .take(MOST)
            .map(|(_, name)| name.clone())
            .collect()
    }
}

/// Edits (insert, delete, replace) between two names.
fn distance(a: &str, b: &str) -> usize {
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules() -> Modules {
        Modules::parse(
            Path::new("/lib/modules/6"),
            "kernel/net/sched/sch_netem.ko.xz:\n\
             kernel/net/sched/sch_fq.ko.xz:\n\
             kernel/net/ipv4/tcp_diag.ko.xz: kernel/net/ipv4/inet_diag.ko.xz\n\
             kernel/net/ipv4/inet_diag.ko.xz:\n\
             kernel/a/top-most.ko: kernel/a/middle.ko kernel/a/base.ko\n\
             kernel/a/middle.ko: kernel/a/base.ko\n\
             kernel/a/base.ko:\n",
            "kernel/drivers/char/virtio_console.ko\n",
            "# Aliases\nalias net-sch-netem sch_netem\nalias pci:v*d* base\n",
        )
    }

    #[test]
    fn what_a_module_needs_comes_before_it() {
        let modules = modules();
        let order: Vec<&str> = modules
            .closure("top_most")
            .iter()
            .map(|(name, ..)| *name)
            .collect();
        assert_eq!(order, ["base", "middle", "top_most"]);
        let [_, (_, file, reported)] = &modules.closure("tcp_diag")[..] else {
            panic!("two modules");
        };
        assert_eq!(
            file,
            Path::new("/lib/modules/6/kernel/net/ipv4/tcp_diag.ko.xz")
        );
        assert_eq!(reported.needs, ["inet_diag"]);
    }

    #[test]
    fn names_aliases_and_what_is_built_in() {
        let modules = modules();
        assert!(matches!(modules.find("top-most"), Ok(Some("top_most"))));
        assert!(matches!(
            modules.find("net-sch-netem"),
            Ok(Some("sch_netem"))
        ));
        assert!(matches!(modules.find("virtio_console"), Ok(None)));
        let error = modules.find("netem").expect_err("no such module");
        assert_eq!(
            error.to_string(),
            "this kernel has no module netem; it has sch_netem"
        );
        let error = modules.find("tcp_dcttcp").expect_err("no such module");
        assert!(
            error
                .to_string()
                .starts_with("this kernel has no module tcp_dcttcp")
        );
    }

    #[test]
    fn distances_are_those_of_the_textbook() {
        for (a, b, expected) in [
            ("kitten", "sitting", 3),
            ("", "abc", 3),
            ("flaw", "lawn", 2),
            ("same", "same", 0),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }
}
