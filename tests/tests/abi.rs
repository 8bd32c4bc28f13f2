//! Programs built with other libraries of the MPICH ABI run with coswitch's, are switched, and are right.

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

/// Sums up the ranks' numbers for about two seconds of processor time.
const C: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <time.h>
int main(int argc, char **argv) {
    int rank = -1, ranks = -1, sum = 0, more = 1, bad = 0;
    bad |= MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    while (more && !bad) {
        rank += 1;
        bad |= MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) || sum != 3;
        rank -= 1;
        int mine = clock() < 2 * CLOCKS_PER_SEC;
        bad |= MPI_Allreduce(&mine, &more, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    if (rank == 0 && !bad) puts("VERIFICATION SUCCESSFUL");
    MPI_Finalize();
    return bad || ranks != 2;
}
"#;
const FORTRAN: &str = "
program sums
  implicit none
  include 'mpif.h'
  integer :: rank, error, total, more, mine
  real :: used
  call MPI_Init(error)
  rank = -1
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  more = 1
  do while (more == 1)
    total = 0
    call MPI_Allreduce(rank + 1, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    if (total /= 3) error stop 'a wrong sum'
    call cpu_time(used)
    mine = merge(1, 0, used < 2)
    call MPI_Allreduce(mine, more, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, error)
  end do
  if (rank == 0) print '(a)', 'VERIFICATION SUCCESSFUL'
  call MPI_Finalize(error)
end program
";

const JOBS: &str = r#"
cluster: {nodes: 2, memory: 100MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 500ms}
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
