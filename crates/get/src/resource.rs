//! Identifies the object from response heads, and checks whether a segment belongs to it. Pure.

use super::{
    PathError,
    metadata::Metadata,
    multipart::Multipart,
    retry_after::retry_after,
    version::{Version, VersionNames, read_validator},
};
use hyper::{
    HeaderMap, StatusCode,
    header::{
        ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderName, LOCATION,
        TRANSFER_ENCODING, WWW_AUTHENTICATE,
    },
    http::response::Parts,
};
use std::{ops::Range, time::SystemTime};
use thalweg_part::Validator;
use thalweg_paths::url::HttpUrl;
use thalweg_wire::content_range::{ByteRange, ContentRange};

/// The largest file length: the system uses 63 bits. A larger length from a server is false.
const LONGEST: u64 = i64::MAX as u64;

/// The object to fetch, with which every segment must agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    /// The final URL, after redirects.
    pub(super) url: HttpUrl,
    /// Its complete length in bytes.
    pub(super) length: u64,
    pub(super) validator: Option<Validator>,
    pub(super) names: VersionNames,
    /// Not part of the identity: two servers may give one object two names.
    pub(super) metadata: Metadata,
}

impl Resource {
    /// The version of the object.
    pub(super) fn version(&self) -> Version<'_> {
        Version { validator: &self.validator, names: &self.names }
    }
}

/// An object that the server only sends whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WholeObject {
    pub(super) url: HttpUrl,
    /// Its length, if the server states it. Otherwise it ends with its last chunk, or with the connection.
    pub(super) length: Option<u64>,
    /// Whether only the end of the connection marks its end (RFC 9112 §6.3), so that anyone who closes the connection
    /// makes it look complete.
    pub(super) is_open_ended: bool,
    pub(super) validator: Option<Validator>,
    pub(super) names: VersionNames,
    /// As [`Resource::metadata`].
    pub(super) metadata: Metadata,
}

impl WholeObject {
    /// As [`Resource::version`].
    pub(super) fn version(&self) -> Version<'_> {
        Version { validator: &self.validator, names: &self.names }
    }

    /// Converts it to an object whose rest can be requested in ranges if this answer breaks off; `None` if it has no
    /// length or is empty.
    pub(super) fn to_resource(&self) -> Option<Resource> {
        let length = self.length.filter(|n| *n > 0)?;
        let (validator, names) = (self.validator.clone(), self.names.clone());
        Some(Resource {
            url: self.url.clone(),
            length,
            validator,
            names,
            metadata: self.metadata.clone(),
        })
    }
}

/// The answer to the first request on a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The server offers ranges.
    Ranged(Resource),
    /// The server ignores ranges; the body of this answer is the object.
    Whole(WholeObject),
    /// A redirect to this URL.
    Redirect(HttpUrl),
}

impl Answer {
    /// Whether its media type is that of a web page.
    pub(super) fn is_page(&self) -> bool {
        match self {
            Self::Ranged(resource) => resource.metadata.is_page,
            Self::Whole(whole) => whole.metadata.is_page,
            Self::Redirect(_) => false,
        }
    }

    /// Removes the version, because a digest verifies the object.
    pub(super) fn forget_version(&mut self) {
        let (validator, names) = match self {
            Self::Ranged(resource) => (&mut resource.validator, &mut resource.names),
            Self::Whole(whole) => (&mut whole.validator, &mut whole.names),
            Self::Redirect(_) => return,
        };
        (*validator, *names) = (None, VersionNames::default());
    }
}

