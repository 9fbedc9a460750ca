//! Decides whether an answer delivers an object that can also be fetched in ranges.

use super::super::target::Forward;
use bytes::Bytes;
use hyper::{
    HeaderMap, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderName, HeaderValue},
    http::request::Parts,
};

/// Request fields that ask for something other than the whole object (ranges and conditions).
const PARTIAL_OR_CONDITIONAL: [HeaderName; 6] = [
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];

/// An object that can be fetched in ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub(in super::super) url: String,
    /// Path and query as they were requested.
    pub(in super::super) path: Bytes,
    /// Its length, bytes.
    pub(in super::super) length: u64,
    /// Its strong entity tag.
    pub(in super::super) tag: HeaderValue,
}

impl Object {
    /// The object of `response`, if its ranges combine to exactly the content of the response: status 200, a length,
    /// `Accept-Ranges: bytes`, a strong entity tag (RFC 9110 §8.8.1), no coding.
    pub fn from_response(
        request: &Parts,
        response: &Response<Incoming>,
        to: &Forward,
    ) -> Option<Self> {
        let plain = !PARTIAL_OR_CONDITIONAL.iter().any(|name| request.headers.contains_key(name));
        let tag = (plain && response.status() == StatusCode::OK)
            .then(|| offered(response.headers()))
            .flatten()?;
        let length = one(response.headers(), &header::CONTENT_LENGTH)?.parse().ok()?;
        let (path, at) = (to.path.clone(), String::from_utf8_lossy(&to.path));
        let url = format!("http://{}{at}", to.host);
        Some(Self { url, path, length, tag })
    }
}

/// The strong tag of an object that is offered in ranges.
fn offered(fields: &HeaderMap) -> Option<HeaderValue> {
    let ranges = one(fields, &header::ACCEPT_RANGES)?.eq_ignore_ascii_case("bytes");
    let coded = [header::CONTENT_ENCODING, header::TRANSFER_ENCODING]
        .iter()
        .any(|name| fields.contains_key(name));
    // `get` hands out nothing of an object with a digest before it has all of it.
    let digest = ["repr-digest", "digest"].iter().any(|name| fields.contains_key(*name));
    let tag = one(fields, &header::ETAG)?;
    let strong = tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"');
    if ranges && strong && !coded && !digest { fields.get(header::ETAG).cloned() } else { None }
}

/// The value of a field that occurs once.
fn one<'a>(fields: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = fields.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(n, v): &(&'static str, &'static str)| {
            (HeaderName::from_static(n), HeaderValue::from_static(v))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn a_split_needs_a_strong_tag_and_ranges_of_plain_bytes() {
        let good = [("accept-ranges", "bytes"), ("etag", "\"1\"")];
        assert_eq!(offered(&fields(&good)).unwrap(), "\"1\"");
        for bad in [
            &[("accept-ranges", "bytes")][..],
            &[("etag", "\"1\"")],
            &[("accept-ranges", "none"), ("etag", "\"1\"")],
            &[("accept-ranges", "bytes"), ("etag", "W/\"1\"")],
            &[("accept-ranges", "bytes"), ("etag", "1")],
            &[("accept-ranges", "bytes"), ("etag", "\"1\""), ("content-encoding", "gzip")],
        ] {
            assert_eq!(offered(&fields(bad)), None, "{bad:?}");
        }
        let mut twice = fields(&good);
        twice.append("etag", HeaderValue::from_static("\"2\""));
        assert_eq!(offered(&twice), None);
    }
}
