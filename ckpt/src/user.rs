//! The user of a tree: which files are theirs, and whether a restored process is what they may be.
//!
//! CRIU restores as root what its images say. An image that was forged, or a file that was put in the place
//! of another one between a dump and its restore, would so give a user what root has. So the user comes from
//! the record of the job, never from the images, and a tree is compared with it twice: as the images have it,
//! before CRIU starts ([`check_images`]), and as it is, restored and stopped, before it runs
//! ([`JobUser::check_tree`]).

use crate::image_file;
use crate::images::{self, ImagesError};
use criu_sys::image::CredsEntry;
use nix::unistd::{Gid, Pid, Uid, setfsgid, setfsuid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The user whose rights the processes of a tree have, but for its root, the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUser {
    pub uid: u32,
    pub gid: u32,
    /// The groups of the user.
    pub groups: Vec<u32>,
}

/// Device and inode of a file.
pub(crate) type Inode = (u64, u64);

/// What a process of a tree has that its user may not have.
#[derive(Debug, thiserror::Error)]
pub enum NotTheUsers {
    #[error("the image of process {id} has {what}, not that of user {uid}")]
    Image { id: u32, what: String, uid: u32 },
    #[error("process {pid} has {what}, not that of user {uid}")]
    Process { pid: i32, what: String, uid: u32 },
    #[error("process {pid} has {} open, which user {uid} may not {}", .path.display(), verb(*.is_written))]
    File { pid: i32, path: PathBuf, is_written: bool, uid: u32 },
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Images(#[from] ImagesError),
}

fn verb(is_written: bool) -> &'static str {
    if is_written { "write to" } else { "read" }
}

/// What a thread is: as its image has it, or as the kernel says.
#[derive(Debug, PartialEq, Eq)]
struct Rights {
    /// Real, effective, saved, and of the file system.
    uids: [u32; 4],
    gids: [u32; 4],
    groups: BTreeSet<u32>,
    /// Some set of capabilities is not empty.
    has_capabilities: bool,
}

impl JobUser {
    fn is_in(&self, group: u32) -> bool {
        group == self.gid || self.groups.contains(&group)
    }

    /// Whether owner and mode of a file let the user do that (4: read, 2: write). Access control lists are
    /// not asked.
    fn may(&self, file: &Metadata, what: u32) -> bool {
        let shift = match (file.uid() == self.uid, self.is_in(file.gid())) {
            (true, _) => 6,
            (false, true) => 3,
            (false, false) => 0,
        };
        (file.mode() >> shift) & what == what
    }

    pub(crate) fn may_write(&self, file: &Metadata) -> bool {
        self.may(file, 2)
    }

    /// Does something with the user's rights to files, on a thread of its own.
    ///
    /// # Errors
    /// Where this process may not take these rights, and those of `work`.
    pub fn act<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let act = || {
            let groups = &self.groups;
            // SAFETY: the kernel reads so many numbers from there. The library's function of that name would
            // change all threads of this process; this call changes the thread, which ends after `work`.
            if unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) } != 0 {
                return Err(io::Error::last_os_error());
            }
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            // They return what was before, also where they fail: asked again, they say what is.
            setfsgid(gid);
            setfsuid(uid);
            if (setfsuid(uid), setfsgid(gid)) != (uid, gid) {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            work()
        };
        std::thread::scope(|scope| scope.spawn(act).join().expect("it does not panic"))
    }

    /// Whether the user can open that very file.
    fn can_open(&self, path: &Path, file: &Metadata, is_written: bool) -> bool {
        let same = || {
            let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
            let opened =
                OpenOptions::new().read(!is_written).write(is_written).custom_flags(flags).open(path)?;
            let opened = opened.metadata()?;
            Ok((opened.dev(), opened.ino()) == (file.dev(), file.ino()))
        };
        self.act(same).unwrap_or(false)
    }

    fn check(&self, rights: &Rights) -> Result<(), String> {
        let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        if rights.uids != [self.uid; 4] {
            return Err(format!("user {}", list(&rights.uids)));
        }
        if rights.gids != [self.gid; 4] {
            return Err(format!("group {}", list(&rights.gids)));
        }
        if rights.groups != self.groups.iter().copied().collect() {
            return Err(format!("groups {}", list(&rights.groups.iter().copied().collect::<Vec<_>>())));
        }
        if rights.has_capabilities { Err("capabilities".into()) } else { Ok(()) }
    }

    /// Checks the threads that CRIU's images describe, but for those of the tree's root.
    ///
    /// # Errors
    /// [`NotTheUsers`], and where an image cannot be read.
    pub(crate) fn check_images(&self, images: &Path) -> Result<(), NotTheUsers> {
        let roots = images::read_as(&images.join("pstree.img"), image_file::threads_of_root)?;
        for (name, path) in images::list(images)? {
            let id = name.strip_prefix("core-").and_then(|rest| rest.strip_suffix(".img")?.parse().ok());
            let Some(id) = id.filter(|id| !roots.contains(id)) else { continue };
            let rights = images::read_as(&path, image_file::credentials)?;
            let checked = rights.ok_or("no user".into()).and_then(|creds| self.check(&Rights::from(creds)));
            checked.map_err(|what| NotTheUsers::Image { id, what, uid: self.uid })?;
        }
        Ok(())
    }

    /// Checks the processes of a restored tree, which stand still, but for its root: their rights, and that
    /// they have no file that their user may not have, but for the segment.
    ///
    /// # Errors
    /// [`NotTheUsers`], and where something of a process cannot be read.
    pub(crate) fn check_tree(&self, pids: &[Pid], segment: Option<Inode>) -> Result<(), NotTheUsers> {
        let own_limits = hard_limits(&read("/proc/self/limits".into())?);
        for pid in pids.iter().skip(1).map(|pid| pid.as_raw()) {
            let not = |what| NotTheUsers::Process { pid, what, uid: self.uid };
            if let Some(kind) = ["net", "ipc"].into_iter().find(|kind| shares_namespace(pid, kind)) {
                return Err(not(format!("the {kind} namespace of its node")));
            }
            for thread in entries(format!("/proc/{pid}/task").into())? {
                let status = read(thread.join("status"))?;
                let rights =
                    Rights::of_status(&status).ok_or_else(|| not("a status of another form".into()))?;
                self.check(&rights).map_err(not)?;
                if value(&status, "NoNewPrivs") != Some("1") {
                    return Err(not("the right to gain others".into()));
                }
            }
            let limits = hard_limits(&read(format!("/proc/{pid}/limits").into())?);
            if let Some((name, _)) = limits.iter().find(|limit| exceeds(limit, &own_limits)) {
                return Err(not(format!("a limit of {name} above that of its node")));
            }
            self.check_files(pid, segment)?;
        }
        Ok(())
    }

    fn check_files(&self, pid: i32, segment: Option<Inode>) -> Result<(), NotTheUsers> {
        let mut files = Vec::new();
        for link in entries(format!("/proc/{pid}/fd").into())? {
            let info = Path::new(&format!("/proc/{pid}/fdinfo")).join(link.file_name().unwrap_or_default());
            let text = read(info.clone())?;
            let flags = value(&text, "flags").and_then(|flags| i32::from_str_radix(flags, 8).ok());
            let unknown = || NotTheUsers::Io { path: info, source: io::ErrorKind::InvalidData.into() };
            let flags = flags.ok_or_else(unknown)?;
            if flags & libc::O_PATH == 0 {
                files.push((link, flags & libc::O_ACCMODE != libc::O_RDONLY));
            }
        }
        // What is mapped privately was opened to read: what the process writes there is its own copy.
        let shared = shared_and_written(&read(format!("/proc/{pid}/maps").into())?);
        for link in entries(format!("/proc/{pid}/map_files").into())? {
            let is_written = start_of(&link).is_none_or(|start| shared.contains(&start));
            files.push((link, is_written));
        }
        for (link, is_written) in files {
            let found = fs::read_link(&link).and_then(|path| Ok((path, fs::metadata(&link)?)));
            let (path, file) = found.map_err(|source| NotTheUsers::Io { path: link, source })?;
            let kind = file.file_type();
            let has_name = path.is_absolute() && !path.starts_with("/memfd:");
            let counts = kind.is_file() || kind.is_dir() || kind.is_char_device() || kind.is_block_device();
            let is_segment = segment == Some((file.dev(), file.ino()));
            if !has_name || !counts || is_segment || self.may(&file, if is_written { 2 } else { 4 }) {
                continue;
            }
            if !self.can_open(&path, &file, is_written) {
                return Err(NotTheUsers::File { pid, path, is_written, uid: self.uid });
            }
        }
        Ok(())
    }
}

