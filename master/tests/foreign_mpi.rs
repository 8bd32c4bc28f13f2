//! Programs whose MPI library coswitch cannot use: `run` and `doctor` name the reason and the remedy,
//! exit with the code of a lack, and start nothing.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

const LACKING: i32 = 3;
const OPEN_MPI: &str = "int ompi_mpi_comm_world; int MPI_Init(int *c, char ***v) { return 0; }\n";
const MPICH: &str = "int MPI_Init(int *c, char ***v) { return 0; }\n";
const WRAPPER: &str =
    "int MPI_Init(int *, char ***); int mpi_init_(int *e) { return *e = MPI_Init(0, 0); }\n";
const MAIN: &str = "int MPI_Init(int *, char ***); int main() { return MPI_Init(0, 0); }\n";
const MAIN_OF_FORTRAN: &str = "int mpi_init_(int *); int main() { int e; return mpi_init_(&e); }\n";

/// A directory with a run file of one job, `ep`, and the libraries of its program.
struct Scene(TempDir);

impl Scene {
    fn new() -> Self {
        let scene = Self(tempfile::tempdir().unwrap());
        fs::write(
            scene.file(),
            "cluster: {nodes: 1, memory: 1GiB}\n\
             jobs: [{name: ep, command: [./program], ranks: 2, memory: 20MiB}]\n",
        )
        .unwrap();
        scene
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("case.yaml")
    }

    fn cc(&self, source: &str, arguments: &[&str]) {
        fs::write(self.0.path().join("source.c"), source).unwrap();
        let mut cc = Command::new("cc");
        let output = cc.args(["source.c"]).args(arguments).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Makes a library that needs `others`.
    fn library(&self, name: &str, source: &str, others: &[&str]) {
        let soname = format!("-Wl,-soname,{name}");
        self.cc(source, &[&["-shared", "-fPIC", &soname, "-o", name, "-Wl,-rpath,$ORIGIN"], others].concat());
    }

    /// Makes the program, which finds `libraries` beside it.
    fn program(&self, source: &str, libraries: &[&str]) {
        let link = ["-o", "program", "-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed"];
        self.cc(source, &[&link, libraries].concat());
    }

    fn remove(&self, library: &str) {
        fs::remove_file(self.0.path().join(library)).unwrap();
    }

    fn coswitch(&self, command: &str) -> Command {
        let mut coswitch = Command::new(env!("CARGO_BIN_EXE_coswitch"));
        coswitch.arg(command).arg(self.file()).current_dir(self.0.path());
        coswitch
    }

    /// Both commands refuse the program with these words.
    fn is_refused(&self, words: &[&str]) {
        for command in ["run", "doctor"] {
            refused(&self.coswitch(command).output().unwrap(), words);
        }
        assert!(!self.0.path().join("coswitch-runs").exists(), "something was started");
    }
}

fn refused(output: &Output, words: &[&str]) {
    let said = text(output);
    words.iter().for_each(|word| assert!(said.contains(word), "`{word}` is not in: {said}"));
    assert_eq!(output.status.code(), Some(LACKING), "{said}");
}

fn text(output: &Output) -> String {
    [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy).concat()
}

#[test]
fn a_program_of_open_mpi_has_to_be_built_again() {
    let scene = Scene::new();
    scene.library("libmpi.so.40", OPEN_MPI, &[]);
    scene.program(MAIN, &["./libmpi.so.40"]);
    scene.is_refused(&["MPI library of job `ep`", "Open MPI", "libmpi.so.40", "not that of MPICH", "mpicc"]);
}

#[test]
fn a_fortran_program_of_open_mpi_is_judged_by_the_library_below_its_wrapper_or_by_name() {
    let scene = Scene::new();
    scene.library("libmpi.so.40", OPEN_MPI, &[]);
    scene.library("libmpi_mpifh.so.40", WRAPPER, &["./libmpi.so.40"]);
    scene.program(MAIN_OF_FORTRAN, &["./libmpi_mpifh.so.40", "./libmpi.so.40"]);
    scene.is_refused(&["Open MPI", "libmpi.so.40)", "mpifort"]);
    scene.remove("libmpi_mpifh.so.40");
    scene.remove("libmpi.so.40");
    scene.is_refused(&["Open MPI", "libmpi_mpifh.so.40, which the loader does not find", "mpifort"]);
}

#[test]
fn a_library_of_no_known_abi_is_named() {
    let scene = Scene::new();
    scene.library("libmpi_abi.so.0", MPICH, &[]);
    scene.program(MAIN, &["./libmpi_abi.so.0"]);
    scene.is_refused(&["libmpi_abi.so.0, which is no library of the MPICH ABI", "mpicc"]);
}

#[test]
fn a_fortran_program_without_its_library_needs_the_set_up() {
    let scene = Scene::new();
    scene.library("libmpi.so.12", MPICH, &[]);
    scene.library("libmpifort.so.12", WRAPPER, &["./libmpi.so.12"]);
    scene.program(MAIN_OF_FORTRAN, &["./libmpifort.so.12", "./libmpi.so.12"]);
    scene.remove("libmpifort.so.12");
    // A prefix whose MPI library has no Fortran binding.
    let prefix = scene.0.path().join("prefix");
    let (ours, theirs) = (installed().join("mpi/lib"), prefix.join("mpi/lib"));
    fs::create_dir_all(&theirs).unwrap();
    for name in ["libmpi.so.12", "mpich"] {
        symlink(ours.join(name), theirs.join(name)).unwrap();
    }
    for command in ["run", "doctor"] {
        let output = scene.coswitch(command).env("COSWITCH_PREFIX", &prefix).output().unwrap();
        refused(&output, &["libmpifort.so.12, which the loader does not find", "cargo xtask setup"]);
    }
}

#[test]
fn another_missing_library_is_named() {
    let scene = Scene::new();
    scene.library("libnumbers.so.3", "int pi() { return 3; }\n", &[]);
    scene.program("int pi(); int main() { return pi(); }\n", &["./libnumbers.so.3"]);
    scene.remove("libnumbers.so.3");
    scene.is_refused(&["libraries of job `ep`", "libnumbers.so.3", "LD_LIBRARY_PATH"]);
}

#[test]
fn an_rpath_that_keeps_the_loader_from_our_library_is_named() {
    let scene = Scene::new();
    scene.library("libmpi.so.12", MPICH, &[]);
    scene.cc(MAIN, &["-o", "program", "./libmpi.so.12", "-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN"]);
    let words =
        ["MPI library of job `ep`", "no loadable providers", "libmpi.so.12", "RPATH $ORIGIN", "patchelf"];
    scene.is_refused(&words);
    // By then it is RUNPATH.
    scene.program(MAIN, &["./libmpi.so.12"]);
    let said = text(&scene.coswitch("doctor").output().unwrap());
    let ours = installed().join("mpi/lib/libmpi.so.12");
    assert!(said.contains(&format!("runs with {} in its place", ours.display())), "{said}");
}

fn installed() -> PathBuf {
    std::env::var_os("COSWITCH_PREFIX").map_or_else(|| Path::new("/opt/coswitch").into(), PathBuf::from)
}
