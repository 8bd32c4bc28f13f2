//! The PMI-1 server: takes lines of ranks and returns replies and other effects. Pure code.
//!
//! The tests below contain the requests of MPICH. Versions 4.0 to 5.0 put one address per rank between two
//! barriers and then send nothing until `finalize`. If all ranks are on this node, a barrier is local; else
//! it is a fence, which the daemon relays. The process mapping claims one rank per node, so that MPICH opens
//! no shared memory of its own.
//!
//! A rank may say anything, and as much as it likes: what is kept of it is bounded, and more ends the
//! application.

use std::collections::BTreeMap;

use crate::protocol::{FENCES_MAX, PUTS_BYTES_MAX, put_bytes};

/// Limits of the ranks, in bytes.
const KEY_MAX: usize = 64;
const VALUE_MAX: usize = 1024;
const NAME_MAX: usize = 256;
/// Limits of a rank between two barriers, far above the one address and the few words that MPICH puts there.
const PUTS_MAX: u32 = 1024;
/// Limit of all puts of a node in a run, in bytes: a thousand ranks may put sixteen addresses of the
/// greatest length.
const NODE_BYTES_MAX: usize = PUTS_BYTES_MAX;
/// Limit of what is said of a rank, in characters.
const REASON_MAX: usize = 1024;
/// Lines of one multi-line request that are kept.
const KEPT_LINES_MAX: usize = 16;

