//! A path's first question: what the object is.

use super::{Body, Report, Worker, segments::Pending};
use crate::{
    PathError,
    http::range_request,
    resource::{Answer, Resource, read_answer},
    retry_after::is_bearable,
};
use hyper::body::{Body as _, Incoming};
use std::{ops::Range, sync::Arc, time::Duration};
use thalweg_paths::url::HttpUrl;
use tokio::time::{Instant, sleep, timeout_at};

/// So many bytes are asked for with the first question, so that a small file costs one round
/// trip and a large one begins with it. As [`Config::small`]: below this no path leaves slow
/// start, so no choice of paths would gain anything.
///
/// [`Config::small`]: thalweg_plan::selection::Config::small
pub(crate) const HEAD: u64 = 256_000;

/// The question for what the object is, alone.
const ONE_BYTE: Range<u64> = 0..1;

/// Browsers follow 20, RFC 2068 §10.3 once said 5; more than this is a loop.
const MAX_REDIRECTS: usize = 10;

/// How often a server may put the first question off (429, 503 with `Retry-After`).
const MAX_WAITS: u32 = 3;

/// How often a server may contradict itself at the first question before it is given up: as
/// often as two restarts of it behind a balancer of two would cause.
const MAX_FALSE: u32 = 4;

/// The statuses of a URL that is not valid any more: signed ones expire.
pub(super) const EXPIRED: [u16; 3] = [401, 403, 410];

impl Worker {
    /// Follows redirects to the object and reports what it is. If `range` is given, the
    /// answer's body is kept for the order that begins there. All within the download's
    /// patience; the time that the server asks to wait does not count as its own.
    pub(super) async fn discover(&mut self, range: Option<Range<u64>>) -> Result<(), PathError> {
        let (mut url, mut asked) = (self.url.clone(), range.unwrap_or(ONE_BYTE));
        let (mut redirects, mut waits, mut falses) = (0, 0, 0);
        let (patience, mut waited) = (self.shared.patience, Duration::ZERO);
        let began = Instant::now();
        loop {
            let request = range_request(&url, std::slice::from_ref(&asked), &self.fields_for(&url));
            let sent = timeout_at(began + patience + waited, self.send(&url, &request, false));
            let sent = sent.await.unwrap_or(Err(PathError::Silent(patience)));
            let (head, body) = sent?.into_parts();
            match read_answer(&head, &url, asked.clone()) {
                Ok(Answer::Redirect(_)) if redirects == MAX_REDIRECTS => {
                    return Err(PathError::TooManyRedirects(MAX_REDIRECTS));
                }
                Ok(Answer::Redirect(next)) => {
                    self.settle(body).await;
                    (url, redirects) = (next, redirects + 1);
                }
                Ok(answer) => return self.answered(answer, asked, body).await,
                Err(PathError::Busy { status, wait: Some(wait) })
                    if waits < MAX_WAITS && is_bearable(waited, wait) =>
                {
                    (waits, waited) = (waits + 1, waited + wait);
                    self.settle(body).await;
                    self.tell(Report::Waiting(status, wait)).await;
                    sleep(wait).await;
                }
                // The object may be shorter than it was when this range was missing.
                Err(error) if asked != ONE_BYTE && error.is_unsatisfied() => {
                    self.line.connection = None;
                    asked = ONE_BYTE;
                }
                Err(error) if error.is_contradiction() && falses < MAX_FALSE => {
                    falses += 1;
                    self.line.connection = None;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn answered(
        &mut self,
        answer: Answer,
        asked: Range<u64>,
        body: Incoming,
    ) -> Result<(), PathError> {
        let mut whole = None;
        match &answer {
            Answer::Ranged(resource) if asked != ONE_BYTE && resource.length > 0 => {
                let range = asked.start..asked.end.min(resource.length);
                let (resource, framed) = (resource.clone(), body.size_hint().exact().is_some());
                self.line.pending = Some(Pending { range, resource, body, framed });
            }
            Answer::Whole(_) => {
                whole = self
                    .line
                    .connection
                    .take()
                    .map(|connection| Body { incoming: body, _connection: connection });
            }
            Answer::Ranged(_) | Answer::Redirect(_) => self.settle(body).await,
        }
        self.tell(Report::Answered(Box::new(answer), whole)).await;
        Ok(())
    }

    /// Asks the original URL where the object is now; `None` if that is no other place.
    ///
    /// # Errors
    /// [`PathError::Changed`] if another object is there.
    pub(super) async fn refresh(
        &mut self,
        resource: &Resource,
    ) -> Result<Option<Arc<Resource>>, PathError> {
        if resource.url == self.url {
            return Ok(None);
        }
        let mut url = self.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let request = range_request(&url, &[ONE_BYTE], &self.fields_for(&url));
            let (head, body) = self.send(&url, &request, false).await?.into_parts();
            self.settle(body).await;
            match read_answer(&head, &url, ONE_BYTE) {
                Ok(Answer::Redirect(next)) => url = next,
                Ok(Answer::Ranged(new)) if new.url == resource.url => return Ok(None),
                Ok(Answer::Ranged(new))
                    if new.length == resource.length
                        && new.version().may_be(resource.version()) =>
                {
                    return Ok(Some(Arc::new(new)));
                }
                Ok(Answer::Ranged(_)) => {
                    let why = "its URL had expired, and the new one leads to another file";
                    return Err(PathError::Changed(why.to_owned()));
                }
                Ok(Answer::Whole(_)) | Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// How long a server that is busy and does not say so is left alone: doubled each time.
pub(crate) fn pause(times: u32) -> Duration {
    Duration::from_secs(1 << times.min(4))
}

/// Whether this URL's answer says that it expired.
pub(super) fn is_expired(status: hyper::StatusCode, url: &HttpUrl, original: &HttpUrl) -> bool {
    EXPIRED.contains(&status.as_u16()) && url != original
}
