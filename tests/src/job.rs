//! Jobs of the tests: a program, the nodes of its ranks, and the check of its results.

use std::{fs, path::Path};

use coswitch_daemon::protocol::{Park, Wait};
use coswitch_dispatcher::protocol::{AppOutcome, Delivery};
use coswitch_examples::{Program, python_script};
use coswitch_policies::NodeId;

use crate::parts;

/// A program and the nodes of its ranks.
#[derive(Clone, Debug)]
pub struct TestJob {
    /// Appears in messages and directories.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    pub placement: Vec<NodeId>,
    /// Text that rank 0 prints once it has verified its results; `None` if the program prints nothing.
    pub says: Option<&'static str>,
    pub wait: Wait,
    pub park: Park,
    pub delivery: Delivery,
}

const VERIFIED: &str = "VERIFICATION SUCCESSFUL";

impl TestJob {
    /// One of the example programs, on one rank.
    #[must_use]
    pub fn program(program: Program, arguments: &[&str]) -> Self {
        let path = parts::programs().path(program).display().to_string();
        let says = (program != Program::Null).then_some(VERIFIED);
        Self::new(program.name(), &path, arguments, says)
    }

    /// The mpi4py script, on one rank.
    #[must_use]
    pub fn python(arguments: &[&str]) -> Self {
        let script = python_script().display().to_string();
        let arguments: Vec<&str> = [script.as_str()].into_iter().chain(arguments.iter().copied()).collect();
        Self::new("pi.py", &parts::python().display().to_string(), &arguments, Some(VERIFIED))
    }

    /// Any program, on one rank.
    #[must_use]
    pub fn new(name: &str, program: &str, arguments: &[&str], says: Option<&'static str>) -> Self {
        Self {
            name: name.to_string(),
            command: [program].iter().chain(arguments).map(ToString::to_string).collect(),
            placement: vec![NodeId(0)],
            says,
            wait: Wait::default(),
            park: Park::default(),
            delivery: Delivery::default(),
        }
    }

    /// Sets the number of ranks, in blocks of equal size on nodes 0, 1 and so on.
    #[must_use]
    pub fn on(mut self, ranks: u32, nodes: u32) -> Self {
        self.placement = (0..ranks).map(|rank| NodeId(rank * nodes / ranks)).collect();
        self
    }

    #[must_use]
    pub fn waiting(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    /// Its program is sent to its nodes.
    #[must_use]
    pub fn sent(self) -> Self {
        Self { delivery: Delivery::Sent, ..self }
    }

    #[must_use]
    pub fn parking(self, park: Park) -> Self {
        Self { park, ..self }
    }

    /// Checks the outcome and the output of the job.
    pub fn check(&self, outcome: &AppOutcome, output: &Path) -> Result<(), String> {
        let failed = |what: &str| Err(format!("{} on {:?}: {what}", self.command.join(" "), self.placement));
        if *outcome != AppOutcome::Succeeded {
            return failed(&format!("{outcome:?}"));
        }
        let said = fs::read_to_string(output.join("rank-0.out")).unwrap_or_default();
        match self.says {
            Some(words) if said.matches(words).count() != 1 => failed(&format!("it said {said:?}")),
            _ if said.contains("VERIFICATION FAILED") => failed(&format!("it said {said:?}")),
            _ => Ok(()),
        }
    }
}
