//! What a server says about the object, and whether a segment belongs to it.
//!
//! Everything here looks at response heads alone; no I/O.

use super::{
    PathError,
    multipart::Multipart,
    retry_after::retry_after,
    said::Said,
    version::{Names, Version, read_validator},
};
use hyper::{
    HeaderMap, StatusCode,
    header::{
        CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderName, LOCATION,
        TRANSFER_ENCODING,
    },
    http::response::Parts,
};
use std::{ops::Range, time::SystemTime};
use thalweg_part::Validator;
use thalweg_paths::url::HttpUrl;
use thalweg_wire::content_range::{ByteRange, ContentRange};

/// No file is longer: the system counts its bytes in 63 bits. A server that says more lies.
const LONGEST: u64 = i64::MAX as u64;

/// The object that is fetched: what every segment must agree with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    /// The final URL, after redirects.
    pub(super) url: HttpUrl,
    /// Its complete length in bytes.
    pub(super) length: u64,
    pub(super) validator: Option<Validator>,
    pub(super) names: Names,
    /// Equal to any other: two servers may call one object by two names.
    pub(super) said: Said,
}

impl Resource {
    /// What tells it from an earlier or later version.
    pub(super) fn version(&self) -> Version<'_> {
        Version { validator: &self.validator, names: &self.names }
    }
}

/// An object that the server only sends whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) url: HttpUrl,
    /// Its length, if the server says so; otherwise it ends with its last chunk.
    pub(super) length: Option<u64>,
    pub(super) validator: Option<Validator>,
    pub(super) names: Names,
    /// As [`Resource::said`].
    pub(super) said: Said,
}

impl Whole {
    /// As [`Resource::version`].
    pub(super) fn version(&self) -> Version<'_> {
        Version { validator: &self.validator, names: &self.names }
    }
}

/// What the first request on a path was answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Ranges can be had.
    Ranged(Resource),
    /// Ranges are ignored; the body of this very answer is the object.
    Whole(Whole),
    /// To be asked elsewhere.
    Redirect(HttpUrl),
}

/// Reads the answer at `url` to a first request, for the bytes `asked` (not empty) or as many
/// of them as there are.
///
/// # Errors
/// [`PathError`] for everything that is no usable answer: other statuses, a
/// coding we did not ask for, lengths that disagree, a web page where something
/// else was promised, a body without an end mark.
pub(super) fn read_answer(
    head: &Parts,
    url: &HttpUrl,
    asked: Range<u64>,
) -> Result<Answer, PathError> {
    if head.status.is_redirection() && head.status != StatusCode::NOT_MODIFIED {
        return redirect(head, url);
    }
    match head.status {
        StatusCode::PARTIAL_CONTENT => {
            refuse_coding(&head.headers)?;
            let there = |length: u64| asked.start..asked.end.min(length);
            match content_range(&head.headers)? {
                ContentRange::Bytes { range, complete: Some(length) }
                    if Some(range) == ByteRange::from_half_open(there(length)) =>
                {
                    check_length(&head.headers, there(length).end - asked.start)?;
                    Ok(ranged(head, url, length))
                }
                other => Err(PathError::Range { asked, got: other.to_string() }),
            }
        }
        // The one way to say that there is not even a first byte.
        StatusCode::RANGE_NOT_SATISFIABLE => match content_range(&head.headers) {
            Ok(ContentRange::Unsatisfied { complete: 0 }) => Ok(ranged(head, url, 0)),
            Ok(other) => Err(PathError::Range { asked, got: other.to_string() }),
            Err(_) => Err(PathError::Status(head.status)),
        },
        StatusCode::OK => whole(head, url).map(Answer::Whole),
        _ => Err(refusal(head)),
    }
}

fn ranged(head: &Parts, url: &HttpUrl, length: u64) -> Answer {
    let (validator, names) = (read_validator(&head.headers), Names::read(&head.headers));
    let said = Said::read(&head.headers);
    Answer::Ranged(Resource { url: url.clone(), length, validator, names, said })
}

fn redirect(head: &Parts, url: &HttpUrl) -> Result<Answer, PathError> {
    let location = one(&head.headers, &LOCATION).ok_or(PathError::Status(head.status))?;
    url.join(location).map(Answer::Redirect).map_err(PathError::Redirect)
}

