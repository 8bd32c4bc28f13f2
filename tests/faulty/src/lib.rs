//! `libcoswitch_faulty.so`, which tests load into a program: one of its calls that change files in a place
//! fails, is cut short, takes long, or is the last one before the program is killed.
//!
//! The dynamic linker finds the functions of this library before those of the C library ([`calls`]). Each
//! counts where it concerns the place, and enters the kernel itself. What tests ask for is in the environment
//! (`tests/src/faulty.rs`):
//!
//! ```text
//!   COSWITCH_FAULTY=ACT AT PROGRAM PLACE   which call of the program's is it, of those on paths with PLACE
//!   COSWITCH_FAULTY_LIST=FILE              takes the name and the path of each of them
//! ```
//! The fault happens once, whatever the number of processes: it leaves `FILE.happened`.

mod calls;

use std::{
    ffi::{CStr, OsStr, c_int},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Of a disk that others keep busy.
pub(crate) const SLOW: Duration = Duration::from_millis(200);

/// What happens at the chosen call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Nothing.
    List,
    /// It fails with `EIO`.
    Broken,
    /// It fails with `ENOSPC`.
    Full,
    /// Half of the bytes are written. Calls that write nothing are as they are.
    Short,
    /// It takes [`SLOW`] longer.
    Slow,
    /// The program is killed before it.
    Kill,
}

/// What this process was asked for.
struct Plan {
    act: Act,
    at: u64,
    place: Vec<u8>,
    list: c_int,
    /// Ends with a zero byte.
    mark: Vec<u8>,
    calls: AtomicU64,
}

/// `None` within: this program is not concerned.
static PLAN: OnceLock<Option<Plan>> = OnceLock::new();

/// The dynamic linker calls it before the program begins: later, memory could not always be allocated.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = {
    extern "C" fn init() {
        let _ = plan();
    }
    init
};

fn plan() -> Option<&'static Plan> {
    PLAN.get_or_init(Plan::of_this_process).as_ref()
}

impl Plan {
    fn of_this_process() -> Option<Self> {
        let asked = std::env::var("COSWITCH_FAULTY").ok()?;
        let mut words = asked.splitn(4, ' ');
        let (act, at, program, place) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let own = std::fs::read_link("/proc/self/exe").ok()?;
        if own.file_name() != Some(OsStr::new(program)) {
            return None;
        }
        let act = match act {
            "broken" => Act::Broken,
            "full" => Act::Full,
            "short" => Act::Short,
            "slow" => Act::Slow,
            "kill" => Act::Kill,
            _ => Act::List,
        };
        let list = PathBuf::from(std::env::var_os("COSWITCH_FAULTY_LIST")?);
        let zero_ended = |path: &Path| [path.as_os_str().as_bytes(), b"\0"].concat();
        let flags = libc::O_CREAT | libc::O_APPEND | libc::O_WRONLY | libc::O_CLOEXEC;
        Some(Self {
            act,
            at: at.parse().ok()?,
            place: place.into(),
            list: calls::open_itself(&zero_ended(&list), flags)?,
            mark: zero_ended(&list.with_extension("happened")),
            calls: AtomicU64::new(0),
        })
    }

    /// What happens at a call of that name, on the file at that path.
    fn next(&self, name: &CStr, path: &[u8]) -> Act {
        if !path.windows(self.place.len()).any(|found| found == self.place) {
            return Act::List;
        }
        for text in [name.to_bytes(), b" ", path, b"\n"] {
            calls::write_itself(self.list, text);
        }
        let is_it = self.calls.fetch_add(1, Ordering::Relaxed) + 1 == self.at && self.act != Act::List;
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_CLOEXEC;
        match is_it && calls::open_itself(&self.mark, flags).is_some() {
            true => self.act,
            false => Act::List,
        }
    }
}