impl Rights {
    /// From `/proc/PID/status`.
    fn of_status(status: &str) -> Option<Self> {
        let numbers = |name| -> Option<Vec<u32>> {
            value(status, name)?.split_ascii_whitespace().map(|number| number.parse().ok()).collect()
        };
        let capabilities = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]
            .map(|name| u64::from_str_radix(value(status, name)?, 16).ok());
        Some(Self {
            uids: numbers("Uid")?.try_into().ok()?,
            gids: numbers("Gid")?.try_into().ok()?,
            groups: numbers("Groups")?.into_iter().collect(),
            has_capabilities: capabilities.iter().any(|set| *set != Some(0)),
        })
    }
}

impl From<CredsEntry> for Rights {
    fn from(image: CredsEntry) -> Self {
        let sets = [&image.cap_inh, &image.cap_prm, &image.cap_eff, &image.cap_bnd];
        Self {
            uids: [image.uid, image.euid, image.suid, image.fsuid],
            gids: [image.gid, image.egid, image.sgid, image.fsgid],
            has_capabilities: sets.into_iter().flatten().any(|word| *word != 0),
            groups: image.groups.into_iter().collect(),
        }
    }
}

/// Whether it cannot be said that the process has another namespace of that kind than this one.
fn shares_namespace(pid: i32, kind: &str) -> bool {
    let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
    of(&pid.to_string()).is_none_or(|theirs| Some(theirs) == of("self"))
}

