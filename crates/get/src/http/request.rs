//! Builds requests: for a whole object, for ranges, and for segments of one version.

use crate::resource::Resource;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::{
    HeaderMap, Request,
    header::{self, HeaderName, HeaderValue},
};
use std::ops::Range;
use thalweg_part::Validator;
use thalweg_paths::url::HttpUrl;
use thalweg_wire::content_range::ByteRange;

/// The `User-Agent` that is sent.
const USER_AGENT: &str = concat!("thalweg/", env!("CARGO_PKG_VERSION"));

/// A `GET` of all of `url`, with the user's `extra` fields.
pub(crate) fn plain_request(url: &HttpUrl, extra: &HeaderMap) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    // `HttpUrl` has checked this, so it always parses.
    *request.uri_mut() = url.target().parse().unwrap_or_default();
    let fields = request.headers_mut();
    set(fields, header::HOST, &url.host_field());
    set(fields, header::USER_AGENT, USER_AGENT);
    set(fields, header::ACCEPT, "*/*");
    set(fields, header::ACCEPT_ENCODING, "identity");
    extra.keys().for_each(|name| _ = fields.remove(name));
    // As with curl, an empty value leaves the field out.
    let extra = extra.iter().filter(|(_, value)| !value.is_empty());
    extra.for_each(|(name, value)| _ = fields.append(name, value.clone()));
    request
}

/// A `GET` of some bytes of `url`, with the user's `extra` fields (RFC 9110 §14.2).
pub(crate) fn range_request(
    url: &HttpUrl,
    ranges: &[Range<u64>],
    extra: &HeaderMap,
) -> Request<Empty<Bytes>> {
    let mut request = plain_request(url, extra);
    let ranges = ranges.iter().filter_map(|r| ByteRange::from_half_open(r.clone()));
    let text: Vec<String> = ranges.map(|r| format!("{}-{}", r.first(), r.last())).collect();
    set(request.headers_mut(), header::RANGE, &format!("bytes={}", text.join(",")));
    request
}

/// A request for `ranges` (at least one, none empty) of exactly this version of the object.
///
/// Uses `If-Match`, not `If-Range`: some servers answer the latter with 200 and another version, which would have to be
/// thrown away (RFC 9110 §13.1.1, §13.1.4).
pub(crate) fn segment_request(
    resource: &Resource,
    ranges: &[Range<u64>],
    extra: &HeaderMap,
) -> Request<Empty<Bytes>> {
    let mut request = range_request(&resource.url, ranges, extra);
    match &resource.validator {
        Some(Validator::Etag(tag)) => set(request.headers_mut(), header::IF_MATCH, tag),
        Some(Validator::LastModified(date) | Validator::Dated { date, .. }) => {
            set(request.headers_mut(), header::IF_UNMODIFIED_SINCE, date);
        }
        None => {}
    }
    request
}

fn set(fields: &mut HeaderMap, name: HeaderName, value: &str) {
    // Always valid: hosts are checked, and validators come from a field.
    if let Ok(value) = HeaderValue::from_str(value) {
        fields.insert(name, value);
    }
}

/// Parses a user's header `NAME: VALUE`.
///
/// # Errors
/// Why it cannot be sent: it is not HTTP, or it determines which bytes are requested or how they are framed.
pub(crate) fn user_header(text: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let (name, value) = text.split_once(':').ok_or("its name is not followed by `:`")?;
    let name: HeaderName = name.trim().parse().map_err(|_| "its name is not a valid field name")?;
    let value = HeaderValue::from_bytes(value.trim().as_bytes())
        .map_err(|_| "its value is not a valid field value")?;
    const OURS: [&str; 12] = [
        "range",
        "if-match",
        "if-none-match",
        "if-range",
        "if-modified-since",
        "if-unmodified-since",
        "accept-encoding",
        "connection",
        "content-length",
        "transfer-encoding",
        "te",
        "upgrade",
    ];
    if OURS.contains(&name.as_str()) { Err("`get` sets it itself") } else { Ok((name, value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_request_names_its_version() {
        let url = HttpUrl::parse("http://www.example:81/a?b").unwrap();
        let validator = Some(Validator::Etag("\"1\"".into()));
        let (names, metadata) = Default::default();
        let mut resource = Resource { url, length: 100, validator, names, metadata };
        let request = segment_request(&resource, &[5..10, 20..21], &HeaderMap::new());
        let field = |r: &Request<_>, name: &str| {
            r.headers().get(name).map(|v| v.to_str().unwrap().to_owned())
        };
        assert_eq!(request.uri(), "/a?b");
        assert_eq!(field(&request, "host").unwrap(), "www.example:81");
        assert_eq!(field(&request, "range").unwrap(), "bytes=5-9,20-20");
        assert_eq!(field(&request, "if-match").unwrap(), "\"1\"");
        assert_eq!(field(&request, "accept-encoding").unwrap(), "identity");
        resource.validator = Some(Validator::LastModified("then".into()));
        let request = segment_request(&resource, &[5..10, 20..21], &HeaderMap::new());
        assert_eq!(field(&request, "if-unmodified-since").unwrap(), "then");
        assert_eq!(field(&request, "if-match"), None);
    }

    #[test]
    fn users_cannot_set_fields_that_determine_the_range_or_framing() {
        assert!(user_header("Authorization: Bearer x").is_ok());
        for bad in ["Range: bytes=0-1", "accept-encoding: gzip", "no colon", "a b: c", "a: \u{7f}"]
        {
            assert!(user_header(bad).is_err(), "{bad}");
        }
    }
}
