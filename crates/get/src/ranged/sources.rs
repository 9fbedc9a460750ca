//! The sources of the object: its own URL and its mirrors', and what each says about the object.

use crate::{paths::Source, resource::Resource};
use std::sync::Arc;
use thalweg_part::Validator;

/// The object of each source. Segments are checked against the resource of their own source.
pub(super) struct Sources {
    /// The source that pinned the object.
    pub(super) primary: Source,
    known: Vec<SourceState>,
}

/// What is known about one source.
#[derive(Clone)]
enum SourceState {
    Nothing,
    /// Its bytes are used.
    Used(Arc<Resource>),
    /// Its bytes are used if the other sources fail.
    Spare(Arc<Resource>),
}

/// How a mirror's object relates to the pinned one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    /// Bytes of both may be mixed: a digest verifies them, or both have the same strong entity tag. Servers that
    /// compute tags differently would hardly have the same one.
    Mix,
    /// Most likely the same file, judging by length and date; not mixed.
    Spare,
    /// Apparently another file. Contains the difference.
    Other(String),
}

impl Sources {
    pub(super) fn new(primary: Source, count: usize, pinned: Arc<Resource>) -> Self {
        let mut known = vec![SourceState::Nothing; count.max(primary + 1)];
        known[primary] = SourceState::Used(pinned);
        Self { primary, known }
    }

    /// The object according to the primary source.
    pub(super) fn pinned(&self) -> &Arc<Resource> {
        match &self.known[self.primary] {
            SourceState::Used(resource) | SourceState::Spare(resource) => resource,
            SourceState::Nothing => unreachable!("the primary source is known from the start"),
        }
    }

    /// The resource that a source's answers must agree with, if its bytes are used.
    pub(super) fn used(&self, source: Source) -> Option<&Arc<Resource>> {
        match self.known.get(source) {
            Some(SourceState::Used(resource)) => Some(resource),
            _ => None,
        }
    }

    /// The resource that a source was found to have.
    pub(super) fn known(&self, source: Source) -> Option<&Arc<Resource>> {
        match self.known.get(source) {
            Some(SourceState::Used(resource) | SourceState::Spare(resource)) => Some(resource),
            _ => None,
        }
    }

    /// Records the resource of a mirror.
    pub(super) fn enter(&mut self, source: Source, resource: Resource, mix: bool) {
        let resource = Arc::new(resource);
        if let Some(known) = self.known.get_mut(source) {
            *known = if mix { SourceState::Used(resource) } else { SourceState::Spare(resource) };
        }
    }

    /// Records that a source's object has another URL now.
    pub(super) fn moved(&mut self, source: Source, resource: Arc<Resource>) {
        if let Some(SourceState::Used(known)) = self.known.get_mut(source) {
            *known = resource;
        }
    }

    /// Takes the next spare source into use and returns it.
    pub(super) fn promote(&mut self) -> Option<Source> {
        let spare = |k: &SourceState| matches!(k, SourceState::Spare(_));
        let source = self.known.iter().position(spare)?;
        if let SourceState::Spare(resource) = &self.known[source] {
            self.known[source] = SourceState::Used(Arc::clone(resource));
        }
        Some(source)
    }
}

/// How `other`, a mirror's object, relates to `pinned`.
pub(super) fn agreement(pinned: &Resource, other: &Resource, digest: bool) -> Agreement {
    if pinned.length != other.length {
        return Agreement::Other(format!(
            "its length is {}, not {} bytes",
            other.length, pinned.length
        ));
    }
    match (&pinned.validator, &other.validator) {
        _ if digest => Agreement::Mix,
        (Some(Validator::Etag(a)), Some(Validator::Etag(b))) if a == b => Agreement::Mix,
        (Some(a), Some(b)) if a.date().is_some() && a.date() == b.date() => Agreement::Spare,
        _ => Agreement::Other(
            "nothing proves that it is the same file; a digest (--sha256, --blake3) would"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_paths::url::HttpUrl;

    fn resource(length: u64, validator: Option<Validator>) -> Resource {
        let url = HttpUrl::parse("http://www.example/a").unwrap();
        let (names, metadata) = Default::default();
        Resource { url, length, validator, names, metadata }
    }

    #[test]
    fn mirrors_are_mixed_only_if_something_proves_the_bytes() {
        let tag = |t: &str| Some(Validator::Etag(t.to_owned()));
        let date = || Some(Validator::LastModified("then".to_owned()));
        let how = |a, b, digest| agreement(&resource(9, a), &resource(9, b), digest);
        assert_eq!(how(tag("1"), tag("1"), false), Agreement::Mix);
        assert_eq!(how(tag("1"), tag("2"), true), Agreement::Mix);
        assert_eq!(how(None, None, true), Agreement::Mix);
        assert_eq!(how(date(), date(), false), Agreement::Spare);
        for (a, b) in [(tag("1"), tag("2")), (tag("1"), date()), (None, None), (date(), None)] {
            assert!(matches!(how(a, b, false), Agreement::Other(_)));
        }
        let shorter = agreement(&resource(9, tag("1")), &resource(8, tag("1")), true);
        assert!(matches!(shorter, Agreement::Other(why) if why.contains('8')));
    }
}
