//! Reads and checks a run file.
//!
//! text → [`tree`] (positions) → [`shape`] (fields, by the schema) → [`file`] (typed) → [`resolve`] (meaning)
//! → [`JobSet`]. Every step but the first collects its problems; nothing is started before all steps have
//! passed.

pub mod advice;
pub mod choice;
pub mod file;
pub mod job_set;
pub mod leaf;
pub mod owner;
pub mod problem;
pub mod program;
pub mod resolve;
pub mod schema;
pub mod shape;
pub mod technique;
pub mod tree;

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use coswitch_dispatcher::provisioning::{
    hosts::{self, Host},
    slurm::{Allocation, AllocationError},
};
use coswitch_policies::{Bytes, Policy, spaceshare::layout::Daytime};
use miette::{Diagnostic, SourceSpan};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use serde_yaml::{Location, Options, Spanned};
use thiserror::Error;

pub use advice::Overfull;
pub use choice::ParkMethod;
pub use job_set::{ClusterConfig, Job, JobSet, Settings, TimeLimits};
pub use owner::Owner;
pub use problem::{Located, Problem, Refused};
pub use resolve::Purpose;
pub use schema::schema_text;

use crate::daytime;
use file::{Nodes, RunFile, SchedulerPart};
use tree::{Node, span_at};

/// The largest run file, in bytes: twice the size of ten thousand jobs written out one by one.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a run file could not be used.
#[derive(Debug, Error, Diagnostic)]
pub enum ConfigError {
    #[error("failed to read {}: {cause}", .path.display())]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error(
        "failed to read {}: it has {bytes} bytes, a run file has at most {FILE_BYTES_MAX}",
        .path.display()
    )]
    TooLarge { path: PathBuf, bytes: u64 },
    #[error("failed to read {}: it is not UTF-8 text", .0.display())]
    NotText(PathBuf),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Refused(#[from] Box<Refused>),
}

/// Reads and checks the run file at `path`. Starts nothing.
///
/// # Errors
/// With every problem of the file that was found.
pub fn load(path: &Path) -> Result<JobSet, ConfigError> {
    load_for(path, Purpose::Run, None)
}

/// Reads and checks a run file for what it is to be used.
///
/// # Errors
/// As [`load`].
pub fn load_as(path: &Path, purpose: Purpose<'_>) -> Result<JobSet, ConfigError> {
    load_for(path, purpose, None)
}

/// Reads and checks a run file that will not be run: its programs and directories may be missing on this
/// machine.
///
/// # Errors
/// As [`load`].
pub fn load_to_plan(path: &Path) -> Result<JobSet, ConfigError> {
    let (text, base) = (read_text(path)?, base_of(path)?);
    let find =
        |name: &str| if name.is_empty() { Err(program::ProgramError::Empty) } else { Ok(base.join(name)) };
    let purpose = Purpose::Run;
    let context = resolve::Context {
        purpose,
        file: path,
        base: &base,
        machine: None,
        find: &find,
        policy: None,
        allocation: &allocation,
        free_memory: &|_| Err("a plan does not ask them".into()),
        start: Daytime::default(),
    };
    read(path, &text, &context)
}

/// Reads and checks a run file, with `policy` instead of the file's policy.
///
/// # Errors
/// As [`load`].
pub fn load_under(path: &Path, policy: Option<Policy>) -> Result<JobSet, ConfigError> {
    load_for(path, Purpose::Run, policy)
}

fn load_for(path: &Path, purpose: Purpose<'_>, policy: Option<Policy>) -> Result<JobSet, ConfigError> {
    let text = read_text(path)?;
    let search = std::env::var_os("PATH");
    let base = base_of(path)?;
    let find = |name: &str| program::find(name, &base, search.as_deref());
    let machine = Some(resolve::Machine { swap: coswitch_daemon::swap::configured() });
    let context = resolve::Context {
        purpose,
        file: path,
        base: &base,
        machine,
        find: &find,
        policy,
        allocation: &allocation,
        free_memory: &free_memory,
        start: daytime::before(Duration::ZERO),
    };
    read(path, &text, &context)
}

/// The memory that hosts have free, as they say themselves.
fn free_memory(hosts: &[&Host]) -> Result<Vec<Bytes>, String> {
    hosts::free_memory(hosts).map_err(|error| format!("{:#}", anyhow::Error::from(error)))
}

/// The allocation of Slurm that this process runs in.
///
/// # Errors
/// Where there is none.
pub(crate) fn allocation() -> Result<Allocation, AllocationError> {
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    Allocation::of(&std::env::vars_os().filter_map(text).collect())
}

