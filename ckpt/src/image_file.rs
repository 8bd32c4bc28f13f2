//! Decoders for the parts of CRIU's image files that we need. Pure.
//!
//! ```text
//! u32 common magic │ u32 magic of the kind │ ( u32 length │ protobuf message )*
//! ```
//! No entry is re-encoded, because entries have fields that we do not know. Repairs change bytes in place
//! (see [`disarmed_periodic_timers`] and [`own_proc_files`]). Only page maps are written anew, if we hold the
//! pages.

use criu_sys::image::{
    CoreEntry, CredsEntry, FileEntry, MmEntry, PagemapEntry, PagemapHead, PstreeEntry, RemapFilePathEntry,
    StatsEntry,
};
use prost::Message;
use std::ops::Range;

const COMMON_MAGIC: u32 = 0x5456_4319;
const SERVICE_MAGIC: u32 = 0x5510_5940;
const FILES_MAGIC: u32 = 0x5630_3138;
const REMAPS_MAGIC: u32 = 0x5913_3954;
const STATS_MAGIC: u32 = 0x5709_3306;
const CORE_MAGIC: u32 = 0x5505_3847;
const MM_MAGIC: u32 = 0x5749_2820;
const PSTREE_MAGIC: u32 = 0x5027_3030;
const PAGEMAP_MAGIC: u32 = 0x5608_4025;
const PAGES_PRESENT: u32 = 4;
/// The largest frame has 11 KiB, and handlers of several signals may nest.
const SIGNAL_FRAMES_BYTES_MAX: u64 = 256 << 10;
const HEADER_BYTES: usize = 8;

const TYPE_REGULAR: u32 = 1;
const TYPE_TIMERFD: u32 = 17;
const FIELD_REGULAR: u32 = 3;
const FIELD_NAME: u32 = 6;
const FIELD_TIMERFD: u32 = 12;
const FIELD_VALUE_NS: u32 = 8;

/// Why an image file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    #[error("not an image of the expected kind (magic {found:08x?})")]
    Magic { found: [u32; 2] },
    #[error("cut off in the entry at byte {offset}")]
    Truncated { offset: usize },
    #[error("the entry at byte {offset} cannot be read")]
    Entry { offset: usize },
}

/// A regular file that the dumped processes had open or mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegularFile {
    pub path: String,
    /// CRIU refuses to restore when this has changed.
    pub bytes: Option<u64>,
    /// Type and permissions; CRIU refuses to restore when they have changed.
    pub mode: Option<u32>,
    /// Whether it was opened to be written to.
    pub is_written: bool,
    id: u32,
}

/// Decodes the regular files of a `files.img`.
pub fn regular_files(image: &[u8]) -> Result<Vec<RegularFile>, ImageError> {
    let mut files = Vec::new();
    for entry in entries(image, COMMON_MAGIC, FILES_MAGIC)? {
        let file = decode::<FileEntry>(image, &entry)?;
        if let (TYPE_REGULAR, Some(regular)) = (file.r#type, file.reg) {
            files.push(RegularFile {
                path: regular.name,
                bytes: regular.size,
                mode: regular.mode,
                is_written: regular.flags as i32 & libc::O_ACCMODE != libc::O_RDONLY,
                id: file.id,
            });
        }
    }
    Ok(files)
}

/// Leaves out the files that a `remap-fpath.img` names: they were removed while they were open, and another
/// file may be at their path.
pub fn at_their_paths(mut files: Vec<RegularFile>, remaps: &[u8]) -> Result<Vec<RegularFile>, ImageError> {
    for entry in entries(remaps, COMMON_MAGIC, REMAPS_MAGIC)? {
        let removed = decode::<RemapFilePathEntry>(remaps, &entry)?.orig_id;
        files.retain(|file| file.id != removed);
    }
    Ok(files)
}

