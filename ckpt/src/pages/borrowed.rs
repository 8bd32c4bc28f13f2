//! The page of each process that CRIU overwrites for a while during a dump.
//!
//! To make a process call the kernel, CRIU writes `syscall; int3` to the start of its first executable area,
//! and restores the contents afterwards. It does so once more after it has sent the pages; but pages are sent
//! without copying, so a late reader finds CRIU's code in this page. A process that was dumped before its
//! first function, which is there, was then restored to an `int3`. So the page is read while the tree is
//! frozen and before CRIU begins.

use super::receive::Received;
use super::wire::{Owner, PAGE};
use crate::processes;
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// A page as it was before CRIU began.
struct Page {
    /// The id of its process in its own namespace.
    process: u32,
    address: u64,
    bytes: [u8; PAGE],
}

/// The borrowed pages of a tree.
pub(crate) struct Borrowed(Vec<Page>);

impl Borrowed {
    /// Reads the pages of frozen processes. A zombie has none.
    pub(crate) fn of(pids: &[Pid]) -> io::Result<Borrowed> {
        pids.iter().filter_map(|pid| read(*pid).transpose()).collect::<io::Result<_>>().map(Borrowed)
    }

    /// Overwrites the borrowed pages among the received ones.
    pub(super) fn put_back(&self, received: &mut Received) -> io::Result<()> {
        let mut offset = 0;
        for run in &received.runs {
            let bytes = run.pages * PAGE as u64;
            let area = run.address..run.address + bytes;
            let is_of =
                |page: &&Page| run.owner == Owner::Process(page.process) && area.contains(&page.address);
            for page in self.0.iter().filter(is_of) {
                received.raw.put(offset + page.address - run.address, &page.bytes)?;
            }
            offset += bytes;
        }
        Ok(())
    }
}

fn read(pid: Pid) -> io::Result<Option<Page>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let Some(address) = maps.lines().find_map(executable) else { return Ok(None) };
    let mut bytes = [0; PAGE];
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut bytes, address)?;
    let process = processes::ids_in_namespaces(pid).last().copied();
    let process = process.and_then(|id| u32::try_from(id).ok()).ok_or(io::ErrorKind::NotFound)?;
    Ok(Some(Page { process, address, bytes }))
}

/// The start of the area in a line of `maps`, if the area is executable.
fn executable(line: &str) -> Option<u64> {
    let (area, rest) = line.split_once(' ')?;
    let is_executable = rest.as_bytes().get(2) == Some(&b'x');
    is_executable.then(|| u64::from_str_radix(area.split_once('-')?.0, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::super::raw::tests::raw;
    use super::super::wire::PageRun;
    use super::*;

    #[test]
    fn a_borrowed_page_is_put_back_where_it_belongs_and_nowhere_else() {
        for in_blocks in [true, false] {
            let run =
                |process, address| PageRun { owner: Owner::Process(process), address, pages: 3, lazy: false };
            let runs = vec![run(7, 0x1000), run(7, 0x8000), run(8, 0x8000)];
            let raw = raw(&[1; 9 * PAGE], in_blocks);
            let mut received = Received { owners: Vec::new(), runs, raw };
            let page = |process, address, byte| Page { process, address, bytes: [byte; PAGE] };
            let borrowed = Borrowed(vec![page(7, 0x9000, 2), page(8, 0x5000, 3), page(9, 0x1000, 4)]);
            borrowed.put_back(&mut received).unwrap();
            let first = |page| received.raw.get(page * PAGE as u64, 1, &mut Vec::new()).unwrap()[0];
            assert_eq!((0..9).map(first).collect::<Vec<_>>(), [1, 1, 1, 1, 2, 1, 1, 1, 1]);
        }
    }

    #[test]
    fn our_own_first_executable_page_is_found() {
        let Borrowed(pages) = Borrowed::of(&[Pid::this()]).unwrap();
        assert_eq!((pages.len(), pages[0].process), (1, std::process::id()));
        assert_eq!(executable("55d0-55e0 r--p 00000000 fe:00 1 /x y"), None);
        assert_eq!(executable("55d000-55e000 r-xp 00001000 fe:00 1 /x y"), Some(0x55d000));
    }
}
