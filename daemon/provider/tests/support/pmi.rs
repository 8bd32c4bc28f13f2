//! A minimal PMI-1 server: answers the requests of MPICH between MPI_Init and MPI_Finalize.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

#[derive(Default)]
struct State {
    values: HashMap<String, String>,
    waiting: u32,
    generation: u64,
    gone: u32,
}

struct Shared {
    ranks: u32,
    state: Mutex<State>,
    changed: Condvar,
}

/// One thread per rank, which ends when the rank has closed its socket.
pub(crate) struct Server {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    pub(crate) fn new(ranks: u32) -> Server {
        let shared = Shared { ranks, state: Mutex::default(), changed: Condvar::new() };
        Server { shared: Arc::new(shared), threads: Mutex::default() }
    }

    pub(crate) fn serve(&self, _rank: u32, socket: UnixStream) {
        let shared = self.shared.clone();
        let thread = std::thread::spawn(move || {
            // An error means that the rank has ended, which its exit status shows.
            let _ = shared.converse(&socket);
            shared.state.lock().unwrap().gone += 1;
            shared.changed.notify_all();
        });
        self.threads.lock().unwrap().push(thread);
    }

    pub(crate) fn join(self) {
        let threads = self.threads.into_inner().unwrap();
        threads.into_iter().for_each(|thread| thread.join().expect("a PMI thread does not panic"));
    }
}

fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

impl Shared {
    fn converse(&self, socket: &UnixStream) -> std::io::Result<()> {
        let mut out = socket;
        for line in BufReader::new(socket).lines() {
            let line = line?;
            let answer = match field(&line, "cmd") {
                Some("init") => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".into(),
                Some("get_maxes") => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0".into(),
                Some("get_appnum") => "cmd=appnum appnum=0 rc=0".into(),
                Some("get_my_kvsname") => "cmd=my_kvsname kvsname=test".into(),
                Some("get") => self.get(field(&line, "key").unwrap_or_default()),
                Some("put") => self.put(&line),
                Some("barrier_in") => self.barrier(),
                Some("finalize") => "cmd=finalize_ack rc=0".into(),
                _ => return Ok(()),
            };
            out.write_all(format!("{answer}\n").as_bytes())?;
        }
        Ok(())
    }

    fn get(&self, key: &str) -> String {
        let state = self.state.lock().unwrap();
        let value = match key {
            // Each rank seems to be on a node of its own, so that MPICH uses no shared memory.
            "PMI_process_mapping" => Some(format!("(vector,(0,{},1))", self.ranks)),
            _ => state.values.get(key).cloned(),
        };
        match value {
            Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
            None => "cmd=get_result rc=-1 msg=not_found value=unknown".into(),
        }
    }

    fn put(&self, line: &str) -> String {
        if let (Some(key), Some(value)) = (field(line, "key"), field(line, "value")) {
            self.state.lock().unwrap().values.insert(key.into(), value.into());
        }
        "cmd=put_result rc=0 msg=success".into()
    }

    fn barrier(&self) -> String {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        let generation = state.generation;
        if state.waiting == self.ranks {
            state.waiting = 0;
            state.generation += 1;
            self.changed.notify_all();
        }
        // A rank that has ended never reaches the barrier: do not wait for it, the harness kills the others.
        let state = self
            .changed
            .wait_while(state, |state| state.generation == generation && state.gone == 0)
            .unwrap();
        drop(state);
        "cmd=barrier_out rc=0".into()
    }
}