/// Action that a line requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this line, without its newline, to a rank.
    Send { rank: u32, line: String },
    /// Relay barrier `sequence` to the other nodes, with the puts since the last one.
    /// [`Server::on_fence_done`] ends it.
    Fence { sequence: u64, puts: Vec<(String, String)> },
    /// End all ranks. `rank` is the cause; `code` is the exit code that it requests.
    Abort { rank: u32, code: i32, message: String },
    /// End all ranks, because `rank` has broken the protocol.
    Broke { rank: u32, reason: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientState {
    /// Has sent nothing; perhaps it is no MPI program.
    Uninitialised,
    Initialised,
    InBarrier,
    Finalized,
}

/// The PMI server of one application on one node.
#[derive(Debug)]
pub struct Server {
    key_space: String,
    world_size: u32,
    clients: BTreeMap<u32, ClientState>,
    keys: BTreeMap<String, String>,
    /// Keys and values put on this node since the last fence.
    new_puts: Vec<(String, String)>,
    /// How many each rank has put since then.
    puts: BTreeMap<u32, u32>,
    /// Bytes that ranks here have put, in all.
    put_bytes: usize,
    sequence: u64,
    /// Lines of an unfinished multi-line request that its answer depends on, by rank.
    multi_line: BTreeMap<u32, Vec<String>>,
}

impl Server {
    #[must_use]
    pub fn new(key_space: String, world_size: u32, ranks: impl IntoIterator<Item = u32>) -> Self {
        let clients = ranks.into_iter().map(|rank| (rank, ClientState::Uninitialised)).collect();
        let mapping = format!("(vector,(0,{world_size},1))");
        Self {
            key_space,
            world_size,
            clients,
            keys: BTreeMap::from([("PMI_process_mapping".into(), mapping)]),
            new_puts: Vec::new(),
            puts: BTreeMap::new(),
            put_bytes: 0,
            sequence: 0,
            multi_line: BTreeMap::new(),
        }
    }

    /// Whether a rank is between `MPI_Init` and `MPI_Finalize`: other ranks may wait for it.
    #[must_use]
    pub fn is_inside(&self, rank: u32) -> bool {
        matches!(self.clients.get(&rank), Some(ClientState::Initialised | ClientState::InBarrier))
    }

    /// Handles one line, without its newline.
    pub fn on_line(&mut self, rank: u32, line: &str) -> Vec<Effect> {
        if let Some(lines) = self.multi_line.get_mut(&rank) {
            if line.trim() != "endcmd" {
                let counts = line.starts_with("totspawns=") || line.starts_with("spawnssofar=");
                if counts && line.len() <= KEY_MAX && lines.len() < KEPT_LINES_MAX {
                    lines.push(line.into());
                }
                return Vec::new();
            }
            let lines = self.multi_line.remove(&rank).unwrap_or_default();
            return refuse_spawn(rank, &lines);
        }
        if line.starts_with("mcmd=") {
            self.multi_line.insert(rank, Vec::new());
            return Vec::new();
        }
        self.on_command(rank, &Request(line))
    }

    fn on_command(&mut self, rank: u32, request: &Request<'_>) -> Vec<Effect> {
        let line = match request.get("cmd") {
            Some("init") => return self.on_init(rank, request),
            Some("get_maxes") => {
                format!("cmd=maxes kvsname_max={NAME_MAX} keylen_max={KEY_MAX} vallen_max={VALUE_MAX} rc=0")
            }
            Some("get_appnum") => "cmd=appnum appnum=0 rc=0".into(),
            Some("get_my_kvsname") => format!("cmd=my_kvsname kvsname={} rc=0", self.key_space),
            Some("get_universe_size") => format!("cmd=universe_size size={} rc=0", self.world_size),
            Some("get") => self.get(request),
            Some("put") => match self.put(rank, request) {
                Ok(()) => "cmd=put_result rc=0 msg=success".into(),
                Err(Refusal::Answer(reason)) => format!("cmd=put_result rc=-1 msg={reason}"),
                Err(Refusal::End(reason)) => return broke(rank, &reason),
            },
            Some("barrier_in") => return self.on_barrier(rank),
            Some("publish_name") => "cmd=publish_result rc=-1 msg=not_supported".into(),
            Some("unpublish_name") => "cmd=unpublish_result rc=-1 msg=not_supported".into(),
            Some("lookup_name") => "cmd=lookup_result rc=-1 msg=not_supported".into(),
            Some("finalize") => {
                self.clients.insert(rank, ClientState::Finalized);
                "cmd=finalize_ack rc=0".into()
            }
            Some("abort") => {
                let code = request.get("exitcode").and_then(|code| code.parse().ok()).unwrap_or(1);
                let message = shortened(request.rest("message").unwrap_or_default());
                return vec![Effect::Abort { rank, code, message }];
            }
            _ => return broke(rank, &format!("it said {:?}", request.0)),
        };
        vec![Effect::Send { rank, line }]
    }

    fn on_init(&mut self, rank: u32, request: &Request<'_>) -> Vec<Effect> {
        let (version, rc) = match request.get("pmi_version") {
            Some("1") => (1, 0),
            _ => (1, -1),
        };
        if rc == 0 {
            self.clients.insert(rank, ClientState::Initialised);
        }
        let line = format!("cmd=response_to_init pmi_version={version} pmi_subversion=1 rc={rc}");
        vec![Effect::Send { rank, line }]
    }

    fn get(&self, request: &Request<'_>) -> String {
        match request.get("key").and_then(|key| self.keys.get(key)) {
            Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
            None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".into(),
        }
    }

    fn put(&mut self, rank: u32, request: &Request<'_>) -> Result<(), Refusal> {
        let key = request.get("key").ok_or(Refusal::Answer("no_key"))?;
        let value = request.get("value").ok_or(Refusal::Answer("no_value"))?;
        if key.len() > KEY_MAX || value.len() > VALUE_MAX {
            return Err(Refusal::Answer("too_long"));
        }
        if !key.bytes().chain(value.bytes()).all(|byte| byte.is_ascii_graphic()) {
            return Err(Refusal::Answer("not_printable"));
        }
        let puts = self.puts.entry(rank).or_default();
        *puts += 1;
        if *puts > PUTS_MAX {
            return Err(Refusal::End(format!("it put more than {PUTS_MAX} keys before a barrier")));
        }
        self.put_bytes += put_bytes(key, value);
        if self.put_bytes > NODE_BYTES_MAX {
            let reason =
                format!("the ranks here have put more than {NODE_BYTES_MAX} bytes, and it the last of them");
            return Err(Refusal::End(reason));
        }
        self.keys.insert(key.into(), value.into());
        self.new_puts.push((key.into(), value.into()));
        Ok(())
    }

    fn on_barrier(&mut self, rank: u32) -> Vec<Effect> {
        match self.clients.insert(rank, ClientState::InBarrier) {
            Some(ClientState::Initialised) => {}
            Some(ClientState::InBarrier) => return broke(rank, "it is already in the barrier"),
            _ => return broke(rank, "it enters a barrier and is not initialised"),
        }
        if self.clients.values().any(|client| *client != ClientState::InBarrier) {
            return Vec::new();
        }
        self.sequence += 1;
        let puts = std::mem::take(&mut self.new_puts);
        self.puts.clear();
        if self.clients.len() == self.world_size as usize {
            return self.leave_barrier();
        }
        if self.sequence > FENCES_MAX {
            return broke(rank, &format!("the ranks have passed {FENCES_MAX} barriers over several nodes"));
        }
        vec![Effect::Fence { sequence: self.sequence, puts }]
    }

    /// Handles the report that all nodes are in barrier `sequence`. A repeated or late report has no effect.
    pub fn on_fence_done(&mut self, sequence: u64, puts: Vec<(String, String)>) -> Vec<Effect> {
        let waiting = self.clients.values().all(|client| *client == ClientState::InBarrier);
        if sequence != self.sequence || !waiting {
            return Vec::new();
        }
        self.keys.extend(puts);
        self.leave_barrier()
    }

    fn leave_barrier(&mut self) -> Vec<Effect> {
        self.clients.values_mut().for_each(|client| *client = ClientState::Initialised);
        let reply = |&rank: &u32| Effect::Send { rank, line: "cmd=barrier_out rc=0".into() };
        self.clients.keys().map(reply).collect()
    }
}

/// One line with words of the form `name=value`.
struct Request<'a>(&'a str);

