//! What a program or library says of itself in its file: the functions that it has, and its RPATH.

use std::{fs, path::Path};

use object::{
    Endianness, Object, ObjectSymbol, elf,
    read::elf::{Dyn as _, FileHeader},
};

/// A file of the format ELF, read whole.
pub(super) struct Elf(Vec<u8>);

impl Elf {
    pub(super) fn read(path: &Path) -> Option<Self> {
        fs::read(path).ok().map(Self)
    }

    /// Whether it has one of these functions itself.
    pub(super) fn defines(&self, functions: &[&str]) -> bool {
        let Ok(file) = object::File::parse(&*self.0) else { return false };
        let is_it = |name: Result<&str, _>| name.is_ok_and(|name| functions.contains(&name));
        let mut symbols = file.dynamic_symbols().chain(file.symbols());
        symbols.any(|symbol| symbol.is_definition() && is_it(symbol.name()))
    }

    /// The directories of `DT_RPATH`, which the loader searches before those of `LD_LIBRARY_PATH`. It ignores
    /// them where there is also a `DT_RUNPATH`.
    pub(super) fn rpath(&self) -> Option<String> {
        let data = &*self.0;
        let header = elf::FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, data).ok()?;
        let (entries, strings) = sections.dynamic(endian, data).ok()??;
        let strings = sections.strings(endian, data, strings).ok()?;
        let of = |wanted| entries.iter().find(|entry| entry.tag(endian) == wanted);
        if of(elf::DT_RUNPATH).is_some() {
            return None;
        }
        let text = of(elf::DT_RPATH)?.string(endian, strings).ok()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_of_a_library_are_those_that_it_has_itself() {
        let own = Elf::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(own.defines(&["main"]));
        assert!(!own.defines(&["MPI_Init"]));
        assert!(!Elf(b"#!/bin/sh\n".to_vec()).defines(&["main"]));
    }
}
