//! A swap file of a test's own, for as long as the test has it.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use coswitch_policies::Bytes;

/// Swap that goes when this does, however the test ends.
#[derive(Debug)]
pub struct SwapFile(PathBuf);

impl SwapFile {
    /// On disk, in use.
    ///
    /// # Panics
    /// Where the machine does not take it.
    #[must_use]
    pub fn of(size: Bytes) -> Self {
        static FILES: AtomicU32 = AtomicU32::new(0);
        let name = format!("coswitch-swap-{}-{}", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
        let swap = Self(Path::new("/var/tmp").join(name));
        swap.fill(size).expect("there is room for a swap file");
        swap.call("mkswap");
        swap.call("swapon");
        swap
    }

    /// With zeros: swap may have no holes.
    fn fill(&self, size: Bytes) -> io::Result<()> {
        let mut file = File::create(&self.0)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        let zeros = vec![0; 1 << 20];
        (0..size.0 >> 20).try_for_each(|_| file.write_all(&zeros))?;
        file.sync_all()
    }

    fn call(&self, program: &str) {
        let output = Command::new(program).arg(&self.0).output().expect("util-linux is installed");
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        // Where the test has failed before, it may not be in use.
        let _ = Command::new("swapoff").arg(&self.0).output();
        let _ = fs::remove_file(&self.0);
    }
}