impl<'a> Request<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        let mut words = self.0.split_ascii_whitespace().filter_map(|word| word.split_once('='));
        words.find(|(word, _)| *word == name).map(|(_, value)| value)
    }

    /// The value of `name`, which extends to the end of the line and may contain spaces.
    fn rest(&self, name: &str) -> Option<&'a str> {
        let start = self.0.find(&format!(" {name}="))?;
        Some(self.0[start + name.len() + 2..].trim_end())
    }
}

/// Why a put is not stored.
enum Refusal {
    /// The rank is told.
    Answer(&'static str),
    /// All ranks are ended.
    End(String),
}

fn broke(rank: u32, reason: &str) -> Vec<Effect> {
    vec![Effect::Broke { rank, reason: shortened(reason) }]
}

fn shortened(text: &str) -> String {
    text.chars().take(REASON_MAX).collect()
}

/// Rejects `MPI_Comm_spawn`, for whose ranks no resources are reserved. The one answer is due after the last
/// request of the series.
fn refuse_spawn(rank: u32, lines: &[String]) -> Vec<Effect> {
    let number = |name| lines.iter().find_map(|line| Request(line).get(name)?.parse::<u32>().ok());
    if number("spawnssofar") < number("totspawns") {
        return Vec::new();
    }
    vec![Effect::Send { rank, line: "cmd=spawn_result rc=-1 errcodes=-1 msg=spawn_is_not_supported".into() }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(world_size: u32, ranks: &[u32]) -> Server {
        Server::new("app-1".into(), world_size, ranks.iter().copied())
    }

    /// Checks a dialogue of one rank: pairs of a request and its reply.
    fn plays(server: &mut Server, rank: u32, dialogue: &[(&str, &str)]) {
        for (said, answer) in dialogue {
            let expected = Effect::Send { rank, line: (*answer).into() };
            assert_eq!(server.on_line(rank, said), [expected], "after {said}");
        }
    }

    fn out(rank: u32) -> Effect {
        Effect::Send { rank, line: "cmd=barrier_out rc=0".into() }
    }

    const INIT: (&str, &str) = (
        "cmd=init pmi_version=1 pmi_subversion=1",
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
    );
    const NOT_FOUND: &str = "cmd=get_result rc=-1 msg=key_not_found value=unknown";
    const STORED: &str = "cmd=put_result rc=0 msg=success";

    #[test]
    fn dialogue_of_mpich_4_2_gets_the_exact_answers() {
        let mut server = server(2, &[0, 1]);
        for rank in [0, 1] {
            plays(
                &mut server,
                rank,
                &[
                    INIT,
                    ("cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0"),
                    ("cmd=get_appnum", "cmd=appnum appnum=0 rc=0"),
                    ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=app-1 rc=0"),
                    (
                        "cmd=get kvsname=app-1 key=PMI_process_mapping",
                        "cmd=get_result rc=0 msg=success value=(vector,(0,2,1))",
                    ),
                    ("cmd=get kvsname=app-1 key=PMI_hwloc_xmlfile", NOT_FOUND),
                    ("cmd=get kvsname=app-1 key=PMI_mpi_memory_alloc_kinds", NOT_FOUND),
                ],
            );
        }
        assert_eq!(server.on_line(0, "cmd=barrier_in"), []);
        assert_eq!(server.on_line(1, "cmd=barrier_in"), [out(0), out(1)]);
        plays(&mut server, 0, &[("cmd=put kvsname=app-1 key=-allgather-shm-1-0 value=0A00", STORED)]);
        plays(&mut server, 1, &[("cmd=put kvsname=app-1 key=-allgather-shm-1-1 value=0B=0", STORED)]);
        assert_eq!(server.on_line(1, "cmd=barrier_in"), []);
        assert_eq!(server.on_line(0, "cmd=barrier_in"), [out(0), out(1)]);
        for rank in [0, 1] {
            assert!(server.is_inside(rank));
            plays(
                &mut server,
                rank,
                &[
                    (
                        "cmd=get kvsname=app-1 key=-allgather-shm-1-0",
                        "cmd=get_result rc=0 msg=success value=0A00",
                    ),
                    (
                        "cmd=get kvsname=app-1 key=-allgather-shm-1-1",
                        "cmd=get_result rc=0 msg=success value=0B=0",
                    ),
                    ("cmd=finalize", "cmd=finalize_ack rc=0"),
                ],
            );
            assert!(!server.is_inside(rank));
        }
    }

    #[test]
    fn keys_of_mpich_5_are_stored_unchanged() {
        let mut server = server(1, &[0]);
        plays(
            &mut server,
            0,
            &[
                INIT,
                ("cmd=put kvsname=app-1 key=-allgather-1-0 value=0102[6]ff", STORED),
                (
                    "cmd=get kvsname=app-1 key=-allgather-1-0",
                    "cmd=get_result rc=0 msg=success value=0102[6]ff",
                ),
            ],
        );
    }

    #[test]
    fn barrier_over_several_nodes_waits_for_the_others_and_delivers_their_puts() {
        let mut server = server(3, &[1, 2]);
        for rank in [1, 2] {
            plays(&mut server, rank, &[INIT]);
        }
        plays(&mut server, 2, &[("cmd=put kvsname=app-1 key=k2 value=v2", STORED)]);
        assert_eq!(server.on_line(2, "cmd=barrier_in"), []);
        let puts = vec![("k2".into(), "v2".into())];
        assert_eq!(server.on_line(1, "cmd=barrier_in"), [Effect::Fence { sequence: 1, puts }]);
        assert_eq!(server.on_fence_done(7, vec![]), [], "report of another fence");
        assert_eq!(server.on_fence_done(1, vec![("k0".into(), "v0".into())]), [out(1), out(2)]);
        assert_eq!(server.on_fence_done(1, vec![]), [], "repeated report");
        plays(
            &mut server,
            1,
            &[
                ("cmd=get kvsname=app-1 key=k0", "cmd=get_result rc=0 msg=success value=v0"),
                ("cmd=get kvsname=app-1 key=k2", "cmd=get_result rc=0 msg=success value=v2"),
            ],
        );
        assert_eq!(server.on_line(1, "cmd=barrier_in"), []);
        assert_eq!(server.on_line(2, "cmd=barrier_in"), [Effect::Fence { sequence: 2, puts: vec![] }]);
    }

    #[test]
    fn abort_contains_the_whole_message() {
        let mut server = server(2, &[0, 1]);
        let message = "application called MPI_Abort(MPI_COMM_WORLD, 7) - process 0".to_owned();
        let line = format!("cmd=abort exitcode=7 message={message}");
        assert_eq!(server.on_line(0, &line), [Effect::Abort { rank: 0, code: 7, message }]);
    }

    #[test]
    fn spawn_is_rejected_after_the_whole_request() {
        let mut server = server(1, &[0]);
        plays(&mut server, 0, &[INIT]);
        let block = ["mcmd=spawn", "nprocs=2", "execname=child", "totspawns=2"];
        for so_far in ["spawnssofar=1", "spawnssofar=2"] {
            for line in block.iter().chain([&so_far]) {
                assert_eq!(server.on_line(0, line), []);
            }
            let answered = !server.on_line(0, "endcmd").is_empty();
            assert_eq!(answered, so_far == "spawnssofar=2");
        }
    }

    #[test]
    fn request_that_is_not_pmi_1_is_rejected_or_ends_the_application() {
        let mut server = server(1, &[0]);
        plays(
            &mut server,
            0,
            &[(
                "cmd=init pmi_version=2 pmi_subversion=0",
                "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1",
            )],
        );
        assert!(!server.is_inside(0));
        for line in ["", "GET / HTTP/1.1", "cmd=", "cmd=dance"] {
            let effects = server.on_line(0, line);
            let is_end = matches!(&effects[..], [Effect::Broke { rank: 0, reason }] if reason.contains(line));
            assert!(is_end, "{line}: {effects:?}");
        }
        let long = format!("cmd=put kvsname=app-1 key=k value={}", "x".repeat(VALUE_MAX + 1));
        plays(&mut server, 0, &[(&long, "cmd=put_result rc=-1 msg=too_long")]);
        let junk = "cmd=put kvsname=app-1 key=k value=\u{7}";
        plays(&mut server, 0, &[(junk, "cmd=put_result rc=-1 msg=not_printable")]);
        let huge = server.on_line(0, &"y".repeat(60_000));
        assert!(matches!(&huge[..], [Effect::Broke { reason, .. }] if reason.len() <= REASON_MAX));
    }

    fn broken(effects: &[Effect]) -> &str {
        match effects {
            [Effect::Broke { reason, .. }] => reason,
            other => panic!("{other:?} is no end"),
        }
    }

    #[test]
    fn puts_without_end_end_the_application() {
        let mut server = server(2, &[0, 1]);
        (0..2).for_each(|rank| plays(&mut server, rank, &[INIT]));
        for turn in 0..3 {
            for nth in 0..PUTS_MAX {
                let line = format!("cmd=put kvsname=app-1 key=k{nth} value={turn}");
                plays(&mut server, 0, &[(&line, STORED)]);
            }
            assert_eq!(server.on_line(0, "cmd=barrier_in"), []);
            assert_eq!(server.on_line(1, "cmd=barrier_in"), [out(0), out(1)]);
        }
        for _ in 0..PUTS_MAX {
            plays(&mut server, 1, &[("cmd=put kvsname=app-1 key=k value=v", STORED)]);
        }
        let effects = server.on_line(1, "cmd=put kvsname=app-1 key=k value=v");
        assert_eq!(broken(&effects), "it put more than 1024 keys before a barrier");
    }

    #[test]
    fn puts_of_too_many_bytes_end_the_application_before_a_frame_is_too_large() {
        let mut server = server(1, &[0]);
        plays(&mut server, 0, &[INIT]);
        let line =
            format!("cmd=put kvsname=app-1 key={} value={}", "k".repeat(KEY_MAX), "v".repeat(VALUE_MAX));
        let mut stored = 0;
        let last = loop {
            let effects = server.on_line(0, &line);
            match &effects[..] {
                [Effect::Send { .. }] => stored += 1,
                _ => break effects,
            }
            if stored % 200 == 0 {
                server.on_line(0, "cmd=barrier_in");
            }
        };
        assert!(broken(&last).contains("more than 16777216 bytes"), "{last:?}");
        assert_eq!(stored, NODE_BYTES_MAX / put_bytes(&"k".repeat(KEY_MAX), &"v".repeat(VALUE_MAX)));
    }

    #[test]
    fn barriers_at_the_wrong_time_or_without_end_end_the_application() {
        let mut early = server(2, &[0, 1]);
        assert!(broken(&early.on_line(0, "cmd=barrier_in")).contains("not initialised"));
        let mut late = server(2, &[0, 1]);
        plays(&mut late, 0, &[INIT, ("cmd=finalize", "cmd=finalize_ack rc=0")]);
        assert!(broken(&late.on_line(0, "cmd=barrier_in")).contains("not initialised"));
        let mut twice = server(2, &[0, 1]);
        plays(&mut twice, 0, &[INIT]);
        assert_eq!(twice.on_line(0, "cmd=barrier_in"), []);
        assert!(broken(&twice.on_line(0, "cmd=barrier_in")).contains("already in the barrier"));
        let mut endless = server(2, &[0]);
        plays(&mut endless, 0, &[INIT]);
        for sequence in 1..=FENCES_MAX {
            assert_eq!(endless.on_line(0, "cmd=barrier_in"), [Effect::Fence { sequence, puts: vec![] }]);
            assert_eq!(endless.on_fence_done(sequence, vec![]), [out(0)]);
        }
        assert!(broken(&endless.on_line(0, "cmd=barrier_in")).contains("4096 barriers"));
    }

    #[test]
    fn a_multi_line_request_without_an_end_takes_no_memory() {
        let mut server = server(1, &[0]);
        plays(&mut server, 0, &[INIT]);
        server.on_line(0, "mcmd=spawn");
        for nth in 0..10_000 {
            assert_eq!(server.on_line(0, &format!("spawnssofar={nth}")), []);
            assert_eq!(server.on_line(0, &"argument".repeat(1000)), []);
        }
        assert_eq!(server.multi_line[&0].len(), KEPT_LINES_MAX);
    }
}