/// Whether a run on the nodes of an allocation can go on with those of another.
///
/// # Errors
/// Why it cannot.
pub(crate) fn check_resumed(cluster: &ClusterConfig, allocation: &Allocation) -> Result<(), String> {
    let (nodes, hosts) = (cluster.nodes, allocation.hosts.len());
    if usize::try_from(nodes) != Ok(hosts) {
        return Err(format!("the run has {nodes} nodes, and this allocation has {hosts}"));
    }
    let left = allocation.memory_for_jobs(cluster.arena.unwrap_or_default());
    match left.filter(|left| *left < cluster.memory.largest()) {
        Some(left) => Err(format!(
            "the jobs of the run have {} on a node, and this allocation leaves {left} for jobs: ask Slurm \
             for more (`--mem`)",
            cluster.memory
        )),
        None => Ok(()),
    }
}

fn read(path: &Path, text: &str, context: &resolve::Context<'_>) -> Result<JobSet, ConfigError> {
    understand(text, context).map_err(|problems| Box::new(Refused::new(path, text, problems)).into())
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |cause| ConfigError::Unreadable { path: path.into(), cause };
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(unreadable(io::Error::other("it is not a file")));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(ConfigError::TooLarge { path: path.into(), bytes: metadata.len() });
    }
    let bytes = fs::read(path).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|_| ConfigError::NotText(path.into()))
}

fn base_of(path: &Path) -> Result<PathBuf, ConfigError> {
    let unreadable = |cause| ConfigError::Unreadable { path: path.into(), cause };
    let absolute = std::path::absolute(path).map_err(unreadable)?;
    Ok(absolute.parent().unwrap_or(Path::new("/")).to_path_buf())
}

fn understand(text: &str, context: &resolve::Context<'_>) -> Result<JobSet, Vec<Problem>> {
    let tree: Spanned<Node> = parse(text)?;
    let mut schema = schema::schema();
    if let Some(required) = schema["required"].as_array_mut() {
        required.retain(|field| field != context.purpose.optional());
    }
    let file = parse::<RunFile>(text);
    // Slurm and hosts can say themselves how much memory a node has, also where the rest is wrong.
    if parse::<Outline>(text).map_or(true, |outline| outline.cluster.nodes.are_virtual())
        && let Some(required) =
            schema.pointer_mut("/properties/cluster/required").and_then(Value::as_array_mut)
    {
        required.push("memory".into());
    }
    let mut problems = shape::check(&tree, &schema);
    match file {
        Ok(file) => match resolve::resolve(&file, &defaults(), context) {
            Ok(job_set) if problems.is_empty() => return Ok(job_set),
            Ok(_) => {}
            Err(more) => problems.extend(more),
        },
        // Where the shape is wrong, the typed reader repeats its problems in worse words.
        Err(more) if problems.is_empty() => {
            let named =
                |problem: Problem| shape::named(&tree, &schema, text, problem.span).unwrap_or(problem);
            problems = more.into_iter().map(named).collect();
        }
        Err(_) => {}
    }
    Err(problems)
}

/// What can be read of a file whose other fields are wrong.
#[derive(Deserialize)]
struct Outline {
    cluster: ClusterOutline,
}

#[derive(Deserialize)]
struct ClusterOutline {
    nodes: Nodes,
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Vec<Problem>> {
    serde_yaml::from_str_with_options(text, limits()).map_err(|error| vec![syntax(text, &error)])
}

/// Limits that refuse a file whose aliases expand to a large document, before they are expanded.
fn limits() -> Options {
    serde_yaml::options! {
        budget: serde_yaml::budget! {
            max_depth: 16,
            max_documents: 1,
            max_nodes: 100_000,
            max_events: 250_000,
            max_aliases: 1_000,
            max_inclusion_depth: 0,
        },
        with_snippet: false,
        non_finite_float_policy: serde_yaml::NonFiniteFloatPolicy::AsString,
    }
}

fn syntax(text: &str, error: &serde_yaml::Error) -> Problem {
    let end = text.trim_end().len().saturating_sub(1);
    let span = error.location().map_or_else(|| (end, 1).into(), |location| span_of_error(text, &location));
    let message = error.to_string();
    // The excerpt shows the position.
    let message = message.split(" at line ").next().unwrap_or_default().to_owned();
    Problem::new("YAML", span, message)
}

/// The span of an error; errors of the scanner have only line and column.
fn span_of_error(text: &str, location: &Location) -> SourceSpan {
    if location.span().byte_offset().is_some() {
        return span_at(location);
    }
    let line_and_column = [location.line(), location.column()].map(|n| usize::try_from(n).unwrap_or(1));
    (problem::byte_of(text, line_and_column), 1).into()
}

fn defaults() -> SchedulerPart {
    serde_yaml::from_str(include_str!("../../defaults.yaml")).expect("the compiled-in defaults can be read")
}
