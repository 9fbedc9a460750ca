//! What is left out, as `rsync --exclude` does (rsync(1), FILTER RULES and PATTERN MATCHING RULES).

use super::wild::{From, Wild};
use thalweg_wire::object::Failure;

/// The most patterns; each is compared with each path. More are an error.
const MOST: usize = 1000;

/// The most bytes of all of them: a path of 4 KiB is compared with them in some tens of milliseconds.
const MOST_BYTES: usize = 64 << 10;

/// Patterns of what is left out with all below it; the first that matches decides.
///
/// A pattern with a `/` before its end is matched with the last parts of a path, as many as it has; from the
/// first part on if it begins with `/`; with `**` behind any `/`. One without is matched with the last part.
/// A last `/` means directories only, a last `/***` a directory and all in it.
/// Without `*`, `?` and `[` a backslash is a letter. `+ ` before a pattern takes what matches, `- ` leaves it out as
/// no prefix does, and `!` alone forgets all patterns before. An empty one matches nothing.
#[derive(Clone, Debug, Default)]
pub struct Excludes(Vec<Rule>);

#[derive(Clone, Debug)]
struct Rule {
    is_taken: bool,
    /// Only directories.
    directories: bool,
    text: Text,
    reach: Reach,
    /// `**` at the beginning: the text has a `/` before it, so that `**/x` is also the first `x`.
    with_first_slash: bool,
    /// `***` at the end: a directory's text has a `/` behind it.
    with_last_slash: bool,
}

#[derive(Clone, Debug)]
enum Text {
    Letters(Vec<u8>),
    Wild(Wild),
}

/// What of a path is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// All of it.
    Whole,
    /// So many of the last parts, if there are as many.
    Last(usize),
    /// All that is behind some `/`, or all.
    BehindAny,
}

/// Whether these can be left out anywhere.
///
/// # Errors
/// Which is no pattern, and why.
pub fn check_excludes(patterns: &[Vec<u8>]) -> Result<(), String> {
    let failed = |why| match why {
        Failure::System(why) => why,
        other => other.to_string(),
    };
    Excludes::new(patterns).map(drop).map_err(failed)
}

impl Excludes {
    /// Of these patterns, in their order.
    ///
    /// # Errors
    /// [`Failure::System`] if there are too many, or nothing is behind a prefix.
    pub fn new(patterns: &[Vec<u8>]) -> Result<Self, Failure> {
        let bytes: usize = patterns.iter().map(Vec::len).sum();
        if patterns.len() > MOST || bytes > MOST_BYTES {
            return Err(Failure::System(format!(
                "more than {MOST} patterns to be left out, or {} KiB of them",
                MOST_BYTES >> 10
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
                        "pattern `{shown}`: nothing is behind it"
                    )));
                }
                pattern => rules.push(Rule::new(pattern)),
            }
        }
        Ok(Self(rules))
    }

    /// Whether this is left out; its path begins with the name of what was asked for, and with no `/`.
    pub fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
        let first = self.0.iter().find(|rule| rule.is_met(path, is_directory));
        first.is_some_and(|rule| !rule.is_taken)
    }

    /// Whether nothing is.
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
        let reach = match (anchored.is_some(), stars, slashes) {
            (true, ..) | (_, Some(0), _) => Reach::Whole,
            (_, Some(_), _) => Reach::BehindAny,
            (_, None, slashes) => Reach::Last(slashes + 1),
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
            reach,
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
        let from = if self.reach == Reach::BehindAny { From::AnyPart } else { From::Start };
        wild.is_match(&pieces, from)
    }

    /// What of the path is compared; `None`: it has too few parts.
    fn compared<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let Reach::Last(parts) = self.reach else { return Some(path) };
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
    fn what_is_left_out_is_as_with_rsync() {
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
    fn the_first_that_matches_decides() {
        let some = excludes(&["+ keep.log", "*.log"]);
        assert!(!some.leaves_out(b"d/keep.log", false) && some.leaves_out(b"d/a.log", false));
        assert!(excludes(&["a", "!", "b"]).leaves_out(b"b", false));
        assert!(!excludes(&["a", "!", "b"]).leaves_out(b"a", false));
        assert!(excludes(&["!a"]).leaves_out(b"!a", false));
    }

    #[test]
    fn too_many_patterns_are_an_error() {
        assert!(check_excludes(&vec![b"a".to_vec(); MOST]).is_ok());
        assert!(check_excludes(&vec![b"a".to_vec(); MOST + 1]).is_err());
        assert!(check_excludes(&[vec![b'a'; MOST_BYTES + 1]]).is_err());
        assert!(check_excludes(&[b"- ".to_vec()]).unwrap_err().contains("nothing is behind"));
    }
}