/// The first address of a file in `/proc/PID/map_files`, which writes it without the zeros of `maps`.
fn start_of(link: &Path) -> Option<u64> {
    let (start, _) = link.file_name()?.to_str()?.split_once('-')?;
    u64::from_str_radix(start, 16).ok()
}

/// The first addresses of the ranges that other processes see written, from `/proc/PID/maps`.
fn shared_and_written(maps: &str) -> BTreeSet<u64> {
    let start = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let access = rest.split(' ').next()?;
        let is_one = access.contains('w') && access.ends_with('s');
        is_one.then(|| start_of(Path::new(range))).flatten()
    };
    maps.lines().filter_map(start).collect()
}

/// The value of a line `name: value`.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(found, _)| *found == name).map(|(_, value)| value.trim())
}

/// Names and hard limits of a `/proc/PID/limits`; `None` is unlimited.
fn hard_limits(text: &str) -> Vec<(String, Option<u64>)> {
    let limit = |line: &str| {
        let (name, rest) = line.split_at_checked(25)?;
        let hard = rest.split_ascii_whitespace().nth(1)?;
        Some((name.trim().to_owned(), hard.parse().ok()))
    };
    text.lines().skip(1).filter_map(limit).collect()
}

fn exceeds((name, limit): &(String, Option<u64>), own: &[(String, Option<u64>)]) -> bool {
    let own = own.iter().find(|(found, _)| found == name).and_then(|(_, limit)| *limit);
    own.is_some_and(|own| limit.is_none_or(|limit| limit > own))
}

fn read(path: PathBuf) -> Result<String, NotTheUsers> {
    fs::read_to_string(&path).map_err(|source| NotTheUsers::Io { path, source })
}

