//! Units shared by all crates: bytes, link rates, points in time. No bare integer crosses a module boundary.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Reads and prints binary units (`512MiB`); reads decimal units (`1GB`) as such.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// The sum, or the largest value on overflow: a sum of memory never wraps to "fits".
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The product, or the largest value on overflow.
    #[must_use]
    pub const fn times(self, n: u32) -> Self {
        Self(self.0.saturating_mul(n as u64))
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self(0), Self::saturating_add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 4] =
            [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match UNITS.iter().find(|(_, size)| self.0 >= *size) {
            Some((unit, size)) if self.0.is_multiple_of(*size) => write!(f, "{}{unit}", self.0 / size),
            Some((unit, size)) => write!(f, "{:.1}{unit}", self.0 as f64 / *size as f64),
            None => write!(f, "{}B", self.0),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnitError {
    #[error("`{0}` does not begin with a number; write for example `{1}`")]
    NoNumber(String, &'static str),
    #[error("`{0}` has no unit; write for example `{1}`")]
    NoUnit(String, &'static str),
    #[error("`{unit}` in `{text}` is not a unit known here; use one of {known}")]
    UnknownUnit { text: String, unit: String, known: &'static str },
    #[error("`{0}` is too large")]
    TooLarge(String),
}

fn split_unit<'a>(
    text: &'a str,
    example: &'static str,
    known: &'static str,
    units: &[(&str, f64)],
) -> Result<(&'a str, f64), UnitError> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim());
    if number.parse::<f64>().is_err() {
        return Err(UnitError::NoNumber(text.into(), example));
    }
    if unit.is_empty() {
        return Err(UnitError::NoUnit(text.into(), example));
    }
    units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))
        .map(|(_, scale)| (number, *scale))
        .ok_or_else(|| UnitError::UnknownUnit { text: text.into(), unit: unit.into(), known })
}

fn scaled(text: &str, number: &str, scale: f64) -> Result<u64, UnitError> {
    let value = number.parse::<f64>().expect("checked by split_unit") * scale;
    if value < 9.0e18 { Ok(value.round() as u64) } else { Err(UnitError::TooLarge(text.into())) }
}

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const KNOWN: &str = "B, KiB, MiB, GiB, TiB, KB, MB, GB, TB";
        const UNITS: &[(&str, f64)] = &[
            ("B", 1.0),
            ("KiB", 1024.0),
            ("MiB", 1_048_576.0),
            ("GiB", 1_073_741_824.0),
            ("TiB", 1_099_511_627_776.0),
            ("KB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("TB", 1e12),
        ];
        let (number, scale) = split_unit(text, "512MiB", KNOWN, UNITS)?;
        scaled(text, number, scale).map(Self)
    }
}

/// Bits per second of a link. Reads and prints decimal units, as usual for network rates (`100Mbit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub u64);

impl FromStr for Rate {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: &[(&str, f64)] = &[("bit", 1.0), ("kbit", 1e3), ("Mbit", 1e6), ("Gbit", 1e9)];
        let (number, scale) = split_unit(text, "100Mbit", "bit, kbit, Mbit, Gbit", UNITS)?;
        scaled(text, number, scale).map(Self)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n >= 1_000_000_000 && n % 1_000_000_000 == 0 => write!(f, "{}Gbit", n / 1_000_000_000),
            n if n >= 1_000_000 && n % 1_000_000 == 0 => write!(f, "{}Mbit", n / 1_000_000),
            n if n >= 1_000 && n % 1_000 == 0 => write!(f, "{}kbit", n / 1_000),
            n => write!(f, "{n}bit"),
        }
    }
}

/// Reads a length of time such as `10s`, `250ms`, `5min`, `1h`.
///
/// # Errors
/// Where the number or the unit is missing or unknown.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    const UNITS: &[(&str, f64)] =
        &[("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("m", 60e9), ("h", 3600e9), ("d", 86_400e9)];
    let (number, scale) = split_unit(text, "10s", "us, ms, s, min, h, d", UNITS)?;
    scaled(text, number, scale).map(Duration::from_nanos)
}

/// A point in time: nanoseconds since the run began. Policies get it as an argument and have no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SimTime(pub u64);

impl SimTime {
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time `span` earlier, but not before the beginning.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The span since `earlier`; zero where `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl From<Duration> for SimTime {
    fn from(span: Duration) -> Self {
        Self(0).after(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_back_what_they_print() {
        for text in ["512MiB", "1GiB", "3KiB", "7B"] {
            assert_eq!(text.parse::<Bytes>().unwrap().to_string(), text);
        }
        assert_eq!("1GB".parse::<Bytes>(), Ok(Bytes(1_000_000_000)));
        assert_eq!("100Mbit".parse::<Rate>().unwrap().to_string(), "100Mbit");
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
    }

    #[test]
    fn a_wrong_unit_is_reported_with_the_right_ones() {
        assert_eq!(
            "5parsec".parse::<Bytes>().unwrap_err().to_string(),
            "`parsec` in `5parsec` is not a unit known here; use one of B, KiB, MiB, GiB, TiB, KB, MB, GB, TB"
        );
        assert_eq!(
            "512".parse::<Bytes>().unwrap_err().to_string(),
            "`512` has no unit; write for example `512MiB`"
        );
        assert!(matches!("MiB".parse::<Bytes>(), Err(UnitError::NoNumber(..))));
        assert!(matches!("99999999999TiB".parse::<Bytes>(), Err(UnitError::TooLarge(_))));
    }
}
