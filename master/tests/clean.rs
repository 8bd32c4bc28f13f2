//! `coswitch clean` ends and removes the remains of a dead run; it does not touch a living run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use coswitch::run_name::RunName;
use coswitch_daemon::{
    cgroup::{Hierarchies, NodeCgroup},
    node::store_dir,
};

const LIMIT: Duration = Duration::from_secs(20);

/// A node of a run, with a process in one job's group, a file in its shared memory and an image in each of
/// two directories. Drop removes all of it.
struct Remains {
    hierarchies: Hierarchies,
    name: String,
    process: Child,
    stores: [tempfile::TempDir; 2],
}

impl Remains {
    fn of(run: &str) -> Self {
        let (hierarchies, name) = (Hierarchies::find().unwrap(), format!("{run}-n0"));
        let node = NodeCgroup::create(hierarchies.clone(), &name, None).unwrap();
        let job = node.job("job-0").unwrap();
        let process = Command::new("sleep").arg("600").spawn().unwrap();
        job.procs().iter().for_each(|procs| fs::write(procs, process.id().to_string()).unwrap());
        fs::create_dir_all(shm(&name).join("job-0")).unwrap();
        let stores = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let roots = stores.each_ref().map(|dir| dir.path().join(store_dir(&name)));
        roots.iter().for_each(|root| fs::create_dir_all(root.join("job-0/epoch-1")).unwrap());
        // The list of directories has a wrong entry: only directories of the node may be removed.
        let noted = [roots[0].as_path(), &roots[1], stores[0].path()];
        fs::create_dir_all(notes(&name)).unwrap();
        fs::write(notes(&name).join("store.json"), serde_json::to_vec(&noted).unwrap()).unwrap();
        Self { hierarchies, name, process, stores }
    }

    /// The number of its directories for images that exist.
    fn images(&self) -> usize {
        assert!(self.stores.iter().all(|dir| dir.path().exists()));
        self.stores.iter().filter(|dir| dir.path().join(store_dir(&self.name)).exists()).count()
    }

    fn groups(&self) -> Vec<String> {
        NodeCgroup::list(&self.hierarchies).into_iter().filter(|name| *name == self.name).collect()
    }

    fn ends(&mut self) -> bool {
        let began = Instant::now();
        while began.elapsed() < LIMIT {
            if self.process.try_wait().unwrap().is_some() {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Remains {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = NodeCgroup::destroy(&self.hierarchies, &self.name, LIMIT);
        let _ = fs::remove_dir_all(shm(&self.name));
        let _ = fs::remove_dir_all(notes(&self.name));
    }
}

fn shm(name: &str) -> PathBuf {
    Path::new("/dev/shm").join(format!("coswitch-{name}"))
}

fn notes(name: &str) -> PathBuf {
    Path::new("/run/coswitch").join(name)
}

/// The name of a run whose master has ended.
fn dead_run() -> String {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    format!("r{pid:x}-1")
}

#[test]
fn the_remains_of_a_dead_run_are_removed_and_a_living_run_is_not_touched() {
    let mut dead = Remains::of(&dead_run());
    let mut alive = Remains::of(&RunName::of_this_process().to_string());
    let output =
        Command::new(env!("CARGO_BIN_EXE_coswitch")).args(["clean", "--output", "json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let named = |list: &str, name: &str| answer[list].as_array().unwrap().contains(&name.into());
    assert!(named("removed", &dead.name) && named("alive", &alive.name), "{answer}");
    assert!(dead.ends(), "the process of the dead run lives");
    assert!(dead.groups().is_empty() && !shm(&dead.name).exists() && !notes(&dead.name).exists());
    assert_eq!((dead.images(), alive.images()), (0, 2));
    assert!(alive.process.try_wait().unwrap().is_none() && shm(&alive.name).exists());
    assert_eq!(alive.groups(), [alive.name.clone()]);
}