/// Returns the offsets of the bytes that must become 1 so that periodic timers go on after a restore.
///
/// A periodic timerfd that has expired and was not read yet is dumped with zero time left, and setting a
/// timer to zero disarms it: it would never fire again (CRIU issue 3162). The repair leaves one nanosecond.
/// Zero and one both take a single byte in the encoding.
pub fn disarmed_periodic_timers(image: &[u8]) -> Result<Vec<usize>, ImageError> {
    let mut offsets = Vec::new();
    for entry in entries(image, COMMON_MAGIC, FILES_MAGIC)? {
        let file = decode::<FileEntry>(image, &entry)?;
        let (TYPE_TIMERFD, Some(timer)) = (file.r#type, file.tfd) else { continue };
        let periodic = timer.isec > 0 || timer.insec > 0;
        if periodic && timer.vsec == 0 && timer.vnsec == 0 {
            let broken = ImageError::Entry { offset: entry.start };
            let timer = field(image, entry, FIELD_TIMERFD).ok_or(broken.clone())?;
            let value = field(image, timer, FIELD_VALUE_NS).ok_or(broken)?;
            offsets.push(value.start);
        }
    }
    Ok(offsets)
}

/// Returns repairs (offset and text) for paths of `/proc` files that a process had open about itself, such as
/// `/proc/self/mounts`, which MPI libraries read when they start.
///
/// Such a path names the process by its id outside its namespace, and a restored process has another one. The
/// repair is `self`, padded with slashes to the length of the number: the process that restores the file is
/// its owner. If the number is shorter than `self`, only `mounts` can be repaired, because `/proc/mounts`
/// leads there as well.
pub fn own_proc_files(image: &[u8], pids: &[i32]) -> Result<Vec<(usize, String)>, ImageError> {
    let mut repairs = Vec::new();
    for entry in entries(image, COMMON_MAGIC, FILES_MAGIC)? {
        let file = decode::<FileEntry>(image, &entry)?;
        let (TYPE_REGULAR, Some(regular)) = (file.r#type, file.reg) else { continue };
        let Some(digits) = pid_in_proc_path(&regular.name, pids) else { continue };
        let text = match (digits.len(), &regular.name[digits.end..]) {
            (length @ 4.., _) => format!("{:/<length$}", "self"),
            (length, "/mounts") => "./."[..length].to_owned(),
            _ => continue,
        };
        let broken = ImageError::Entry { offset: entry.start };
        let regular = field(image, entry, FIELD_REGULAR).ok_or(broken.clone())?;
        let name = field(image, regular, FIELD_NAME).ok_or(broken)?;
        repairs.push((name.start + digits.start, text));
    }
    Ok(repairs)
}

/// Returns a `files.img` in which a directory, and the regular files in it, have another path; `None` where
/// there is no entry of them. Only names and the lengths around them change.
pub fn renamed(image: &[u8], from: &str, to: &str) -> Result<Option<Vec<u8>>, ImageError> {
    let mut result = image[..HEADER_BYTES.min(image.len())].to_vec();
    let mut any = false;
    for entry in entries(image, COMMON_MAGIC, FILES_MAGIC)? {
        let file = decode::<FileEntry>(image, &entry)?;
        let regular = file.reg.filter(|_| file.r#type == TYPE_REGULAR);
        let moved = regular.and_then(|regular| moved_path(&regular.name, from, to));
        let mut message = image[entry.clone()].to_vec();
        if let Some(to) = moved {
            let broken = ImageError::Entry { offset: entry.start };
            let regular = field(image, entry.clone(), FIELD_REGULAR).ok_or(broken.clone())?;
            let name = field(image, regular.clone(), FIELD_NAME).ok_or(broken)?;
            // CRIU may omit the first slash.
            let to = if image[name.clone()].starts_with(b"/") { &*to } else { to.trim_start_matches('/') };
            let regular_with = with_field(&image[regular.clone()], &name, regular.start, to.as_bytes());
            message = with_field(&image[entry.clone()], &regular, entry.start, &regular_with);
            any = true;
        }
        result.extend((message.len() as u32).to_le_bytes());
        result.extend(message);
    }
    Ok(any.then_some(result))
}

/// The path `found` after its directory `from`, or itself, has become `to`; `None` where it is elsewhere.
fn moved_path(found: &str, from: &str, to: &str) -> Option<String> {
    let rest = found.trim_start_matches('/').strip_prefix(from.trim_start_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
}

/// A message, which begins at byte `start` of an image, with other contents of the field that has `contents`
/// there.
fn with_field(message: &[u8], contents: &Range<usize>, start: usize, new: &[u8]) -> Vec<u8> {
    let (from, to) = (contents.start - start, contents.end - start);
    let before = from - encoded(contents.len() as u64).len();
    [&message[..before], &encoded(new.len() as u64), new, &message[to..]].concat()
}

/// A base-128 number.
fn encoded(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Finds the number in `/proc/NUMBER/…` if it is one of these process ids; CRIU omits the first slash.
fn pid_in_proc_path(path: &str, pids: &[i32]) -> Option<Range<usize>> {
    let start =
        path.find("proc/").filter(|at| path[..*at].is_empty() || &path[..*at] == "/")? + "proc/".len();
    let length = path[start..].find('/')?;
    let pid: i32 = path[start..start + length].parse().ok()?;
    pids.contains(&pid).then_some(start..start + length)
}

/// Decodes the threads of the tree's root from a `pstree.img`.
pub fn threads_of_root(image: &[u8]) -> Result<Vec<u32>, ImageError> {
    let entries = entries(image, COMMON_MAGIC, PSTREE_MAGIC)?;
    let root = entries.first().ok_or(ImageError::Truncated { offset: HEADER_BYTES })?;
    let PstreeEntry { pid, mut threads } = decode(image, root)?;
    threads.push(pid);
    Ok(threads)
}

/// Decodes what a thread may do from a `core-N.img`; `None` where it does not say so.
pub fn credentials(image: &[u8]) -> Result<Option<CredsEntry>, ImageError> {
    let entries = entries(image, COMMON_MAGIC, CORE_MAGIC)?;
    let entry = entries.first().ok_or(ImageError::Truncated { offset: HEADER_BYTES })?;
    Ok(decode::<CoreEntry>(image, entry)?.thread_core.and_then(|thread| thread.creds))
}

/// Decodes the address ranges that a process could write to from an `mm-N.img`, in order.
pub fn writable(image: &[u8]) -> Result<Vec<Range<u64>>, ImageError> {
    let entries = entries(image, COMMON_MAGIC, MM_MAGIC)?;
    let entry = entries.first().ok_or(ImageError::Truncated { offset: HEADER_BYTES })?;
    let mut vmas = decode::<MmEntry>(image, entry)?.vmas;
    vmas.retain(|vma| vma.prot & libc::PROT_WRITE as u32 != 0);
    vmas.sort_by_key(|vma| vma.start);
    Ok(vmas.into_iter().map(|vma| vma.start..vma.end).collect())
}

/// Decodes where the kernel may write to the memory of the thread of a `core-N.img` before the thread runs
/// again: its restartable sequence, and the places for frames of pending signals, below its stack pointer or
/// on its alternate signal stack. `None` if the image does not say, as on another architecture.
pub fn written_by_kernel(image: &[u8]) -> Result<Option<Vec<Range<u64>>>, ImageError> {
    let entries = entries(image, COMMON_MAGIC, CORE_MAGIC)?;
    let entry = entries.first().ok_or(ImageError::Truncated { offset: HEADER_BYTES })?;
    let core = decode::<CoreEntry>(image, entry)?;
    // A zombie has neither.
    let Some(thread) = core.thread_core else { return Ok(Some(Vec::new())) };
    let Some(registers) = core.thread_info.map(|info| info.gpregs) else { return Ok(None) };
    let frames = registers.sp.saturating_sub(SIGNAL_FRAMES_BYTES_MAX)..registers.sp.saturating_add(1);
    let for_signals = thread.sas.map(|stack| stack.ss_sp..stack.ss_sp.saturating_add(stack.ss_size));
    let sequence =
        thread.rseq_entry.map(|entry| entry.rseq_abi_pointer..entry.rseq_abi_pointer.saturating_add(1));
    let ranges = [Some(frames), for_signals, sequence].into_iter().flatten();
    Ok(Some(ranges.filter(|range| !range.is_empty()).collect()))
}

/// Encodes a `pagemap-N.img` for runs (address, pages) that are consecutive in `pages-<pages_id>.img`.
pub fn page_map(pages_id: u32, runs: impl Iterator<Item = (u64, u64)>) -> Vec<u8> {
    let mut image = [COMMON_MAGIC.to_le_bytes(), PAGEMAP_MAGIC.to_le_bytes()].concat();
    let mut push = |message: Vec<u8>| {
        image.extend((message.len() as u32).to_le_bytes());
        image.extend(message);
    };
    push(PagemapHead { pages_id }.encode_to_vec());
    for (vaddr, pages) in runs {
        let flags = Some(PAGES_PRESENT);
        push(PagemapEntry { vaddr, compat_nr_pages: 0, flags, nr_pages: Some(pages) }.encode_to_vec());
    }
    image
}

/// Decodes CRIU's statistics of a dump or a restore.
pub fn statistics(image: &[u8]) -> Result<StatsEntry, ImageError> {
    let entries = entries(image, SERVICE_MAGIC, STATS_MAGIC)?;
    let entry = entries.first().ok_or(ImageError::Truncated { offset: HEADER_BYTES })?;
    decode(image, entry)
}

fn decode<M: Message + Default>(image: &[u8], entry: &Range<usize>) -> Result<M, ImageError> {
    M::decode(&image[entry.clone()]).map_err(|_| ImageError::Entry { offset: entry.start })
}

/// Returns the ranges of the entries' messages.
fn entries(image: &[u8], common: u32, kind: u32) -> Result<Vec<Range<usize>>, ImageError> {
    let truncated = |offset| ImageError::Truncated { offset };
    let word = |offset: usize| {
        let bytes = image.get(offset..offset + 4).ok_or(truncated(offset))?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes were taken")))
    };
    let found = [word(0)?, word(4)?];
    if found != [common, kind] {
        return Err(ImageError::Magic { found });
    }
    let mut entries = Vec::new();
    let mut offset = HEADER_BYTES;
    while offset < image.len() {
        let start = offset + 4;
        let end = start + word(offset)? as usize;
        if end > image.len() {
            return Err(truncated(offset));
        }
        entries.push(start..end);
        offset = end;
    }
    Ok(entries)
}

/// Finds the first field of that number in the wire format; the range excludes its tag and length.
fn field(image: &[u8], message: Range<usize>, wanted: u32) -> Option<Range<usize>> {
    let mut at = message.start;
    while at < message.end {
        let (tag, start) = varint(image, at, message.end)?;
        let (start, end) = match tag & 7 {
            0 => (start, varint(image, start, message.end)?.1),
            1 => (start, start + 8),
            2 => {
                let (length, start) = varint(image, start, message.end)?;
                (start, start.checked_add(usize::try_from(length).ok()?)?)
            }
            5 => (start, start + 4),
            _ => return None,
        };
        if end > message.end {
            return None;
        }
        if tag >> 3 == u64::from(wanted) {
            return Some(start..end);
        }
        at = end;
    }
    None
}

/// Decodes a base-128 number; returns it and the offset behind it.
fn varint(image: &[u8], start: usize, end: usize) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (index, byte) in image.get(start..end)?.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, start + index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use criu_sys::image::{RegFileEntry, TimerfdEntry};

    fn image(messages: &[FileEntry]) -> Vec<u8> {
        let mut image = [COMMON_MAGIC.to_le_bytes(), FILES_MAGIC.to_le_bytes()].concat();
        for message in messages {
            let bytes = message.encode_to_vec();
            image.extend((bytes.len() as u32).to_le_bytes());
            image.extend(bytes);
        }
        image
    }

    fn timer(id: u32, value_ns: u64, interval_ns: u64) -> FileEntry {
        let tfd = TimerfdEntry {
            id,
            clockid: 1,
            ticks: 1,
            vnsec: value_ns,
            insec: interval_ns,
            ..Default::default()
        };
        FileEntry { r#type: TYPE_TIMERFD, id, tfd: Some(tfd), ..Default::default() }
    }

    fn regular(id: u32, name: &str, size: u64) -> FileEntry {
        let reg = RegFileEntry {
            id,
            flags: id % 4,
            name: name.to_owned(),
            size: Some(size),
            mode: Some(0o100644),
            ..Default::default()
        };
        FileEntry { r#type: TYPE_REGULAR, id, reg: Some(reg), ..Default::default() }
    }

    #[test]
    fn an_expired_periodic_timer_is_given_a_nanosecond_and_nothing_else_changes() {
        let mut bytes =
            image(&[regular(1, "/tmp/out", 300), timer(2, 0, 5_000_000), timer(3, 77, 5_000_000)]);
        let before = bytes.clone();
        let offsets = disarmed_periodic_timers(&bytes).unwrap();
        assert_eq!(offsets.len(), 1);
        bytes[offsets[0]] = 1;
        assert_eq!(bytes.iter().zip(&before).filter(|(new, old)| new != old).count(), 1);
        let repaired = entries(&bytes, COMMON_MAGIC, FILES_MAGIC).unwrap();
        let repaired: FileEntry = decode(&bytes, &repaired[1]).unwrap();
        assert_eq!(repaired, timer(2, 1, 5_000_000));
        assert_eq!(disarmed_periodic_timers(&bytes), Ok(vec![]));
    }

    #[test]
    fn files_are_known_by_what_they_were_opened_for_and_removed_ones_left_out() {
        let named = ["/read", "/written", "/both", "/removed"];
        let ids = [4, 5, 6, 9];
        let files: Vec<FileEntry> = ids.iter().zip(named).map(|(id, name)| regular(*id, name, 7)).collect();
        let files = regular_files(&image(&files)).unwrap();
        assert_eq!([false, true, true, true], [0, 1, 2, 3].map(|at: usize| files[at].is_written));
        let removed = RemapFilePathEntry { orig_id: 9, remap_id: 1 }.encode_to_vec();
        let header = [COMMON_MAGIC.to_le_bytes(), REMAPS_MAGIC.to_le_bytes()].concat();
        let remaps = [&header[..], &(removed.len() as u32).to_le_bytes(), &removed].concat();
        let left = at_their_paths(files, &remaps).unwrap();
        assert_eq!(left.iter().map(|file| &*file.path).collect::<Vec<_>>(), ["/read", "/written", "/both"]);
        assert!(matches!(at_their_paths(left, b"damaged."), Err(ImageError::Magic { .. })));
    }

    #[test]
    fn a_timer_that_is_disarmed_or_fires_once_is_left_alone() {
        assert_eq!(disarmed_periodic_timers(&image(&[timer(1, 0, 0), timer(2, 9, 0)])), Ok(vec![]));
    }

    #[test]
    fn only_proc_files_of_a_process_about_itself_are_changed_to_self() {
        let others =
            ["/proc/4878", "/proc/cpuinfo", "/tmp/proc/4878/x", "/proc/77777/stat", "/proc/123/stat"];
        let names = others.iter().chain(&["proc/4878/mounts", "/proc/54321/status", "proc/123/mounts"]);
        let files: Vec<FileEntry> = (0..).zip(names).map(|(id, name)| regular(id, name, 0)).collect();
        let mut bytes = image(&files);
        for (offset, text) in own_proc_files(&bytes, &[4878, 54321, 123]).unwrap() {
            bytes[offset..offset + text.len()].copy_from_slice(text.as_bytes());
        }
        let paths: Vec<String> = regular_files(&bytes).unwrap().into_iter().map(|file| file.path).collect();
        assert_eq!(paths[..5], others);
        assert_eq!(paths[5..], ["proc/self/mounts", "/proc/self//status", "proc/././mounts"]);
    }

    #[test]
    fn regular_files_are_listed_with_size_and_mode() {
        let files = regular_files(&image(&[timer(1, 0, 0), regular(2, "/tmp/out", 300)])).unwrap();
        let [file] = &files[..] else { panic!("{files:?}") };
        assert_eq!((&*file.path, file.bytes, file.mode), ("/tmp/out", Some(300), Some(0o100644)));
    }

    #[test]
    fn an_image_cut_off_anywhere_is_an_error_or_a_shorter_list() {
        let whole = image(&[regular(1, "/tmp/a", 1), regular(2, "/tmp/b", 2)]);
        let ends: Vec<usize> =
            entries(&whole, COMMON_MAGIC, FILES_MAGIC).unwrap().iter().map(|e| e.end).collect();
        for length in 0..whole.len() {
            let read = regular_files(&whole[..length]);
            assert_eq!(read.is_ok(), length == HEADER_BYTES || ends.contains(&length), "{length}: {read:?}");
        }
    }

    #[test]
    fn a_file_gets_another_path_of_any_length_and_nothing_else_changes() {
        let long = format!("/{}", "x".repeat(200));
        let (at, all) = ("/dev/shm/n1", |dir: &str| {
            let (inside, beside) = (format!("{dir}/segment"), regular(4, "/dev/shm/n10", 5));
            image(&[
                regular(1, "/tmp/out", 300),
                regular(2, &inside, 7),
                timer(3, 77, 5),
                beside,
                regular(5, dir, 1),
            ])
        });
        for to in ["/dev/shm/n2", &long] {
            let moved = renamed(&all(&at[1..]), at, to).unwrap().expect("it is there");
            assert_eq!(moved, all(&to[1..]));
        }
        let before = [regular(1, "/tmp/out", 300)];
        assert_eq!(renamed(&image(&before), at, "/x"), Ok(None));
    }

    #[test]
    fn another_kind_of_image_is_refused() {
        let stats = [SERVICE_MAGIC.to_le_bytes(), STATS_MAGIC.to_le_bytes()].concat();
        assert_eq!(regular_files(&stats), Err(ImageError::Magic { found: [SERVICE_MAGIC, STATS_MAGIC] }));
    }
}
