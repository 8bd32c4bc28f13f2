//! Counters of this machine over a run: faults, swapping, stalls. All virtual nodes share them.

use std::{fs, time::Duration};

use coswitch_policies::Bytes;

use coswitch_report::journal::MachineUse;

const PAGE: u64 = 4096;

/// The counters at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineCounters(MachineUse);

impl MachineCounters {
    pub(super) fn now() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self(parse(&read("/proc/vmstat"), &read("/proc/pressure/memory")))
    }

    /// The difference to now.
    pub(super) fn since(&self) -> MachineUse {
        let (Self(then), Self(now)) = (self, Self::now());
        MachineUse {
            major_faults: now.major_faults.saturating_sub(then.major_faults),
            swapped_in: Bytes(now.swapped_in.0.saturating_sub(then.swapped_in.0)),
            swapped_out: Bytes(now.swapped_out.0.saturating_sub(then.swapped_out.0)),
            memory_stall: now.memory_stall.zip(then.memory_stall).map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

fn parse(vmstat: &str, pressure: &str) -> MachineUse {
    let count = |name: &str| {
        let line = vmstat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
    };
    let some = pressure.lines().find(|line| line.starts_with("some "));
    let total = some.and_then(|line| line.rsplit_once("total=")?.1.parse().ok());
    MachineUse {
        major_faults: count("pgmajfault"),
        swapped_in: Bytes(count("pswpin") * PAGE),
        swapped_out: Bytes(count("pswpout") * PAGE),
        memory_stall: total.map(Duration::from_micros),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_whole_names() {
        let vmstat = "pswpin_zero 9\npswpin 2\npswpout 3\npgmajfault 41\n";
        let pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=45\nfull avg10=0.00 total=7\n";
        let expected = MachineUse {
            major_faults: 41,
            swapped_in: Bytes(8192),
            swapped_out: Bytes(12288),
            memory_stall: Some(Duration::from_micros(45)),
        };
        assert_eq!(parse(vmstat, pressure), expected);
        assert_eq!(parse("", ""), MachineUse::default());
    }
}
