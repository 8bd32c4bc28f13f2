//! `coswitch images` lists the images in stores, finds damage, and removes images.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    time::SystemTime,
};

use coswitch::run_name::RunName;
use coswitch_ckpt::{ClusterKey, Origin, Sealing, Store};

/// The store of node 0 of run `rffffff-1`.
fn open(dir: &Path) -> Store {
    open_of(dir, "rffffff-1-n0")
}

fn open_of(dir: &Path, node: &str) -> Store {
    let root = dir.join(format!("coswitch-{node}"));
    let sealing = Sealing::new(ClusterKey::from([7; 32]), node.to_owned(), dir.to_owned());
    Store::open(&root, sealing).unwrap()
}

fn seal(store: &Store, epoch: u64) {
    let writer = store.begin("job-0", epoch, SystemTime::now()).unwrap();
    fs::write(writer.images_dir().join("core-1.img"), "contents").unwrap();
    let origin = Origin { criu: "4.2".into(), kernel: "6.18".into(), root: 1, ..Origin::default() };
    writer.seal(origin).unwrap();
}

fn images(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coswitch"));
    command.args(["--output", "json", "images", "--store"]).arg(dir).args(arguments).output().unwrap()
}

/// Job, epoch and state of each image, and the exit code.
fn answer(output: &Output) -> (Vec<String>, i32) {
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let images = json["images"].as_array().unwrap().iter();
    let line = |image: &serde_json::Value| {
        format!("{} {} {}", image["job"].as_str().unwrap(), image["epoch"], image["state"].as_str().unwrap())
    };
    (images.map(line).collect(), output.status.code().unwrap())
}

#[test]
fn images_are_listed_verified_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fs::create_dir(dir.path().join("coswitch-of-somebody-else")).unwrap();
    seal(&store, 1);
    seal(&store, 2);
    let path = dir.path().join("coswitch-rffffff-1-n0/job-0/epoch-2/images/core-1.img");
    let mut bytes = fs::read(&path).unwrap();
    bytes[3] ^= 1;
    fs::write(&path, bytes).unwrap();
    let listed = answer(&images(dir.path(), &["list"]));
    assert_eq!(listed, (vec!["job-0 2 sealed".to_owned(), "job-0 1 sealed".to_owned()], 0));

    // The key is in the directory of the run.
    let run = tempfile::tempdir().unwrap();
    let out = run.path().to_str().unwrap();
    let refused = images(dir.path(), &["verify", "--run", out]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no run is parked there"), "{refused:?}");
    let write = |run: &str, key: &str| {
        let text = format!(r#"{{"run":"{run}","sealing_key":"{}"}}"#, key.repeat(32));
        fs::write(Path::new(out).join("parked.json"), text).unwrap();
    };
    write("rffffff-1", "08");
    let (found, code) = answer(&images(dir.path(), &["verify", "--run", out]));
    assert!(found.iter().all(|state| state.contains("sealed with another key")), "{found:?}");
    assert_eq!((found.len(), code), (2, 1));
    write("rffffff-2", "07");
    assert_eq!(answer(&images(dir.path(), &["verify", "--run", out])), (vec![], 0), "it is another run");
    write("rffffff-1", "07");
    let (found, code) = answer(&images(dir.path(), &["verify", "--run", out]));
    assert!(found[0].contains("images/core-1.img has other contents") && code == 1, "{found:?} {code}");
    assert_eq!(found[1], "job-0 1 intact");
    assert_eq!(answer(&images(dir.path(), &["verify", "--run", out, "--epoch", "1"])).1, 0);

    let removed = answer(&images(dir.path(), &["remove", "--job", "job-0", "--epoch", "2"]));
    assert_eq!(removed, (vec!["job-0 2 removed".to_owned()], 0));
    assert_eq!(answer(&images(dir.path(), &["list"])), (vec!["job-0 1 sealed".to_owned()], 0));
}

#[test]
fn images_of_a_living_run_are_removed_only_with_force() {
    let dir = tempfile::tempdir().unwrap();
    seal(&open_of(dir.path(), &RunName::of_this_process().with_suffix("-n1")), 1);
    let kept = answer(&images(dir.path(), &["remove"]));
    assert_eq!(kept, (vec!["job-0 1 kept: its run is alive".to_owned()], 1));
    assert_eq!(answer(&images(dir.path(), &["remove", "--force"])).1, 0);
    assert_eq!(answer(&images(dir.path(), &["list"])), (vec![], 0));
}

#[test]
fn images_in_several_directories_are_found_together() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for (epoch, dir) in (1..).zip(&dirs) {
        seal(&open(dir.path()), epoch);
    }
    let other = dirs[1].path().to_str().unwrap();
    let output = images(dirs[0].path(), &["--store", other, "list"]);
    assert_eq!(answer(&output), (vec!["job-0 2 sealed".to_owned(), "job-0 1 sealed".to_owned()], 0));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["images"][0]["store"], other);
    assert_eq!(answer(&images(dirs[0].path(), &["--store", other, "remove"])).1, 0);
    assert!(
        dirs.iter()
            .all(|dir| fs::read_dir(dir.path().join("coswitch-rffffff-1-n0")).unwrap().next().is_none())
    );
}
