//! A swap file of a test's own, for as long as the test has it.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use coswitch_policies::Bytes;

/// Takes the file away as soon as nobody holds the other end of its input: even where this process is killed.
const KEEPER: &str = "trap '' INT TERM HUP; read -r _; swapoff \"$0\" 2>/dev/null; rm -f \"$0\"";

/// Swap that goes when this does, however the process ends.
#[derive(Debug)]
pub struct SwapFile {
    path: PathBuf,
    keeper: Child,
}

impl SwapFile {
    /// On disk, in use.
    ///
    /// # Panics
    /// Where the machine does not take it.
    #[must_use]
    pub fn of(size: Bytes) -> Self {
        static FILES: AtomicU32 = AtomicU32::new(0);
        let name = format!("coswitch-swap-{}-{}", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
        let path = Path::new("/var/tmp").join(name);
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::null());
        let swap = Self { path, keeper: keeper.spawn().expect("a shell starts") };
        swap.fill(size).expect("there is room for a swap file");
        swap.call("mkswap");
        swap.call("swapon");
        swap
    }

    /// With zeros: swap may have no holes.
    fn fill(&self, size: Bytes) -> io::Result<()> {
        let mut file = File::create(&self.path)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        let zeros = vec![0; 1 << 20];
        (0..size.0 >> 20).try_for_each(|_| file.write_all(&zeros))?;
        file.sync_all()
    }

    fn call(&self, program: &str) {
        let output = Command::new(program).arg(&self.path).output().expect("util-linux is installed");
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
