//! Checks the MPI library that a program's calls go to.
//!
//! This is the library that has `MPI_Init`: Fortran programs are linked to a wrapper of it first. A library
//! that cannot load coswitch's driver is replaced by the one that can, if both keep to the MPICH ABI, which
//! Intel MPI, MVAPICH and Debian's MPICH do: the loader is made to look in coswitch's directory first.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{
    elf::Elf,
    inspect, judge,
    library::is_usable,
    loader::{self, Linked},
};
use crate::{config::Job, doctor::check::Check};

const SETUP: &str = "run `cargo xtask setup` as root, which installs it";
/// The directories that the loader searches first, except for an RPATH.
pub(crate) const SEARCH_PATH: &str = "LD_LIBRARY_PATH";
/// The names of a library of the MPICH ABI, as agreed and as Debian has it.
const OF_THE_ABI: [&str; 2] = ["libmpi.so.12", "libmpich.so.12"];
/// Fortran's and C++'s wrappers of it.
const WRAPPERS_OF_THE_ABI: [&str; 5] =
    ["libmpifort.so.12", "libmpichfort.so.12", "libmpichf90.so.12", "libmpicxx.so.12", "libmpichcxx.so.12"];

/// The check of a job's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) job: String,
    /// `None` for a program without MPI, or one that loads it later, as a script's interpreter may.
    pub(crate) check: Option<Check>,
    /// What the loader is told so that it finds coswitch's library.
    pub(crate) search_path: Option<String>,
}

/// What the calls of a program go to.
enum Target {
    None,
    Usable(PathBuf),
    /// Of the MPICH ABI, but useless as it is, or missing.
    OfMpichAbi(String),
    OpenMpi(String),
    OfOtherAbi(String),
}

/// Judges the programs of `jobs`; `directory` holds coswitch's MPI library.
pub(crate) fn judge_programs(jobs: &[Job], directory: &Path) -> Vec<Judged> {
    let mut known = BTreeMap::new();
    let mut told = BTreeSet::new();
    let judged = jobs.iter().map(|job| {
        let key = (&*job.program, &job.env);
        let (check, search_path) = known.entry(key).or_insert_with(|| judge_program(job, directory)).clone();
        // What is the same for many programs is said once.
        let check = check.filter(|check| told.insert((check.found.clone(), check.remedy.clone())));
        Judged { job: job.name.clone(), check, search_path }
    });
    judged.collect()
}

fn judge_program(job: &Job, directory: &Path) -> (Option<Check>, Option<String>) {
    let Some(linked) = Linked::of(&job.program, &job.env) else { return (None, None) };
    let name = format!("MPI library of job `{}`", job.name);
    let program = job.program.display();
    match mpi_of(&job.program, &linked) {
        Target::None => (missing(job, &linked), None),
        Target::Usable(path) => {
            let fine = || Some(judge(&name, inspect(&path), &path));
            (missing(job, &linked).or_else(fine), None)
        }
        Target::OfMpichAbi(what) => replace(job, name, &what, directory),
        Target::OpenMpi(what) => {
            let found = format!("{program} was built with Open MPI ({what}), whose ABI is not that of MPICH");
            (Some(Check::lacking(name, found, rebuild(directory))), None)
        }
        Target::OfOtherAbi(what) => {
            let found = format!("{program} was built with {what}, which is no library of the MPICH ABI");
            (Some(Check::lacking(name, found, rebuild(directory))), None)
        }
    }
}

fn rebuild(directory: &Path) -> String {
    let bin = directory.parent().unwrap_or(directory).join("bin");
    format!("build it with {0}/mpicc (C) or {0}/mpifort (Fortran), of `cargo xtask setup`", bin.display())
}

/// Libraries of the program that the loader does not find.
fn missing(job: &Job, linked: &Linked) -> Option<Check> {
    let first = linked.missing.first()?;
    let found = format!(
        "{} needs {}, which the loader does not find",
        job.program.display(),
        linked.missing.join(", ")
    );
    let remedy = match is_of_abi(first) {
        true => SETUP.to_owned(),
        false => format!("install it, or name its directory in the job's `env: {{{SEARCH_PATH}: ...}}`"),
    };
    Some(Check::lacking(format!("libraries of job `{}`", job.name), found, remedy))
}

fn is_of_abi(name: &str) -> bool {
    OF_THE_ABI.contains(&name) || WRAPPERS_OF_THE_ABI.contains(&name)
}

