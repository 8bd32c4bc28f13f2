//! The way of a handover from one program to the next: into memory, through `exec`, and out of it.
//!
//! ```text
//!   magic 8 │ version u32 │ u64 length │ JSON │ the channel states of each part, one after the other
//! ```

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    os::{
        fd::{AsFd, AsRawFd, RawFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::Command,
};

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::{
    Handover, HandoverError, VERSION,
    kept::{Kept, leave_open, take as take_fd},
};

const MAGIC: &[u8; 8] = b"CSWHANDO";
/// The argument that makes `coswitchd` go on with what a daemon has left.
pub(crate) const ARGUMENT: &str = "adopt";

/// A program that is about to take the place of this one, with all that it needs.
#[derive(Debug)]
pub struct Successor {
    program: PathBuf,
    left: File,
    kept: Kept,
    /// Why the program before is back.
    given_up: Option<String>,
}

impl Successor {
    /// # Errors
    /// Where there is no memory for it.
    pub(crate) fn new(program: PathBuf, handover: &Handover, kept: Kept) -> io::Result<Self> {
        let mut left = File::from(memfd_create("coswitchd", MFdFlags::MFD_CLOEXEC)?);
        write(&mut left, handover)?;
        Ok(Self { program, left, kept, given_up: None })
    }

    /// The program before, which goes on where its successor could not.
    pub(crate) fn back(left: File, kept: Kept, given_up: String) -> Self {
        // The kernel resolves this name, also where the file has no other any more.
        let program = PathBuf::from(format!("/proc/self/fd/{}", kept.before.as_raw_fd()));
        Self { program, left, kept, given_up: Some(given_up) }
    }

    /// Executes the program; where that fails, the program before goes on. To be called on the main thread,
    /// whose children stay.
    ///
    /// # Errors
    /// Returns only where neither can be executed.
    #[must_use]
    pub fn take_over(self) -> io::Error {
        let failed = self.execute();
        if self.given_up.is_some() {
            return failed;
        }
        let given_up = format!("{} cannot be executed: {failed}", self.program.display());
        Self::back(self.left, self.kept, given_up).execute()
    }

    fn execute(&self) -> io::Error {
        let left_open = leave_open(self.left.as_fd(), true).and_then(|()| self.kept.leave_open());
        if let Err(error) = left_open {
            return error;
        }
        let mut arguments: Vec<OsString> = vec![ARGUMENT.into(), self.left.as_raw_fd().to_string().into()];
        arguments.extend(self.given_up.clone().map(OsString::from));
        // The name by which people find it.
        Command::new(&self.program).arg0("coswitchd").args(arguments).exec()
    }
}

/// What the daemon before has left, the file that holds it, and the others that it has left open.
///
/// # Errors
/// Where `fd` is no such file.
pub(crate) fn take(fd: &str) -> Result<(File, Kept, Handover), HandoverError> {
    let number = fd.parse().ok().filter(|fd| *fd > 2);
    let number: RawFd = number.ok_or_else(|| HandoverError::NotAFile(fd.into()))?;
    // SAFETY: this process has just begun, and owns nothing but its standard streams yet.
    let mut left = File::from(unsafe { take_fd(number) }?);
    let handover = read(&mut left)?;
    // SAFETY: as above; the program before has left these open for this one.
    let kept = unsafe { Kept::take(handover.files) }?;
    Ok((left, kept, handover))
}

fn write(file: &mut File, handover: &Handover) -> io::Result<()> {
    let text = serde_json::to_vec(handover)?;
    file.write_all(MAGIC)?;
    file.write_all(&VERSION.to_le_bytes())?;
    file.write_all(&(text.len() as u64).to_le_bytes())?;
    file.write_all(&text)?;
    handover.parts.iter().try_for_each(|part| file.write_all(&part.channels))
}

fn read(file: &mut File) -> Result<Handover, HandoverError> {
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(0))?;
    let (mut magic, mut version, mut length) = ([0; 8], [0; 4], [0; 8]);
    file.read_exact(&mut magic)?;
    file.read_exact(&mut version)?;
    file.read_exact(&mut length)?;
    let (version, length) = (u32::from_le_bytes(version), u64::from_le_bytes(length));
    if magic != *MAGIC || length > size {
        return Err(io::Error::from(io::ErrorKind::InvalidData).into());
    }
    if version != VERSION {
        return Err(HandoverError::Version(version));
    }
    let mut text = Vec::new();
    Read::by_ref(file).take(length).read_to_end(&mut text)?;
    let mut handover: Handover = serde_json::from_slice(&text)?;
    for part in &mut handover.parts {
        if part.channel_bytes as u64 > size {
            return Err(io::Error::from(io::ErrorKind::InvalidData).into());
        }
        part.channels = vec![0; part.channel_bytes];
        file.read_exact(&mut part.channels)?;
    }
    Ok(handover)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use coswitch_ckpt::Criu;
    use coswitch_policies::{Bytes, Epoch, JobId};

    use super::*;
    use crate::{
        handover::{HandedPart, HandedState},
        node::NodeConfig,
        process::Process,
        protocol::LaunchRequest,
    };

    fn handover(channels: &[Vec<u8>]) -> Handover {
        let null = || File::open("/dev/null").unwrap().into();
        let kept = Kept { control: null(), data: null(), head: None, before: null() };
        let launch = r#"{"name":"a","placement":[0,1],"command":["a"],"env":[],"cwd":"/","umask":18,
            "output":"/","wait":"spin","park":"Criu","life":7}"#;
        let launch: LaunchRequest = serde_json::from_str(launch).unwrap();
        let part = |(job, channels): (u32, &Vec<u8>)| HandedPart {
            job: JobId(job),
            launch: launch.clone(),
            state: HandedState::Frozen { root: Process { pid: 7, started: 8 } },
            epoch: Epoch(3),
            cuts: Epoch(3),
            flushed: Some(Epoch(3)),
            reached: None,
            fences: Vec::new(),
            life: 7,
            launcher: vec![1],
            image_bytes: Bytes(9),
            needed: BTreeSet::from([2]),
            channels: channels.clone(),
            channel_bytes: channels.len(),
        };
        Handover {
            config: config(),
            generation: 4,
            files: kept.numbers(),
            criu: serde_json::from_str::<Criu>(
                r#"{"program":"/criu","version":{"major":4,"minor":1,"sublevel":0},"worker_cgroup":null}"#,
            )
            .unwrap(),
            allowance: None,
            released: vec![(JobId(5), "done".into())],
            parts: (0..).zip(channels).map(part).collect(),
        }
    }

    fn config() -> NodeConfig {
        let identity = crate::pki::Authority::new().unwrap().certify(crate::pki::Holder::Head).unwrap();
        let any = std::net::SocketAddr::from(([0; 4], 0));
        NodeConfig {
            run: "r1-2".into(),
            node: coswitch_policies::NodeId(1),
            identity,
            sealing_key: [7; 32].into(),
            control: any,
            data: any,
            memory: None,
            processors: Vec::new(),
            store: Vec::new(),
            arena: Bytes(0),
            provider: "/".into(),
            launcher: "/".into(),
            stop_after: std::time::Duration::from_secs(1),
            standing: true,
            local: None,
            links: crate::plane::LinkRules::default(),
            link: None,
            needed: Vec::new(),
            returns: false,
            resumes: false,
        }
    }

    #[test]
    fn what_is_handed_over_is_read_as_it_was_written_and_not_at_all_where_it_is_cut() {
        let channels = [b"in flight".to_vec(), Vec::new()];
        let mut file = tempfile::tempfile().unwrap();
        write(&mut file, &handover(&channels)).unwrap();
        let length = file.metadata().unwrap().len();
        let read_back = read(&mut file).unwrap();
        assert_eq!((read_back.generation, read_back.parts.len()), (4, 2));
        assert_eq!(read_back.parts[0].channels, channels[0]);
        assert_eq!(read_back.parts[1].job, JobId(1));
        assert_eq!(read_back.released, [(JobId(5), "done".to_owned())]);
        for cut in [0, 7, 19, length / 2, length - 1] {
            file.set_len(cut).unwrap();
            assert!(read(&mut file).is_err(), "{cut} of {length} bytes are left");
        }
    }

    #[test]
    fn a_handover_of_another_version_is_named() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(MAGIC).unwrap();
        file.write_all(&9_u32.to_le_bytes()).unwrap();
        file.write_all(&0_u64.to_le_bytes()).unwrap();
        assert!(matches!(read(&mut file), Err(HandoverError::Version(9))));
        assert!(matches!(take("1"), Err(HandoverError::NotAFile(_))), "the standard streams are others' own");
    }
}
