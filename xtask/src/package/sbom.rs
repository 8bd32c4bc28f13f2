//! The bill of materials: CycloneDX JSON of everything that is in a release, and of what it needs beside it.
//!
//! `cargo-cyclonedx` writes one bill for each package of the workspace into the source tree; a release has
//! one bill, of four programs. So it is made from `cargo metadata` and `Cargo.lock`, which is what such a
//! tool reads. Cargo tells features of the whole workspace: a crate that only a feature of the tests brings
//! is in the bill as well.

use super::{LIMIT, Release, tree::PROGRAMS};
use crate::command;
use crate::setup::pins;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The packages of the workspace that the programs and the libraries are made of.
const ROOTS: [&str; 5] =
    ["coswitch", "coswitch-daemon", "coswitch-launcher", "coswitch-provider", "coswitch-criu-preload"];
/// JavaScript inside the program `coswitch`, for its pages: file, name, and what its version follows.
const SCRIPTS: [(&str, &str, &str); 2] = [
    ("d3.min.js", "d3", "https://d3js.org v"),
    ("plot.umd.min.js", "@observablehq/plot", "@observablehq/plot v"),
];
pub(super) const VENDOR: &str = "master/report/src/page/vendor";

/// A crate that is linked into a program.
#[derive(Debug)]
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) license: Option<String>,
    /// The directory of its sources.
    pub(super) sources: PathBuf,
    repository: Option<String>,
    /// `None`: it is of this workspace.
    sha256: Option<String>,
    dependencies: BTreeSet<String>,
}

/// All of them, by `name@version`, and the scripts of pages.
pub(super) struct Crates {
    pub(super) all: BTreeMap<String, Crate>,
    scripts: Vec<Value>,
}

impl Crate {
    pub(super) fn is_foreign(&self) -> bool {
        self.sha256.is_some()
    }
}

impl Crates {
    pub(super) fn of(workspace: &Workspace) -> Result<Self> {
        let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let mut cargo =
            workspace.cargo(&["metadata", "--format-version", "1", "--locked", "--filter-platform"]);
        let said = command::stdout(cargo.arg(triple), LIMIT).context("cargo knows no dependencies")?;
        let metadata = serde_json::from_str(&said).context("cargo metadata is not understood")?;
        let lock =
            fs::read_to_string(workspace.root().join("Cargo.lock")).context("cannot read Cargo.lock")?;
        let scripts = SCRIPTS.map(|script| of_script(&workspace.root().join(VENDOR), script));
        Ok(Self {
            all: linked(&metadata, &sums(&lock))?,
            scripts: scripts.into_iter().collect::<Result<_>>()?,
        })
    }
}