/// Finds the library that MPI calls go to, by its functions and, where none has them, by missing names.
fn mpi_of(program: &Path, linked: &Linked) -> Target {
    let program = loader::Library { name: program.display().to_string(), path: program.into() };
    let all: Vec<_> = std::iter::once(&program).chain(&linked.libraries).collect();
    let elves: Vec<_> = all.iter().map(|library| Elf::read(&library.path)).collect();
    let with = |function: &str| {
        elves.iter().position(|elf| elf.as_ref().is_some_and(|elf| elf.defines(&[function])))
    };
    // A library for profiling has MPI_Init too, and hands calls on to PMPI_Init.
    let Some(at) = with("PMPI_Init").or_else(|| with("MPI_Init")) else {
        return linked
            .missing
            .iter()
            .find(|name| name.starts_with("libmp"))
            .map_or(Target::None, missing_mpi);
    };
    let loader::Library { name, path } = all[at];
    let what = path.display().to_string();
    let is_open_mpi = elves[at].as_ref().is_some_and(|elf| elf.defines(&["ompi_mpi_comm_world"]));
    match inspect(path) {
        Ok(library) if is_usable(&library) => Target::Usable(path.clone()),
        _ if is_open_mpi => Target::OpenMpi(what),
        _ if OF_THE_ABI.contains(&name.as_str()) => Target::OfMpichAbi(what),
        _ => Target::OfOtherAbi(what),
    }
}

fn missing_mpi(name: &String) -> Target {
    let what = format!("{name}, which the loader does not find");
    if is_of_abi(name) {
        return Target::OfMpichAbi(what);
    }
    // Its version of the interface, 20 or 40, and its names of Fortran's wrappers.
    let open_mpi = ["libmpi.so.20", "libmpi.so.40", "libmpi_mpifh.so", "libmpi_usempi", "libmpi_cxx.so"];
    match open_mpi.iter().any(|beginning| name.starts_with(beginning)) {
        true => Target::OpenMpi(what),
        false => Target::OfOtherAbi(what),
    }
}

/// Whether the program gets coswitch's library when the loader looks in its directory first.
fn replace(job: &Job, name: String, what: &str, directory: &Path) -> (Option<Check>, Option<String>) {
    let ours = directory.join(OF_THE_ABI[0]);
    let usable = inspect(&ours).is_ok_and(|library| is_usable(&library));
    let program = job.program.display();
    if !usable {
        let found =
            format!("{program} was built with {what}; {} is to take its place, and cannot", ours.display());
        return (Some(Check::lacking(name, found, SETUP)), None);
    }
    let search_path = search_path(job, directory);
    let mut env = job.env.clone();
    env.insert(SEARCH_PATH.into(), search_path.clone());
    let linked = Linked::of(&job.program, &env).unwrap_or_default();
    let is_ours = |path: &Path| path.canonicalize().ok() == ours.canonicalize().ok();
    match mpi_of(&job.program, &linked) {
        Target::Usable(path) if is_ours(&path) => {
            let found = format!(
                "built with {what}; runs with {} in its place, as the MPICH ABI allows",
                ours.display()
            );
            let lack = missing(job, &linked);
            let search_path = lack.is_none().then_some(search_path);
            (Some(lack.unwrap_or_else(|| Check::ok(name, found))), search_path)
        }
        _ => (Some(unmoved(job, name, &linked, what)), None),
    }
}

/// The directory first, then what the job or this process already searches.
fn search_path(job: &Job, directory: &Path) -> String {
    let theirs = job.env.get(SEARCH_PATH).cloned().or_else(|| std::env::var(SEARCH_PATH).ok());
    let ours = directory.display().to_string();
    std::iter::once(ours).chain(theirs.filter(|path| !path.is_empty())).collect::<Vec<_>>().join(":")
}

/// Why the loader keeps to a library although it is told to look elsewhere first.
fn unmoved(job: &Job, name: String, linked: &Linked, what: &str) -> Check {
    let program = job.program.display();
    let built = format!("{program} has no loadable providers: it was built with {what}");
    let files = std::iter::once(&*job.program).chain(linked.libraries.iter().map(|library| &*library.path));
    let mut bound = files.filter_map(|path| Some((path.display(), Elf::read(path)?.rpath()?)));
    if let Some((path, rpath)) = bound.next() {
        let found = format!(
            "{built}, and the RPATH {rpath} of {path} keeps the loader from taking coswitch's library instead"
        );
        let remedy = format!(
            "link it with -Wl,--enable-new-dtags, or take the RPATH away: `patchelf --remove-rpath {path}`"
        );
        return Check::lacking(name, found, remedy);
    }
    missing(job, linked).unwrap_or_else(|| {
        let remedy = "build it with the MPI wrappers that `cargo xtask setup` installs (mpi/bin/mpicc)";
        Check::lacking(name, format!("{built}, and loads no other"), remedy)
    })
}
