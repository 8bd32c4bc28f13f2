//! Which pages CRIU restores, and which are given to the restored processes afterwards.
//!
//! CRIU needs few: what it did not call lazy (mapped files, shared memory), what the process may not write to and we
//! could not either, and those that the kernel may write to before the process runs again: a signal that was pending
//! gets its frame on the stack before the stop signal that CRIU leaves the process with is heeded. All others, nearly
//! all there is, are *deferred*: in the page map they are holes.

use super::raw::Raw;
use super::receive::Received;
use super::wire::{Image, PAGE, Run};
use crate::image_file;
use crate::images::{self, ImagesError};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::Path;

const PAGE_MASK: u64 = PAGE as u64 - 1;
/// Above all that a process can have.
const ADDRESS_MAX: u64 = !PAGE_MASK;

/// Pages of a process that lie one after the other, in its memory and among those received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) process: u32,
    pub(super) address: u64,
    pub(super) pages: u64,
    /// Of the first page, in bytes.
    pub(super) offset: u64,
}

impl Stretch {
    /// Where the next one's pages may begin, in bytes.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.pages * PAGE as u64
    }
}

/// What the images say of memory.
struct Maps {
    writable: BTreeMap<u32, Vec<Range<u64>>>,
    /// Whole pages, in order and apart from each other. Of any process: that a few others are not deferred costs
    /// little.
    kernels: Vec<Range<u64>>,
}

impl Maps {
    fn read(images_dir: &Path) -> Result<Maps, ImagesError> {
        let (mut writable, mut kernels) = (BTreeMap::new(), Vec::new());
        for (name, path) in images::list(images_dir)? {
            let number = |prefix| name.strip_prefix(prefix)?.strip_suffix(".img")?.parse::<u32>().ok();
            if let Some(process) = number("mm-") {
                writable.insert(process, images::read_as(&path, image_file::writable)?);
            } else if number("core-").is_some() {
                match images::read_as(&path, image_file::written_by_kernel)? {
                    Some(ranges) => kernels.extend(ranges),
                    None => kernels.push(0..ADDRESS_MAX),
                }
            }
        }
        Ok(Maps { writable, kernels: whole_pages(kernels) })
    }

    /// How many pages from `address` on, up to `pages`, share a fate, and whether they are deferred.
    fn fate(&self, process: u32, address: u64, pages: u64) -> (u64, bool) {
        let writable = self.writable.get(&process).map_or(&[][..], Vec::as_slice);
        let (until, is_kernels) = locate(&self.kernels, address);
        let (end, is_writable) = locate(writable, address);
        let end = if is_kernels { until } else { until.min(end) };
        (((end - address) / PAGE as u64).min(pages), is_writable && !is_kernels)
    }
}

/// Whether the address lies in one of the ranges, and up to where that stays so.
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

/// Writes page maps and what CRIU needs of the pages into the images; returns what it is not told of.
pub(super) fn split(received: &Received, images_dir: &Path) -> Result<Vec<Stretch>, ImagesError> {
    let maps = Maps::read(images_dir)?;
    let (mut deferred, mut kept) = (Vec::new(), BTreeMap::<Image, Vec<(u64, u64, u64)>>::new());
    let mut offset = 0;
    for run in &received.runs {
        for (address, pages, is_deferred) in fates(&maps, run) {
            match run.image {
                Image::Process(process) if is_deferred => {
                    deferred.push(Stretch { process, address, pages, offset });
                }
                image => kept.entry(image).or_default().push((address, pages, offset)),
            }
            offset += pages * PAGE as u64;
        }
    }
    for (pages_id, image) in (1..).zip(&received.images) {
        let runs = kept.remove(image).unwrap_or_default();
        write_images(images_dir, *image, pages_id, &runs, &received.raw)?;
    }
    Ok(deferred)
}

fn fates<'a>(maps: &'a Maps, run: &'a Run) -> impl Iterator<Item = (u64, u64, bool)> + 'a {
    let (mut address, mut left) = (run.address, run.pages);
    std::iter::from_fn(move || {
        let (pages, is_deferred) = match run.image {
            _ if left == 0 => return None,
            Image::Process(process) if run.lazy => maps.fate(process, address, left),
            _ => (left, false),
        };
        let part = (address, pages, is_deferred);
        (address, left) = (address + pages * PAGE as u64, left - pages);
        Some(part)
    })
}

fn write_images(
    dir: &Path,
    image: Image,
    pages_id: u32,
    runs: &[(u64, u64, u64)],
    raw: &Raw,
) -> Result<(), ImagesError> {
    let map = dir.join(match image {
        Image::Process(process) => format!("pagemap-{process}.img"),
        Image::Shared(id) => format!("pagemap-shmem-{id}.img"),
    });
    let bytes = image_file::page_map(pages_id, runs.iter().map(|(address, pages, _)| (*address, *pages)));
    fs::write(&map, bytes).map_err(images::at(&map))?;
    let path = dir.join(format!("pages-{pages_id}.img"));
    write_pages(&path, runs, raw).map_err(images::at(&path))
}

fn write_pages(path: &Path, runs: &[(u64, u64, u64)], raw: &Raw) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
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
    use super::*;

    #[test]
    fn only_what_is_lazy_and_writable_and_not_the_kernels_is_deferred() {
        let maps = Maps {
            writable: BTreeMap::from([(7, vec![0x2000..0x5000, 0x6000..0x9000])]),
            kernels: whole_pages(vec![0x7ff0..0x7ff1, 0x7010..0x7020]),
        };
        let run = |process, lazy| Run { image: Image::Process(process), address: 0x1000, pages: 9, lazy };
        let found: Vec<_> = fates(&maps, &run(7, true)).collect();
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
        assert_eq!(fates(&maps, &run(7, false)).collect::<Vec<_>>(), [(0x1000, 9, false)]);
        assert!(fates(&maps, &run(8, true)).all(|(_, _, is_deferred)| !is_deferred));
        let shared = Run { image: Image::Shared(7), lazy: true, ..run(7, true) };
        assert!(fates(&maps, &shared).all(|(_, _, is_deferred)| !is_deferred));
    }
}
