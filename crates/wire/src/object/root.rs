//! Requested paths: a path on the serving host, or a pattern for paths.

/// The characters that make a path a pattern; `[*]` matches a literal star.
const WILD: [u8; 3] = *b"*?[";

/// The path that a root's entries are relative to: the path itself without its final `/`; for a pattern, the directory
/// above its first component with `*`, `?` or `[`.
///
/// `/data/set` and `/data/set/` give `/data/set`; `/data/run-*/log` gives `/data`, and
/// its entries are `run-1/log`, …
pub fn base(root: &[u8]) -> &[u8] {
    let before = match root.iter().position(|letter| WILD.contains(letter)) {
        Some(wild) => root[..wild].rsplitn(2, |letter| *letter == b'/').nth(1).unwrap_or(b""),
        None => root,
    };
    trim(before)
}

/// The components of a pattern below its [`base`]; `None`: the root is a plain path.
pub fn pattern(root: &[u8]) -> Option<Vec<&[u8]>> {
    root.iter().position(|letter| WILD.contains(letter))?;
    let below = &trim(root)[base(root).len()..];
    Some(below.split(|letter| *letter == b'/').filter(|part| !part.is_empty()).collect())
}

fn trim(mut path: &[u8]) -> &[u8] {
    while let Some(shorter) = path.strip_suffix(b"/") {
        path = shorter;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_of_a_pattern_is_above_its_first_wildcard() {
        for (root, above, parts) in [
            ("/data/set", "/data/set", None),
            ("/data/set//", "/data/set", None),
            ("/", "", None),
            ("/data/*", "/data", Some(vec!["*"])),
            ("/data/run-?/a/**/", "/data", Some(vec!["run-?", "a", "**"])),
            ("/*", "", Some(vec!["*"])),
            ("/data/[*]", "/data", Some(vec!["[*]"])),
            ("*", "", Some(vec!["*"])),
        ] {
            assert_eq!(base(root.as_bytes()), above.as_bytes(), "{root}");
            let parts = parts.map(|p| p.into_iter().map(str::as_bytes).collect::<Vec<_>>());
            assert_eq!(pattern(root.as_bytes()), parts, "{root}");
        }
    }
}
