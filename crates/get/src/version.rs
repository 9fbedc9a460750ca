//! Determines which version of the object an answer belongs to (RFC 9110 §8.8).
//!
//! There are two criteria. The [validator](read_validator) proves that bytes of two sessions or paths are of one
//! version. The [`VersionNames`] are everything that the answer calls its version, as raw text: if they are equal they
//! prove nothing, but if they differ the object may have changed.

use super::{PathError, resource::one};
use hyper::{
    HeaderMap,
    header::{CONTENT_ENCODING, DATE, ETAG, HeaderName, LAST_MODIFIED},
};
use std::time::{SystemTime, UNIX_EPOCH};
use thalweg_part::Validator;
use thalweg_units::WallTime;
use thalweg_wire::retry_after::http_date;

/// The names that an answer gives its version: a strong entity tag alone, or else all tags and dates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VersionNames(Vec<String>);

impl VersionNames {
    /// Reads the fields of an answer.
    pub(super) fn read(fields: &HeaderMap) -> Self {
        let mut names = tags(fields);
        if !matches!(&names[..], [tag] if is_strong(tag)) {
            names.extend(raw(fields, &LAST_MODIFIED));
        }
        // Another content coding produces other bytes (RFC 9110 §8.4).
        names.extend(content_codings(fields).map(|coding| format!("coded by {coding}")));
        Self(names)
    }

    fn text(&self) -> String {
        if self.0.is_empty() { "none".to_owned() } else { self.0.join(", ") }
    }
}

/// A version: its validator and its names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version<'a> {
    pub(super) validator: &'a Option<Validator>,
    pub(super) names: &'a VersionNames,
}

impl Version<'_> {
    /// Whether both may be the same version. A date that is too fresh for a validator in one answer may be old enough
    /// in the other.
    pub(super) fn may_be(self, other: Version<'_>) -> bool {
        let proven = match (self.validator, other.validator) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        proven && self.names == other.names
    }

    /// How `other` differs from this version; `None` if it may be the same.
    pub(super) fn difference(self, other: Version<'_>) -> Option<String> {
        let text = |v: Version<'_>| match v.validator {
            Some(validator) => validator.to_string(),
            None => v.names.text(),
        };
        let differ = || format!("its version is {}, not {}", text(other), text(self));
        (!self.may_be(other)).then(differ)
    }

    /// Checks that an answer with these fields may be of this version.
    ///
    /// # Errors
    /// [`PathError::Changed`] if it is of another version.
    pub(super) fn check(self, fields: &HeaderMap) -> Result<(), PathError> {
        let (validator, names) = (read_validator(fields), VersionNames::read(fields));
        let other = Version { validator: &validator, names: &names };
        self.difference(other).map_or(Ok(()), |how| Err(PathError::Changed(how)))
    }
}

/// The validator of an answer: a strong entity tag, or else the modification date, with the weak tag if there is one.
///
/// `None` for several tags, because it is not known which one is meant. `None` for a date that is less than a second
/// older than the answer: within that second the file may change once more and keep the date (§8.8.2.2).
pub(super) fn read_validator(fields: &HeaderMap) -> Option<Validator> {
    let tags = tags(fields);
    // If the server compresses each answer, the bytes may differ although the date is the same.
    if content_codings(fields).any(is_compression) && !matches!(&tags[..], [tag] if is_strong(tag))
    {
        return None;
    }
    match &tags[..] {
        [] => settled_date(fields).map(Validator::LastModified),
        [tag] if is_strong(tag) => one(fields, &ETAG).map(|t| Validator::Etag(t.to_owned())),
        [tag] => settled_date(fields).map(|date| Validator::Dated { date, tag: tag.clone() }),
        _ => None,
    }
}

fn is_strong(tag: &str) -> bool {
    tag.len() >= 2 && tag.starts_with('"') && tag.ends_with('"')
}

/// `Last-Modified`, if it is at least a second before `Date`, or, without that field, before the current time (§6.6.1).
fn settled_date(fields: &HeaderMap) -> Option<String> {
    const SECOND: u64 = 1_000_000_000;
    let text = one(fields, &LAST_MODIFIED)?;
    let modified = http_date(text.trim())?;
    let sent = one(fields, &DATE).and_then(|d| http_date(d.trim())).unwrap_or_else(now);
    let settled = sent.as_unix_nanos() >= modified.as_unix_nanos().saturating_add(SECOND);
    settled.then(|| text.to_owned())
}

fn now() -> WallTime {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    WallTime::from_unix_nanos(nanos.try_into().unwrap_or(u64::MAX))
}

/// The entity tags, without consecutive duplicates.
fn tags(fields: &HeaderMap) -> Vec<String> {
    let mut tags = raw(fields, &ETAG);
    tags.dedup();
    tags
}

