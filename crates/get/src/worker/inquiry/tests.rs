//! Tests: which answer leads to which request.

use super::*;
use crate::{metadata::Metadata, version::VersionNames};

fn url(path: &str) -> HttpUrl {
    HttpUrl::parse(&format!("http://www.example{path}")).unwrap()
}

fn inquiry(asked: Range<u64>) -> Inquiry {
    Inquiry::new(url("/a.iso"), Some(asked))
}

fn ranged(length: u64) -> Answer {
    let (names, metadata) = (VersionNames::default(), Metadata::default());
    Answer::Ranged(Resource { url: url("/a.iso"), length, validator: None, names, metadata })
}

fn whole(path: &str, length: u64, is_page: bool) -> Answer {
    Answer::Whole(WholeObject {
        url: url(path),
        length: Some(length),
        is_open_ended: false,
        validator: None,
        names: VersionNames::default(),
        metadata: Metadata { is_page, ..Metadata::default() },
    })
}

fn status(status: u16) -> PathError {
    PathError::Status(StatusCode::from_u16(status).unwrap())
}

fn busy(status: u16, wait: Option<u64>) -> PathError {
    let status = StatusCode::from_u16(status).unwrap();
    PathError::Busy { status, wait: wait.map(Duration::from_secs) }
}

/// Whether the next request is plain and goes to the given URL.
fn is_plain(inquiry: &Inquiry, step: &Step) -> bool {
    matches!(step, Step::Ask(_)) && inquiry.asked.is_none() && inquiry.url == inquiry.given
}

#[test]
fn an_error_that_the_range_may_have_caused_leads_to_one_plain_request() {
    let server = ServerTraits::default();
    for error in [
        status(400),
        status(403),
        status(404),
        status(416),
        status(500),
        busy(503, None),
        busy(503, Some(1)),
        PathError::NoTotal,
        PathError::Clamped(9),
        PathError::Page,
        PathError::Silent(Duration::ZERO),
        PathError::Redirect(thalweg_paths::url::UrlError::Syntax("x".into())),
    ] {
        let (mut inquiry, text) = (inquiry(0..HEAD), error.to_string());
        let step = inquiry.next(Err(error), &server);
        assert!(is_plain(&inquiry, &step), "{text}");
        let step = inquiry.next(Err(status(404)), &server);
        assert!(matches!(step, Step::Failed(_)), "{text}: only once");
    }
    for error in [PathError::NoTls, PathError::Altered, PathError::Interim(16)] {
        let step = inquiry(0..HEAD).next(Err(error), &server);
        assert!(matches!(step, Step::Failed(_)), "it is not due to the range");
    }
}

#[test]
fn a_status_that_may_refuse_identity_leads_to_one_request_without_it() {
    for (code, is_doubted) in
        [(406, true), (400, true), (403, true), (500, true), (404, false), (410, false)]
    {
        let server = ServerTraits::default();
        let mut first = inquiry(0..HEAD);
        first.next(Err(status(code)), &server);
        let step = first.next(Err(status(code)), &server);
        assert_eq!(is_plain(&first, &step) && first.is_bare(), is_doubted, "{code}");
        if is_doubted {
            assert!(matches!(first.next(Err(status(code)), &server), Step::Failed(_)));
        }
        let mut later = inquiry(0..HEAD);
        if is_doubted {
            let step = later.next(Err(status(code)), &server);
            assert!(is_plain(&later, &step), "{code}: the range may be the cause for this file");
        }
        assert!(matches!(later.next(Err(status(code)), &server), Step::Failed(_)), "{code}: known");
    }
    let server = ServerTraits::default();
    let mut first = Inquiry::new(url("/a.iso"), None);
    assert!(matches!(first.next(Err(status(406)), &server), Step::Ask(false)));
    assert!(matches!(first.next(Ok(whole("/a.iso", 9, false)), &server), Step::Done(_)));
    assert!(server.refuses_identity() && !server.is_asked_plainly());
}

#[test]
fn a_status_that_a_plain_request_gets_too_is_believed_from_then_on() {
    let server = ServerTraits::default();
    for (n, plain) in [(0, true), (1, false)] {
        let mut inquiry = inquiry(0..HEAD);
        let step = inquiry.next(Err(status(404)), &server);
        assert_eq!(is_plain(&inquiry, &step), plain, "file {n}");
        if plain {
            assert!(matches!(inquiry.next(Err(status(404)), &server), Step::Failed(_)));
        }
    }
    assert!(!server.is_honest(StatusCode::FORBIDDEN));
}

#[test]
fn a_refused_or_missing_file_does_not_affect_other_files() {
    for code in [401, 403, 404, 500] {
        let server = ServerTraits::default();
        let ask = |is_there: bool| {
            let mut inquiry = inquiry(0..HEAD);
            let step = inquiry.next(Err(status(code)), &server);
            let asks_plainly = is_plain(&inquiry, &step);
            match is_there {
                true => inquiry.next(Ok(whole("/a.iso", 9, false)), &server),
                false => inquiry.next(Err(status(code)), &server),
            };
            asks_plainly
        };
        assert!(ask(true) && ask(false) && ask(true), "{code}: after a file that exists");
        let server = ServerTraits::default();
        let mut refused = inquiry(0..HEAD);
        refused.next(Err(status(code)), &server);
        refused.next(Err(status(code)), &server);
        let mut next = inquiry(0..HEAD);
        let step = next.next(Err(status(code)), &server);
        assert_eq!(is_plain(&next, &step), code != 404, "{code}: after a file that is missing");
    }
}

