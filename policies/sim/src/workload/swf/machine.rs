//! Machine of a log: its processors and nodes, by the header and by the jobs that ran.
//!
//! The format counts processors. A log of nodes with several says `MaxProcs` beside a smaller `MaxNodes`.
//! Many such machines have unequal nodes, of which the header gives no more than both sums, so the number of
//! processors is exact and that of a single node a mean. A job that ran on more processors than the header
//! says shows that the header is wrong: the machine is as large as the largest job.

use std::fmt;

use super::{Log, Record, leading_number};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogMachine {
    /// At least one, and no more than processors.
    pub nodes: u32,
    pub processors: u32,
    /// `MaxNodes` and `MaxProcs`, where the header gives them.
    header: (Option<u32>, Option<u32>),
    /// The largest job that ran, by its number, if the header's machine does not hold it.
    larger: Option<u64>,
}

impl LogMachine {
    /// `None` where the header gives neither nodes nor processors.
    #[must_use]
    pub fn of(log: &Log) -> Option<Self> {
        let number = |key| leading_number(log.header(key)?).map(|(n, _)| n).filter(|n| *n > 0);
        let header = (number("MaxNodes"), number("MaxProcs"));
        let nodes = header.0.or(header.1)?;
        // Fewer processors than nodes cannot be: every node counts as one then.
        let processors = header.1.unwrap_or(nodes).max(nodes);
        let said = Self { nodes, processors, header, larger: None };
        let ran = log.records.iter().filter(|record| record.run.is_some_and(|run| run > 0));
        let sizes = ran.filter_map(|record| Some((record.size()?, record.number)));
        // The first of the largest.
        let largest = sizes.reduce(|most, job| if job.0 > most.0 { job } else { most });
        Some(match largest {
            Some((size, job)) if size > processors => said.grown(size, job),
            _ => said,
        })
    }

    /// The same nodes, more of them.
    fn grown(self, processors: u32, job: u64) -> Self {
        let nodes = (u64::from(processors) * u64::from(self.nodes)).div_ceil(u64::from(self.processors));
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        Self { nodes, processors, larger: Some(job), ..self }
    }

    /// Processors of a node: the mean, rounded.
    #[must_use]
    pub fn per_node(&self) -> u32 {
        let (nodes, processors) = (u64::from(self.nodes), u64::from(self.processors));
        u32::try_from((processors + nodes / 2) / nodes).unwrap_or(u32::MAX)
    }

    /// As many equal nodes of [`Self::per_node`] processors as hold all processors.
    #[must_use]
    pub fn equal_nodes(&self) -> u32 {
        self.processors.div_ceil(self.per_node())
    }

    /// Whether every node has one processor.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.nodes == self.processors
    }

    /// The header's own words, for messages.
    #[must_use]
    pub fn header(&self) -> String {
        let part = |key, number: Option<u32>| number.map(|number| format!("{key} {number}"));
        let parts = [part("MaxNodes", self.header.0), part("MaxProcs", self.header.1)];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// `2004 processors in 151 nodes (the log's header: MaxNodes 151, MaxProcs 2004)`.
impl fmt::Display for LogMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, processors, larger, .. } = self;
        if self.is_plain() {
            write!(f, "{nodes} nodes of one processor")?;
        } else if processors.is_multiple_of(*nodes) {
            write!(f, "{processors} processors in {nodes} nodes of {}", processors / nodes)?;
        } else {
            let few = processors / nodes;
            write!(f, "{processors} processors in {nodes} nodes of {few} or {} on average", few + 1)?;
        }
        write!(f, " (the log's header: {}", self.header())?;
        if let Some(job) = larger {
            write!(f, "; but job {job} ran on {processors} processors")?;
        }
        if let (Some(nodes), Some(processors)) = self.header
            && processors < nodes
        {
            write!(f, "; as there are fewer processors than nodes, every node counts as one")?;
        }
        f.write_str(")")
    }
}