/// The content codings, except `identity`.
fn content_codings(fields: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = fields.get_all(CONTENT_ENCODING).iter();
    let codings = values.flat_map(|v| v.to_str().unwrap_or("?").split(',')).map(str::trim);
    codings.filter(|c| !c.is_empty() && !c.eq_ignore_ascii_case("identity"))
}

/// Whether this is a coding that changes bytes (RFC 9110 §8.4.1 and its registry), rather than a charset, a transfer
/// coding or another misplaced word.
fn is_compression(coding: &str) -> bool {
    const CODINGS: [&str; 9] =
        ["gzip", "x-gzip", "deflate", "compress", "x-compress", "br", "zstd", "bzip2", "xz"];
    CODINGS.iter().any(|c| coding.eq_ignore_ascii_case(c))
}

/// The codings by which an answer's bytes are compressed, although none was requested.
pub(super) fn compressions(fields: &HeaderMap) -> Option<String> {
    let codings: Vec<&str> = content_codings(fields).filter(|c| is_compression(c)).collect();
    (!codings.is_empty()).then(|| codings.join(", "))
}

/// All values of a field, including text that is not UTF-8.
fn raw(fields: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let text = |v: &hyper::header::HeaderValue| String::from_utf8_lossy(v.as_bytes()).into_owned();
    fields.get_all(name).iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    const MODIFIED: (HeaderName, &str) = (LAST_MODIFIED, "Mon, 01 Jan 2024 00:00:10 GMT");

    fn fields(list: &[(HeaderName, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        list.iter().for_each(|(n, v)| _ = map.append(n, HeaderValue::from_str(v).unwrap()));
        map
    }

    fn date(list: &[(HeaderName, &str)]) -> Option<Validator> {
        read_validator(&fields(list))
    }

    #[test]
    fn a_date_as_fresh_as_the_answer_proves_nothing() {
        let dated = Some(Validator::LastModified(MODIFIED.1.into()));
        let at = |second: &str| {
            let sent = format!("Mon, 01 Jan 2024 00:00:{second} GMT");
            date(&[MODIFIED, (DATE, &sent)])
        };
        assert_eq!((at("09"), at("10")), (None, None));
        assert_eq!((at("11"), at("59")), (dated.clone(), dated.clone()));
        assert_eq!(date(&[MODIFIED]), dated, "it is long ago by our clock");
        assert_eq!(date(&[(LAST_MODIFIED, "Fri, 01 Jan 2500 00:00:00 GMT")]), None);
        assert_eq!(date(&[(LAST_MODIFIED, "yesterday")]), None);
        let both = [MODIFIED, (DATE, MODIFIED.1), (ETAG, "\"1\"")];
        assert_eq!(date(&both), Some(Validator::Etag("\"1\"".into())));
    }

    #[test]
    fn several_tags_are_no_validator_and_a_weak_tag_needs_a_date() {
        assert_eq!(date(&[(ETAG, "\"1\""), (ETAG, "\"2\""), MODIFIED]), None);
        assert!(date(&[(ETAG, "\"1\""), (ETAG, "\"1\"")]).is_some(), "one, said twice");
        assert_eq!(date(&[(ETAG, "W/\"1\"")]), None);
        let weak = |tag| date(&[(ETAG, tag), MODIFIED]);
        assert!(matches!(weak("W/\"1\""), Some(Validator::Dated { .. })));
        assert_ne!(weak("W/\"1\""), weak("W/\"2\""));
    }

    #[test]
    fn any_difference_in_the_names_is_a_change() {
        let changed = |pinned: &[(HeaderName, &str)], answer: &[(HeaderName, &str)]| {
            let pinned = fields(pinned);
            let (validator, names) = (read_validator(&pinned), VersionNames::read(&pinned));
            Version { validator: &validator, names: &names }.check(&fields(answer)).is_err()
        };
        let (one, two) = ((ETAG, "W/\"1\""), (ETAG, "W/\"2\""));
        assert!(changed(&[one.clone(), MODIFIED], &[two.clone(), MODIFIED]));
        assert!(changed(std::slice::from_ref(&one), std::slice::from_ref(&two)));
        assert!(changed(&[one.clone(), two.clone()], std::slice::from_ref(&one)));
        assert!(!changed(&[one.clone(), two.clone()], &[one.clone(), two]));
        assert!(changed(std::slice::from_ref(&one), &[]));
        let fresh = [MODIFIED, (DATE, MODIFIED.1)];
        assert!(!changed(&fresh, &[MODIFIED]), "the same date a while later");
        assert!(changed(&fresh, &[(LAST_MODIFIED, "Mon, 01 Jan 2024 00:00:11 GMT")]));
        let strong = (ETAG, "\"1\"");
        assert!(!changed(&[strong.clone(), MODIFIED], &[strong]), "the tag says all");
    }
}
