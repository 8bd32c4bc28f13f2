//! The machine that a snapshot was made on, as far as its tree depends on that.
//!
//! A program looks once at what its processor can do, and then uses it: on a processor that lacks something
//! of that it would be ended in the middle of its work. So a snapshot has a list, and is not restored where
//! one of the list is missing. A kernel, on the other hand, that cannot restore it makes CRIU fail, before
//! any of the tree runs.

use std::collections::BTreeSet;
use std::fs;
use std::sync::OnceLock;

/// How the names begin that `/proc/cpuinfo` has for instructions and registers of programs. The others are of
/// the kernel, or tell of flaws, and may change with an update.
const OF_PROGRAMS: [&str; 38] = [
    "3dnow", "abm", "adx", "aes", "amx", "apx", "asimd", "atomics", "avx", "bf16", "bmi", "cldemote",
    "clflush", "clwb", "clzero", "cmov", "cx16", "cx8", "erms", "f16c", "fma", "fp", "fsgsbase", "gfni",
    "lahf_lm", "mmx", "movbe", "movdir", "pclmul", "pni", "popcnt", "rd", "sha", "sse", "ssse", "sve",
    "vaes", "vpclmul",
];
/// What a snapshot with them needs elsewhere, although their names begin otherwise.
const ALSO: [&str; 6] = ["fxsr", "ospke", "pku", "rtm", "xsave", "xop"];

/// What the processors of this machine can do for programs.
pub(crate) fn features() -> &'static BTreeSet<String> {
    static FEATURES: OnceLock<BTreeSet<String>> = OnceLock::new();
    FEATURES.get_or_init(|| listed(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()))
}

/// What all processors have that `/proc/cpuinfo` lists.
fn listed(cpuinfo: &str) -> BTreeSet<String> {
    let is_of_programs =
        |name: &&str| ALSO.contains(name) || OF_PROGRAMS.iter().any(|begin| name.starts_with(begin));
    let of_line = |line: &str| -> Option<BTreeSet<String>> {
        let (name, values) = line.split_once(':')?;
        let lists = matches!(name.trim(), "flags" | "Features");
        lists.then(|| values.split_whitespace().filter(is_of_programs).map(str::to_owned).collect())
    };
    cpuinfo.lines().filter_map(of_line).reduce(|all, of_one| &all & &of_one).unwrap_or_default()
}

/// What of these is missing here, where something is known of both.
pub(crate) fn missing<'a>(needed: &'a BTreeSet<String>, here: &BTreeSet<String>) -> Vec<&'a str> {
    let lacks = |name: &&String| !here.is_empty() && !here.contains(*name);
    needed.iter().filter(lacks).map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_processors_have_for_programs_is_listed() {
        let text = "processor : 0\nflags\t\t: fpu cx8 sse2 avx512f md_clear xsave ibrs\nbugs : spectre\n\
                    processor : 1\nflags\t\t: fpu cx8 sse2 xsave ibrs\n";
        assert_eq!(listed(text).into_iter().collect::<Vec<_>>(), ["cx8", "fpu", "sse2", "xsave"]);
        assert_eq!(listed("Features\t: fp asimd evtstrm\n").len(), 2);
        assert!(!features().is_empty(), "this machine has some");
    }

    #[test]
    fn only_what_is_known_to_be_missing_is() {
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        assert_eq!(missing(&set(&["avx2", "sse2"]), &set(&["sse2"])), ["avx2"]);
        assert!(missing(&set(&["avx2"]), &set(&[])).is_empty(), "nothing is known of this machine");
        assert!(missing(&set(&[]), &set(&["sse2"])).is_empty(), "nor of that one");
    }
}