#[test]
fn a_length_equal_to_the_end_of_the_range_is_doubted() {
    let server = ServerTraits::default();
    for asked in [0..1, 0..HEAD] {
        let mut inquiry = inquiry(asked.clone());
        let step = inquiry.next(Ok(ranged(asked.end)), &server);
        assert!(is_plain(&inquiry, &step), "{asked:?}");
        assert!(matches!(
            inquiry.next(Ok(whole("/a.iso", asked.end, false)), &server),
            Step::Done(_)
        ));
    }
    assert!(!server.is_asked_plainly(), "it was honest both times");
    // The length was known before.
    let step = inquiry(500..1000).next(Ok(ranged(1000)), &server);
    assert!(matches!(step, Step::Done(_)));
    for _ in 0..2 {
        let mut inquiry = inquiry(0..HEAD);
        inquiry.next(Ok(ranged(HEAD)), &server);
        inquiry.next(Ok(whole("/a.iso", HEAD + 1, false)), &server);
    }
    assert!(server.is_asked_plainly(), "two false lengths");
}

#[test]
fn a_length_equal_to_a_typical_limit_is_doubted_once_for_each_server() {
    let server = ServerTraits::default();
    for length in [1, 999, 100_001, 255_999] {
        let step = inquiry(0..HEAD).next(Ok(ranged(length)), &server);
        assert!(matches!(step, Step::Done(_)), "{length} is not a typical limit");
    }
    for is_doubted in [true, false] {
        let mut small = inquiry(0..HEAD);
        let step = small.next(Ok(ranged(100_000)), &server);
        assert_eq!(is_plain(&small, &step), is_doubted);
        small.next(Ok(whole("/a.iso", 100_000, false)), &server);
    }
    let server = ServerTraits::default();
    for _ in 0..2 {
        let mut cut = inquiry(0..HEAD);
        let step = cut.next(Ok(ranged(100_000)), &server);
        assert!(is_plain(&cut, &step));
        cut.next(Ok(whole("/a.iso", 900_000, false)), &server);
    }
    assert!(server.is_asked_plainly(), "two false lengths");
}

#[test]
fn a_login_page_elsewhere_is_not_the_file() {
    let server = ServerTraits::default();
    let to = |path: &str| Ok(Answer::Redirect(url(path)));
    let mut led = inquiry(0..HEAD);
    led.next(to("/login?next=/a.iso"), &server);
    let step = led.next(Ok(whole("/login?next=/a.iso", 9, true)), &server);
    assert!(is_plain(&led, &step));
    // Without a range it is redirected there again, so this is what the URL leads to.
    led.next(to("/login?next=/a.iso"), &server);
    let step = led.next(Ok(whole("/login?next=/a.iso", 9, true)), &server);
    assert!(matches!(step, Step::Done(_)));
    let mut same = inquiry(0..HEAD);
    same.next(to("/a.iso"), &server);
    assert!(matches!(same.next(Ok(whole("/a.iso", 9, true)), &server), Step::Done(_)));
    let mut in_ranges = inquiry(0..HEAD);
    in_ranges.next(to("/login?next=/a.iso"), &server);
    let mut page = ranged(9);
    if let Answer::Ranged(resource) = &mut page {
        resource.metadata.is_page = true;
    }
    let step = in_ranges.next(Ok(page), &server);
    assert!(is_plain(&in_ranges, &step), "a login page with ranges");
    assert!(!server.is_asked_plainly());
}

#[test]
fn a_contradiction_is_retried_once_and_a_range_past_the_end_is_replaced_by_one_byte() {
    let server = ServerTraits::default();
    let length = || PathError::Length { expected: 1, got: 2 };
    let mut inquiry = inquiry(0..HEAD);
    assert!(matches!(inquiry.next(Err(length()), &server), Step::Ask(true)));
    assert_eq!(inquiry.asked, Some(0..HEAD));
    let step = inquiry.next(Err(length()), &server);
    assert!(is_plain(&inquiry, &step));
    let mut late = Inquiry::new(url("/a.iso"), Some(500..1000));
    let behind = PathError::Range { asked: 500..1000, got: "bytes */9".into() };
    assert!(matches!(late.next(Err(behind), &server), Step::Ask(true)));
    assert_eq!(late.asked, Some(ONE_BYTE));
}

#[test]
fn a_busy_server_is_waited_for_and_then_asked_for_ranges_again() {
    let server = ServerTraits::default();
    let mut inquiry = inquiry(0..HEAD);
    for _ in 0..MAX_WAITS {
        let step = inquiry.next(Err(busy(503, Some(1))), &server);
        assert!(is_plain(&inquiry, &step), "it may be the range");
        assert!(matches!(inquiry.next(Err(busy(503, Some(1))), &server), Step::Wait(..)));
        assert_eq!(inquiry.asked, Some(0..HEAD));
    }
    inquiry.next(Err(busy(503, Some(1))), &server);
    assert!(matches!(inquiry.next(Err(busy(503, Some(1))), &server), Step::Failed(_)));
    assert_eq!(inquiry.waited(), Duration::from_secs(3));
}

#[test]
fn redirects_are_bounded_for_range_and_plain_requests() {
    let server = ServerTraits::default();
    let mut inquiry = inquiry(0..HEAD);
    for (plain, limit) in [(false, MAX_RANGE_REDIRECTS), (true, MAX_REDIRECTS)] {
        for _ in 0..limit {
            assert!(matches!(
                inquiry.next(Ok(Answer::Redirect(url("/x"))), &server),
                Step::Ask(false)
            ));
        }
        let step = inquiry.next(Ok(Answer::Redirect(url("/x"))), &server);
        assert_eq!(matches!(step, Step::Failed(_)), plain);
    }
}
