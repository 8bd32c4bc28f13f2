//! A line of the journal: an event as a JSON object, whose last field is the checksum of all before it.
//!
//! ```text
//!   {"at":1,"kind":"job-running","job":1,"sum":"5f0a…"}
//! ```
//! So a changed byte is found wherever it is; tools that read JSON read on. Lines of journals before
//! version 5 have no checksum.

use serde::{
    Serialize,
    de::{DeserializeOwned, Error as _},
};
use xxhash_rust::xxh3::xxh3_64;

const FIELD: &str = ",\"sum\":\"";
/// Of the checksum in hexadecimal digits, and of what closes it.
const DIGITS: usize = 16;
const END: &[u8] = b"\"}";

/// The line of `event`, with its end.
///
/// # Panics
/// Never: an event can be written as JSON.
#[must_use]
pub fn write(event: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(event).expect("an event can be written as JSON");
    line.pop(); // its last brace
    let sum = format!("{FIELD}{:016x}\"}}\n", xxh3_64(&line));
    line.extend(sum.bytes());
    line
}

/// The event of a line without its end.
///
/// # Errors
/// Where the line is not one, or damaged.
pub fn read<T: DeserializeOwned>(line: &[u8]) -> Result<T, serde_json::Error> {
    let event = serde_json::from_slice(line)?;
    if let Some((text, sum)) = summed(line)
        && format!("{:016x}", xxh3_64(text)).as_bytes() != sum
    {
        return Err(serde_json::Error::custom("its checksum is that of other text"));
    }
    Ok(event)
}

/// What is before the checksum, and the checksum.
fn summed(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_suffix(END)?;
    let (rest, sum) = rest.split_at_checked(rest.len().checked_sub(DIGITS)?)?;
    Some((rest.strip_suffix(FIELD.as_bytes())?, sum))
}

#[cfg(test)]
mod tests {
    use coswitch_policies::{JobId, NodeId, Residence, SimTime};

    use super::{
        super::{Event, RunEvent},
        *,
    };

    #[test]
    fn every_changed_byte_of_an_event_is_found() {
        let resident = Event::JobOutgrew {
            job: JobId(1),
            node: NodeId(0),
            resident: coswitch_policies::Bytes(77),
            capacity: coswitch_policies::Bytes(70),
        };
        let event = RunEvent { at: SimTime(5), kind: resident };
        let line = write(&event);
        let line = line.strip_suffix(b"\n").unwrap();
        assert_eq!(read::<RunEvent>(line).unwrap(), event);
        let (text, _) = summed(line).unwrap();
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut changed = line.to_owned();
                changed[at] ^= 1 << bit;
                assert!(read::<RunEvent>(&changed).is_err(), "{}", String::from_utf8_lossy(&changed));
            }
        }
    }

    /// A field that is named as one of the line itself cannot be read back.
    #[test]
    fn a_displaced_job_is_read_back() {
        let kind = Event::JobDisplaced { job: JobId(1), residence: Residence::Parked };
        let event = RunEvent { at: SimTime(5), kind };
        let line = write(&event);
        assert_eq!(read::<RunEvent>(line.strip_suffix(b"\n").unwrap()).unwrap(), event);
    }

    #[test]
    fn a_line_of_an_earlier_version_has_no_checksum() {
        let event: RunEvent = read(br#"{"at":5,"kind":"job-running","job":2}"#).unwrap();
        assert_eq!(event, RunEvent { at: SimTime(5), kind: Event::JobRunning { job: JobId(2) } });
    }
}
