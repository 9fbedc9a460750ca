//! The steps to a path's first answer. Pure: takes answers and returns the next request.

use super::HEAD;
use crate::{
    PathError,
    resource::{Answer, Resource, WholeObject},
    retry_after::is_bearable,
    server::ServerTraits,
};
use hyper::StatusCode;
use std::{ops::Range, time::Duration};
use thalweg_paths::url::HttpUrl;

/// The range of a request that only asks what the object is.
pub(super) const ONE_BYTE: Range<u64> = 0..1;

/// The most redirects of a plain request, as in curl; wget and browsers follow 20.
pub(super) const MAX_REDIRECTS: usize = 50;

/// The most redirects of a range request: a server that redirects them in a circle is soon asked without a range.
const MAX_RANGE_REDIRECTS: usize = 10;

/// How often a server may delay the first request (429, 503 with `Retry-After`).
const MAX_WAITS: u32 = 3;

/// How often a server may contradict itself before it is asked for the whole file instead: once, because a server that
/// is being replaced may do so for a moment.
const MAX_FALSE: u32 = 1;

/// The state of a path's first requests.
///
/// If the answer to a range cannot be used, the server is asked once more without a range, starting with the given URL:
/// ranges are optional (RFC 9110 §14), and only this program wants them.
pub(super) struct Inquiry {
    given: HttpUrl,
    ranged: Option<Range<u64>>,
    /// The URL of the next request.
    pub(super) url: HttpUrl,
    /// The range of the next request; `None`: the whole.
    pub(super) asked: Option<Range<u64>>,
    redirects: usize,
    waits: u32,
    falses: u32,
    waited: Duration,
    /// The length that was in doubt.
    doubted: u64,
    /// Why ranges were given up.
    why_plain: Option<PathError>,
    /// The status that may have been caused by `Accept-Encoding: identity`; the field is now left out.
    why_bare: Option<StatusCode>,
}

/// The next step.
pub(super) enum Step {
    /// Request [`Inquiry::asked`] from [`Inquiry::url`], on a new connection if the flag is set.
    Ask(bool),
    /// Wait as the server says, then send the request.
    Wait(StatusCode, Duration),
    Done(Box<Answer>),
    /// There is no answer.
    Failed(PathError),
}

impl Inquiry {
    /// Creates an inquiry for the range `asked` of the object at `url`; `None`: the whole.
    pub(super) fn new(url: HttpUrl, asked: Option<Range<u64>>) -> Self {
        Self {
            given: url.clone(),
            ranged: asked.clone(),
            url,
            asked,
            redirects: 0,
            waits: 0,
            falses: 0,
            waited: Duration::ZERO,
            doubted: 0,
            why_plain: None,
            why_bare: None,
        }
    }

    /// Whether to leave out `Accept-Encoding`.
    pub(super) fn is_bare(&self) -> bool {
        self.why_bare.is_some()
    }

    /// The total time that the server asked to wait.
    pub(super) fn waited(&self) -> Duration {
        self.waited
    }

    /// Processes an answer or an error, and returns the next step.
    pub(super) fn next(&mut self, read: Result<Answer, PathError>, server: &ServerTraits) -> Step {
        match read {
            Ok(Answer::Redirect(_)) if self.redirects == self.max_redirects() => {
                self.refuse(PathError::TooManyRedirects(self.max_redirects()), server)
            }
            Ok(Answer::Redirect(next)) => {
                (self.url, self.redirects) = (next, self.redirects + 1);
                Step::Ask(false)
            }
            Ok(Answer::Ranged(found)) if self.is_doubtful(&found, server) => {
                self.doubted = found.length;
                self.refuse(PathError::DoubtfulEnd, server)
            }
            Ok(answer) if self.is_led_astray(&answer) => self.refuse(PathError::Page, server),
            Ok(answer) => {
                self.learn(&answer, server);
                Step::Done(Box::new(answer))
            }
            Err(PathError::Busy { status, wait: Some(wait) })
                if self.may_wait(status, wait, server) =>
            {
                (self.waits, self.waited) = (self.waits + 1, self.waited + wait);
                (self.asked, self.why_plain, self.why_bare) = (self.ranged.clone(), None, None);
                Step::Wait(status, wait)
            }
            // The object may be shorter than when this range was missing.
            Err(PathError::Range { .. }) if self.asked.as_ref().is_some_and(|a| *a != ONE_BYTE) => {
                self.asked = Some(ONE_BYTE);
                Step::Ask(true)
            }
            Err(error) if self.may_be_a_moment(&error) && self.falses < MAX_FALSE => {
                self.falses += 1;
                Step::Ask(true)
            }
            Err(error) => self.refuse(error, server),
        }
    }

