//! The colours of jobs: one hue for each kind of job, one of four shades of it for each job.

use serde::Serialize;

/// The hues of kinds, in order of appearance. Vermilion marks exposed steps.
const HUES: [u32; 8] = [255, 160, 310, 90, 205, 345, 130, 280];

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
            let hue = HUES[place % HUES.len()];
            let light = 54 - 6 * (colour.number % 4);
            let dark = 78 - 6 * (colour.number % 4);
            css.push_str(&format!(
                "--j{index}:light-dark(oklch({light}% .125 {hue}),oklch({dark}% .105 {hue}));"
            ));
        }
        css.push('}');
        css
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
}