fn whole(head: &Parts, url: &HttpUrl) -> Result<Whole, PathError> {
    refuse_coding(&head.headers)?;
    let html = one(&head.headers, &CONTENT_TYPE)
        .is_some_and(|t| t.trim_start().to_ascii_lowercase().starts_with("text/html"));
    if html && url.promises_no_page() {
        return Err(PathError::Page);
    }
    let length = length(&head.headers)?;
    let chunked = head.headers.contains_key(TRANSFER_ENCODING);
    // HTTP/2 marks every end itself (RFC 9113 §8.1).
    if length.is_none() && !chunked && head.version < hyper::Version::HTTP_2 {
        return Err(PathError::NoEnd);
    }
    let (validator, names) = (read_validator(&head.headers), Names::read(&head.headers));
    let said = Said::read(&head.headers);
    Ok(Whole { url: url.clone(), length, validator, names, said })
}

/// Whether the answer to a request for `asked` holds exactly these bytes of `resource`.
///
/// # Errors
/// [`PathError::Changed`] if the server has another object now, otherwise why
/// the answer is no good.
pub(super) fn check_segment(
    head: &Parts,
    asked: Range<u64>,
    resource: &Resource,
) -> Result<(), PathError> {
    match head.status {
        StatusCode::PARTIAL_CONTENT => {}
        StatusCode::RANGE_NOT_SATISFIABLE => {
            return Err(PathError::Changed("it is shorter".to_owned()));
        }
        StatusCode::OK => return Err(PathError::NotPartial),
        _ => return Err(refusal(head)),
    }
    refuse_coding(&head.headers)?;
    check_range(content_range(&head.headers)?, asked.clone(), resource)?;
    check_length(&head.headers, asked.end - asked.start)?;
    resource.version().check(&head.headers)
}

/// Whether several ranges, asked for at once, come as the parts of one answer.
///
/// `None` if the server declines: not a failure, ranges one by one may do.
///
/// # Errors
/// As [`check_segment`].
pub(super) fn check_joined(
    head: &Parts,
    resource: &Resource,
) -> Result<Option<Multipart>, PathError> {
    match head.status {
        StatusCode::PARTIAL_CONTENT => {}
        // Some servers know no lists and say either.
        StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::OK => return Ok(None),
        _ => return Err(refusal(head)),
    }
    refuse_coding(&head.headers)?;
    resource.version().check(&head.headers)?;
    Ok(one(&head.headers, &CONTENT_TYPE).and_then(Multipart::of))
}

