//! A temporary swap file for a test. All processes of the machine share swap, so tests of one program take
//! turns with it.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use coswitch_policies::Bytes;

/// Removes the file as soon as the other end of its input is closed, even if this process is killed.
const KEEPER: &str = "trap '' INT TERM HUP; read -r _; swapoff \"$0\" 2>/dev/null; rm -f \"$0\"";

/// A swap file that is removed on drop, or when the process ends in any way.
#[derive(Debug)]
pub struct SwapFile {
    path: PathBuf,
    keeper: Child,
    _turn: MutexGuard<'static, ()>,
}

impl SwapFile {
    /// Creates the file on disk and activates it.
    ///
    /// # Panics
    /// If the machine does not accept it.
    #[must_use]
    pub fn of(size: Bytes) -> Self {
        static FILES: AtomicU32 = AtomicU32::new(0);
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("coswitch-swap-{}-{}", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
        let path = Path::new("/var/tmp").join(name);
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::null());
        let swap = Self { path, keeper: keeper.spawn().expect("a shell starts"), _turn: turn };
        swap.fill(size).expect("the disk has space for a swap file");
        swap.call("mkswap");
        swap.call("swapon");
        swap
    }

    /// Fills the file with zeros, because a swap file may have no holes.
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
