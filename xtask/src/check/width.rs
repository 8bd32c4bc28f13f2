//! Width of lines: rustfmt leaves comments and strings alone, so that they can exceed its limit.

use super::Finding;
use super::tree::Text;
use anyhow::{Context, Result};
use std::path::Path;

/// Reads `max_width` of `rustfmt.toml`, in columns.
pub(super) fn limit(root: &Path) -> Result<usize> {
    let text = std::fs::read_to_string(root.join("rustfmt.toml")).context("cannot read rustfmt.toml")?;
    let value = text.lines().find_map(|line| line.strip_prefix("max_width")?.trim().strip_prefix('='));
    value.and_then(|value| value.trim().parse().ok()).context("rustfmt.toml sets no max_width")
}

/// Finds the lines of Rust sources that are wider than `limit`.
pub(super) fn check(texts: &[Text], limit: usize) -> Vec<Finding> {
    let sources = texts.iter().filter(|text| text.has_ending("rs"));
    sources.flat_map(|source| check_file(source, limit)).collect()
}

fn check_file(source: &Text, limit: usize) -> impl Iterator<Item = Finding> {
    let lines = source.text.lines().enumerate().map(|(index, line)| (index, line, line.chars().count()));
    let wide = lines.filter(move |(_, line, columns)| *columns > limit && !is_excepted(line));
    wide.map(move |(index, _, columns)| {
        Finding::in_line(&source.path, index, format!("{columns} columns; the limit is {limit}"))
    })
}

/// A line break would spoil an address.
fn is_excepted(line: &str) -> bool {
    line.contains("https://") || line.contains("http://")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide_lines(name: &str, text: &str) -> Vec<String> {
        let text = Text { path: name.into(), text: text.to_owned() };
        check(&[text], 20).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn comments_and_strings_count_like_code() {
        let text = "let short = 1;\n// a comment that is too wide\nlet s = \"a wide string\";\n";
        let expected = ["a.rs:2: 29 columns; the limit is 20", "a.rs:3: 24 columns; the limit is 20"];
        assert_eq!(wide_lines("a.rs", text), expected);
    }

    #[test]
    fn columns_are_characters_and_not_bytes() {
        assert_eq!(wide_lines("a.rs", "// ääääääääääääääääü\n"), [""; 0]);
        assert_eq!(wide_lines("a.rs", "// ääääääääääääääääüü\n").len(), 1);
    }

    #[test]
    fn addresses_and_other_languages_may_be_wide() {
        assert_eq!(wide_lines("a.rs", "// https://example.org/a/long/path\n"), [""; 0]);
        assert_eq!(wide_lines("a.md", "a line of Markdown of any width\n"), [""; 0]);
    }

    #[test]
    fn the_limit_is_that_of_rustfmt() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert_eq!(limit(root).unwrap(), 110);
    }
}