/// The crates that are linked into the programs: dependencies of the roots that are neither of tests nor of
/// builds.
fn linked(metadata: &Value, sums: &BTreeMap<String, String>) -> Result<BTreeMap<String, Crate>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let packages = list(&metadata["packages"]);
    let packages: BTreeMap<&str, &Value> =
        packages.iter().filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let nodes = list(&metadata["resolve"]["nodes"]);
    let nodes: BTreeMap<&str, &Value> =
        nodes.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let of_workspace = list(&metadata["workspace_members"]);
    let is_root = |id: &&str| {
        let member = of_workspace.iter().any(|member| member == id);
        member && packages.get(id).is_some_and(|package| ROOTS.iter().any(|name| package["name"] == *name))
    };
    let mut left: Vec<String> =
        packages.keys().copied().filter(|id| is_root(id)).map(str::to_owned).collect();
    anyhow::ensure!(left.len() == ROOTS.len(), "cargo metadata lacks one of {}", ROOTS.join(", "));
    let reference = |id: &str| {
        let package = packages.get(id).with_context(|| format!("cargo metadata lacks {id}"))?;
        let of = |field: &str| text(&package[field]).with_context(|| format!("{id} has no {field}"));
        Ok::<_, anyhow::Error>((package, of("name")?, of("version")?))
    };
    let mut found = BTreeMap::new();
    while let Some(id) = left.pop() {
        let (package, name, version) = reference(&id)?;
        let key = format!("{name}@{version}");
        if found.contains_key(&key) {
            continue;
        }
        let edges = nodes.get(id.as_str()).map(|node| list(&node["deps"])).unwrap_or_default();
        let is_linked = |edge: &&Value| list(&edge["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        let ids: Vec<String> = edges.iter().filter(is_linked).filter_map(|edge| text(&edge["pkg"])).collect();
        let names = ids.iter().map(|id| reference(id).map(|(_, name, version)| format!("{name}@{version}")));
        let manifest = text(&package["manifest_path"]).map(PathBuf::from);
        let is_foreign = !package["source"].is_null();
        let sha256 = sums.get(&key).filter(|_| is_foreign).cloned();
        anyhow::ensure!(sha256.is_some() == is_foreign, "Cargo.lock has no checksum of {key}");
        let one = Crate {
            license: text(&package["license"]),
            sources: manifest.and_then(|path| Some(path.parent()?.to_owned())).unwrap_or_default(),
            repository: text(&package["repository"]),
            sha256,
            dependencies: names.collect::<Result<_>>()?,
            name,
            version,
        };
        left.extend(ids);
        found.insert(key, one);
    }
    Ok(found)
}

/// `name@version` and the checksum of each package of a registry.
fn sums(lock: &str) -> BTreeMap<String, String> {
    let field = |entry: &str, name: &str| {
        let value = entry.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
        value.and_then(|value| value.strip_suffix('"')).map(str::to_owned)
    };
    let of_entry = |entry: &str| {
        let key = format!("{}@{}", field(entry, "name")?, field(entry, "version")?);
        Some((key, field(entry, "checksum")?))
    };
    lock.split("[[package]]").filter_map(of_entry).collect()
}

fn of_script(vendor: &Path, (file, name, before): (&str, &str, &str)) -> Result<Value> {
    let path = vendor.join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let version = text.split_once(before).and_then(|(_, rest)| rest.split_whitespace().next());
    let version = version.with_context(|| format!("{} names no version", path.display()))?;
    let purl = format!("pkg:npm/{}@{version}", name.replace('@', "%40"));
    let hashes = json!([{"alg": "SHA-256", "content": pins::sha256(&path)?}]);
    Ok(json!({"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
        "licenses": [{"license": {"id": "ISC"}}], "hashes": hashes}))
}

/// The bill of the release whose programs are in `tree`.
pub(super) fn bill(crates: &Crates, release: &Release, tree: &Path) -> Result<Value> {
    let main = format!("pkg:generic/coswitch@{}", release.version);
    let mut programs = Vec::new();
    for (name, place, _) in PROGRAMS {
        let hashes = json!([{"alg": "SHA-256", "content": pins::sha256(&tree.join(place))?}]);
        programs.push(
            json!({"type": "file", "bom-ref": format!("file:{name}"), "name": place, "hashes": hashes}),
        );
    }
    let files = PROGRAMS.map(|(name, ..)| format!("file:{name}"));
    let reference = |key: &str| format!("pkg:cargo/{key}");
    let of_crate = |(key, one): (&String, &Crate)| {
        let mut component = json!({"type": "library", "bom-ref": reference(key), "name": one.name,
            "version": one.version, "purl": reference(key)});
        if let Some(license) = &one.license {
            // Until 2018 a slash stood for `OR`.
            component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
        }
        if let Some(sum) = &one.sha256 {
            component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
        }
        if let Some(url) = &one.repository {
            component["externalReferences"] = json!([{"type": "vcs", "url": url}]);
        }
        component
    };
    let needed = needed();
    let refers = |component: &Value| component["bom-ref"].clone();
    let mut dependencies: Vec<Value> = crates
        .all
        .iter()
        .map(|(key, one)| {
            let on: Vec<String> = one.dependencies.iter().map(|key| reference(key)).collect();
            json!({"ref": reference(key), "dependsOn": on})
        })
        .collect();
    let own = crates.all.iter().filter(|(_, one)| ROOTS.contains(&one.name.as_str()) && !one.is_foreign());
    let on: Vec<Value> =
        files.iter().map(|file| json!(file)).chain(own.map(|(key, _)| json!(reference(key)))).collect();
    let on: Vec<Value> = on.into_iter().chain(crates.scripts.iter().chain(&needed).map(refers)).collect();
    dependencies.insert(0, json!({"ref": main, "dependsOn": on}));
    let components: Vec<Value> = programs
        .into_iter()
        .chain(crates.all.iter().map(of_crate))
        .chain(crates.scripts.clone())
        .chain(needed)
        .collect();
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {
            "timestamp": release.date,
            "component": {"type": "application", "bom-ref": main, "purl": main, "name": "coswitch",
                "version": release.version, "licenses": [{"expression": "MIT OR Apache-2.0"}]},
            "properties": [{"name": "coswitch:commit", "value": release.commit}],
        },
        "components": components, "dependencies": dependencies,
    }))
}

