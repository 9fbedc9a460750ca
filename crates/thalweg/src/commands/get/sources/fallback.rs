//! Chooses the next sources of a download whose sources failed.

use super::{MAX_MIRRORS, Wanted};
use std::collections::BTreeSet;
use thalweg_get::GetError;
use thalweg_part::PartError;
use thalweg_paths::url::HttpUrl;

/// The sources that a download has not used yet.
#[derive(Clone, Debug, Default)]
pub struct Fallback {
    /// The next sources, in this order.
    spares: Vec<HttpUrl>,
    /// Set once the bytes of several sources together failed their hash: from then on each source is used alone. Holds
    /// the hashes of what single sources sent.
    alone: Option<BTreeSet<String>>,
    /// The download with its first sources.
    first: Option<Box<Wanted>>,
}

impl Fallback {
    /// Creates it with these sources, the best first.
    pub fn new(spares: Vec<HttpUrl>) -> Self {
        Self { spares, ..Self::default() }
    }

    /// The URL that was used first, if the present one is another.
    pub(super) fn first_url(&self) -> Option<&HttpUrl> {
        self.first.as_ref().map(|first| &first.url)
    }
}

impl Wanted {
    /// The same download from other sources, if `error` may be the fault of those used and any are left. Each call uses
    /// up at least one source.
    ///
    /// Without a hash, one source is used after the other. With a hash, the next ones are used together; if their bytes
    /// fail the hash, each one alone, since one of them may have another file. Two sources that each send the same
    /// wrong file prove that the hash is wrong.
    pub fn elsewhere(&self, error: &GetError) -> Option<Self> {
        let mut next = self.clone();
        match error {
            _ if wrong_hash(error).is_some() => next.use_alone(wrong_hash(error)?)?,
            GetError::Paths(failed) if !self.mirrors.is_empty() => {
                // An answer without ranges comes from one source, whatever the others have.
                if failed.len() <= self.mirrors.len() {
                    next.use_alone(String::new())?;
                }
            }
            GetError::Paths(_) | GetError::KeepsChanging(_) | GetError::Length { .. } => {}
            GetError::Part(PartError::Piece { .. }) => {}
            _ => return None,
        }
        next.mirrors.clear();
        let spares = &mut next.fallback.spares;
        next.url = if spares.is_empty() { return None } else { spares.remove(0) };
        if !self.digests.is_empty() && next.fallback.alone.is_none() {
            next.mirrors = spares.drain(..spares.len().min(MAX_MIRRORS)).collect();
        }
        next.fallback.first.get_or_insert_with(|| Box::new(self.clone()));
        Some(next)
    }

    /// The same download from all its sources again, for a retry.
    pub fn anew(self) -> Self {
        match self.fallback.first {
            Some(first) => Self { output: self.output, ..*first },
            None => self,
        }
    }

    /// From now on uses the sources one by one; the one used first comes last. `None` if another single source has
    /// already sent bytes with the hash `wrong`.
    fn use_alone(&mut self, wrong: String) -> Option<()> {
        let Some(seen) = &mut self.fallback.alone else {
            let mut sources = std::mem::take(&mut self.mirrors);
            if !sources.is_empty() {
                sources.push(self.url.clone());
            }
            self.fallback.spares.splice(..0, sources);
            self.fallback.alone = Some(BTreeSet::new());
            return Some(());
        };
        seen.insert(wrong).then_some(())
    }
}

/// The hash of what arrived, if another one was expected.
fn wrong_hash(error: &GetError) -> Option<String> {
    match error {
        GetError::Part(PartError::Digest { found, .. }) => Some(found.clone()),
        GetError::Mismatch { wrong, .. } => match &**wrong {
            PartError::Digest { found, .. } => Some(found.clone()),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::get::args::Output;
    use thalweg_get::PathError;
    use thalweg_part::Digest;

    fn wanted(digest: bool, sources: &[&str], spares: &[&str]) -> Wanted {
        let parse = |hosts: &[&str]| -> Vec<HttpUrl> {
            hosts.iter().map(|h| HttpUrl::parse(&format!("http://{h}/")).unwrap()).collect()
        };
        let mut sources = parse(sources);
        Wanted {
            url: sources.remove(0),
            mirrors: sources,
            digests: digest.then_some(Digest::Sha256([0; 32])).into_iter().collect(),
            pieces: None,
            size: None,
            output: Output::Stdout,
            named_by: None,
            fallback: Fallback::new(parse(spares)),
        }
    }

    fn dead(n: usize) -> GetError {
        GetError::Paths((0..n).map(|i| (i.to_string(), PathError::NoTotal)).collect())
    }

    fn wrong(found: &str) -> GetError {
        let (path, expected) = ("x".into(), "sha256:1".to_owned());
        GetError::Part(PartError::Digest { path, expected, found: found.to_owned() })
    }

    /// The hosts that are asked after each of these errors, until there are none.
    fn asked(mut wanted: Wanted, errors: &[GetError]) -> Vec<String> {
        let host = |url: &HttpUrl| url.destination().host.to_string();
        let mut asked = Vec::new();
        for error in errors {
            let Some(next) = wanted.elsewhere(error) else { break };
            let hosts: Vec<_> = std::iter::once(&next.url).chain(&next.mirrors).map(host).collect();
            asked.push(hosts.join("+"));
            wanted = next;
        }
        asked
    }

    #[test]
    fn sources_are_used_up_in_order() {
        let five = || (0..5).map(|_| dead(1)).collect::<Vec<_>>();
        assert_eq!(asked(wanted(false, &["a"], &["b", "c"]), &five()), ["b", "c"]);
        assert_eq!(asked(wanted(true, &["a", "b"], &["c", "d"]), &[dead(2), dead(2)]), ["c+d"]);
        let whole_broke = [dead(1), dead(1), dead(1)];
        assert_eq!(asked(wanted(true, &["a", "b"], &[]), &whole_broke), ["b", "a"]);
        let abc = || wanted(true, &["a", "b", "c"], &[]);
        let differ = [wrong("1"), wrong("2"), wrong("3"), wrong("4"), wrong("5")];
        assert_eq!(asked(abc(), &differ), ["b", "c", "a"]);
        let agree = [wrong("1"), wrong("1"), wrong("1"), wrong("1")];
        assert_eq!(asked(abc(), &agree), ["b", "c"], "two agree: the hash is wrong");
        assert!(asked(wanted(true, &["a"], &[]), &differ).is_empty());
        assert!(asked(wanted(false, &["a"], &["b"]), &[GetError::Interrupted]).is_empty());
    }

    #[test]
    fn only_the_origin_of_the_first_source_gets_secrets() {
        let first = wanted(false, &["a"], &["b", "a"]);
        let second = first.elsewhere(&dead(1)).unwrap();
        let third = second.elsewhere(&dead(1)).unwrap();
        assert_eq!([&first, &second, &third].map(Wanted::is_trusted), [true, false, true]);
    }

    #[test]
    fn another_try_uses_all_sources_again() {
        let first = wanted(false, &["a"], &["b", "c"]);
        let last = first.elsewhere(&dead(1)).unwrap().elsewhere(&dead(1)).unwrap();
        assert_eq!(last.url.to_string(), "http://c/");
        assert_eq!(asked(last.anew(), &[dead(1), dead(1), dead(1)]), ["b", "c"]);
    }
}
