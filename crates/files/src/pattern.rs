//! Patterns: of what is asked for, as a shell's; of what is left out, as rsync's.

use globset::{Glob, GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
use thalweg_wire::object::Failure;

/// The most patterns that are left out; each is compiled. More are an error.
const MOST: usize = 1000;

/// Where a path stands in a pattern: the parts that may be next, as bits. A pattern has at most 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stand(u64);

/// A pattern below a directory: `*`, `?`, `[…]` stand for letters of a name, `**` for any number of
/// parts. As in a shell none of them stands for a first `.`.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    /// `**`.
    Any,
    Name {
        matcher: GlobMatcher,
        hidden: bool,
    },
}

fn wrong(pattern: &[u8], why: impl std::fmt::Display) -> Failure {
    Failure::System(format!("pattern `{}`: {why}", pattern.escape_ascii()))
}

fn glob(pattern: &[u8]) -> Result<Glob, Failure> {
    let text = std::str::from_utf8(pattern).map_err(|_| wrong(pattern, "it is not UTF-8"))?;
    let mut builder = GlobBuilder::new(text);
    // A star stays within a name; a backslash makes a letter stand for itself.
    let built = builder.literal_separator(true).backslash_escape(true).build();
    built.map_err(|e| wrong(pattern, e.kind()))
}

impl Pattern {
    pub fn new(parts: &[&[u8]]) -> Result<Self, Failure> {
        let part = |part: &&[u8]| match *part {
            b"**" => Ok(Part::Any),
            name => {
                let (matcher, hidden) = (glob(name)?.compile_matcher(), name.starts_with(b"."));
                Ok(Part::Name { matcher, hidden })
            }
        };
        if parts.len() > 63 {
            return Err(wrong(&parts.join(&b'/'), "it has more than 63 parts"));
        }
        parts.iter().map(part).collect::<Result<_, _>>().map(Self)
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
                Part::Name { matcher, hidden }
                    if (*hidden || !name.starts_with(b".")) && is_match(matcher, name) =>
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

fn is_match(matcher: &GlobMatcher, name: &[u8]) -> bool {
    matcher.is_match(OsStr::from_bytes(name))
}

/// What is left out, with all below it, as `rsync --exclude` does: a pattern with a `/` before its
/// end is matched with whole parts from the end of the path on, from the first part on if
/// it begins with `/`; one without, with the last part; with a last `/`, only directories.
///
/// Other than rsync's, `**` stands for whole parts only.
#[derive(Clone, Debug)]
pub(super) struct Excludes {
    all: GlobSet,
    directories: GlobSet,
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
    pub fn new(patterns: &[Vec<u8>]) -> Result<Self, Failure> {
        if patterns.len() > MOST {
            return Err(Failure::System(format!("more than {MOST} patterns to be left out")));
        }
        let (mut all, mut directories) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            let (set, bare) = match pattern.strip_suffix(b"/") {
                Some(bare) => (&mut directories, bare),
                // The directory and all in it: what is in it goes with it.
                None => (&mut all, pattern.strip_suffix(b"/***").unwrap_or(pattern)),
            };
            set.add(match bare.strip_prefix(b"/") {
                Some(anchored) => glob(anchored)?,
                None => glob(&[b"**/", bare].concat())?,
            });
        }
        let built = |set: GlobSetBuilder| {
            set.build().map_err(|e| Failure::System(format!("patterns to be left out: {e}")))
        };
        Ok(Self { all: built(all)?, directories: built(directories)? })
    }

    /// Whether this is left out; its path begins with the name of what was asked for.
    pub fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
        let path = OsStr::from_bytes(path);
        self.all.is_match(path) || (is_directory && self.directories.is_match(path))
    }

    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.directories.is_empty()
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
        ] {
            assert_eq!(meets(pattern, path), met, "{pattern} {path}");
        }
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
            ("set", "set", true, true),
            ("a/***", "set/a", true, true),
            ("/**", "set", true, true),
        ] {
            let excludes = Excludes::new(&[pattern.as_bytes().to_vec()]).unwrap();
            assert_eq!(excludes.leaves_out(path.as_bytes(), is_directory), out, "{pattern} {path}");
        }
        assert!(Excludes::new(&[b"[".to_vec()]).is_err() && Excludes::new(&[vec![0xff]]).is_err());
    }
}
