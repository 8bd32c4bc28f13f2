//! The command line: one file per subcommand.

mod accounts;
mod check;
mod clean;
mod compare;
mod doctor;
mod exit;
mod explain;
mod images;
mod jobs;
mod metrics;
mod output;
mod report;
mod run;
mod runs;
mod schema;
mod serve;
mod simulate;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, error::ErrorKind};

pub use exit::{Exit, Failure};
pub use output::{Answer, Output};

/// Time-shares a cluster between MPI jobs that do not fit in its memory together.
#[derive(Debug, Parser)]
#[command(name = "coswitch", version, after_help = exit::HELP, max_term_width = 110)]
pub struct Arguments {
    /// The format of the answer: for people or for programs.
    #[arg(long, global = true, value_enum, default_value = "human", value_name = "FORMAT")]
    output: Output,
    /// Log more: -v what is done, -vv every step. COSWITCH_LOG takes filters such as `coswitch=debug`.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunCommand),
    Serve(serve::ServeCommand),
    Submit(jobs::SubmitCommand),
    Queue(jobs::QueueCommand),
    Top(jobs::TopCommand),
    Wait(jobs::WaitCommand),
    Cat(jobs::CatCommand),
    Park(jobs::ParkCommand),
    Resume(jobs::ResumeCommand),
    Cancel(jobs::CancelCommand),
    Drain(jobs::DrainCommand),
    Undrain(jobs::UndrainCommand),
    Why(jobs::WhyCommand),
    Upgrade(jobs::UpgradeCommand),
    Accounts(accounts::AccountsCommand),
    Check(check::CheckCommand),
    Compare(compare::CompareCommand),
    Explain(explain::ExplainCommand),
    Simulate(Box<simulate::Simulate>),
    Report(report::ReportCommand),
    Doctor(doctor::DoctorCommand),
    Clean(clean::CleanCommand),
    Images(images::ImagesCommand),
    Schema(schema::SchemaCommand),
    Metrics(metrics::MetricsCommand),
}

impl Command {
    fn answers_with_a_table(&self) -> bool {
        matches!(self, Self::Simulate(simulate) if simulate.answers_with_a_table())
    }
}

impl Arguments {
    /// Carries out the command and prints its failure. The ranks of jobs have `umask`.
    pub fn carry_out(self, umask: u32) -> ExitCode {
        let output = self.output;
        if output == Output::Csv && !self.command.answers_with_a_table() {
            let text = "only `simulate` of jobs answers with a table: use `--output json`";
            Self::command().error(ErrorKind::ArgumentConflict, text).exit();
        }
        let done = match self.command {
            Command::Run(run) => run.carry_out(output, umask),
            Command::Serve(serve) => serve.carry_out(output, umask),
            Command::Submit(submit) => submit.carry_out(output),
            Command::Queue(queue) => queue.carry_out(output),
            Command::Top(top) => top.carry_out(output),
            Command::Wait(wait) => wait.carry_out(output),
            Command::Cat(cat) => cat.carry_out(),
            Command::Park(park) => park.carry_out(),
            Command::Resume(resume) => resume.carry_out(),
            Command::Cancel(cancel) => cancel.carry_out(),
            Command::Drain(drain) => drain.carry_out(output),
            Command::Undrain(undrain) => undrain.carry_out(output),
            Command::Why(why) => why.carry_out(output),
            Command::Upgrade(upgrade) => upgrade.carry_out(output),
            Command::Accounts(accounts) => accounts.carry_out(output),
            Command::Check(check) => check.carry_out(output),
            Command::Compare(compare) => compare.carry_out(output, umask),
            Command::Explain(explain) => explain.carry_out(output),
            Command::Simulate(simulate) => simulate.carry_out(output),
            Command::Report(report) => report.carry_out(output),
            Command::Doctor(doctor) => doctor.carry_out(output),
            Command::Clean(clean) => clean.carry_out(output),
            Command::Images(images) => images.carry_out(output),
            Command::Schema(schema) => schema.carry_out(),
            Command::Metrics(metrics) => metrics.carry_out(),
        };
        done.unwrap_or_else(|failure| fail(failure, output)).into()
    }
}

fn fail(failure: Failure, output: Output) -> Exit {
    let exit = failure.exit();
    if output == Output::Json {
        #[allow(clippy::print_stdout, reason = "programs read the failure where they read the answer")]
        {
            println!("{:#}", failure.json());
        }
    }
    failure.print();
    exit
}