impl Log {
    /// The use of `processors` processors by the log's own schedule: Σ processors · run time ÷ (processors ·
    /// time from the first submission to the last end). `None` where the log gives the wait of no job; a job
    /// whose wait alone is missing counts as started when submitted.
    #[must_use]
    pub fn utilisation(&self, processors: u32) -> Option<f64> {
        let ran = || self.records.iter().filter_map(|record| Some((record, record.run?, record.size()?)));
        if !ran().any(|(record, ..)| record.wait.is_some()) {
            return None;
        }
        let end = |(record, run, _): (&Record, u64, u32)| {
            record.submit.saturating_add(record.wait.unwrap_or(0)).saturating_add(run)
        };
        let span = ran().map(end).max()?.saturating_sub(ran().map(|(record, ..)| record.submit).min()?);
        let used: f64 = ran().map(|(_, run, size)| run as f64 * f64::from(size)).sum();
        (span > 0).then(|| used / (span as f64 * f64::from(processors)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each job: processors, and seconds it ran.
    fn log(header: &str, jobs: &[(u32, i64)]) -> Log {
        let line = |(number, (size, run)): (usize, &(u32, i64))| {
            format!("{number} 0 10 {run} {size} -1 -1 {size} -1 -1 1 1 1 1 1 1 -1 -1\n")
        };
        (header.to_owned() + &(1..).zip(jobs).map(line).collect::<String>()).parse().unwrap()
    }

    fn read(header: &str, jobs: &[(u32, i64)]) -> (u32, u32, u32, u32) {
        let machine = LogMachine::of(&log(header, jobs)).unwrap();
        (machine.processors, machine.nodes, machine.equal_nodes(), machine.per_node())
    }

    /// The headers of logs of the archive.
    #[test]
    fn a_header_of_more_processors_than_nodes_means_nodes_of_several() {
        let curie = "; MaxNodes: 5544\n; MaxProcs: 93312\n";
        assert_eq!(read(curie, &[(80_640, 9)]), (93_312, 5544, 5489, 17));
        assert_eq!(read("; MaxNodes: 1152\n; MaxProcs: 9216\n", &[(8192, 9)]), (9216, 1152, 1152, 8));
        assert_eq!(read("; MaxNodes: 57\n; MaxProcs: 178\n", &[(60, 9)]), (178, 57, 60, 3));
        assert_eq!(read("; MaxNodes: 151\n; MaxProcs: 2004\n", &[(516, 9)]), (2004, 151, 155, 13));
        assert_eq!(read("; MaxNodes: 400 (48 interactive)\n; MaxProcs: 400\n", &[]), (400, 400, 400, 1));
        assert_eq!(read("; MaxNodes: 8\n", &[]), (8, 8, 8, 1));
        assert_eq!(read("; MaxProcs: 8\n", &[]), (8, 8, 8, 1));
        assert_eq!(read("; MaxNodes: -1\n; MaxProcs: 8\n", &[]), (8, 8, 8, 1));
        assert_eq!(LogMachine::of(&log("; Computer: x\n; MaxProcs: 0\n", &[(8, 9)])), None);
        assert_eq!(read("; MaxNodes: 16\n; MaxProcs: 8\n", &[]), (16, 16, 16, 1));
    }

    #[test]
    fn a_machine_is_as_large_as_the_largest_job_that_ran() {
        let header = "; MaxNodes: 4\n; MaxProcs: 16\n";
        assert_eq!(read(header, &[(16, 5), (18, 5), (30, 0), (40, -1)]), (18, 5, 5, 4));
        assert_eq!(read("; MaxNodes: 8\n", &[(9, 5)]), (9, 9, 9, 1));
        let text = LogMachine::of(&log(header, &[(18, 5)])).unwrap().to_string();
        assert_eq!(
            text,
            "18 processors in 5 nodes of 3 or 4 on average (the log's header: MaxNodes 4, MaxProcs 16; but \
             job 1 ran on 18 processors)"
        );
    }

    #[test]
    fn a_log_has_its_own_utilisation_where_it_says_when_jobs_ran() {
        let log = log("", &[(4, 30), (2, 10), (100, -1)]);
        // Submitted at 0, run from 10 to 40 and from 10 to 20.
        let own = log.utilisation(8).unwrap();
        assert!((own - 140.0 / (8.0 * 40.0)).abs() < 1e-12, "{own}");
        let unknown: Log = log.to_string().replace(" 0 10 ", " 0 -1 ").parse().unwrap();
        assert_eq!(unknown.utilisation(8), None);
    }
}
