//! What a task uses, by the kernel and by its driver.

use std::{fs::File, io, os::unix::fs::FileExt, time::Duration};

use coswitch_policies::{Bytes, local::Usage};
use nix::{
    time::{ClockId, clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};

/// The time between two measurements.
pub(super) const MEASURE_EVERY: Duration = Duration::from_millis(100);
/// Of memory.
const PAGE: u64 = 4096;
/// Places in `/proc/PID/stat` after the name of the program.
const MAJOR_FAULTS: usize = 9;
const RESIDENT_PAGES: usize = 21;

/// Measures one process, all of its threads together.
#[derive(Debug)]
pub(super) struct Meter {
    processor_time: ClockId,
    stat: File,
    /// What it had used when the meter was started.
    before: Usage,
}

impl Meter {
    /// `sent`: what its driver has counted so far, in bytes.
    pub(super) fn start(process: Pid, sent: u64) -> io::Result<Self> {
        let processor_time = clock_getcpuclockid(process)?;
        let stat = File::open(format!("/proc/{process}/stat"))?;
        let mut meter = Self { processor_time, stat, before: Usage::default() };
        meter.before = meter.read(sent)?;
        Ok(meter)
    }

    /// Since it was started; an error where the process has ended.
    pub(super) fn usage(&self, sent: u64) -> io::Result<Usage> {
        Ok(self.read(sent)?.since(&self.before))
    }

    fn read(&self, sent: u64) -> io::Result<Usage> {
        let processor_time = clock_gettime(self.processor_time)?.into();
        let mut text = [0; 512];
        let length = self.stat.read_at(&mut text, 0)?;
        let (faults, pages) = faults_and_pages(&String::from_utf8_lossy(&text[..length]))
            .ok_or_else(|| io::Error::other("the kernel writes it otherwise"))?;
        let resident = Bytes(pages.saturating_mul(PAGE));
        Ok(Usage { processor_time, bytes_sent: Bytes(sent), resident, faults })
    }
}

fn faults_and_pages(stat: &str) -> Option<(u64, u64)> {
    // The name of the program is in brackets, and may hold any character.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse().ok();
    Some((number(MAJOR_FAULTS)?, number(RESIDENT_PAGES)?))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn faults_and_pages_are_found_after_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 300 0 12 0 5 6 0 0 20 0 1 0 99 8192 41 18446744073709";
        assert_eq!(faults_and_pages(stat), Some((12, 41)));
        assert_eq!(faults_and_pages("7 (a) S 1"), None);
    }

    #[test]
    fn a_process_that_computes_uses_its_time_since_the_meter_was_started() {
        let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 60";
        let mut process = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().unwrap();
        let meter = Meter::start(Pid::from_raw(process.id().cast_signed()), 100).unwrap();
        let used = |of: &dyn Fn(Usage) -> bool| {
            (0..1000).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                of(meter.usage(150).unwrap())
            })
        };
        assert!(used(&|usage| usage.processor_time > Duration::from_millis(50)));
        let usage = meter.usage(150).unwrap();
        assert!(usage.resident > Bytes(100 << 10) && usage.resident < Bytes::mib(100), "{usage:?}");
        assert_eq!(usage.bytes_sent, Bytes(50));
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(meter.usage(150).is_err());
    }
}