/// Interprets the answer at `url` to a first request: for the range `asked` (not empty) or the available part of it,
/// or, if `asked` is `None`, for the whole object.
///
/// # Errors
/// [`PathError`] if the answer cannot be used: statuses without the object, lengths that disagree, a web page where
/// something else was promised.
pub(super) fn read_answer(
    head: &Parts,
    url: &HttpUrl,
    asked: Option<&Range<u64>>,
) -> Result<Answer, PathError> {
    if head.status.is_redirection() && head.status != StatusCode::NOT_MODIFIED {
        return redirect(head, url);
    }
    match (head.status, asked) {
        (StatusCode::PARTIAL_CONTENT, Some(asked)) => {
            refuse_transfer_coding(&head.headers)?;
            let (held, complete) = held(head, asked)?;
            // Ranges without a total length cannot be shared among paths, and one answer has the whole object.
            let length = complete.ok_or(PathError::NoTotal)?;
            weigh(&held, asked, length)?;
            Ok(ranged(head, url, length))
        }
        (StatusCode::PARTIAL_CONTENT, None) => unasked_part(head, url).map(Answer::Whole),
        // This is the only way to say that there is not even a first byte.
        (StatusCode::RANGE_NOT_SATISFIABLE, Some(asked)) => match content_range(&head.headers) {
            Ok(ContentRange::Unsatisfied { complete: 0 }) => Ok(ranged(head, url, 0)),
            Ok(other) => Err(PathError::Range { asked: asked.clone(), got: other.to_string() }),
            Err(_) => Err(PathError::Status(head.status)),
        },
        // Whatever else the status means, the answer contains the object (RFC 9110 §15.3).
        (status, None) if status == StatusCode::NO_CONTENT => empty(head, url).map(Answer::Whole),
        (status, asked)
            if status.is_success() && (asked.is_none() || !is_without_content(status)) =>
        {
            whole(head, url).map(Answer::Whole)
        }
        _ => Err(refusal(head)),
    }
}

/// The object of a 204: empty, whatever the fields say (RFC 9112 §6.3), as in curl.
fn empty(head: &Parts, url: &HttpUrl) -> Result<WholeObject, PathError> {
    let (validator, names) = (read_validator(&head.headers), VersionNames::read(&head.headers));
    let (url, metadata) = (url.clone(), Metadata::read(&head.headers));
    Ok(WholeObject { url, length: Some(0), is_open_ended: false, validator, names, metadata })
}

fn is_without_content(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT)
}

/// The range in the body of a 206 to a request for `asked`, and the object's length if stated. The range begins as
/// requested; it may end earlier, as the server likes (RFC 9110 §15.3.7), or later.
///
/// # Errors
/// If the range begins elsewhere, or the fields contradict each other.
pub(super) fn held(
    head: &Parts,
    asked: &Range<u64>,
) -> Result<(Range<u64>, Option<u64>), PathError> {
    match content_range(&head.headers)? {
        ContentRange::Bytes { range, complete } if range.first() == asked.start => {
            check_length(&head.headers, range.len())?;
            Ok((asked.start..range.last().saturating_add(1), complete))
        }
        other => Err(PathError::Range { asked: asked.clone(), got: other.to_string() }),
    }
}

/// The least bytes in an answer for ranges to be worthwhile, if more was requested and more than 8 further answers of
/// that size would be needed: a plain `GET` of the rest costs fewer round trips.
const WORTHWHILE: u64 = 1 << 20;

/// Checks whether ranges are worthwhile if the server sends no more than `held` at once. A request that does not begin
/// at byte 0 goes on in any case, because received bytes are worth more.
fn weigh(held: &Range<u64>, asked: &Range<u64>, length: u64) -> Result<(), PathError> {
    let (n, left) = (held.end - held.start, length.saturating_sub(held.end));
    let is_short = held.end < asked.end.min(length);
    if is_short && asked.start == 0 && n < WORTHWHILE && left > 8 * n {
        return Err(PathError::Clamped(n));
    }
    Ok(())
}

/// The object of a 206 to a plain request: some servers know no other status. It is taken unless it states to be a
/// part.
fn unasked_part(head: &Parts, url: &HttpUrl) -> Result<WholeObject, PathError> {
    let whole = whole(head, url)?;
    let Ok(got) = content_range(&head.headers) else { return Ok(whole) };
    match got {
        ContentRange::Bytes { range, complete: Some(n) }
            if range.first() == 0 && range.len() == n =>
        {
            Ok(whole)
        }
        other => Err(PathError::ContentRange(other.to_string())),
    }
}

fn ranged(head: &Parts, url: &HttpUrl, length: u64) -> Answer {
    let (validator, names) = (read_validator(&head.headers), VersionNames::read(&head.headers));
    let metadata = Metadata::read(&head.headers);
    Answer::Ranged(Resource { url: url.clone(), length, validator, names, metadata })
}

