//! Figures and their bounds, as text or as JSON.

use std::{
    fmt,
    io::{self, Write},
};

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// One measured figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    name: String,
    figure: f64,
    unit: &'static str,
    bound: Option<Bound>,
    met: Option<bool>,
    /// Its parts, in words.
    detail: String,
}

impl Figure {
    pub(crate) fn bounded(name: impl Into<String>, figure: f64, unit: &'static str, bound: Bound) -> Self {
        let met = match bound {
            Bound::AtMost(limit) => figure <= limit,
            Bound::AtLeast(limit) => figure >= limit,
        };
        Self { name: name.into(), figure, unit, bound: Some(bound), met: Some(met), detail: String::new() }
    }

    pub(crate) fn plain(name: impl Into<String>, figure: f64, unit: &'static str) -> Self {
        Self { name: name.into(), figure, unit, bound: None, met: None, detail: String::new() }
    }

    pub(crate) fn of(self, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..self }
    }

    /// Whether it has a bound and misses it. NaN misses every bound.
    pub(crate) fn is_missed(&self) -> bool {
        self.met == Some(false)
    }
}

/// Load of the machine, without which no figure can be judged.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Conditions {
    processors: usize,
    load_before: String,
}

impl Conditions {
    pub(crate) fn now() -> Self {
        Self { processors: std::thread::available_parallelism().map_or(0, usize::from), load_before: load() }
    }
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

pub(crate) fn print(figures: &[Figure], conditions: &Conditions, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        let all = serde_json::json!({ "conditions": conditions, "load_after": load(), "figures": figures });
        return writeln!(out, "{all:#}");
    }
    writeln!(out, "{:<4} {:<72} {:>12}  bound", "met", "target", "figure")?;
    figures.iter().try_for_each(|figure| write!(out, "{figure}"))?;
    let Conditions { processors, load_before } = conditions;
    writeln!(out, "{processors} processors; load average {load_before} before, {} after", load())
}

/// Two lines: verdict and detail.
impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let met = self.met.map_or("-", |met| if met { "yes" } else { "NO" });
        let bound = match self.bound {
            Some(Bound::AtMost(limit)) => format!("<= {limit}"),
            Some(Bound::AtLeast(limit)) => format!(">= {limit}"),
            None => "-".into(),
        };
        let figure = format!("{:.2} {}", self.figure, self.unit);
        writeln!(f, "{met:<4} {:<72} {figure:>12}  {bound}", self.name)?;
        if self.detail.is_empty() { Ok(()) } else { writeln!(f, "       {}", self.detail) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_met_on_its_edge_and_missed_beyond_it() {
        let met = |figure, bound| !Figure::bounded("x", figure, "", bound).is_missed();
        assert!(met(2.5, Bound::AtMost(2.5)) && !met(2.51, Bound::AtMost(2.5)));
        assert!(met(0.9, Bound::AtLeast(0.9)) && !met(0.89, Bound::AtLeast(0.9)));
        assert!(!met(f64::NAN, Bound::AtMost(1.0)) && !met(f64::NAN, Bound::AtLeast(1.0)));
        assert!(!Figure::plain("x", 9e9, "").is_missed());
    }
}
