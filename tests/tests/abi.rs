//! Programs built with other libraries of the MPICH ABI run with coswitch's.

use std::{fs, path::Path, process::Command, time::Duration};

use coswitch_examples::mpi_prefix;
use coswitch_report::journal::JobOutcome;
use coswitch_tests::{cluster::RUN_LIMIT, master::Master};
use tempfile::TempDir;

/// Libraries of the names that Debian's MPICH has, whose every call fails.
const LIBRARY: &str = "
#define FAILS(name) int name(void) { return 1; }
FAILS(MPI_Init) FAILS(MPI_Comm_rank) FAILS(MPI_Comm_size) FAILS(MPI_Allreduce) FAILS(MPI_Finalize)
FAILS(PMPI_Init)
";
const WRAPPER: &str = "
#define FAILS(name) void name(void) {}
FAILS(mpi_init_) FAILS(mpi_comm_rank_) FAILS(mpi_comm_size_) FAILS(mpi_allreduce_) FAILS(mpi_finalize_)
";

/// Each sums up the ranks' numbers, again and again.
const C: &str = r#"
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank = -1, ranks = -1, bad = MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < 200; i++) {
        int sum = 0, mine = rank + i;
        bad |= MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) || sum != 2 * i + 1;
    }
    bad |= MPI_Finalize();
    return bad || ranks != 2;
}
"#;
const FORTRAN: &str = "
program sums
  implicit none
  include 'mpif.h'
  integer :: rank, error, total, i
  rank = -1
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  do i = 1, 200
    total = 0
    call MPI_Allreduce(rank + i, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    if (total /= 2 * i + 1) error stop 'a wrong sum'
  end do
  call MPI_Finalize(error)
end program
";

const JOBS: &str = r#"
cluster: {nodes: 2, memory: 200MiB, store: "{store}"}
jobs:
  - {name: c, command: ["{programs}/c"], ranks: 2, memory: 60MiB}
  - {name: fortran, command: ["{programs}/fortran"], ranks: 2, memory: 60MiB}
"#;

#[test]
fn programs_of_another_library_of_the_abi_run_with_ours() {
    let directory = tempfile::tempdir().unwrap();
    build(&directory);
    let text = JOBS.replace("{programs}", &directory.path().display().to_string());
    let ended = Master::run(&text).end(RUN_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for name in ["c", "fortran"] {
        let job = ended.job(name);
        assert_eq!(job["outcome"], serde_json::to_value(JobOutcome::Exit(0)).unwrap(), "{job}");
    }
}

fn build(directory: &TempDir) {
    let at = directory.path();
    let (include, include_mpi) =
        (mpi_prefix().join("include"), format!("-I{}", mpi_prefix().join("include").display()));
    assert!(include.join("mpif.h").is_file(), "`cargo xtask setup` installs the Fortran binding");
    for (name, text) in [("mpich.c", LIBRARY), ("fort.c", WRAPPER), ("c.c", C), ("fortran.f90", FORTRAN)] {
        fs::write(at.join(name), text).unwrap();
    }
    let shared = ["-shared", "-fPIC", "-w", "-fno-builtin", "-o"];
    run(at, "gcc", &[&shared[..], &["libmpich.so.12", "mpich.c", "-Wl,-soname,libmpich.so.12"]].concat());
    let needs = ["libmpichfort.so.12", "fort.c", "-Wl,-soname,libmpichfort.so.12", "-Wl,--no-as-needed"];
    run(at, "gcc", &[&shared[..], &needs, &["./libmpich.so.12", "-Wl,-rpath,$ORIGIN"]].concat());
    let link = ["-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed"];
    run(at, "gcc", &[&["-o", "c", "c.c", &include_mpi, "./libmpich.so.12"], &link[..]].concat());
    let fortran = ["-o", "fortran", "fortran.f90", &include_mpi, "./libmpichfort.so.12", "./libmpich.so.12"];
    run(at, "gfortran", &[&fortran[..], &["-fallow-argument-mismatch"], &link].concat());
}

fn run(at: &Path, compiler: &str, arguments: &[&str]) {
    let output = Command::new(compiler).args(arguments).current_dir(at).output().expect("a compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
