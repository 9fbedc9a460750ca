//! Exclude patterns with the semantics of `rsync --exclude` (rsync(1), FILTER RULES and PATTERN MATCHING RULES).

use super::wild::{From, Wild};
use thalweg_wire::object::Failure;

/// The most patterns, since each is compared with each path. More are an error.
const MAX_PATTERNS: usize = 1000;

/// The most bytes of all patterns: a path of 4 KiB is compared with this many in some tens of milliseconds.
const MAX_BYTES: usize = 64 << 10;

/// A list of exclude patterns. The first pattern that matches a path decides; an excluded directory is excluded with
/// everything below it.
///
/// A pattern with a `/` before its end is matched with as many of the last components of a path as it has itself. If it
/// begins with `/`, it is matched with the whole path; if it contains `**`, it may begin behind any `/`. A pattern
/// without `/` is matched with the last component. A final `/` restricts a pattern to directories; a final `/***`
/// matches a directory and everything in it. Without `*`, `?` and `[` a backslash is an ordinary character. `+ ` before
/// a pattern includes what it matches, `- ` excludes it like no prefix, and `!` alone clears all earlier patterns. An
/// empty pattern matches nothing.
#[derive(Clone, Debug, Default)]
pub struct Excludes(Vec<Rule>);

#[derive(Clone, Debug)]
struct Rule {
    is_taken: bool,
    /// Whether it matches only directories.
    directories: bool,
    text: Text,
    scope: Scope,
    /// Set for `**` at the beginning: a `/` is put before the path, so that `**/x` also matches a first component `x`.
    with_first_slash: bool,
    /// Set for `***` at the end: a `/` is put behind a directory's path.
    with_last_slash: bool,
}

#[derive(Clone, Debug)]
enum Text {
    Letters(Vec<u8>),
    Wild(Wild),
}

/// The part of a path that is compared with the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Whole,
    /// This many of the last components, if the path has as many.
    Last(usize),
    /// The whole path, or any part of it that begins behind a `/`.
    BehindAny,
}

/// Checks that these exclude patterns are valid.
///
/// # Errors
/// Names the invalid pattern and the reason.
pub fn check_excludes(patterns: &[Vec<u8>]) -> Result<(), String> {
    let failed = |why| match why {
        Failure::System(why) => why,
        other => other.to_string(),
    };
    Excludes::new(patterns).map(drop).map_err(failed)
}

impl Excludes {
    /// Creates the list from patterns in their order.
    ///
    /// # Errors
    /// [`Failure::System`] if there are too many patterns, or if a prefix has no pattern behind it.
    pub fn new(patterns: &[Vec<u8>]) -> Result<Self, Failure> {
        let bytes: usize = patterns.iter().map(Vec::len).sum();
        if patterns.len() > MAX_PATTERNS || bytes > MAX_BYTES {
            return Err(Failure::System(format!(
                "there are more than {MAX_PATTERNS} patterns to exclude, or more than {} KiB of them",
                MAX_BYTES >> 10
            )));
        }
        let mut rules = Vec::new();
        for pattern in patterns {
            match &pattern[..] {
                b"" => {}
                b"!" => rules.clear(),
                b"- " | b"+ " => {
                    let shown = pattern.escape_ascii();
                    return Err(Failure::System(format!(
                        "pattern `{shown}`: nothing follows the prefix"
                    )));
                }
                pattern => rules.push(Rule::new(pattern)),
            }
        }
        Ok(Self(rules))
    }

