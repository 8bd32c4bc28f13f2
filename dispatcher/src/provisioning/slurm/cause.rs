//! Why the daemons of an allocation have not started, from what was seen of them: pure.

use std::time::Duration;

/// How many hosts a sentence names.
const NAMED: usize = 8;

/// What was seen when the start was given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    /// What `srun` and the daemons have written.
    pub(super) log: &'a str,
    /// Slurm has made the step; `srun` waits silently until then.
    pub(super) is_made: bool,
    /// The option that makes the step share the resources of others.
    pub(super) shares: &'a str,
    pub(super) job: u32,
    /// All hosts of the allocation.
    pub(super) hosts: usize,
    /// Those whose daemon has not reported.
    pub(super) missing: &'a [&'a str],
    /// How `srun` has ended, if it has.
    pub(super) ended: Option<&'a str>,
    pub(super) waited: Duration,
    /// Where the daemons were to report.
    pub(super) addresses: &'a str,
}

impl Seen<'_> {
    /// The cause as a sentence that fits after "failed to start the daemons".
    pub(super) fn cause(self) -> String {
        let Seen { log, is_made, shares, job, hosts, missing, ended, waited, addresses } = self;
        let seconds = waited.as_secs();
        if ended.is_none() && !is_made {
            return format!(
                "after {seconds} s their step still waits for resources, which other steps of job {job} \
                 hold; a step that is started with `{shares}` shares these: see that no wrapper of srun \
                 takes the option away, or end the other steps (`squeue --steps --jobs={job}`)"
            );
        }
        let last = log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
        if let Some(ended) = ended {
            return format!("srun has ended ({ended}); its last words: {last}");
        }
        let named: Vec<&str> = missing.iter().copied().take(NAMED).collect();
        let more = if missing.len() > NAMED { " and others" } else { "" };
        let named = format!("{}{more}", named.join(", "));
        if missing.len() == hosts {
            return format!(
                "no daemon has reported to {addresses} within {seconds} s: the nodes ({named}) have to reach \
                 this machine at one of these addresses; the last words of srun: {last}"
            );
        }
        format!(
            "{} of {hosts} daemons have not reported within {seconds} s, those on {named}: these nodes have \
             to reach this machine at one of {addresses}; the last words of srun: {last}",
            missing.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(log: &str, missing: &[&str], ended: Option<&str>) -> String {
        let (shares, waited, is_made) = ("--overlap", Duration::from_secs(20), !log.is_empty());
        Seen { log, is_made, shares, job: 7, hosts: 3, missing, ended, waited, addresses: "10.0.0.1:900" }
            .cause()
    }

    #[test]
    fn a_step_that_waits_is_named_with_the_option_that_it_lacks() {
        let said = cause("", &["a", "b", "c"], None);
        assert!(said.contains("waits for resources") && said.contains("`--overlap`"), "{said}");
    }

    #[test]
    fn an_end_is_named_with_its_last_words() {
        let said =
            cause("0: slurmstepd: error: execve(): /x/coswitchd: No such file\n\n", &[], Some("code 2"));
        assert!(said.contains("code 2") && said.ends_with("No such file"), "{said}");
    }

    #[test]
    fn hosts_that_are_missing_are_named() {
        let said = cause("x", &["b", "c"], None);
        assert!(said.starts_with("2 of 3 daemons") && said.contains("on b, c:"), "{said}");
        assert!(cause("x", &["a", "b", "c"], None).starts_with("no daemon has reported to 10.0.0.1:900"));
        let many = ["n"; 20];
        assert!(cause("x", &many, None).contains("n, n and others"));
    }
}