    /// Whether the same request may get another answer at once. After a range request, a request without a range
    /// follows anyway.
    fn may_be_a_moment(&self, error: &PathError) -> bool {
        let is_no_answer = || {
            matches!(
                error,
                PathError::NoAnswer(_) | PathError::NotHttp(_) | PathError::BadLength(_)
            )
        };
        match (&self.asked, &self.ranged) {
            (Some(_), _) => error.is_contradiction(),
            (None, None) => error.is_contradiction() || is_no_answer(),
            (None, Some(_)) => false,
        }
    }

    fn max_redirects(&self) -> usize {
        if self.asked.is_some() { MAX_RANGE_REDIRECTS } else { MAX_REDIRECTS }
    }

    /// Gives up ranges, or the whole inquiry.
    fn refuse(&mut self, error: PathError, server: &ServerTraits) -> Step {
        let status = error.status();
        let first = self.why_plain.as_ref();
        let is_known = status.is_some_and(|s| server.is_honest(s));
        let is_doubted = self.asked.is_none() && self.why_bare.is_none() && !is_known;
        if is_doubted && !server.refuses_identity() && error.may_be_the_identity() {
            (self.url, self.redirects, self.why_bare) = (self.given.clone(), 0, status);
            return Step::Ask(false);
        }
        let before = [first.and_then(PathError::status), self.why_bare];
        if let Some(status) = status.filter(|s| before.contains(&Some(*s))) {
            server.status_was_honest(status);
        }
        // Another status may concern only this file, and other files may have failed for another reason.
        let is_absence = |s: StatusCode| matches!(s.as_u16(), 404 | 410);
        let is_honest = status.is_some_and(|s| is_absence(s) && server.is_honest(s));
        if self.asked.is_none() || first.is_some() || is_honest || !error.may_be_the_range() {
            return Step::Failed(error);
        }
        (self.url, self.redirects, self.asked) = (self.given.clone(), 0, None);
        let reconnect = status.is_none();
        self.why_plain = Some(error);
        Step::Ask(reconnect)
    }

    /// Whether to wait. A 503 may concern only the range; a plain request shows whether it does.
    fn may_wait(&self, status: StatusCode, wait: Duration, server: &ServerTraits) -> bool {
        let is_meant = self.asked.is_none()
            || status == StatusCode::TOO_MANY_REQUESTS
            || server.is_honest(status);
        is_meant && self.waits < MAX_WAITS && is_bearable(self.waited, wait)
    }

    /// Whether the stated length may be that of the part. It is doubted if it is the end of a first range; in later
    /// requests a length is known already, and `asked` ends elsewhere.
    ///
    /// Some servers limit each answer to a round number of bytes and state that as the length, so the first such file
    /// of each server is doubted too. Nearly all other short files need only one request.
    fn is_doubtful(&self, found: &Resource, server: &ServerTraits) -> bool {
        let Some(asked) = &self.asked else { return false };
        let is_first = *asked == ONE_BYTE || *asked == (0..HEAD);
        let n = found.length;
        let is_limit =
            (1..asked.end).contains(&n) && (n.is_multiple_of(1000) || n.is_multiple_of(1024));
        is_first && (asked.end == n || (is_limit && !server.has_honest_totals()))
    }

    /// Whether a redirect led to a page in place of the file, such as a login page for range requests. A redirect to
    /// the same name, as from http to https, does not count.
    fn is_led_astray(&self, found: &Answer) -> bool {
        let elsewhere = self.redirects > 0 && self.url.target() != self.given.target();
        self.asked.is_some() && self.why_plain.is_none() && elsewhere && found.is_page()
    }

    /// Records whether ranges were the cause of an earlier error.
    fn learn(&self, answer: &Answer, server: &ServerTraits) {
        if self.is_bare() {
            return server.identity_refused();
        }
        match (answer, &self.why_plain) {
            (Answer::Whole(WholeObject { length, .. }), Some(PathError::DoubtfulEnd)) => {
                match *length == Some(self.doubted) {
                    true => server.total_was_honest(),
                    false => server.ranges_failed(),
                }
            }
            (Answer::Whole(whole), Some(PathError::Page)) if whole.metadata.is_page => {}
            (_, None) => {}
            (_, Some(why)) => {
                if let Some(status) = why.status() {
                    server.status_was_for_ranges(status);
                }
                server.ranges_failed();
            }
        }
    }
}

#[cfg(test)]
mod tests;
