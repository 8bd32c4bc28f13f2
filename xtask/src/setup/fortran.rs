//! The Fortran binding of the MPI library, which its wheel lacks, and the compiler wrapper `mpifort`.
//!
//! Debian's MPICH of the same series (4.2) has the binding: a library between Fortran's names and the
//! calls of C, a header and modules. The MPICH ABI lets it call the library of the wheel. Its modules can
//! be read by gfortran 8 to 14; where the distribution's is newer, gfortran 14 is installed beside it.

use super::private_apt::{PrivateApt, Suite};
use super::{Prefix, apt};
use crate::command;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const SUITE: Suite = Suite::Trixie;
/// Debian names the binding `libmpichfort`, everybody else `libmpifort`.
const LIBRARY: &str = "libmpifort.so.12";
const WRAPPERS: [&str; 3] = ["mpifort", "mpif90", "mpif77"];
const SCRIPT: &str = include_str!("mpifort.sh");
/// What MPICH's own wrapper passes, because a buffer may have any type.
const FLAGS: &str = "-fallow-invalid-boz -fallow-argument-mismatch";
const COMPILERS: [&str; 4] = ["gfortran", "gfortran-14", "gfortran-13", "gfortran-12"];

/// Names in the library directory and what they stand for. A program built with another library of the MPICH
/// ABI finds ours by these, if the loader looks here first.
const ABI_NAMES: [(&str, &str); 5] = [
    ("libmpich.so.12", "libmpi.so.12"),
    ("libmpichfort.so.12", LIBRARY),
    ("libmpichf90.so.12", LIBRARY),
    ("libfmpich.so.12", LIBRARY),
    ("libmpifort.so", LIBRARY),
];

/// Installs the binding where it is missing; returns its state.
pub(super) fn ensure(prefix: &Prefix) -> Result<String> {
    let home = prefix.mpi();
    let wrapper = home.join("bin").join(WRAPPERS[0]);
    let state = format!("binding of Debian {}: {}", SUITE.name(), wrapper.display());
    if is_complete(&home) {
        return Ok(state);
    }
    apt::ensure_tools(apt::PATCHELF)?;
    let root = home.join("fortran-packages");
    let installed = install(&home, &root);
    fs::remove_dir_all(&root).ok();
    installed.context("cannot install the Fortran binding of the MPI library")?;
    let compiler = choose_compiler(&home, &wrapper)?;
    Ok(format!("{state}, {compiler} (installed)"))
}

/// The wrapper is written last.
fn is_complete(home: &Path) -> bool {
    let library = home.join("lib");
    let names = ABI_NAMES.map(|(name, _)| library.join(name));
    let wrappers = WRAPPERS.map(|name| home.join("bin").join(name));
    names.iter().chain(&wrappers).all(|path| path.exists())
}

fn install(home: &Path, root: &Path) -> Result<()> {
    let apt = PrivateApt::new(root.join("apt"), SUITE.line("deb"))?;
    apt.unpack(&apt.packages(&["libmpich12", "libmpich-dev"])?, root)?;
    let packaged = triplet_directory(root)?;
    let library = home.join("lib").join(LIBRARY);
    fs::copy(packaged.join("libmpichfort.so.12"), &library)?;
    // One at a time: patchelf 0.14 mixes up the new names where it is given several.
    let patches: [&[&str]; 3] = [
        &["--replace-needed", "libmpich.so.12", "libmpi.so.12"],
        &["--set-soname", LIBRARY],
        &["--set-rpath", "$ORIGIN"],
    ];
    for patch in patches {
        command::run(Command::new("patchelf").args(patch).arg(&library), LIMIT)?;
    }
    for (name, target) in ABI_NAMES {
        let link = home.join("lib").join(name);
        fs::remove_file(&link).ok();
        symlink(target, &link).with_context(|| format!("cannot make {}", link.display()))?;
    }
    let include = packaged.join("mpich/include");
    let of_fortran = |path: &Path| path.ends_with("mpif.h") || path.extension().is_some_and(|e| e == "mod");
    for entry in fs::read_dir(&include)? {
        let path = entry?.path();
        if let (true, Some(name)) = (of_fortran(&path), path.file_name()) {
            fs::copy(&path, home.join("include").join(name))?;
        }
    }
    Ok(())
}