fn redirect(head: &Parts, url: &HttpUrl) -> Result<Answer, PathError> {
    // The first of several `Location` fields, as in curl and browsers; an empty one is ignored.
    let location = head.headers.get(LOCATION).filter(|to| !to.as_bytes().trim_ascii().is_empty());
    match location {
        Some(location) => url.join(location).map(Answer::Redirect).map_err(PathError::Redirect),
        // The server chose itself: the content is its preferred representation (RFC 9110 §15.4.1).
        None if head.status == StatusCode::MULTIPLE_CHOICES => whole(head, url).map(Answer::Whole),
        // curl saves the content, which usually says in words that the file is elsewhere; wget refuses it.
        None => Err(PathError::Nowhere(head.status)),
    }
}

fn whole(head: &Parts, url: &HttpUrl) -> Result<WholeObject, PathError> {
    refuse_transfer_coding(&head.headers)?;
    let length = length(&head.headers)?;
    // HTTP/2 marks every end (RFC 9113 §8.1).
    let is_open_ended =
        length.is_none() && !is_chunked(&head.headers) && head.version < hyper::Version::HTTP_2;
    let (validator, names) = (read_validator(&head.headers), VersionNames::read(&head.headers));
    let (url, metadata) = (url.clone(), Metadata::read(&head.headers));
    Ok(WholeObject { url, length, is_open_ended, validator, names, metadata })
}

/// Whether the first bytes of an object look like a web page.
pub(super) fn looks_like_page(first: &[u8]) -> bool {
    const BEGINNINGS: [&str; 9] =
        ["<!doctype html", "<html", "<head", "<body", "<script", "<title", "<meta", "<h1", "<!--"];
    let text = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first).trim_ascii_start();
    let begins = |with: &&str| {
        text.get(..with.len()).is_some_and(|t| t.eq_ignore_ascii_case(with.as_bytes()))
    };
    BEGINNINGS.iter().any(begins)
}

/// Checks that the answer to a request for `asked` contains these bytes of `resource`, from the start of `asked` on.
/// Returns the range that the answer contains. With `by_hash`, the version is ignored, because a digest verifies the
/// object.
///
/// # Errors
/// [`PathError::Changed`] or [`PathError::Resized`] if the server has another object now, otherwise why the answer
/// cannot be used.
pub(super) fn check_segment(
    head: &Parts,
    asked: Range<u64>,
    resource: &Resource,
    by_hash: bool,
) -> Result<Range<u64>, PathError> {
    match head.status {
        StatusCode::PARTIAL_CONTENT => {}
        StatusCode::RANGE_NOT_SATISFIABLE => {
            return Err(PathError::Resized("it is shorter".to_owned()));
        }
        StatusCode::OK => return Err(PathError::NotPartial),
        _ => return Err(refusal(head)),
    }
    refuse_transfer_coding(&head.headers)?;
    let (held, complete) = held(head, &asked)?;
    check_total(complete, resource)?;
    if !by_hash {
        resource.version().check(&head.headers)?;
    }
    // Each such answer costs a round trip.
    let short = held.end < asked.end && held.end - held.start < LEAST;
    if short { Err(PathError::Clamped(held.end - held.start)) } else { Ok(held) }
}

/// The least bytes of an answer that are worth its round trip, if more was requested.
pub(super) const LEAST: u64 = 64 << 10;

fn check_total(complete: Option<u64>, resource: &Resource) -> Result<(), PathError> {
    match complete.filter(|n| *n != resource.length) {
        Some(n) => {
            Err(PathError::Resized(format!("its length is {n}, not {} bytes", resource.length)))
        }
        None => Ok(()),
    }
}

/// Checks whether several requested ranges are the parts of one answer.
///
/// `None` if the server declines, which is not a failure: single ranges may succeed. Servers decline lists with many
/// statuses: 416, 200, 400, 403, 501 (servers of the S3 protocol).
///
/// # Errors
/// As [`check_segment`], for statuses that concern the file or the load rather than the list.
pub(super) fn check_joined(
    head: &Parts,
    resource: &Resource,
    by_hash: bool,
) -> Result<Option<Multipart>, PathError> {
    match head.status {
        StatusCode::PARTIAL_CONTENT => {}
        StatusCode::PRECONDITION_FAILED
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::SERVICE_UNAVAILABLE => return Err(refusal(head)),
        _ => return Ok(None),
    }
    refuse_transfer_coding(&head.headers)?;
    if !by_hash {
        resource.version().check(&head.headers)?;
    }
    Ok(one(&head.headers, &CONTENT_TYPE).and_then(Multipart::from_content_type))
}

