//! Asks the loader which shared libraries it would load for a program, by `ldd`; nothing of the program
//! is run.

use std::path::Path;
use std::{collections::BTreeMap, path::PathBuf, process::Command};

use crate::doctor::command;

/// The shared libraries of a program, in the order in which they are searched for functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Linked {
    pub(super) libraries: Vec<Library>,
    /// Libraries, or versions of them, that the loader does not find.
    pub(super) missing: Vec<String>,
}

/// A library by the name under which it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Library {
    pub(super) name: String,
    pub(super) path: PathBuf,
}

impl Linked {
    /// `None` for what is no dynamically linked program, such as a script.
    pub(super) fn of(program: &Path, env: &BTreeMap<String, String>) -> Option<Self> {
        command::text(Command::new("ldd").arg(program).envs(env)).ok().map(|text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut linked = Self::default();
        for line in text.lines().map(str::trim) {
            if let Some((name, found)) = line.split_once(" => ") {
                match found.strip_prefix('/') {
                    Some(_) => linked.libraries.push(Library {
                        name: name.into(),
                        path: found.split(" (").next().unwrap_or(found).into(),
                    }),
                    None => linked.missing.push(name.into()),
                }
            } else if let Some((what, _)) = line.split_once(" not found (required by ") {
                linked.missing.push(what.rsplit(": ").next().unwrap_or(what).into());
            }
        }
        linked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_the_loader_is_read() {
        let text = "./p: /lib/libc.so.6: version `GLIBC_2.99' not found (required by ./p)\n\
                    \tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibmpifort.so.12 => not found\n\
                    \tlibmpi.so.12 => /opt/a dir/libmpi.so.12 (0x00007f00)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f01)\n";
        let linked = Linked::parse(text);
        assert_eq!(linked.missing, ["version `GLIBC_2.99'", "libmpifort.so.12"]);
        let path = PathBuf::from("/opt/a dir/libmpi.so.12");
        assert_eq!(linked.libraries, [Library { name: "libmpi.so.12".into(), path }]);
    }

    #[test]
    fn a_program_has_libraries_and_a_script_has_none() {
        let linked = Linked::of(Path::new("/bin/sh"), &BTreeMap::new()).unwrap();
        assert!(linked.libraries.iter().any(|library| library.name.starts_with("libc.so")));
        assert!(Linked::of(Path::new("/usr/bin/ldd"), &BTreeMap::new()).is_none(), "a script");
    }
}
