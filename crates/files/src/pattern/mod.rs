//! Path patterns: shell patterns that select paths, and rsync patterns that exclude them.

mod excludes;
#[cfg(test)]
mod rsync_tests;
mod wild;

pub use excludes::{Excludes, check_excludes};

use thalweg_wire::object::Failure;
use wild::{From, Wild};

/// The most bytes of one component of a pattern: a name of 255 bytes, each of them escaped or in brackets.
const MAX_COMPONENT: usize = 1024;

/// How far a path has matched a pattern: a bit for each component that may match next. A pattern has at most 63
/// components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatchState(u64);

/// A pattern for paths below a directory. `*`, `?` and `[…]` match bytes of a name, `**` matches any number of
/// components. As in a shell none of them matches a leading `.`, and a `[` without `]` is an ordinary character.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Vec<PatternPart>);

#[derive(Clone, Debug)]
enum PatternPart {
    Any,
    Name { wild: Wild, hidden: bool },
}

impl Pattern {
    pub fn new(parts: &[&[u8]]) -> Result<Self, Failure> {
        if parts.len() > 63 || parts.iter().any(|part| part.len() > MAX_COMPONENT) {
            let shown = parts.join(&b'/').escape_ascii().to_string();
            let why =
                format!("it has more than 63 parts, or a part of more than {MAX_COMPONENT} bytes");
            return Err(Failure::System(format!("pattern `{shown}`: {why}")));
        }
        let part = |part: &&[u8]| match *part {
            b"**" => PatternPart::Any,
            name => {
                PatternPart::Name { wild: Wild::of_shell(name), hidden: name.starts_with(b".") }
            }
        };
        Ok(Self(parts.iter().map(part).collect()))
    }

    /// The state before the first component.
    pub fn start(&self) -> MatchState {
        self.skip(1)
    }

    /// The state after a component with this name; `None` if nothing below it can match.
    pub fn step(&self, MatchState(from): MatchState, name: &[u8]) -> Option<MatchState> {
        let mut next = 0;
        for (i, part) in self.0.iter().enumerate().filter(|(i, _)| from & (1 << i) != 0) {
            next |= match part {
                PatternPart::Any if !name.starts_with(b".") => 1 << i,
                PatternPart::Name { wild, hidden }
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

    /// Whether the path with this state matches the whole pattern.
    pub fn is_met(&self, MatchState(at): MatchState) -> bool {
        at & (1 << self.0.len()) != 0
    }

    /// Adds the components behind each reached `**`, which may match nothing.
    fn skip(&self, mut at: u64) -> MatchState {
        for (i, part) in self.0.iter().enumerate() {
            if at & (1 << i) != 0 && matches!(part, PatternPart::Any) {
                at |= 2 << i;
            }
        }
        MatchState(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meets(pattern: &str, path: &str) -> bool {
        let parts: Vec<&[u8]> = pattern.split('/').map(str::as_bytes).collect();
        let pattern = Pattern::new(&parts).unwrap();
        let mut state = pattern.start();
        for name in path.split('/') {
            match pattern.step(state, name.as_bytes()) {
                Some(next) => state = next,
                None => return false,
            }
        }
        pattern.is_met(state)
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
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
