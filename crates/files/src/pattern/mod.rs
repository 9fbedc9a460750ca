//! Patterns: of what is asked for, as a shell's; of what is left out, as rsync's.

mod excludes;
#[cfg(test)]
mod rsync_tests;
mod wild;

pub use excludes::{Excludes, check_excludes};

use thalweg_wire::object::Failure;
use wild::{From, Wild};

/// The longest part of a pattern: a name of 255 bytes, each of them escaped or in brackets.
const LONGEST: usize = 1024;

/// Where a path stands in a pattern: the parts that may be next, as bits. A pattern has at most 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stand(u64);

/// A pattern below a directory: `*`, `?`, `[…]` stand for letters of a name, `**` for any number of
/// parts. As in a shell none of them stands for a first `.`, and a `[` without `]` is a letter.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    /// `**`.
    Any,
    Name {
        wild: Wild,
        hidden: bool,
    },
}

impl Pattern {
    pub fn new(parts: &[&[u8]]) -> Result<Self, Failure> {
        if parts.len() > 63 || parts.iter().any(|part| part.len() > LONGEST) {
            let shown = parts.join(&b'/').escape_ascii().to_string();
            let why = format!("it has more than 63 parts, or one of more than {LONGEST} bytes");
            return Err(Failure::System(format!("pattern `{shown}`: {why}")));
        }
        let part = |part: &&[u8]| match *part {
            b"**" => Part::Any,
            name => Part::Name { wild: Wild::of_shell(name), hidden: name.starts_with(b".") },
        };
        Ok(Self(parts.iter().map(part).collect()))
    }

    /// Above the first part.
    pub fn start(&self) -> Stand {
        self.skip(1)
    }

    /// Below a part of this name; `None`: nothing there can match.
    pub fn step(&self, Stand(from): Stand, name: &[u8]) -> Option<Stand> {
        let mut next = 0;
        for (i, part) in self.0.iter().enumerate().filter(|(i, _)| from & (1 << i) != 0) {
            next |= match part {
                Part::Any if !name.starts_with(b".") => 1 << i,
                Part::Name { wild, hidden }
                    if (*hidden || !name.starts_with(b"."))
                        && wild.is_match(&[name], From::Start) =>
                {
                    2 << i
                }
                _ => 0,
            };
        }
        (next != 0).then(|| self.skip(next))
    }

    /// Whether what stands here is meant itself.
    pub fn is_met(&self, Stand(at): Stand) -> bool {
        at & (1 << self.0.len()) != 0
    }

    /// `**` may stand for nothing.
    fn skip(&self, mut at: u64) -> Stand {
        for (i, part) in self.0.iter().enumerate() {
            if at & (1 << i) != 0 && matches!(part, Part::Any) {
                at |= 2 << i;
            }
        }
        Stand(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meets(pattern: &str, path: &str) -> bool {
        let parts: Vec<&[u8]> = pattern.split('/').map(str::as_bytes).collect();
        let pattern = Pattern::new(&parts).unwrap();
        let mut stand = pattern.start();
        for name in path.split('/') {
            match pattern.step(stand, name.as_bytes()) {
                Some(next) => stand = next,
                None => return false,
            }
        }
        pattern.is_met(stand)
    }

    #[test]
    fn patterns_match_as_a_shells() {
        for (pattern, path, met) in [
            ("*", "a", true),
            ("*", ".a", false),
            (".*", ".a", true),
            ("*", "a/b", false),
            ("*/b", "a/b", true),
            ("a?[0-9]", "ax7", true),
            ("a[!0-9]", "a7", false),
            ("[*]", "*", true),
            ("[*]", "a", false),
            ("**", "a/b/c", true),
            ("**/c", "c", true),
            ("**/c", "a/b/c", true),
            ("a/**/c", "a/c", true),
            ("a/**/c", "a/x/y/c", true),
            ("a/**/c", "a/.x/c", false),
            ("a/**/c", "b/c", false),
            ("x*.log", "xyz.log", true),
            ("{a,b}*", "{a,b}c", true),
            ("{a,b}*", "ac", false),
            ("x[[:upper:]]", "xA", true),
            ("\\**", "*x", true),
            ("a[b", "a[b", true),
        ] {
            assert_eq!(meets(pattern, path), met, "{pattern} {path}");
        }
    }
}
