//! Splits received pages into those that CRIU restores and those that are filled in afterwards.
//!
//! CRIU needs few pages: those that it did not call lazy (mapped files, shared memory), those that the
//! process may not write to, because we could not either, and those that the kernel may write to before the
//! process runs again: the frame of a pending signal is put on the stack before the stop signal that CRIU has
//! sent takes effect. All other pages, nearly all there are, are *deferred*: in the page map they are holes.

use super::raw::{Extent, Raw};
use super::receive::Received;
use super::wire::{Owner, PAGE, PageRun};
use crate::image_file;
use crate::images::{self, ImagesError};
use crate::private;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::Path;

const PAGE_MASK: u64 = PAGE as u64 - 1;
/// Above all addresses of a process.
const ADDRESS_MAX: u64 = !PAGE_MASK;

/// Address ranges that decide which pages are deferred, from CRIU's images.
struct Maps {
    writable: BTreeMap<u32, Vec<Range<u64>>>,
    /// Whole pages that the kernel may write to, in order and disjoint. Not kept by process: that a few pages
    /// of other processes are not deferred costs little.
    kernel_writes: Vec<Range<u64>>,
}

impl Maps {
    fn read(images_dir: &Path) -> Result<Maps, ImagesError> {
        let (mut writable, mut kernel_writes) = (BTreeMap::new(), Vec::new());
        for (name, path) in images::list(images_dir)? {
            let number = |prefix| name.strip_prefix(prefix)?.strip_suffix(".img")?.parse::<u32>().ok();
            if let Some(process) = number("mm-") {
                writable.insert(process, images::read_as(&path, image_file::writable)?);
            } else if number("core-").is_some() {
                match images::read_as(&path, image_file::written_by_kernel)? {
                    Some(ranges) => kernel_writes.extend(ranges),
                    None => kernel_writes.push(0..ADDRESS_MAX),
                }
            }
        }
        Ok(Maps { writable, kernel_writes: whole_pages(kernel_writes) })
    }

    /// Whether the page at `address` is deferred, and for how many pages from it on, up to `pages`, the same
    /// holds.
    fn classify(&self, process: u32, address: u64, pages: u64) -> (u64, bool) {
        let writable = self.writable.get(&process).map_or(&[][..], Vec::as_slice);
        let (until, is_kernels) = locate(&self.kernel_writes, address);
        let (end, is_writable) = locate(writable, address);
        let end = if is_kernels { until } else { until.min(end) };
        (((end - address) / PAGE as u64).min(pages), is_writable && !is_kernels)
    }
}

/// Whether the address is in one of the ranges, and the address at which that changes.
fn locate(ranges: &[Range<u64>], address: u64) -> (u64, bool) {
    match ranges.get(ranges.partition_point(|range| range.end <= address)) {
        Some(range) if range.start <= address => (range.end, true),
        Some(range) => (range.start, false),
        None => (ADDRESS_MAX, false),
    }
}

fn whole_pages(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut whole: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let (start, end) = (range.start & !PAGE_MASK, range.end.saturating_add(PAGE_MASK) & !PAGE_MASK);
        match whole.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ => whole.push(start..end),
        }
    }
    whole
}

/// The deferred pages of a dump, and the others.
pub(super) struct Split<'a> {
    received: &'a Received,
    deferred: Vec<Extent>,
    /// Runs (address, pages, offset) of the pages that CRIU needs.
    kept: BTreeMap<Owner, Vec<(u64, u64, u64)>>,
}