/// A status that brings no bytes.
fn refusal(head: &Parts) -> PathError {
    match head.status {
        StatusCode::PRECONDITION_FAILED => PathError::Changed("status 412".to_owned()),
        status @ (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => {
            PathError::Busy { status, wait: retry_after(&head.headers, SystemTime::now()) }
        }
        status => PathError::Status(status),
    }
}

/// Whether `got` is exactly `asked`, of an object of the pinned length.
pub(super) fn check_range(
    got: ContentRange,
    asked: Range<u64>,
    resource: &Resource,
) -> Result<(), PathError> {
    match got {
        ContentRange::Bytes { complete: Some(n), .. } if n != resource.length => {
            Err(PathError::Changed(format!("its length is {n}, not {} bytes", resource.length)))
        }
        ContentRange::Bytes { range, complete: Some(_) }
            if Some(range) == ByteRange::from_half_open(asked.clone()) =>
        {
            Ok(())
        }
        other => Err(PathError::Range { asked, got: other.to_string() }),
    }
}

/// The value of a field that occurs exactly once and is plain text.
pub(super) fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

fn content_range(headers: &HeaderMap) -> Result<ContentRange, PathError> {
    let text = one(headers, &CONTENT_RANGE).unwrap_or("");
    let shown = || text.chars().take(80).collect();
    let range = text.parse().map_err(|_| PathError::ContentRange(shown()))?;
    match range {
        ContentRange::Bytes { complete: Some(n), .. }
        | ContentRange::Unsatisfied { complete: n }
            if n > LONGEST =>
        {
            Err(PathError::ContentRange(shown()))
        }
        range => Ok(range),
    }
}

/// `Content-Length`, which hyper has checked to be one number.
fn length(headers: &HeaderMap) -> Result<Option<u64>, PathError> {
    let Some(text) = one(headers, &CONTENT_LENGTH) else { return Ok(None) };
    let got = text.trim().parse().map_err(|_| PathError::Length { expected: 0, got: 0 })?;
    if got > LONGEST { Err(PathError::Length { expected: LONGEST, got }) } else { Ok(Some(got)) }
}

fn check_length(headers: &HeaderMap, expected: u64) -> Result<(), PathError> {
    match length(headers)? {
        Some(got) if got != expected => Err(PathError::Length { expected, got }),
        _ => Ok(()),
    }
}

/// We asked for `identity`: ranges of a compressed form are bytes of something else. So are
/// codings of the transfer that nobody takes off again: of these, chunks alone are.
fn refuse_coding(headers: &HeaderMap) -> Result<(), PathError> {
    let text = |name| headers.get_all(name).iter().map(|v| v.to_str().unwrap_or("?").trim());
    let content = |c: &&str| !c.is_empty() && !c.eq_ignore_ascii_case("identity");
    let transfer: Vec<_> = text(TRANSFER_ENCODING).collect();
    let chunked = matches!(&transfer[..], [t] if t.eq_ignore_ascii_case("chunked"));
    match text(CONTENT_ENCODING).find(content) {
        Some(coding) => Err(PathError::Compressed(coding.to_owned())),
        None if chunked || transfer.is_empty() => Ok(()),
        None => Err(PathError::Compressed(transfer.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Response;

    fn head(status: u16, fields: &[(&str, &str)]) -> Parts {
        let mut builder = Response::builder().status(status);
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        builder.body(()).unwrap().into_parts().0
    }

    fn url() -> HttpUrl {
        HttpUrl::parse("http://www.example/a.iso").unwrap()
    }

    fn resource(validator: Option<Validator>, fields: &[(&str, &str)]) -> Resource {
        let names = Names::read(&head(206, fields).headers);
        Resource { url: url(), length: 1000, validator, names, said: Said::default() }
    }

    const GZIPPED: (&str, &str) = ("transfer-encoding", "gzip, chunked");
    const CHUNKED: (&str, &str) = ("transfer-encoding", "chunked");
    const TAG: (&str, &str) = ("etag", "\"1\"");
    const DATE: (&str, &str) = ("last-modified", "Mon, 01 Jan 2024 00:00:00 GMT");

    #[test]
    fn a_206_pins_length_and_strong_tag_else_date() {
        let first = ("content-range", "bytes 0-0/1000");
        let pin = |fields: &[(&str, &str)]| read_answer(&head(206, fields), &url(), 0..1).unwrap();
        let is = |fields: &[(&str, &str)], validator| {
            let all: Vec<_> = std::iter::once(first).chain(fields.iter().copied()).collect();
            assert_eq!(pin(&all), Answer::Ranged(resource(validator, fields)), "{fields:?}");
        };
        let weak = ("etag", "W/\"1\"");
        is(&[TAG, DATE], Some(Validator::Etag("\"1\"".into())));
        is(&[DATE], Some(Validator::LastModified(DATE.1.into())));
        is(&[weak, DATE], Some(Validator::Dated { date: DATE.1.into(), tag: weak.1.into() }));
        is(&[], None);
        is(&[TAG, ("etag", "\"2\""), DATE], None);
    }

    #[test]
    fn the_first_bytes_are_as_many_as_asked_for_or_as_there_are() {
        let read = |range: &str, n| {
            read_answer(&head(206, &[("content-range", range), TAG]), &url(), 0..n).is_ok()
        };
        assert!(read("bytes 0-255/1000", 256) && read("bytes 0-999/1000", 5000));
        assert!(!read("bytes 0-254/1000", 256) && !read("bytes 0-998/1000", 5000));
        assert!(!read("bytes 1-256/1000", 256));
    }

    #[test]
    fn an_empty_object_answers_416() {
        let answer = read_answer(&head(416, &[("content-range", "bytes */0")]), &url(), 0..1);
        assert!(matches!(answer, Ok(Answer::Ranged(Resource { length: 0, .. }))));
        assert!(read_answer(&head(416, &[("content-range", "bytes */9")]), &url(), 0..1).is_err());
        assert!(read_answer(&head(416, &[]), &url(), 0..1).is_err());
    }

    #[test]
    fn answers_that_cannot_be_trusted_are_refused() {
        let html = ("content-type", "text/html; charset=utf-8");
        for (status, fields, word) in [
            (206, &[("content-range", "bytes 0-9/1000")][..], "bytes 0-9/1000"),
            (206, &[("content-range", "bytes 0-0/*")], "bytes 0-0/*"),
            (206, &[], "Content-Range"),
            (206, &[("content-range", "bytes 0-0/9223372036854775808")], "9223372036854775808"),
            (200, &[("content-length", "9223372036854775808")], "9223372036854775808"),
            (206, &[("content-range", "bytes 0-0/9"), ("content-length", "7")], "7"),
            (206, &[("content-range", "bytes 0-0/9"), ("content-encoding", "gzip")], "gzip"),
            (206, &[("content-range", "bytes 0-0/9"), GZIPPED], "gzip"),
            (200, &[GZIPPED], "gzip, chunked"),
            (200, &[("transfer-encoding", "identity")], "identity"),
            (200, &[CHUNKED, CHUNKED], "chunked, chunked"),
            (200, &[html, ("content-length", "100")], "page"),
            (200, &[], "end"),
            (404, &[], "404"),
            (304, &[], "304"),
            (302, &[("location", "ftp://x/y")], "https"),
            (302, &[], "302"),
        ] {
            let error = read_answer(&head(status, fields), &url(), 0..1).unwrap_err().to_string();
            assert!(error.contains(word), "{status} {fields:?}: {error}");
        }
    }

    #[test]
    fn a_200_is_the_whole_object_if_its_end_is_marked() {
        for (field, length) in
            [(("content-length", "9"), Some(9)), (("transfer-encoding", "chunked"), None)]
        {
            let answer = read_answer(&head(200, &[field, TAG]), &url(), 0..1);
            assert!(matches!(answer, Ok(Answer::Whole(w)) if w.length == length));
        }
    }

    #[test]
    fn lists_of_ranges_are_parts_or_declined() {
        let pinned = resource(Some(Validator::Etag("\"1\"".into())), &[TAG]);
        let parts = ("content-type", "multipart/byteranges; boundary=x");
        let check = |status, fields: &[(&str, &str)]| check_joined(&head(status, fields), &pinned);
        assert!(check(206, &[parts, TAG]).unwrap().is_some());
        for (status, fields) in
            [(200, &[TAG][..]), (416, &[]), (206, &[TAG, ("content-range", "bytes 10-19/1000")])]
        {
            assert!(check(status, fields).unwrap().is_none(), "{status} {fields:?}");
        }
        assert!(matches!(check(206, &[parts]), Err(PathError::Changed(_))));
        assert!(matches!(check(412, &[]), Err(PathError::Changed(_))));
        assert!(matches!(check(503, &[]), Err(PathError::Busy { .. })));
        assert!(matches!(check(403, &[]), Err(PathError::Status(_))));
        let coded = check(206, &[parts, TAG, ("content-encoding", "gzip")]);
        assert!(matches!(coded, Err(PathError::Compressed(_))));
        assert!(matches!(check(206, &[parts, TAG, GZIPPED]), Err(PathError::Compressed(_))));
        assert!(check(206, &[parts, TAG, CHUNKED]).is_ok());
    }

    #[test]
    fn a_segment_must_be_what_was_asked_of_the_same_object() {
        let pinned = resource(Some(Validator::Etag("\"1\"".into())), &[TAG]);
        let right = ("content-range", "bytes 10-19/1000");
        let check =
            |status, fields: &[(&str, &str)]| check_segment(&head(status, fields), 10..20, &pinned);
        check(206, &[right, TAG]).unwrap();
        check(206, &[right, TAG, ("content-length", "10")]).unwrap();
        for (status, fields, changed) in [
            (206, &[right, ("etag", "\"2\"")][..], true),
            (206, &[right], true),
            (206, &[("content-range", "bytes 10-19/1001"), TAG], true),
            (412, &[], true),
            (416, &[], true),
            (206, &[("content-range", "bytes 10-18/1000"), TAG], false),
            (206, &[("content-range", "bytes 10-19/*"), TAG], false),
            (206, &[right, TAG, ("content-length", "9")], false),
            (206, &[right, TAG, ("content-encoding", "br")], false),
            (206, &[right, TAG, GZIPPED], false),
            (206, &[right, right, TAG], false),
            (200, &[TAG], false),
            (503, &[], false),
        ] {
            let error = check(status, fields).unwrap_err();
            let found = matches!(error, PathError::Changed(_));
            assert_eq!(found, changed, "{status} {fields:?}: {error}");
        }
    }
}
