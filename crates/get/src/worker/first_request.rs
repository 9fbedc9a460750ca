//! A path's first request, which determines the object.

use super::{
    Body, Report, RequestPurpose, Worker,
    body::{HttpAnswer, next_bytes},
    inquiry::{Inquiry, MAX_REDIRECTS, ONE_BYTE, Step},
    segments::UnreadAnswer,
};
use crate::{
    PathError,
    http::{plain_request, range_request},
    resource::{Answer, RangeSupport, Resource, held, looks_like_page, range_support, read_answer},
};
use bytes::Bytes;
use hyper::{StatusCode, body::Incoming, header::ACCEPT_ENCODING, http::response::Parts};
use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use thalweg_paths::url::HttpUrl;
use tokio::time::{Instant, sleep, timeout_at};

/// The number of bytes in the first request, so that a small file takes one round trip and the download of a large one
/// begins with it. The same as [`Config::small`]: a path does not leave slow start before, so a choice of paths would
/// gain nothing.
///
/// [`Config::small`]: thalweg_plan::selection::Config::small
pub(crate) const HEAD: u64 = 256_000;

/// How long a server may take to answer the first range once connected. After that it is asked without a range: some
/// servers never answer ranges.
const RANGE_PATIENCE: Duration = Duration::from_secs(5);

/// The statuses of an expired URL, such as a signed one.
pub(super) const EXPIRED: [u16; 3] = [401, 403, 410];

/// An answer: its head and its body.
struct ReceivedAnswer {
    head: Parts,
    /// The part of the body that was read.
    first: Option<Bytes>,
    body: Incoming,
}

impl Worker {
    /// Follows redirects to the object and reports what it is. The answer's bytes of `range` (`None`: all) are kept for
    /// the order that begins there. All this takes at most the download's patience, which starts again if the whole is
    /// requested after a range; the time that the server asks to wait does not count.
    pub(super) async fn discover(&mut self, range: Option<Range<u64>>) -> Result<(), PathError> {
        let asked = range.filter(|_| !self.shared.is_plain);
        let may_go_on = asked.is_none() && !self.shared.is_plain;
        let mut inquiry = Inquiry::new(self.url.clone(), asked);
        let mut began = Instant::now();
        loop {
            let was_ranged = inquiry.asked.is_some();
            let read = self.inquire(&inquiry, began).await;
            let (answer, came) = match read {
                Ok((answer, came)) => (Ok(answer), Some(came)),
                Err(error) => (Err(error), None),
            };
            match inquiry.next(answer, &self.shared.server) {
                Step::Done(answer) => {
                    let Some(came) = came else { return Err(PathError::NotPartial) };
                    return match self.as_ranged(&answer, &came).filter(|_| may_go_on) {
                        Some(resource) => self.answered_whole(resource, came).await,
                        None => self.answered(*answer, inquiry.asked, came).await,
                    };
                }
                Step::Failed(error) => return Err(error),
                Step::Wait(status, wait) => {
                    self.tell(Report::Waiting(status, wait)).await;
                    sleep(wait).await;
                }
                Step::Ask(reconnect) => {
                    if let Some(came) = came {
                        self.settle(came.body).await;
                    }
                    if reconnect {
                        self.line.connection = None;
                    }
                    if was_ranged && inquiry.asked.is_none() {
                        began = Instant::now();
                    }
                }
            }
        }
    }

    /// Sends the request once and reads the head of its answer. The body of an unusable answer is read and discarded.
    async fn inquire(
        &mut self,
        inquiry: &Inquiry,
        began: Instant,
    ) -> Result<(Answer, ReceivedAnswer), PathError> {
        let (url, shared) = (&inquiry.url, &self.shared);
        let is_plain = inquiry.asked.is_none();
        let patience = if is_plain { shared.plain_patience } else { shared.patience };
        let fields = self.fields_for(url);
        let mut request = match &inquiry.asked {
            Some(range) => range_request(url, std::slice::from_ref(range), &fields),
            None => plain_request(url, &fields),
        };
        if inquiry.is_bare() {
            request.headers_mut().remove(ACCEPT_ENCODING);
        }
        let until = began + patience + inquiry.waited();
        let most = inquiry.asked.as_ref().map_or(patience, |_| RANGE_PATIENCE.min(patience));
        let sent = timeout_at(until, self.send(url, &request, RequestPurpose::First(most))).await;
        let (head, mut body) = sent.unwrap_or(Err(PathError::Silent(patience)))?.into_parts();
        let answer = match read_answer(&head, url, inquiry.asked.as_ref()) {
            Ok(answer) => answer,
            Err(error) => {
                self.settle(body).await;
                return Err(error);
            }
        };
        let is_doubtful = answer.is_page() && url.promises_no_page() && !self.shared.is_verifiable;
        if is_doubtful && inquiry.asked.is_some() && matches!(answer, Answer::Ranged(_)) {
            // The middle of a page cannot be recognised, so the whole is requested.
            self.settle(body).await;
            return Err(PathError::Page);
        }
        let mut first = None;
        if let Answer::Whole(whole) = &answer
            && is_doubtful
        {
            let read = timeout_at(until, next_bytes(&mut body)).await;
            first = read.unwrap_or(Err(PathError::Silent(patience)))?;
            let is_page = first.as_ref().is_some_and(|f| looks_like_page(f));
            if is_page || whole.metadata.compression.is_some() {
                self.line.connection = None;
                return Err(PathError::Page);
            }
        }
        Ok((answer, ReceivedAnswer { head, first, body }))
    }

