//! Fetches the rest of an answer by another interface after the answer's connection has broken or stalled.
//!
//! The object must be one whose ranges can be combined exactly, as for splitting (`split`). The rest is requested by
//! `Range` with `If-Range` on the same tag, and used only if the response says that it is this rest: same tag, same
//! total length, beginning at the right byte. The stalled connection is still read meanwhile; the connection that
//! delivers bytes first is used.

use super::{
    body::Outgoing,
    split::Object,
    state::ProxyState,
    upstream::{RepeatableRequest, UpstreamAnswer, request_by_another_interface},
};
use hyper::{
    HeaderMap, Request, Response, StatusCode,
    header::{self, HeaderValue},
};
use std::{
    num::NonZeroU32,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use thalweg_uplinks::interfaces::Client;
use thalweg_wire::Destination;
use tokio::time::{Instant, Sleep, sleep};

/// If a connection delivers nothing for this long, the rest is requested by another one: by then TCP has retransmitted
/// twice (RFC 6298 §2). If the server was only slow, this costs it one more request.
const SILENT: Duration = Duration::from_secs(3);

/// The most continuations of one answer, so that requests end if every connection breaks off.
const MAX_CONTINUATIONS: u32 = 16;

type Asking = Pin<Box<dyn Future<Output = Option<UpstreamAnswer>> + Send>>;

/// How to ask for the rest of an answer.
pub struct AnswerRest {
    shared: Arc<ProxyState>,
    program: Arc<Client>,
    to: Destination,
    again: RepeatableRequest,
    object: Object,
    /// The interface by which the answer comes.
    by: Option<NonZeroU32>,
    left: u32,
    silence: Option<Pin<Box<Sleep>>>,
    asking: Option<Asking>,
}

impl AnswerRest {
    /// Creates the means to continue the answer that delivers `object`; `again` is its request, to be repeated. `None`
    /// if the answer's connection was not assigned to an interface.
    pub fn for_answer(
        shared: &Arc<ProxyState>,
        program: &Arc<Client>,
        to: &Destination,
        (again, object): (RepeatableRequest, Object),
        by: Option<NonZeroU32>,
    ) -> Option<Self> {
        by?;
        let (shared, program, to) = (Arc::clone(shared), Arc::clone(program), to.clone());
        let (left, silence, asking) = (MAX_CONTINUATIONS, None, None);
        Some(Self { shared, program, to, again, object, by, left, silence, asking })
    }

    /// Bytes arrived: no other connection is needed.
    pub fn note_progress(&mut self) {
        (self.silence, self.asking) = (None, None);
    }

    /// Requests at once what follows the first `got` bytes. Returns whether a request is under way.
    pub fn begin(&mut self, got: u64) -> bool {
        let may = got < self.object.length && (self.asking.is_some() || self.left > 0);
        if may && self.asking.is_none() {
            self.left -= 1;
            self.asking = Some(self.ask(got));
        }
        may
    }

    /// Returns the answer that delivers the rest, or `None` if no server gives it. If nothing was requested yet, waits
    /// until the connection has been silent for [`SILENT`], and then requests it.
    pub fn poll(&mut self, got: u64, cx: &mut Context<'_>) -> Poll<Option<UpstreamAnswer>> {
        if self.asking.is_none() {
            let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(SILENT)));
            ready!(silence.as_mut().poll(cx));
            silence.as_mut().reset(Instant::now() + SILENT);
            if !self.begin(got) {
                return Poll::Ready(None);
            }
        }
        let Some(asking) = &mut self.asking else { return Poll::Pending };
        let answered = ready!(asking.as_mut().poll(cx));
        self.asking = None;
        if let Some(answered) = &answered {
            (self.by, self.silence) = (answered.interface, None);
        }
        Poll::Ready(answered)
    }

    fn ask(&self, got: u64) -> Asking {
        let (shared, program, to) =
            (Arc::clone(&self.shared), Arc::clone(&self.program), self.to.clone());
        let (request, object, by) = (self.request(got), self.object.clone(), self.by);
        Box::pin(async move {
            let answered =
                request_by_another_interface(&shared, &program, &to, request, by).await?;
            if is_rest(&answered.response, &object, got) {
                return Some(answered);
            }
            answered.lease.close();
            None
        })
    }

    fn request(&self, got: u64) -> Request<Outgoing> {
        let mut request = self.again.request();
        let fields = request.headers_mut();
        if let Ok(range) = HeaderValue::from_str(&format!("bytes={got}-")) {
            fields.insert(header::RANGE, range);
        }
        fields.insert(header::IF_RANGE, self.object.tag.clone());
        request
    }
}

fn is_rest<B>(response: &Response<B>, object: &Object, got: u64) -> bool {
    response.status() == StatusCode::PARTIAL_CONTENT
        && has_fields_of_rest(response.headers(), object, got)
}

/// Whether these are the fields of exactly what follows the first `got` bytes of this object (RFC 9110 §14.4).
fn has_fields_of_rest(fields: &HeaderMap, object: &Object, got: u64) -> bool {
    let length = object.length;
    let range = format!("bytes {got}-{}/{length}", length.saturating_sub(1));
    let one = |name| {
        let mut values = fields.get_all(name).iter();
        values.next().filter(|_| values.next().is_none())
    };
    let is_coded = fields.contains_key(header::CONTENT_ENCODING);
    !is_coded
        && one(header::CONTENT_RANGE).is_some_and(|said| said.as_bytes() == range.as_bytes())
        && one(header::ETAG) == Some(&object.tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn only_the_exact_rest_of_the_same_object_is_taken() {
        let tag = HeaderValue::from_static("\"1\"");
        let object = Object { url: String::new(), path: Bytes::new(), length: 100, tag };
        let is = |range: &'static str, tag: &'static str| {
            let mut fields = HeaderMap::new();
            fields.insert(header::CONTENT_RANGE, HeaderValue::from_static(range));
            fields.insert(header::ETAG, HeaderValue::from_static(tag));
            has_fields_of_rest(&fields, &object, 40)
        };
        assert!(is("bytes 40-99/100", "\"1\""));
        assert!(!is("bytes 40-99/100", "\"2\""));
        assert!(!is("bytes 40-99/*", "\"1\""));
        assert!(!is("bytes 41-99/100", "\"1\"") && !is("bytes 40-98/100", "\"1\""));
        assert!(!has_fields_of_rest(&HeaderMap::new(), &object, 40));
    }
}
