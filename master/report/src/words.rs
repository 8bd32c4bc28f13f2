//! Numbers with their units, lists and plurals, in words.

use std::time::Duration;

use coswitch_policies::{Bytes, Capacity, SimTime};

/// `12.3 s`, or a smaller unit below a tenth of a second.
#[must_use]
pub fn seconds(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    match seconds {
        0.0 => "0 s".into(),
        seconds if seconds < 0.001 => format!("{:.0} µs", seconds * 1e6),
        seconds if seconds < 0.1 => format!("{:.0} ms", seconds * 1e3),
        seconds => format!("{seconds:.1} s"),
    }
}

/// `41 s`, `12 min 5 s`, `3 h 20 min`; below ten seconds with a tenth.
#[must_use]
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs_f64().round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) if seconds < 10 => format!("{:.1} s", span.as_secs_f64()),
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, 0) => format!("{minutes} min"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, 0, _) => format!("{hours} h"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// `448 MiB`.
#[must_use]
pub fn bytes(bytes: Bytes) -> String {
    let text = bytes.to_string();
    let unit = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..])
}

/// `448 MiB`, or from the least of a node to the most.
#[must_use]
pub fn capacity(capacity: &Capacity) -> String {
    match capacity {
        Capacity::OfAll(each) => bytes(*each),
        Capacity::OfEach(all) => {
            format!(
                "{} to {}",
                bytes(all.iter().copied().min().unwrap_or_default()),
                bytes(capacity.largest())
            )
        }
    }
}

/// `9.6 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// `a`, `a and b`, `a, b and c`.
#[must_use]
pub fn list(words: &[String]) -> String {
    match words {
        [] => "none".into(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `1 job`, `2 jobs`.
pub fn plural(number: usize, noun: &str) -> String {
    let end = match (number, noun) {
        (1, _) => "",
        (_, noun) if noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{number} {noun}{end}")
}

/// Seconds from the start of the run, to the millisecond.
pub(crate) fn clock(at: SimTime) -> f64 {
    (at.0 / 1_000_000) as f64 / 1e3
}

/// Mebibytes, to a tenth.
pub(crate) fn mib(bytes: Bytes) -> f64 {
    (bytes.0.saturating_mul(10) >> 20) as f64 / 10.0
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_span_has_two_units_at_most() {
        let span = |seconds: f64| super::span(std::time::Duration::from_secs_f64(seconds));
        assert_eq!(
            [0.04, 9.96, 41.2, 60.0, 725.0, 7200.4, 12_000.0].map(span),
            ["0.0 s", "10 s", "41 s", "1 min", "12 min 5 s", "2 h", "3 h 20 min"]
        );
    }

    use super::*;

    #[test]
    fn numbers_are_written_with_their_units() {
        assert_eq!(bytes(Bytes::mib(448)), "448 MiB");
        let spans = [0, 250, 12_000, 12_340_000].map(|micros| seconds(Duration::from_micros(micros)));
        assert_eq!(spans, ["0 s", "250 µs", "12 ms", "12.3 s"]);
        assert_eq!(list(&["a", "b", "c"].map(String::from)), "a, b and c");
        assert_eq!([plural(1, "switch"), plural(2, "switch")], ["1 switch", "2 switches"]);
    }
}
