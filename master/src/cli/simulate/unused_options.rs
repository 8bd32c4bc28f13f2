//! Rejects options that the chosen mode ignores.

use super::{Queue, Simulate, workload};

impl Simulate {
    /// The error for an option that the given file makes meaningless.
    pub(super) fn unused_option(&self) -> Option<String> {
        let file = self.file.as_deref()?;
        let of_jobs = [("--workload", self.workload.is_some()), ("--lublin", self.lublin.is_some())];
        let of_logs = [
            ("--memory", self.memory.is_some()),
            ("--run-time", self.run_time.is_some()),
            ("--jobs", self.jobs.is_some()),
        ];
        let files = [
            ("--policy", self.policy.is_some()),
            ("--svg", self.svg.is_some()),
            ("--swf", self.swf.is_some()),
        ];
        // `local` uses these.
        let of_all =
            [("--seeds", self.seeds > 1), ("--nodes", self.nodes.is_some()), ("--csv", self.csv.is_some())];
        let of_machines = || [&files[..], &self.space_options(), &self.time_options()].concat();
        let (others, why) = if self.is_local() {
            let mut others = [&of_jobs[..], &of_logs[..2], &of_machines()].concat();
            others.retain(|(option, _)| !["--cpus", "--svg"].contains(option));
            (others, "`local` is a study of its own".into())
        } else if file.is_dir() {
            let all = [&of_jobs[..], &of_logs, &of_all, &of_machines(), &self.local.given()].concat();
            (all, format!("the run in {} is decided again as it was", file.display()))
        } else {
            let is_run_file = workload::is_run_file(file);
            let has_others = of_jobs.iter().any(|(_, is_given)| *is_given);
            let others: &[_] = match (is_run_file, has_others) {
                (false, _) => &of_jobs,
                (true, false) => &of_logs,
                (true, true) => &[],
            };
            (others.to_vec(), format!("the jobs are those of {}", file.display()))
        };
        first_given(&others).map(|option| format!("{why}: leave {option} out"))
    }

    /// The error for an option of the other way of sharing the machine.
    pub(super) fn option_of_other_mode(&self, shares_time: bool) -> Option<String> {
        if let Some(option) = first_given(&self.local.given()) {
            return Some(format!("{option} is about node schedulers: `simulate local`"));
        }
        let is_slice = |option: &&(&str, bool)| option.0 == "--quantum" && self.queue == Some(Queue::Rms);
        let (others, why) = match shares_time {
            true => (
                self.space_options().to_vec(),
                "is about jobs that have their nodes to themselves, and these share time",
            ),
            false => (
                self.time_options().iter().filter(|option| !is_slice(option)).copied().collect(),
                "is about jobs that share time: give --policy or a run file as well",
            ),
        };
        first_given(&others).map(|option| format!("{option} {why}"))
    }

    /// Options of space sharing, and whether each is given.
    fn space_options(&self) -> [(&'static str, bool); 6] {
        [
            ("--allocator", self.allocator.is_some()),
            ("--queue", self.queue.is_some()),
            ("--machine", self.machine.is_some()),
            ("--mesh", self.mesh.is_some()),
            ("--cpus", self.cpus.is_some()),
            ("--usage-limit", self.usage_limit.is_some()),
        ]
    }

    /// Options of time sharing, and whether each is given.
    fn time_options(&self) -> [(&'static str, bool); 6] {
        [
            ("--quantum", self.quantum.is_some()),
            ("--node-memory", self.node_memory.is_some()),
            ("--memory", self.memory.is_some()),
            ("--costs", self.costs.is_some()),
            ("--switching", self.switching.is_some()),
            ("--residency", self.residency),
        ]
    }
}

fn first_given(options: &[(&'static str, bool)]) -> Option<&'static str> {
    options.iter().find(|(_, is_given)| *is_given).map(|(option, _)| *option)
}
