//! The colours of jobs: one hue for each kind of job, one of four shades of it for each job.

use std::collections::{BTreeMap, BTreeSet};

use coswitch_policies::JobId;
use serde::Serialize;

/// The hues of kinds, in order of appearance. Vermilion marks exposed steps.
const HUES: [u32; 8] = [255, 160, 310, 90, 205, 345, 130, 280];
const SHADES: usize = 4;

/// The colours of all jobs on a page, by name, so that a job looks the same in every run.
#[derive(Debug, Default)]
pub(super) struct Palette {
    jobs: Vec<Colour>,
}

#[derive(Debug, Serialize)]
struct Colour {
    name: String,
    kind: String,
    /// Counts the jobs of the kind.
    number: usize,
}

impl Palette {
    pub(super) fn of(names: impl IntoIterator<Item = String>) -> Self {
        let mut palette = Self::default();
        for name in names {
            if palette.jobs.iter().all(|colour| colour.name != name) {
                let kind = kind(&name).to_string();
                let number = palette.jobs.iter().filter(|other| other.kind == kind).count();
                palette.jobs.push(Colour { name, kind, number });
            }
        }
        palette
    }

    /// The index of a job's colour.
    pub(super) fn index(&self, name: &str) -> usize {
        self.jobs.iter().position(|colour| colour.name == name).unwrap_or_default()
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.jobs.iter().map(|colour| colour.name.as_str()).collect()
    }

    /// The colours as CSS: `--j0`, `--j1` and so on. White text is legible on them in light mode, black in
    /// dark mode.
    pub(super) fn css(&self) -> String {
        let mut kinds: Vec<&str> = Vec::new();
        let mut css = String::from(":root{");
        for (index, colour) in self.jobs.iter().enumerate() {
            if !kinds.contains(&colour.kind.as_str()) {
                kinds.push(&colour.kind);
            }
            let place = kinds.iter().position(|kind| *kind == colour.kind).unwrap_or_default();
            css.push_str(&format!("--j{index}:{};", shade(place % HUES.len(), colour.number % SHADES)));
        }
        css.push('}');
        css
    }
}

/// One shade of a hue, in light and dark mode.
fn shade(hue: usize, shade: usize) -> String {
    let (hue, light, dark) = (HUES[hue], 54 - 6 * shade, 78 - 6 * shade);
    format!("light-dark(oklch({light}% .125 {hue}),oklch({dark}% .105 {hue}))")
}

/// The colours of the living jobs of a cluster, as classes of CSS: jobs of a kind share a hue for as long as
/// one of them lives.
#[derive(Debug, Default)]
pub struct LiveColours {
    hues: BTreeMap<String, usize>,
}

impl LiveColours {
    /// A class for each hue and shade; the class sets `--j`.
    #[must_use]
    pub fn css() -> String {
        let all = (0..HUES.len()).flat_map(|hue| (0..SHADES).map(move |of| (hue, of)));
        all.map(|(hue, of)| format!(".h{hue}s{of}{{--j:{}}}", shade(hue, of))).collect()
    }

    /// Gives each kind of these names a hue, and takes away those of other kinds.
    pub fn live<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let kinds: BTreeSet<&str> = names.into_iter().map(kind).collect();
        self.hues.retain(|kind, _| kinds.contains(kind.as_str()));
        for kind in kinds {
            if !self.hues.contains_key(kind) {
                let users = |hue: &usize| self.hues.values().filter(|used| *used == hue).count();
                let hue = (0..HUES.len()).min_by_key(|hue| (users(hue), *hue)).unwrap_or_default();
                self.hues.insert(kind.into(), hue);
            }
        }
    }

    /// The class of a job.
    #[must_use]
    pub fn class(&self, name: &str, JobId(number): JobId) -> String {
        // A kind without a living job is about to leave the page.
        let hue = self.hues.get(kind(name)).copied().unwrap_or_default();
        format!("h{hue}s{}", number as usize % SHADES)
    }
}

/// The name without the number that `count:` adds: `heat` for `heat-3`.
fn kind(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((kind, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            kind
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_a_kind_share_a_hue_and_differ_in_shade() {
        let palette = Palette::of(["heat-1", "heat-2", "ring-check", "heat-1"].map(String::from));
        assert_eq!(palette.names(), ["heat-1", "heat-2", "ring-check"]);
        let css = palette.css();
        let colours: Vec<&str> = css.split(';').collect();
        assert!(colours[0].contains("54% .125 255") && colours[1].contains("48% .125 255"), "{css}");
        assert!(colours[2].contains("54% .125 160"), "{css}");
    }

    #[test]
    fn a_kind_keeps_its_hue_while_it_lives_and_leaves_it_to_another() {
        let mut colours = LiveColours::default();
        let class = |colours: &LiveColours, name| colours.class(name, JobId(5));
        colours.live(["heat-1", "heat-2", "cg"]);
        assert_eq!((class(&colours, "cg"), class(&colours, "heat-2")), ("h0s1".into(), "h1s1".into()));
        colours.live(["heat-2", "ring"]);
        assert_eq!((class(&colours, "ring"), class(&colours, "heat-2")), ("h0s1".into(), "h1s1".into()));
        assert_eq!(LiveColours::css().matches("--j:").count(), HUES.len() * SHADES);
    }
}