/// The error for a status without content.
fn refusal(head: &Parts) -> PathError {
    match head.status {
        StatusCode::PRECONDITION_FAILED => PathError::Changed("status 412".to_owned()),
        status @ (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => {
            PathError::Busy { status, wait: retry_after(&head.headers, SystemTime::now()) }
        }
        StatusCode::UNAUTHORIZED => PathError::Login(schemes(&head.headers)),
        status => PathError::Status(status),
    }
}

/// What an answer says about ranges (RFC 9110 §14.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeSupport {
    /// The server serves byte ranges.
    Bytes,
    /// The server serves no ranges.
    Refused,
    /// Not stated. Many servers that serve ranges do not state it.
    Unknown,
}

/// Reads `Accept-Ranges`.
pub(super) fn range_support(headers: &HeaderMap) -> RangeSupport {
    let values = headers.get_all(ACCEPT_RANGES).iter().filter_map(|v| v.to_str().ok());
    let units: Vec<&str> = values.flat_map(|v| v.split(',')).map(str::trim).collect();
    let has = |unit: &str| units.iter().any(|u| u.eq_ignore_ascii_case(unit));
    match (has("bytes"), has("none")) {
        (true, _) => RangeSupport::Bytes,
        (false, true) => RangeSupport::Refused,
        (false, false) => RangeSupport::Unknown,
    }
}

/// The most authentication schemes that are listed.
const MAX_SCHEMES: usize = 8;

/// The schemes of all challenges: tokens without `=` (RFC 9110 §11.6.1). Quoted text is skipped.
fn schemes(headers: &HeaderMap) -> Vec<String> {
    let mut schemes: Vec<String> = Vec::new();
    for value in headers.get_all(WWW_AUTHENTICATE) {
        let value = String::from_utf8_lossy(value.as_bytes());
        let bare: String = value.split('"').step_by(2).collect();
        for item in bare.split(',') {
            let mut words = item.split_whitespace();
            let word = words.next().unwrap_or("=");
            if words.next().is_some_and(|next| next.starts_with('=')) {
                continue;
            }
            let is_token =
                word.len() <= 20 && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            let is_known = schemes.iter().any(|s| s.eq_ignore_ascii_case(word));
            if is_token && !is_known && schemes.len() < MAX_SCHEMES {
                schemes.push(word.to_owned());
            }
        }
    }
    schemes
}

/// Checks that `got` is exactly `asked`, of an object of the pinned length.
pub(super) fn check_range(
    got: ContentRange,
    asked: Range<u64>,
    resource: &Resource,
) -> Result<(), PathError> {
    match got {
        ContentRange::Bytes { range, complete }
            if complete.is_some_and(|n| n != resource.length)
                || Some(range) == ByteRange::from_half_open(asked.clone()) =>
        {
            check_total(complete, resource)
        }
        other => Err(PathError::Range { asked, got: other.to_string() }),
    }
}

/// The value of a text field, if it occurs once or all occurrences are the same.
pub(super) fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.any(|other| other != first) { None } else { first.to_str().ok() }
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

/// Parses `Content-Length`: one number, however often it occurs (RFC 9110 §8.6); `None` for a chunked body (RFC 9112
/// §6.3).
fn length(headers: &HeaderMap) -> Result<Option<u64>, PathError> {
    if is_chunked(headers) {
        return Ok(None);
    }
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let value = String::from_utf8_lossy(value.as_bytes());
        for text in value.split(',') {
            let got = text.trim().parse().ok().filter(|got| *got <= LONGEST);
            let got = got.ok_or_else(|| PathError::BadLength(value.chars().take(60).collect()))?;
            if let Some(expected) = length.replace(got).filter(|other| *other != got) {
                return Err(PathError::Length { expected, got });
            }
        }
    }
    Ok(length)
}

fn check_length(headers: &HeaderMap, expected: u64) -> Result<(), PathError> {
    match length(headers)? {
        Some(got) if got != expected => Err(PathError::Length { expected, got }),
        _ => Ok(()),
    }
}