    /// Whether this path is excluded. The path begins with the name of the requested file or directory, without a
    /// leading `/`.
    pub fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
        let first = self.0.iter().find(|rule| rule.is_met(path, is_directory));
        first.is_some_and(|rule| !rule.is_taken)
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Rule {
    fn new(pattern: &[u8]) -> Self {
        let (is_taken, pattern) = match pattern {
            [b'+', b' ', rest @ ..] => (true, rest),
            [b'-', b' ', rest @ ..] => (false, rest),
            pattern => (false, pattern),
        };
        let directories = pattern.len() > 1 && pattern.ends_with(b"/");
        let pattern = if directories { &pattern[..pattern.len() - 1] } else { pattern };
        let slashes = pattern.iter().filter(|letter| **letter == b'/').count();
        let stars = pattern.windows(2).position(|two| two == b"**");
        let anchored = pattern.strip_prefix(b"/");
        let scope = match (anchored.is_some(), stars, slashes) {
            (true, ..) | (_, Some(0), _) => Scope::Whole,
            (_, Some(_), _) => Scope::BehindAny,
            (_, None, slashes) => Scope::Last(slashes + 1),
        };
        let letters = anchored.unwrap_or(pattern);
        let is_wild = pattern.iter().any(|letter| matches!(letter, b'*' | b'?' | b'['));
        Self {
            is_taken,
            directories,
            text: match is_wild {
                true => Text::Wild(Wild::new(letters)),
                false => Text::Letters(letters.to_vec()),
            },
            scope,
            with_first_slash: stars == Some(0),
            with_last_slash: stars.is_some() && pattern.ends_with(b"***"),
        }
    }

    fn is_met(&self, path: &[u8], is_directory: bool) -> bool {
        if path.is_empty() || (self.directories && !is_directory) {
            return false;
        }
        let Some(path) = self.compared(path) else { return false };
        let wild = match &self.text {
            Text::Letters(letters) => return path == letters,
            Text::Wild(wild) => wild,
        };
        let slash = |is_there: bool| if is_there { &b"/"[..] } else { b"" };
        let pieces =
            [slash(self.with_first_slash), path, slash(self.with_last_slash && is_directory)];
        let from = if self.scope == Scope::BehindAny { From::AnyPart } else { From::Start };
        wild.is_match(&pieces, from)
    }

    /// The part of the path that is compared; `None` if the path has too few components.
    fn compared<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let Scope::Last(parts) = self.scope else { return Some(path) };
        let mut slashes = path.iter().enumerate().rev().filter(|(_, letter)| **letter == b'/');
        match slashes.nth(parts - 1) {
            Some((at, _)) => Some(&path[at + 1..]),
            None => {
                let has = 1 + path.iter().filter(|letter| **letter == b'/').count();
                (has == parts).then_some(path)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excludes(patterns: &[&str]) -> Excludes {
        let patterns: Vec<_> = patterns.iter().map(|p| p.as_bytes().to_vec()).collect();
        Excludes::new(&patterns).unwrap()
    }

    #[test]
    fn paths_are_excluded_as_by_rsync() {
        for (pattern, path, is_directory, out) in [
            ("*.o", "set/a/x.o", false, true),
            ("*.o", "set/x.oo", false, false),
            ("cache", "set/a/cache", true, true),
            ("cache/", "set/a/cache", true, true),
            ("cache/", "set/a/cache", false, false),
            ("/set/tmp", "set/tmp", true, true),
            ("/tmp", "set/tmp", true, false),
            ("a/b", "set/x/a/b", false, true),
            ("a/b", "set/xa/b", false, false),
            ("a/*/c", "set/a/b/c", false, true),
            ("a/*/c", "set/a/b/b/c", false, false),
            ("a/**/c", "set/a/b/b/c", false, true),
            ("a/**/c", "set/a/c", false, false),
            ("a**c", "set/ab/bc", false, true),
            ("**/set", "set", true, true),
            ("set", "set", true, true),
            ("a/***", "set/a", true, true),
            ("a/***", "set/a", false, false),
            ("a/**", "set/a", true, false),
            ("/**", "set", true, true),
            ("", "set", true, false),
            ("/", "set", true, false),
            ("{a,b}", "set/a", false, false),
            ("{a,b}", "set/{a,b}", false, true),
            ("a\\b", "set/a\\b", false, true),
            ("a\\b*", "set/a\\b", false, false),
            ("a\\b*", "set/ab", false, true),
            ("x[[:digit:]]", "set/x7", false, true),
            ("- x", "set/x", false, true),
            ("[", "set/[", false, false),
        ] {
            let left_out = excludes(&[pattern]).leaves_out(path.as_bytes(), is_directory);
            assert_eq!(left_out, out, "{pattern} {path}");
        }
        let bytes = Excludes::new(&[b"\xff*".to_vec()]).unwrap();
        assert!(bytes.leaves_out(b"set/\xff\xfe", false), "names are bytes");
    }

    #[test]
    fn the_first_matching_pattern_decides() {
        let some = excludes(&["+ keep.log", "*.log"]);
        assert!(!some.leaves_out(b"d/keep.log", false) && some.leaves_out(b"d/a.log", false));
        assert!(excludes(&["a", "!", "b"]).leaves_out(b"b", false));
        assert!(!excludes(&["a", "!", "b"]).leaves_out(b"a", false));
        assert!(excludes(&["!a"]).leaves_out(b"!a", false));
    }

    #[test]
    fn too_many_patterns_are_an_error() {
        assert!(check_excludes(&vec![b"a".to_vec(); MAX_PATTERNS]).is_ok());
        assert!(check_excludes(&vec![b"a".to_vec(); MAX_PATTERNS + 1]).is_err());
        assert!(check_excludes(&[vec![b'a'; MAX_BYTES + 1]]).is_err());
        assert!(check_excludes(&[b"- ".to_vec()]).unwrap_err().contains("nothing follows"));
    }
}