/// The directory of the machine's triplet, found by the library in it.
fn triplet_directory(root: &Path) -> Result<PathBuf> {
    let triplets = fs::read_dir(root.join("usr/lib"))?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut with_library = triplets.filter(|dir| dir.join("libmpichfort.so.12").exists());
    with_library.next().with_context(|| format!("the packages hold no libmpichfort below {}", root.display()))
}

/// Writes the wrapper for the first compiler that reads the modules and whose programs run.
fn choose_compiler(home: &Path, wrapper: &Path) -> Result<&'static str> {
    let mut refusals = Vec::new();
    for attempt in 0..2 {
        for compiler in COMPILERS.into_iter().filter(|name| apt::find_program(name).is_some()) {
            match accept(home, compiler) {
                Ok(script) => {
                    for other in &WRAPPERS[1..] {
                        let link = wrapper.with_file_name(other);
                        fs::remove_file(&link).ok();
                        symlink(WRAPPERS[0], link)?;
                    }
                    fs::rename(script, wrapper)?;
                    return Ok(compiler);
                }
                Err(error) => refusals.push(format!("{compiler}: {error:#}")),
            }
        }
        if attempt == 0 {
            apt::install(&["gfortran-14"]).or_else(|error| {
                refusals.push(format!("gfortran-14: {error:#}"));
                anyhow::Ok(())
            })?;
        }
    }
    bail!("no Fortran compiler reads the modules of MPICH\n{}", refusals.join("\n"))
}

/// Writes a wrapper for `compiler` beside the final one, and compiles and runs a program by each interface.
fn accept(home: &Path, compiler: &str) -> Result<PathBuf> {
    let script = home.join("bin/.mpifort.new");
    let knows_flags = command::run(
        Command::new(compiler).args(FLAGS.split(' ')).args(["-x", "f95", "-fsyntax-only", "/dev/null"]),
        LIMIT,
    )
    .is_ok();
    let text =
        SCRIPT.replace("@COMPILER@", compiler).replace("@FLAGS@", if knows_flags { FLAGS } else { "" });
    fs::write(&script, text)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    for interface in ["include 'mpif.h'", "use mpi", "use mpi_f08"] {
        self_test(home, &script, interface).with_context(|| format!("`{interface}` does not work"))?;
    }
    Ok(script)
}

/// Two ranks add up their numbers in place: a constant of the binding that has to be the library's.
fn self_test(home: &Path, script: &Path, interface: &str) -> Result<()> {
    let scratch = home.join("fortran-self-test");
    fs::create_dir_all(&scratch)?;
    let (source, program) = (scratch.join("test.f90"), scratch.join("test"));
    let (uses, includes) = match interface.starts_with("use") {
        true => (interface, ""),
        false => ("", interface),
    };
    let text = format!(
        "program test\n{uses}\nimplicit none\n{includes}\ninteger :: rank, error, total(1)\n\
         call MPI_Init(error)\ncall MPI_Comm_rank(MPI_COMM_WORLD, rank, error)\ntotal = rank + 1\n\
         call MPI_Allreduce(MPI_IN_PLACE, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)\n\
         if (total(1) /= 3) error stop 'wrong sum'\ncall MPI_Finalize(error)\nend program\n"
    );
    fs::write(&source, text)?;
    let tested =
        command::run(Command::new(script).arg("-o").args([&program, &source]), LIMIT).and_then(|_| {
            let mut mpiexec = Command::new(home.join("bin/mpiexec"));
            // Every name of the binding must be in the library, not only those that are called here.
            mpiexec.env("LD_BIND_NOW", "1").args(["-n", "2"]).arg(&program);
            command::run(&mut mpiexec, LIMIT)
        });
    fs::remove_dir_all(&scratch).ok();
    tested.map(drop)
}