/// What coswitch needs and a package of it does not hold, in the versions that were tried.
fn needed() -> Vec<Value> {
    let not_held = json!([{"name": "coswitch:held", "value": "no"}]);
    let pins::Pin { name, version, file, sha256 } = pins::CRIU;
    let purl = format!("pkg:deb/debian/{name}@{version}?arch=amd64");
    let criu = json!({"type": "application", "bom-ref": purl, "name": name, "version": version, "purl": purl,
        "description": file, "licenses": [{"license": {"id": "GPL-2.0-only"}}], "properties": not_held,
        "hashes": [{"alg": "SHA-256", "content": sha256}]});
    let wheel = |(name, version, sums): (&str, &str, Vec<&str>)| {
        let purl = format!("pkg:pypi/{name}@{version}");
        let hashes: Vec<Value> = sums.iter().map(|sum| json!({"alg": "SHA-256", "content": sum})).collect();
        json!({"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
            "description": "one hash for each of its wheels", "properties": not_held, "hashes": hashes})
    };
    std::iter::once(criu).chain(pins::wheels().map(wheel)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"version = 4

[[package]]
name = "a"
version = "1.0.0"
checksum = "aa"

[[package]]
name = "coswitch"
version = "0.1.0"
dependencies = [
 "a",
]
"#;

    /// The roots, of which the first depends on `a`: as a part, for a build, or for tests.
    fn metadata(kind: &Value) -> Value {
        let package = |name: &str, source: Value| {
            let path = format!("/src/{name}/Cargo.toml");
            json!({"id": name, "name": name, "version": if name == "a" { "1.0.0" } else { "0.1.0" },
                "license": "MIT/Apache-2.0", "manifest_path": path, "source": source})
        };
        let packages: Vec<Value> = ROOTS.iter().map(|name| package(name, Value::Null)).collect();
        let packages = [packages, vec![package("a", json!("registry+somewhere"))]].concat();
        let nodes = json!([{"id": "coswitch", "deps": [{"pkg": "a", "dep_kinds": [{"kind": kind}]}]}]);
        json!({"packages": packages, "workspace_members": ROOTS, "resolve": {"nodes": nodes}})
    }

    #[test]
    fn a_bill_has_what_is_linked_with_its_checksum_and_not_what_only_builds_or_tests() {
        let crates = linked(&metadata(&Value::Null), &sums(LOCK)).unwrap();
        assert_eq!(crates.len(), ROOTS.len() + 1, "the roots, and what one depends on");
        assert_eq!(crates["a@1.0.0"].sha256.as_deref(), Some("aa"));
        assert_eq!(crates["a@1.0.0"].sources, Path::new("/src/a"));
        assert_eq!(crates["coswitch@0.1.0"].dependencies, BTreeSet::from(["a@1.0.0".to_owned()]));
        for kind in ["dev", "build"] {
            assert!(!linked(&metadata(&json!(kind)), &sums(LOCK)).unwrap().contains_key("a@1.0.0"), "{kind}");
        }
    }

    #[test]
    fn a_crate_of_a_registry_without_a_checksum_is_refused() {
        let refused = linked(&metadata(&Value::Null), &BTreeMap::new()).unwrap_err().to_string();
        assert_eq!(refused, "Cargo.lock has no checksum of a@1.0.0");
    }

    #[test]
    fn every_reference_of_a_bill_is_a_component() {
        let directory = std::env::temp_dir().join(format!("coswitch-bill-{}", std::process::id()));
        for (_, place, _) in PROGRAMS {
            crate::package::tree::write(&directory.join(place), place).unwrap();
        }
        let crates =
            Crates { all: linked(&metadata(&Value::Null), &sums(LOCK)).unwrap(), scripts: Vec::new() };
        let release = crate::package::tests::release();
        let bill = bill(&crates, &release, &directory);
        fs::remove_dir_all(&directory).unwrap();
        let bill = bill.unwrap();
        let components = bill["components"].as_array().unwrap();
        let refs: BTreeSet<&str> = components.iter().filter_map(|one| one["bom-ref"].as_str()).collect();
        assert_eq!(refs.len(), components.len(), "no reference is given twice");
        for edge in bill["dependencies"].as_array().unwrap() {
            let on = edge["dependsOn"].as_array().unwrap();
            assert!(on.iter().all(|on| refs.contains(on.as_str().unwrap())), "{edge}");
        }
        let criu = components.iter().find(|one| one["name"] == "criu").unwrap();
        assert_eq!(criu["hashes"][0]["content"], pins::CRIU.sha256);
        let a = components.iter().find(|one| one["name"] == "a").unwrap();
        assert_eq!(a["licenses"][0]["expression"], "MIT OR Apache-2.0");
    }
}
