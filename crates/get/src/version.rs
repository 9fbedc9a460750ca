//! Which version of the object an answer is of (RFC 9110 §8.8).
//!
//! Two things are read. The [validator](read_validator) proves that bytes of two sessions or
//! paths are of one version. The [`Names`] are all that the answer calls its version, as raw
//! text: they prove nothing if they are equal, but if they change the object may have changed.

use super::{PathError, resource::one};
use hyper::{
    HeaderMap,
    header::{DATE, ETAG, HeaderName, LAST_MODIFIED},
};
use std::time::{SystemTime, UNIX_EPOCH};
use thalweg_part::Validator;
use thalweg_units::WallTime;
use thalweg_wire::retry_after::http_date;

/// What an answer calls its version. A strong entity tag alone; else all tags and dates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names(Vec<String>);

impl Names {
    /// Reads the fields of an answer.
    pub(super) fn read(fields: &HeaderMap) -> Self {
        let mut names = raw(fields, &ETAG);
        if !matches!(&names[..], [tag] if is_strong(tag)) {
            names.extend(raw(fields, &LAST_MODIFIED));
        }
        Self(names)
    }

    fn text(&self) -> String {
        if self.0.is_empty() { "none".to_owned() } else { self.0.join(", ") }
    }
}

/// A version: what proves it, and what it is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version<'a> {
    pub(super) validator: &'a Option<Validator>,
    pub(super) names: &'a Names,
}

impl Version<'_> {
    /// Whether both may be one version. A date that was too fresh for a validator in the one
    /// answer may be old enough in the other.
    pub(super) fn may_be(self, other: Version<'_>) -> bool {
        let proven = match (self.validator, other.validator) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        proven && self.names == other.names
    }

    /// In which way `other` is another version than this; `None` if it may be the same.
    pub(super) fn difference(self, other: Version<'_>) -> Option<String> {
        let text = |v: Version<'_>| match v.validator {
            Some(validator) => validator.to_string(),
            None => v.names.text(),
        };
        let differ = || format!("its version is {}, not {}", text(other), text(self));
        (!self.may_be(other)).then(differ)
    }

    /// Whether an answer with these fields is of this version.
    ///
    /// # Errors
    /// [`PathError::Changed`] if it calls itself otherwise.
    pub(super) fn check(self, fields: &HeaderMap) -> Result<(), PathError> {
        let (validator, names) = (read_validator(fields), Names::read(fields));
        let other = Version { validator: &validator, names: &names };
        self.difference(other).map_or(Ok(()), |how| Err(PathError::Changed(how)))
    }
}

/// A strong entity tag, else the modification date, together with the tag that is there.
///
/// None of several tags: which one is meant is not known. None of a date that is not
/// a second older than the answer: within that second the file may change once more and
/// keep it (§8.8.2.2).
pub(super) fn read_validator(fields: &HeaderMap) -> Option<Validator> {
    let tags = raw(fields, &ETAG);
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

/// `Last-Modified`, if it lies a second before `Date` at least; without that field, before this
/// moment (§6.6.1).
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

/// All values of a field, whatever is in them.
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
    fn several_tags_are_no_validator_and_a_weak_one_only_with_its_date() {
        assert_eq!(date(&[(ETAG, "\"1\""), (ETAG, "\"1\""), MODIFIED]), None);
        assert_eq!(date(&[(ETAG, "W/\"1\"")]), None);
        let weak = |tag| date(&[(ETAG, tag), MODIFIED]);
        assert!(matches!(weak("W/\"1\""), Some(Validator::Dated { .. })));
        assert_ne!(weak("W/\"1\""), weak("W/\"2\""));
    }

    #[test]
    fn whatever_changes_of_the_names_is_a_change() {
        let changed = |pinned: &[(HeaderName, &str)], answer: &[(HeaderName, &str)]| {
            let pinned = fields(pinned);
            let (validator, names) = (read_validator(&pinned), Names::read(&pinned));
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
