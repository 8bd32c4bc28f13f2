//! A process that tries to run in the place of a checkpointer (CVE-2026-18107), for the trial of a CRIU.
//!
//! A restartable sequence of this process covers all addresses below the page on which it spins. Code that a
//! checkpointer has it execute lies below that page, and the kernel goes on at the sequence's abort handler
//! instead. A CRIU with the fix takes the sequence away before. The lowest page is for the checkpointer's
//! first calls, which it makes in the lowest code that it finds.
//!
//! It ends at SIGTERM, and with the process that has started it.

use std::{os::unix::process::parent_id, process::ExitCode};

use nix::{
    sys::{prctl, signal::Signal},
    unistd::setsid,
};

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn run() -> ExitCode {
    ExitCode::FAILURE
}

#[cfg(target_arch = "x86_64")]
pub(crate) fn run() -> ExitCode {
    let starter = std::env::args().nth(2).and_then(|pid| pid.parse().ok());
    // Asked for too late where the starter has ended already.
    let dies = prctl::set_pdeathsig(Signal::SIGKILL).is_ok() && starter == Some(parent_id());
    // As in a container: CRIU dumps no session and no file of another namespace.
    crate::pid1::close_from(3);
    let dies = dies && setsid().is_ok();
    match dies.then(x86_64::lie_in_wait).flatten() {
        Some(true) => ExitCode::from(coswitch_launcher::bait::TAKEN_OVER),
        Some(false) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::{
        arch::{asm, global_asm},
        ffi::c_void,
        fs::File,
        num::NonZero,
        ptr::{self, NonNull},
        sync::atomic::{AtomicI32, Ordering},
    };

    use nix::{
        sys::{
            mman::{MapFlags, ProtFlags, mmap_anonymous},
            signal::{SigHandler, signal},
        },
        unistd::dup2_stdout,
    };

    use super::Signal;

    const PAGE: usize = 4096;
    const BOTTOM: usize = 0x1_0000;
    const TOP: usize = 0x7fff_ffff_0000;
    /// Between two places that are tried for the page at the top.
    const STEP: usize = 0x10_0000;
    const PLACES: usize = 1000;

    /// `struct rseq_cs` of `linux/rseq.h`.
    #[repr(C, align(32))]
    struct Section {
        version: u32,
        flags: u32,
        start: u64,
        length: u64,
        abort: u64,
    }

    static IS_OVER: AtomicI32 = AtomicI32::new(0);
    static TAKEN: AtomicI32 = AtomicI32::new(0);

    // `spin(pointer to the section, section, is over, taken)` is copied to the top. The number before the
    // handler is RSEQ_SIG.
    global_asm!(
        "coswitch_spin:",
        "lea rax, [rip + coswitch_taken]",
        "mov [rax], rcx",
        "2: mov [rdi], rsi",
        "mov eax, 1000",
        "3: pause",
        "dec eax",
        "jnz 3b",
        "cmp dword ptr [rdx], 0",
        "je 2b",
        "mov qword ptr [rdi], 0",
        "ret",
        ".long 0x53053053",
        "coswitch_abort:",
        "mov rax, [rip + coswitch_taken]",
        "inc dword ptr [rax]",
        "int3",
        "4: pause",
        "jmp 4b",
        ".balign 8",
        "coswitch_taken: .quad 0",
        "coswitch_spin_end:",
    );

    unsafe extern "C" {
        static coswitch_spin: u8;
        static coswitch_abort: u8;
        static coswitch_spin_end: u8;
    }

    extern "C" fn end(_: i32) {
        IS_OVER.store(1, Ordering::Relaxed);
    }

    fn page_at(address: usize) -> Option<NonNull<c_void>> {
        let all = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE | ProtFlags::PROT_EXEC;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED_NOREPLACE;
        let (address, length) = (NonZero::new(address)?, NonZero::new(PAGE)?);
        // SAFETY: the mapping replaces no other one, and nothing else refers to it.
        unsafe { mmap_anonymous(Some(address), length, all, flags) }.ok()
    }

    /// Where the kernel looks for this thread's sequence: the C library has registered that address. A C
    /// library that is too old registers none and lacks these variables. They are found by weak symbols,
    /// because `dlsym` finds nothing in a static program.
    fn own_sequence() -> Option<*mut u64> {
        let (offset, size): (*const isize, *const u32);
        // SAFETY: it only takes addresses, which are zero where nothing defines the names.
        unsafe {
            asm!(
                ".weak __rseq_offset",
                ".weak __rseq_size",
                "mov {}, [rip + __rseq_offset@GOTPCREL]",
                "mov {}, [rip + __rseq_size@GOTPCREL]",
                out(reg) offset,
                out(reg) size,
                options(nostack, readonly),
            );
        }
        if offset.is_null() || size.is_null() {
            return None;
        }
        let thread: *mut u8;
        // SAFETY: glibc has these variables, of these types; the first word of a thread's block is its
        // address, and `rseq_cs` is eight bytes from the start of `struct rseq`.
        unsafe {
            if *size == 0 {
                return None;
            }
            asm!("mov {}, fs:0", out(reg) thread, options(nostack, readonly));
            Some(thread.offset(*offset).add(8).cast())
        }
    }

    /// Says by the end of its standard output that it lies there; returns whether it was executed in the
    /// place of another. `None` where that cannot be tried.
    pub(super) fn lie_in_wait() -> Option<bool> {
        let own = own_sequence()?;
        page_at(BOTTOM)?;
        let top = (0..PLACES).find_map(|place| page_at(TOP - place * STEP))?.cast::<u8>();
        let (spin, abort, end_of_spin) =
            (&raw const coswitch_spin, &raw const coswitch_abort, &raw const coswitch_spin_end);
        let length = end_of_spin.addr() - spin.addr();
        // SAFETY: the code is that long, and the page is its own.
        unsafe { ptr::copy_nonoverlapping(spin, top.as_ptr(), length) };
        let top_address = top.as_ptr().addr();
        let mut section = Section {
            version: 0,
            flags: 0,
            start: BOTTOM as u64,
            length: (top_address - BOTTOM) as u64,
            abort: (top_address + (abort.addr() - spin.addr())) as u64,
        };
        // SAFETY: the handler only stores to an atomic.
        unsafe { signal(Signal::SIGTERM, SigHandler::Handler(end)) }.ok()?;
        dup2_stdout(File::open("/dev/null").ok()?).ok()?;
        type Spin = extern "C" fn(*mut u64, *mut Section, *const AtomicI32, *const AtomicI32);
        // SAFETY: the code at that address has this signature and lies there until the process ends.
        let spin: Spin = unsafe { std::mem::transmute(top.as_ptr()) };
        spin(own, &raw mut section, &raw const IS_OVER, &raw const TAKEN);
        Some(TAKEN.load(Ordering::Relaxed) > 0)
    }
}
