//! Name patterns: `*` matches any number of characters.

/// Whether `name` matches `pattern`. O(pattern · name) in the worst case.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(head) else {
        return false;
    };
    let Some((middle, tail)) = rest.rsplit_once('*') else {
        return name.ends_with(rest);
    };
    for part in middle.split('*') {
        match name.find(part) {
            Some(at) => name = &name[at + part.len()..],
            None => return false,
        }
    }
    name.ends_with(tail)
}

/// Whether `name` matches one of `patterns`.
pub fn any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|p| matches(p, name))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_match_any_run_of_characters() {
        for (pattern, name, want) in [
            ("get", "get", true),
            ("get", "get-2", false),
            ("solo-*", "solo-relay1", true),
            ("solo-*", "solo", false),
            ("*-curl-*", "solo-curl-r1", true),
            ("*-curl-*", "solo-get-r1", false),
            ("a*b", "ab", true),
            ("ab*ba", "aba", false),
            ("*", "", true),
            ("a*b*a", "aba", true),
            ("a*a*a", "aa", false),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} {name}");
        }
    }
}