fn entries(dir: PathBuf) -> Result<Vec<PathBuf>, NotTheUsers> {
    let list = || fs::read_dir(&dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>();
    list().map_err(|source| NotTheUsers::Io { path: dir.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    const STATUS: &str = "Name:\trank\nUid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\n\
                          Groups:\t27 100 \nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\n\
                          CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\n";

    fn user() -> JobUser {
        JobUser { uid: 1000, gid: 100, groups: vec![100, 27] }
    }

    #[test]
    fn a_process_is_the_users_only_with_all_of_its_ids_and_without_capabilities() {
        let check = |status: &str| user().check(&Rights::of_status(status).unwrap());
        assert_eq!(check(STATUS), Ok(()));
        for (from, to, named) in [
            ("1000\t1000\t1000\t1000\n", "1000\t0\t1000\t1000\n", "user 1000 0 1000 1000"),
            ("100\t100\t100\t100\n", "100\t100\t0\t100\n", "group 100 100 0 100"),
            ("27 100", "0 27 100", "groups 0 27 100"),
            ("27 100", "100", "groups 100"),
            ("CapBnd:\t0000000000000000", "CapBnd:\t0000000000200000", "capabilities"),
            ("CapAmb:\t0000000000000000\n", "", "capabilities"),
        ] {
            assert_eq!(check(&STATUS.replacen(from, to, 1)), Err(named.into()));
        }
        assert_eq!(Rights::of_status("Uid:\t1000\n"), None);
    }

    #[test]
    fn credentials_of_an_image_are_read_as_those_of_a_process() {
        let mut image = CredsEntry { cap_bnd: vec![0, 0], groups: vec![27, 100], ..CredsEntry::default() };
        (image.uid, image.euid, image.suid, image.fsuid) = (1000, 1000, 1000, 1000);
        (image.gid, image.egid, image.sgid, image.fsgid) = (100, 100, 100, 100);
        assert_eq!(user().check(&Rights::from(image.clone())), Ok(()));
        image.cap_bnd[1] = 1;
        assert_eq!(user().check(&Rights::from(image.clone())), Err("capabilities".into()));
        image.suid = 0;
        assert_eq!(user().check(&Rights::from(image)), Err("user 1000 1000 0 1000".into()));
    }

    #[test]
    fn files_are_the_users_by_their_owner_and_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "x").unwrap();
        for (owner, group, mode, may) in [
            (1000, 0, 0o600, true),
            (1000, 0, 0o066, false),
            (0, 27, 0o060, true),
            (0, 27, 0o606, false),
            (0, 0, 0o006, true),
            (0, 0, 0o660, false),
        ] {
            chown(&path, Some(owner), Some(group)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let file = fs::metadata(&path).unwrap();
            assert_eq!(user().may_write(&file), may, "{owner} {group} {mode:o}");
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
            // The kernel agrees.
            assert_eq!(user().can_open(&path, &file, true), may, "{owner} {group} {mode:o}");
        }
        assert!(fs::read("/proc/self/status").is_ok(), "this thread is what it was");
        assert_eq!(nix::unistd::geteuid().as_raw(), 0);
    }

    #[test]
    fn a_low_address_is_one_in_both_lists() {
        let maps = "00400000-00452000 rw-s 00000000 08:02 17 /etc/shadow\n\
                    7f00a000-7f00b000 rw-p 00000000 08:02 18 /lib/x\n";
        let shared = shared_and_written(maps);
        let at = |range: &str| start_of(&Path::new("/proc/9/map_files").join(range)).unwrap();
        assert!(shared.contains(&at("400000-452000")) && !shared.contains(&at("7f00a000-7f00b000")));
    }

    #[test]
    fn a_hard_limit_above_that_of_the_node_is_found() {
        let text = |files: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max open files            1024                 {files:<20} files     \n"
            )
        };
        let own = hard_limits(&text("4096"));
        for (files, more) in [("4096", false), ("100", false), ("4097", true), ("unlimited", true)] {
            assert_eq!(exceeds(&hard_limits(&text(files))[0], &own), more, "{files}");
        }
    }
}
