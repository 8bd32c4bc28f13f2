//! Slurm's lists of hosts, `n[0-3,7],login1`: pure.

/// The most hosts that a list is expanded to: a range that is mistyped shall not fill memory.
const MOST: usize = 65_536;

/// Expands a list of hosts in the order of the list; `None` where it is none.
pub(super) fn expand(list: &str) -> Option<Vec<String>> {
    let mut hosts = Vec::new();
    for word in split(list)? {
        let expanded = expand_word(word)?;
        if hosts.len() + expanded.len() > MOST {
            return None;
        }
        hosts.extend(expanded);
    }
    (!hosts.is_empty()).then_some(hosts)
}

/// The words between commas that are not in brackets.
fn split(list: &str) -> Option<Vec<&str>> {
    let (mut words, mut begin, mut is_inside) = (Vec::new(), 0, false);
    for (at, character) in list.char_indices() {
        match character {
            '[' if !is_inside => is_inside = true,
            ']' if is_inside => is_inside = false,
            '[' | ']' => return None,
            ',' if !is_inside => {
                words.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    words.push(&list[begin..]);
    let is_whole = !is_inside && words.iter().all(|word| !word.is_empty());
    is_whole.then_some(words)
}

/// A name with any number of brackets: the last one counts fastest.
fn expand_word(word: &str) -> Option<Vec<String>> {
    let Some((prefix, rest)) = word.split_once('[') else { return Some(vec![word.to_owned()]) };
    let (ranges, suffix) = rest.split_once(']')?;
    let (numbers, ends) = (expand_ranges(ranges)?, expand_word(suffix)?);
    if numbers.len().checked_mul(ends.len())? > MOST {
        return None;
    }
    let with_ends = |number: &String| {
        let begin = format!("{prefix}{number}");
        ends.iter().map(|end| format!("{begin}{end}")).collect::<Vec<_>>()
    };
    Some(numbers.iter().flat_map(with_ends).collect())
}

/// `0-3,07`: numbers keep their leading zeros.
fn expand_ranges(ranges: &str) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(first) || !is_number(last) {
            return None;
        }
        let (from, to) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if to < from || to - from >= MOST {
            return None;
        }
        let width = first.len();
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_expanded_in_its_order() {
        for (list, hosts) in [
            ("n0", "n0"),
            ("n[0-2]", "n0 n1 n2"),
            ("n[08-10,3],login-1", "n08 n09 n10 n3 login-1"),
            ("rack[1-2]n[01-02]x,z", "rack1n01x rack1n02x rack2n01x rack2n02x z"),
            ("a,b[7]", "a b7"),
        ] {
            assert_eq!(expand(list).map(|all| all.join(" ")).as_deref(), Some(hosts), "{list}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for list in
            ["", ",", "n[", "n]", "n[]", "n[3-1]", "n[a-b]", "n[1,]", "n[[1]]", "n[0-99999999]", "a,,b"]
        {
            assert_eq!(expand(list), None, "{list}");
        }
    }
}
