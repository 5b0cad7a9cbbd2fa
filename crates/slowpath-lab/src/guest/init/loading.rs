// SPDX-License-Identifier: Apache-2.0
//! Loading modules: those of the order, and those that the kernel asks for.

use super::{InitError, Order, read_order};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;

/// `MODULE_INIT_COMPRESSED_FILE` (include/uapi/linux/module.h): the kernel decompresses.
const COMPRESSED: i32 = 4;

/// Loads a module and what it needs.
pub fn load(order: &Order, name: &str) -> Result<(), InitError> {
    load_tree(order, name, &mut BTreeSet::new())
}

fn load_tree<'a>(
    order: &'a Order,
    name: &'a str,
    begun: &mut BTreeSet<&'a str>,
) -> Result<(), InitError> {
    let Some(module) = order.modules.get(name).filter(|_| begun.insert(name)) else {
        return Ok(());
    };
    for needed in &module.needs {
        load_tree(order, needed, begun)?;
    }
    let file = File::open(&module.file).map_err(InitError::of("open", &module.file))?;
    let flags = match module.file.ends_with(".ko") {
        true => 0,
        false => COMPRESSED,
    };
    match rustix::system::finit_module(file, c"", flags) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(Errno::OPNOTSUPP) => {
            let reason = "this kernel does not decompress modules; decompress them before";
            Err(InitError::of("load", &module.file)(io::Error::other(
                reason,
            )))
        }
        Err(error) => Err(InitError::of("load", &module.file)(error)),
    }
}

/// As modprobe: a module by its name or alias. False: there is none.
pub fn load_wanted(wanted: &str) -> Result<bool, InitError> {
    let order = read_order()?;
    let wanted = wanted.replace('-', "_");
    let name = order.aliases.get(&wanted).unwrap_or(&wanted);
    load(&order, name)?;
    Ok(order.modules.contains_key(name))
}