impl<'a> Split<'a> {
    /// Reads the images of processes and threads, which CRIU finishes before it ends the transfer of pages.
    pub(super) fn of(received: &'a Received, images_dir: &Path) -> Result<Split<'a>, ImagesError> {
        Ok(Split::by(&Maps::read(images_dir)?, received))
    }

    fn by(maps: &Maps, received: &'a Received) -> Split<'a> {
        let mut split = Split { received, deferred: Vec::new(), kept: BTreeMap::new() };
        let mut offset = 0;
        for run in &received.runs {
            for (address, pages, is_deferred) in classified(maps, run) {
                match run.owner {
                    Owner::Process(process) if is_deferred => {
                        split.deferred.push(Extent { process, address, pages, offset });
                    }
                    owner => split.kept.entry(owner).or_default().push((address, pages, offset)),
                }
                offset += pages * PAGE as u64;
            }
        }
        split
    }

    /// How many bytes are deferred, and how many [`Split::write`] writes into the images.
    pub(super) fn bytes(&self) -> [u64; 2] {
        let deferred: u64 = self.deferred.iter().map(|extent| extent.pages * PAGE as u64).sum();
        [deferred, self.received.raw.length() - deferred]
    }

    /// Writes page maps and the pages that CRIU needs into the images; returns the deferred pages.
    pub(super) fn write(mut self, images_dir: &Path) -> Result<Vec<Extent>, ImagesError> {
        for (pages_id, owner) in (1..).zip(&self.received.owners) {
            let runs = self.kept.remove(owner).unwrap_or_default();
            write_images(images_dir, *owner, pages_id, &runs, &self.received.raw)?;
        }
        Ok(self.deferred)
    }
}

/// Cuts a run into parts (address, pages, whether they are deferred).
fn classified<'a>(maps: &'a Maps, run: &'a PageRun) -> impl Iterator<Item = (u64, u64, bool)> + 'a {
    let (mut address, mut left) = (run.address, run.pages);
    std::iter::from_fn(move || {
        let (pages, is_deferred) = match run.owner {
            _ if left == 0 => return None,
            Owner::Process(process) if run.lazy => maps.classify(process, address, left),
            _ => (left, false),
        };
        let part = (address, pages, is_deferred);
        (address, left) = (address + pages * PAGE as u64, left - pages);
        Some(part)
    })
}

fn write_images(
    dir: &Path,
    owner: Owner,
    pages_id: u32,
    runs: &[(u64, u64, u64)],
    raw: &Raw,
) -> Result<(), ImagesError> {
    let map = dir.join(match owner {
        Owner::Process(process) => format!("pagemap-{process}.img"),
        Owner::Shared(id) => format!("pagemap-shmem-{id}.img"),
    });
    let bytes = image_file::page_map(pages_id, runs.iter().map(|(address, pages, _)| (*address, *pages)));
    private::overwrite(&map).and_then(|mut file| file.write_all(&bytes)).map_err(images::at(&map))?;
    let path = dir.join(format!("pages-{pages_id}.img"));
    write_pages(&path, runs, raw).map_err(images::at(&path))
}

fn write_pages(path: &Path, runs: &[(u64, u64, u64)], raw: &Raw) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, private::overwrite(path)?);
    let mut scratch = Vec::new();
    for (_, pages, offset) in runs {
        for page in 0..*pages {
            file.write_all(raw.get(offset + page * PAGE as u64, PAGE, &mut scratch)?)?;
        }
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::super::raw::tests::raw;
    use super::*;

    #[test]
    fn only_lazy_and_writable_pages_that_the_kernel_does_not_write_to_are_deferred() {
        let maps = Maps {
            writable: BTreeMap::from([(7, vec![0x2000..0x5000, 0x6000..0x9000])]),
            kernel_writes: whole_pages(vec![0x7ff0..0x7ff1, 0x7010..0x7020]),
        };
        let run = |process, lazy| PageRun { owner: Owner::Process(process), address: 0x1000, pages: 9, lazy };
        let found: Vec<_> = classified(&maps, &run(7, true)).collect();
        let expected = [
            (0x1000, 1, false),
            (0x2000, 3, true),
            (0x5000, 1, false),
            (0x6000, 1, true),
            (0x7000, 1, false),
            (0x8000, 1, true),
            (0x9000, 1, false),
        ];
        assert_eq!(found, expected);
        assert_eq!(classified(&maps, &run(7, false)).collect::<Vec<_>>(), [(0x1000, 9, false)]);
        assert!(classified(&maps, &run(8, true)).all(|(_, _, is_deferred)| !is_deferred));
        let shared = PageRun { owner: Owner::Shared(7), lazy: true, ..run(7, true) };
        assert!(classified(&maps, &shared).all(|(_, _, is_deferred)| !is_deferred));
    }

    #[test]
    fn the_bytes_that_are_counted_for_the_images_are_those_that_are_written() {
        let page = |number: usize| number * PAGE..(number + 1) * PAGE;
        let bytes: Vec<u8> = (0..page(3).end).map(|at| (at / PAGE) as u8).collect();
        let run = |owner, address, pages, lazy| PageRun { owner, address, pages, lazy };
        let owners = vec![Owner::Process(7), Owner::Shared(9)];
        let runs = vec![run(owners[0], 0x1000, 3, true), run(owners[1], 0, 1, false)];
        let received = Received { owners, runs, raw: raw(&bytes, false) };
        // Of a process, one page is read only, and the kernel may write to another one.
        let maps = Maps {
            writable: BTreeMap::from([(7, std::iter::once(0x2000..0x4000).collect())]),
            kernel_writes: whole_pages(std::iter::once(0x3000..0x3001).collect()),
        };
        let split = Split::by(&maps, &received);
        assert_eq!(split.bytes(), [PAGE as u64, 3 * PAGE as u64]);
        let dir = tempfile::tempdir().unwrap();
        let deferred = split.write(dir.path()).unwrap();
        assert_eq!(deferred, [Extent { process: 7, address: 0x2000, pages: 1, offset: PAGE as u64 }]);
        let written = |id: u32| std::fs::read(dir.path().join(format!("pages-{id}.img"))).unwrap();
        assert!(written(1) == [&bytes[page(0)], &bytes[page(2)]].concat() && written(2) == bytes[page(3)]);
    }
}