/// The transfer codings except `identity`, which means none.
fn transfer_codings(headers: &HeaderMap) -> Vec<&str> {
    let values = headers.get_all(TRANSFER_ENCODING).iter();
    let codings = values.flat_map(|v| v.to_str().unwrap_or("?").split(',')).map(str::trim);
    codings.filter(|c| !c.eq_ignore_ascii_case("identity")).collect()
}

fn is_chunked(headers: &HeaderMap) -> bool {
    transfer_codings(headers).last().is_some_and(|c| c.eq_ignore_ascii_case("chunked"))
}

/// Refuses transfer codings other than chunked, because nobody would decode them. Content codings belong to the
/// object: its bytes are saved as they are received. Malformed framing of a connection's first answer is already
/// corrected; hyper would misread that of a later one.
fn refuse_transfer_coding(headers: &HeaderMap) -> Result<(), PathError> {
    match &transfer_codings(headers)[..] {
        [] => Ok(()),
        [one] if one.eq_ignore_ascii_case("chunked") => Ok(()),
        codings => Err(PathError::TransferCoding(codings.join(", "))),
    }
}

/// Whether the framing is written in a form that hyper does not understand.
pub(super) fn has_odd_framing(headers: &HeaderMap) -> bool {
    refuse_transfer_coding(headers).is_err()
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
        let names = VersionNames::read(&head(206, fields).headers);
        Resource { url: url(), length: 1000, validator, names, metadata: Metadata::default() }
    }

    const GZIPPED: (&str, &str) = ("transfer-encoding", "gzip, chunked");
    const CHUNKED: (&str, &str) = ("transfer-encoding", "chunked");
    const TAG: (&str, &str) = ("etag", "\"1\"");
    const DATE: (&str, &str) = ("last-modified", "Mon, 01 Jan 2024 00:00:00 GMT");

    #[test]
    fn authentication_schemes_are_read_from_challenges() {
        let of = |lines: &[&str]| {
            let fields: Vec<_> = lines.iter().map(|line| ("www-authenticate", *line)).collect();
            match read_answer(&head(401, &fields), &url(), None) {
                Err(PathError::Login(schemes)) => schemes.join(" "),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of(&[]), "");
        assert_eq!(of(&["Basic realm=\"a, Digest\""]), "Basic");
        assert_eq!(
            of(&["Digest realm=\"a\", nonce=\"b\", qop=auth, Basic realm=x"]),
            "Digest Basic"
        );
        assert_eq!(of(&["Negotiate", "NTLM, negotiate"]), "Negotiate NTLM");
        assert_eq!(of(&["Digest realm = \"a\", stale = true"]), "Digest");
        assert_eq!(of(&["\u{e9}", "=", ""]), "");
    }

    #[test]
    fn a_206_pins_the_length_and_a_strong_tag_or_else_the_date() {
        let first = ("content-range", "bytes 0-0/1000");
        let pin = |fields: &[(&str, &str)]| {
            read_answer(&head(206, fields), &url(), Some(&(0..1))).unwrap()
        };
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
        is(&[weak, DATE, ("content-encoding", "gzip")], None);
        is(&[TAG, ("content-encoding", "x-gzip")], Some(Validator::Etag("\"1\"".into())));
        is(&[DATE, ("content-encoding", "utf-8")], Some(Validator::LastModified(DATE.1.into())));
    }

    /// The range of a 206 to a request for `asked`, as it is interpreted.
    fn ranged_answer(range: &str, asked: Range<u64>) -> Result<Range<u64>, PathError> {
        let head = head(206, &[("content-range", range), TAG]);
        read_answer(&head, &url(), Some(&asked))?;
        Ok(held(&head, &asked)?.0)
    }

    #[test]
    fn a_first_answer_may_be_shorter_or_longer_than_requested() {
        let m = 1 << 20;
        for (range, asked, holds) in [
            ("bytes 0-255/1000", 0..256, 0..256),
            ("bytes 0-999/1000", 0..5000, 0..1000),
            ("bytes 0-254/1000", 0..256, 0..255),
            ("bytes 0-999/1000", 0..256, 0..1000),
            ("bytes 0-1048575/99999999", 0..2 * m, 0..m),
            ("bytes 500-509/99999999", 500..1000, 500..510),
        ] {
            assert_eq!(ranged_answer(range, asked).unwrap(), holds, "{range}");
        }
        assert!(matches!(ranged_answer("bytes 0-9/1000", 0..256), Err(PathError::Clamped(10))));
        assert!(matches!(ranged_answer("bytes 1-256/1000", 0..256), Err(PathError::Range { .. })));
        assert!(matches!(ranged_answer("bytes 0-255/*", 0..256), Err(PathError::NoTotal)));
    }

    #[test]
    fn a_416_with_length_zero_is_an_empty_object() {
        let read = |fields: &[(&str, &str)]| read_answer(&head(416, fields), &url(), Some(&(0..1)));
        let answer = read(&[("content-range", "bytes */0")]);
        assert!(matches!(answer, Ok(Answer::Ranged(Resource { length: 0, .. }))));
        assert!(read(&[("content-range", "bytes */9")]).is_err());
        assert!(read(&[]).is_err());
    }

    #[test]
    fn answers_that_cannot_be_trusted_are_refused() {
        let zero = ("content-range", "bytes 0-0/9");
        for (status, fields, word) in [
            (206, &[("content-range", "bytes 1-9/1000")][..], "bytes 1-9/1000"),
            (206, &[], "Content-Range"),
            (206, &[zero, ("content-range", "bytes 0-0/8")], "Content-Range"),
            (206, &[("content-range", "bytes 0-0/9223372036854775808")], "9223372036854775808"),
            (200, &[("content-length", "9223372036854775808")], "9223372036854775808"),
            (206, &[zero, ("content-length", "7")], "7"),
            (200, &[("content-length", "7"), ("content-length", "8")], "7"),
            (206, &[zero, GZIPPED], "gzip"),
            (200, &[GZIPPED], "gzip, chunked"),
            (200, &[CHUNKED, CHUNKED], "chunked, chunked"),
            (204, &[], "204"),
            (404, &[], "404"),
            (304, &[], "304"),
            (302, &[("location", "ftp://x/y")], "https"),
            (302, &[], "302 Found, a redirect without a Location"),
            (307, &[("location", " ")], "307 Temporary Redirect, a redirect without a Location"),
        ] {
            let read = read_answer(&head(status, fields), &url(), Some(&(0..1)));
            let error = read.unwrap_err().to_string();
            assert!(error.contains(word), "{status} {fields:?}: {error}");
        }
    }

    #[test]
    fn any_success_status_to_a_plain_request_is_the_whole_object() {
        let html = ("content-type", "text/html; charset=utf-8");
        let identity = ("transfer-encoding", "identity");
        let (nine, part) = (("content-length", "9"), ("content-range", "bytes 0-8/9"));
        for (status, fields, length, is_open_ended) in [
            (200, &[nine][..], Some(9), false),
            (200, &[nine, nine], Some(9), false),
            (200, &[("content-length", "9, 9")], Some(9), false),
            (200, &[CHUNKED], None, false),
            (200, &[CHUNKED, nine], None, false),
            (200, &[identity, nine], Some(9), false),
            (200, &[identity], None, true),
            (200, &[], None, true),
            (203, &[nine], Some(9), false),
            (206, &[nine], Some(9), false),
            (206, &[nine, part], Some(9), false),
            (200, &[nine, ("content-encoding", "gzip")], Some(9), false),
            (200, &[nine, html], Some(9), false),
        ] {
            let Ok(Answer::Whole(whole)) = read_answer(&head(status, fields), &url(), None) else {
                panic!("{status} {fields:?}")
            };
            assert_eq!((whole.length, whole.is_open_ended), (length, is_open_ended), "{fields:?}");
            assert_eq!(whole.metadata.is_page, fields.contains(&html));
        }
        let half =
            read_answer(&head(206, &[nine, ("content-range", "bytes 0-8/99")]), &url(), None);
        assert!(half.unwrap_err().to_string().contains("0-8/99"), "a part is not the whole");
    }

    #[test]
    fn pages_are_recognised_by_their_first_bytes() {
        for page in [&b"<html>"[..], b"\xef\xbb\xbf\n <!DOCTYPE HTML PUBLIC", b"<!-- x -->"] {
            assert!(looks_like_page(page));
        }
        for file in [&b""[..], b"\x1f\x8b<html>", b"<?xml version", b"<htm", b"PK"] {
            assert!(!looks_like_page(file));
        }
    }

    #[test]
    fn answers_to_lists_of_ranges_are_multipart_or_declined() {
        let pinned = resource(Some(Validator::Etag("\"1\"".into())), &[TAG]);
        let parts = ("content-type", "multipart/byteranges; boundary=x");
        let check =
            |status, fields: &[(&str, &str)]| check_joined(&head(status, fields), &pinned, false);
        assert!(check(206, &[parts, TAG]).unwrap().is_some());
        let one = &[TAG, ("content-range", "bytes 10-19/1000")][..];
        let refusals = [400, 403, 404, 405, 416, 500, 501].map(|status| (status, &[][..]));
        for (status, fields) in refusals.into_iter().chain([(200, &[TAG][..]), (206, one)]) {
            assert!(check(status, fields).unwrap().is_none(), "{status} {fields:?}");
        }
        assert!(matches!(check(206, &[parts]), Err(PathError::Changed(_))));
        assert!(matches!(check(412, &[]), Err(PathError::Changed(_))));
        assert!(matches!(check(503, &[]), Err(PathError::Busy { .. })));
        assert!(matches!(check(429, &[]), Err(PathError::Busy { .. })));
        let coded = check(206, &[parts, TAG, ("content-encoding", "gzip")]);
        assert!(matches!(coded, Err(PathError::Changed(_))));
        assert!(matches!(check(206, &[parts, TAG, GZIPPED]), Err(PathError::TransferCoding(_))));
        assert!(check(206, &[parts, TAG, CHUNKED]).is_ok());
        assert!(check_joined(&head(206, &[parts]), &pinned, true).unwrap().is_some());
    }

    #[test]
    fn a_segment_must_have_the_requested_range_and_version() {
        let pinned = resource(Some(Validator::Etag("\"1\"".into())), &[TAG]);
        let right = ("content-range", "bytes 10-19/1000");
        let check = |status, fields: &[(&str, &str)], by_hash| {
            check_segment(&head(status, fields), 10..20, &pinned, by_hash)
        };
        for fields in [
            &[right, TAG][..],
            &[right, TAG, ("content-length", "10")],
            &[right, right, TAG],
            &[("content-range", "bytes 10-19/*"), TAG],
        ] {
            assert_eq!(check(206, fields, false).unwrap(), 10..20, "{fields:?}");
        }
        assert_eq!(
            check(206, &[("content-range", "bytes 10-99/1000"), TAG], false).unwrap(),
            10..100
        );
        for (status, fields, changed) in [
            (206, &[right, ("etag", "\"2\"")][..], true),
            (206, &[right], true),
            (206, &[right, TAG, ("content-encoding", "br")], true),
            (206, &[("content-range", "bytes 10-19/1001"), TAG], true),
            (412, &[], true),
            (416, &[], true),
            (206, &[("content-range", "bytes 10-18/1000"), TAG], false),
            (206, &[("content-range", "bytes 11-19/1000"), TAG], false),
            (206, &[right, TAG, ("content-length", "9")], false),
            (206, &[right, TAG, GZIPPED], false),
            (206, &[right, ("content-range", "bytes 10-19/1001"), TAG], false),
            (200, &[TAG], false),
            (503, &[], false),
        ] {
            let error = check(status, fields, false).unwrap_err();
            let found = matches!(error, PathError::Changed(_) | PathError::Resized(_));
            assert_eq!(found, changed, "{status} {fields:?}: {error}");
        }
        assert!(check(206, &[right, ("etag", "\"2\"")], true).is_ok(), "a digest will judge");
        assert!(check(206, &[("content-range", "bytes 10-19/1001")], true).is_err());
    }

    #[test]
    fn short_segments_are_accepted_if_they_are_worth_a_round_trip() {
        let pinned = Resource { length: 10 << 20, ..resource(None, &[]) };
        let check = |range: &str| {
            check_segment(&head(206, &[("content-range", range)]), 0..1 << 20, &pinned, false)
        };
        assert_eq!(check("bytes 0-65535/10485760").unwrap(), 0..65536);
        assert!(matches!(check("bytes 0-65534/10485760"), Err(PathError::Clamped(65535))));
    }
}
