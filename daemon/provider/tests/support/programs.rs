//! Compiles the C programs of the tests with the MPI wrapper, once each.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Directory of the MPI library under test; `COSWITCH_MPI` overrides it.
pub(crate) fn mpi_prefix() -> PathBuf {
    std::env::var_os("COSWITCH_MPI").map_or_else(|| "/opt/coswitch/mpi".into(), PathBuf::from)
}

/// Path of the compiled program `name` (from `tests/c/name.c`).
pub(crate) fn compiled(name: &str) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let modified = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    if modified(&program) > modified(&source) {
        return program;
    }
    let mut compiler = Command::new(mpi_prefix().join("bin/mpicc"));
    // The wrapper adds the library, but not its run-time path.
    let library = mpi_prefix().join("lib");
    let rpath = format!("-Wl,-rpath,{}", library.display());
    let temporary = program.with_extension("new");
    compiler.args(["-O2", "-Wall", "-o"]).arg(&temporary).arg(&source).args([&rpath, "-lpthread"]);
    let status = compiler.status().expect("the MPI compiler wrapper runs");
    assert!(status.success(), "{name}.c does not compile");
    std::fs::rename(&temporary, &program).expect("both paths are in one directory");
    program
}
