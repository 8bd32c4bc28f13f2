//! The exit codes and failures of commands. The codes are documented in `--help` and stable.

use std::process::ExitCode;

use coswitch_report::journal::RunOutcome;

use miette::Diagnostic as _;

use crate::{api::Refusal, config::ConfigError, doctor::Findings};

pub(crate) const HELP: &str = "\
Exit codes:
    0  everything asked for was done; for `run`: every job exited with code 0
    1  a job failed; the others were run to their end; for `images`: one is damaged, or was not removed;
       for `wait`: a job failed or was cancelled
    2  the command line or the run file is wrong, or the cluster refused it; nothing was started
    3  this machine lacks something, `coswitch doctor` says what; nothing was started
    4  coswitch itself failed, or lost a daemon, or no cluster is served
    5  `run --limit` was reached; everything that was started has been ended
    6  the nodes of `run` are taken away (the end of an allocation, or `--park-after`): every job that had not
       ended is parked, and `run --resume DIR` goes on
    7  the cluster has as many jobs as it takes, or lets wait (`max_queued`): none of `submit` was taken, and
       it may be tried again
  130  interrupted; everything that was started has been ended; `compare` has compared the runs before";

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    /// A job failed, or an image is damaged or was not removed.
    JobFailed = 1,
    /// The command line or the run file is wrong.
    BadInput = 2,
    /// The machine lacks something.
    Lacking = 3,
    /// coswitch itself failed.
    Internal = 4,
    /// The run reached its time limit.
    TimedOut = 5,
    /// The cluster takes no more jobs for now.
    Full = 7,
    /// The nodes were about to be taken away: all jobs are parked.
    Parked = 6,
    /// The user stopped the command.
    Interrupted = 130,
}

impl From<RunOutcome> for Exit {
    fn from(outcome: RunOutcome) -> Self {
        match outcome {
            RunOutcome::Done => Self::Done,
            RunOutcome::JobsFailed => Self::JobFailed,
            RunOutcome::TimedOut => Self::TimedOut,
            RunOutcome::Interrupted => Self::Interrupted,
            RunOutcome::Aborted => Self::Internal,
            RunOutcome::Parked => Self::Parked,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command could not be carried out.
#[derive(Debug)]
pub enum Failure {
    /// The run file is wrong.
    Input(ConfigError),
    /// A workload, a cost file or an option of `simulate` is wrong.
    Workload(anyhow::Error),
    /// The path of an earlier run does not lead to a run.
    Run(anyhow::Error),
    /// A cluster that stands is not what the command needs.
    Standing(anyhow::Error),
    /// The cluster refused what was asked.
    Refused(Refusal),
    /// The machine lacks something.
    Lacking(Findings),
    /// coswitch itself failed.
    Internal(anyhow::Error),
    /// The user stopped the command before there was an answer; when.
    Interrupted(String),
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Input(error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Internal(error)
    }
}

impl Failure {
    pub const fn exit(&self) -> Exit {
        match self {
            Self::Refused(refusal) if refusal.is_for_now() => Exit::Full,
            Self::Refused(Refusal::NoAccounts { .. }) => Exit::Internal,
            Self::Input(_) | Self::Workload(_) | Self::Run(_) | Self::Standing(_) | Self::Refused(_) => {
                Exit::BadInput
            }
            Self::Lacking(_) => Exit::Lacking,
            Self::Internal(_) => Exit::Internal,
            Self::Interrupted(_) => Exit::Interrupted,
        }
    }

    /// Prints the failure on standard error.
    pub fn print(self) {
        match self {
            Self::Input(error) => eprintln!("{:?}", miette::Report::new(error)),
            Self::Lacking(findings) => {
                eprintln!("this machine cannot run the job set yet; nothing was started\n");
                findings.lacks().for_each(|check| eprintln!("{check}"));
            }
            Self::Workload(error) => eprintln!("nothing was simulated: {error:#}"),
            Self::Run(error) => eprintln!("nothing is reported: {error:#}"),
            Self::Standing(error) => eprintln!("nothing was started: {error:#}"),
            Self::Refused(refusal) => eprintln!("refused: {refusal}"),
            Self::Internal(error) => eprintln!("coswitch failed: {error:#}"),
            Self::Interrupted(when) => eprintln!("interrupted {when}"),
        }
    }

    /// The failure as an answer for programs.
    pub fn json(&self) -> serde_json::Value {
        let message = match self {
            Self::Input(error) => error.to_string(),
            Self::Refused(refusal) => refusal.to_string(),
            Self::Lacking(_) => "this machine lacks something".into(),
            Self::Workload(error) | Self::Run(error) | Self::Standing(error) | Self::Internal(error) => {
                format!("{error:#}")
            }
            Self::Interrupted(when) => format!("interrupted {when}"),
        };
        let mut value = serde_json::json!({ "error": message, "exit": self.exit() as u8 });
        match self {
            Self::Input(ConfigError::Refused(refused)) => {
                value["problems"] = serde_json::json!(refused.located())
            }
            Self::Input(error) => {
                value["help"] = serde_json::json!(error.help().map(|help| help.to_string()))
            }
            Self::Lacking(findings) => {
                value["lacks"] = serde_json::json!(findings.lacks().collect::<Vec<_>>())
            }
            Self::Refused(refusal) => value["why"] = serde_json::json!(refusal),
            Self::Workload(_)
            | Self::Run(_)
            | Self::Standing(_)
            | Self::Internal(_)
            | Self::Interrupted(_) => {}
        }
        value
    }
}
