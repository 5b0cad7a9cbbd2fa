// SPDX-License-Identifier: Apache-2.0
//! What a program needs in order to run, read from its file.
//!
//! What enters: the bytes of an ELF file. What leaves: its interpreter, the names of its
//! libraries and where it wants them looked for. What is promised: any bytes give an answer
//! or a reason, never a panic.

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

/// What one file needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// PT_INTERP: the program that loads it.
    pub interpreter: Option<String>,
    /// DT_NEEDED, in their order.
    pub libraries: Vec<String>,
    /// DT_RUNPATH, else DT_RPATH: folders to look in first; `$ORIGIN` not yet replaced.
    pub search: Vec<String>,
    /// Where the last segment ends: what follows (symbols, debugging information) is never
    /// loaded.
    pub loaded: usize,
}

/// Whether the bytes begin as ELF files do.
pub fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(&elf::ELFMAG)
}

/// Reads what a file needs.
///
/// # Errors
/// It is no 64-bit x86 program or library, or damaged; in words.
pub fn needs(bytes: &[u8]) -> Result<Needs, String> {
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(|e| e.to_string())?;
    let endian = header.endian().map_err(|e| e.to_string())?;
    if header.e_machine(endian) != elf::EM_X86_64 {
        return Err("it is not for x86-64".to_owned());
    }
    let segments = header
        .program_headers(endian, bytes)
        .map_err(|e| e.to_string())?;
    let mut found = Needs::default();
    // The header and the table of segments are needed in any case.
    let table = header
        .e_phoff(endian)
        .saturating_add(u64::from(header.e_phentsize(endian)) * segments.len() as u64);
    let mut loaded = table.max(size_of::<FileHeader64<Endianness>>() as u64);
    let mut entries: &[elf::Dyn64<Endianness>] = &[];
    for segment in segments {
        let end = segment
            .p_offset(endian)
            .saturating_add(segment.p_filesz(endian));
        loaded = loaded.max(end);
        if let Some(path) = segment
            .interpreter(endian, bytes)
            .map_err(|e| e.to_string())?
        {
            found.interpreter = Some(text(path));
        }
        if let Some(table) = segment.dynamic(endian, bytes).map_err(|e| e.to_string())? {
            entries = table;
        }
    }
    found.loaded = usize::try_from(loaded)
        .ok()
        .filter(|end| *end <= bytes.len())
        .ok_or("it is cut short")?;
    let value = |tag| {
        let entry = entries.iter().find(|entry| entry.d_tag(endian) == tag);
        entry.map(|entry| entry.d_val(endian))
    };
    let names = match (value(elf::DT_STRTAB), value(elf::DT_STRSZ)) {
        (Some(address), Some(size)) => segments
            .iter()
            .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
            .find_map(|segment| segment.data_range(endian, bytes, address, size).ok()?)
            .ok_or("its names of libraries are outside the file")?,
        _ => &[],
    };
    let name = |offset: u64| -> Result<String, String> {
        let rest = usize::try_from(offset).ok().and_then(|at| names.get(at..));
        let rest = rest.ok_or("a name of a library is outside its table")?;
        let end = rest.iter().position(|byte| *byte == 0);
        Ok(text(&rest[..end.unwrap_or(rest.len())]))
    };
    for entry in entries {
        match entry.d_tag(endian) {
            elf::DT_NULL => break,
            elf::DT_NEEDED => found.libraries.push(name(entry.d_val(endian))?),
            _ => {}
        }
    }
    if let Some(offset) = value(elf::DT_RUNPATH).or_else(|| value(elf::DT_RPATH)) {
        let folders = name(offset)?;
        found.search = folders.split(':').map(str::to_owned).collect();
    }
    Ok(found)
}

/// The file without what is never loaded: it runs as before and is a fraction as long.
pub fn trimmed(mut bytes: Vec<u8>, needs: &Needs) -> Vec<u8> {
    // Offsets in Elf64_Ehdr (System V ABI, "ELF Header").
    const E_SHOFF: std::ops::Range<usize> = 40..48;
    const E_SHNUM_AND_SHSTRNDX: std::ops::Range<usize> = 60..64;
    bytes.truncate(needs.loaded);
    for field in [E_SHOFF, E_SHNUM_AND_SHSTRNDX] {
        if let Some(field) = bytes.get_mut(field) {
            field.fill(0);
        }
    }
    bytes
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