    /// The object of an answer that has all of it and can be continued in ranges if it breaks off: the server does not
    /// refuse ranges, and something proves that both answers are of one version.
    fn as_ranged(&self, answer: &Answer, came: &ReceivedAnswer) -> Option<Resource> {
        let Answer::Whole(whole) = answer else { return None };
        let is_proven = whole.validator.is_some() || self.shared.is_verifiable;
        let may_have_ranges = range_support(&came.head.headers) != RangeSupport::Refused;
        let can_continue = is_proven && may_have_ranges && came.first.is_none();
        whole.to_resource().filter(|_| can_continue && came.head.status == StatusCode::OK)
    }

    /// Keeps the answer with all of `resource` for the order.
    async fn answered_whole(
        &mut self,
        resource: Resource,
        came: ReceivedAnswer,
    ) -> Result<(), PathError> {
        let ReceivedAnswer { head, body, .. } = came;
        let offers = range_support(&head.headers) == RangeSupport::Bytes;
        self.shared.offers_ranges.store(offers, Ordering::Relaxed);
        let mut answer = Answer::Ranged(resource);
        if self.shared.by_hash {
            answer.forget_version();
        }
        if let Answer::Ranged(resource) = &answer {
            let (range, answered) = (0..resource.length, HttpAnswer::from_parts(head, body));
            self.line.pending = Some(UnreadAnswer { range, resource: resource.clone(), answered });
        }
        self.tell(Report::Answered(Box::new(answer), None)).await;
        Ok(())
    }

    async fn answered(
        &mut self,
        mut answer: Answer,
        asked: Option<Range<u64>>,
        came: ReceivedAnswer,
    ) -> Result<(), PathError> {
        let ReceivedAnswer { head, first, body } = came;
        let mut whole = None;
        if self.shared.by_hash {
            answer.forget_version();
        }
        match (&answer, asked) {
            (Answer::Ranged(resource), Some(asked)) if asked != ONE_BYTE && resource.length > 0 => {
                let (range, _) = held(&head, &asked)?;
                let is_clamped = range.end < asked.end.min(resource.length);
                self.shared.closes.fetch_or(self.line.closes, Ordering::Relaxed);
                self.shared.is_clamped.fetch_or(is_clamped, Ordering::Relaxed);
                self.shared.offers_ranges.store(true, Ordering::Relaxed);
                let (resource, answered) = (resource.clone(), HttpAnswer::from_parts(head, body));
                self.line.pending = Some(UnreadAnswer { range, resource, answered });
            }
            (Answer::Whole(_), _) => {
                let connection = self.line.connection.take();
                whole = connection.map(|connection| Body { first, incoming: body, connection });
            }
            (Answer::Ranged(_) | Answer::Redirect(_), _) => self.settle(body).await,
        }
        self.tell(Report::Answered(Box::new(answer), whole)).await;
        Ok(())
    }

    /// Asks the original URL where the object is now; `None` if its place is unchanged or unknown.
    ///
    /// # Errors
    /// [`PathError::Changed`] if the URL leads to another object.
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
            let (head, body) = self.send(&url, &request, RequestPurpose::Other).await?.into_parts();
            self.settle(body).await;
            match read_answer(&head, &url, Some(&ONE_BYTE)) {
                Ok(Answer::Redirect(next)) => url = next,
                Ok(Answer::Ranged(new)) if new.url == resource.url => return Ok(None),
                Ok(Answer::Ranged(new))
                    if new.length == resource.length
                        && (self.shared.by_hash || new.version().may_be(resource.version())) =>
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

/// How long to wait for a busy server that does not state a time: doubled each time, from 1 s to 16 s.
pub(crate) fn pause(times: u32) -> Duration {
    Duration::from_secs(1 << times.min(4))
}

/// Whether the answer to this URL means that it expired.
pub(super) fn is_expired(status: StatusCode, url: &HttpUrl, original: &HttpUrl) -> bool {
    EXPIRED.contains(&status.as_u16()) && url != original
}
