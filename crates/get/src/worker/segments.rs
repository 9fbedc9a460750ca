//! Fetches segments: ranges of a known object, one by one or as a list.

use super::{
    Report, RequestPurpose, Worker,
    body::{HttpAnswer, Stream, next_bytes},
    first_request::{HEAD, is_expired},
    second_request::{
        AnswerReader, DueRequest, EarlyAnswer, EarlyRequest, ReadAhead, ReadEvent, RepeatedRequest,
        SilenceWatch, spare_connection,
    },
};
use crate::{
    PathError,
    http::{Connection, range_request, segment_request},
    many::wall_time,
    multipart::{Multipart, Piece},
    resource::{Resource, check_joined, check_range, check_segment},
};
use bytes::Bytes;
use http_body_util::Empty;
use hyper::{Request, StatusCode, body::Incoming, header::ACCEPT_ENCODING};
use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, atomic::Ordering},
};
use thalweg_paths::url::HttpUrl;
use thalweg_units::ByteSize;
use thalweg_wire::content_range::ContentRange;
use tokio::time::timeout;

/// Statuses of an early request that say nothing about its separate connection: a login, another version, a wrong
/// range.
const ASKED_AGAIN: [StatusCode; 3] =
    [StatusCode::UNAUTHORIZED, StatusCode::PRECONDITION_FAILED, StatusCode::RANGE_NOT_SATISFIABLE];

/// The most ranges in one request: servers refuse lists of hundreds (RFC 9110 §17.15).
const MAX_JOINED: usize = 32;

/// The longest range in a list; longer ones are cut. A part's bytes are held in memory until the delimiter after it has
/// been received, and are lost if the path is stopped before. Thousands of small ranges look like an attack; a few of
/// this size do not.
const MAX_PART: u64 = 1 << 20;

/// A longer range is requested alone: its bytes need not be held, and the round trip that a list saves is small in
/// comparison. Half of the longest list.
const ALONE: u64 = MAX_JOINED as u64 * MAX_PART / 2;

/// If the server closes each connection, the bytes after the first answer are requested when this part of that answer
/// is left: one half, because slow start delivers about that much in its last round trip. Measured for 2 MB at 40
/// Mbit/s and 20 ms with relays: 1.10 times the time of curl; 1.25 times if requested with the head of the first
/// answer, and 1.19 times at its end.
const LAST_PART: u64 = 2;

/// The answer to the first request, of which nothing was read yet.
pub(super) struct UnreadAnswer {
    /// The range of its bytes.
    pub(super) range: Range<u64>,
    /// The object of the bytes.
    pub(super) resource: Resource,
    pub(super) answered: HttpAnswer,
}

impl Worker {
    /// Fetches the ordered ranges, several with one request if the server supports it, as in UKAIRO §3.2.1, because
    /// every request costs a round trip.
    pub(super) async fn fetch(
        &mut self,
        ranges: Vec<Range<u64>>,
        mut resource: Arc<Resource>,
    ) -> Result<(), PathError> {
        let mut ranges = VecDeque::from(ranges);
        self.ask_ahead(&ranges, &resource);
        self.read_pending(&mut ranges, &resource).await?;
        while let Some(first) = ranges.front().cloned() {
            let short = |r: &&Range<u64>| r.end - r.start <= ALONE;
            let several = ranges.iter().take(2).take_while(short).count() > 1;
            if several && !self.shared.one_by_one.load(Ordering::Relaxed) {
                self.fetch_joined(&mut ranges, &mut resource).await?;
            } else {
                self.fetch_one(first, &mut resource).await?;
                ranges.pop_front();
            }
        }
        Ok(())
    }

    /// Opens a second connection if the server closes the first one after its answer, and requests the following bytes
    /// on it when half of that answer has been received: dialling and the request's round trip then overlap with the
    /// answer's body. If both answers flowed at the same time, each would fill the queue of the other, and the second
    /// would leave slow start (HyStart) at a fraction of the link's rate.
    fn ask_ahead(&mut self, ranges: &VecDeque<Range<u64>>, resource: &Arc<Resource>) {
        let (Some(pending), [range]) = (&self.line.pending, ranges.as_slices().0) else { return };
        let (first, rest) = (pending.range.clone(), pending.range.end..range.end);
        let is_of_use = self.line.closes && !self.shared.server.is_asked_in_turn();
        if !is_of_use || first.start != range.start || rest.is_empty() {
            return;
        }
        let at = first.end - (first.end - first.start) / LAST_PART;
        self.line.due = Some(DueRequest { at, rest, resource: Arc::clone(resource) });
        self.open_spare(&resource.url.clone());
    }

    /// The answer to the early request, if it was for `ranges` and succeeded.
    async fn take_ahead(&mut self, url: &HttpUrl, ranges: &[Range<u64>]) -> Option<HttpAnswer> {
        let ahead = self.line.ahead.take().filter(|ahead| *ranges == [ahead.range.clone()])?;
        self.tell(Report::Sent).await;
        // The other connection may be the cause of a failure, so it is ignored: the same request follows on a new one.
        let answer = timeout(self.shared.stall, ahead.answer()).await.ok()?;
        let status = answer.as_ref().ok().map(|early| early.answered.head.status);
        if status.is_some_and(|status| ASKED_AGAIN.contains(&status)) {
            return None;
        }
        let part = answer.ok().filter(|_| status == Some(StatusCode::PARTIAL_CONTENT));
        let Some(EarlyAnswer { answered, connection, closes }) = part else {
            self.shared.server.was_refused_beside();
            self.line.spare = None;
            return None;
        };
        self.line.origin = Some(url.clone());
        (self.line.connection, self.line.closes) = (Some(connection), closes);
        self.open_spare(url);
        self.shared.cookies.learn(url, &answered.head.headers, wall_time());
        Some(answered)
    }

    /// Delivers the pending first answer and removes its range from `ranges`, if they begin with it.
    async fn read_pending(
        &mut self,
        ranges: &mut VecDeque<Range<u64>>,
        resource: &Arc<Resource>,
    ) -> Result<(), PathError> {
        let (Some(pending), Some(first)) = (self.line.pending.take(), ranges.front_mut()) else {
            return Ok(());
        };
        let same = pending.resource.length == resource.length
            && (self.shared.by_hash || pending.resource.version().may_be(resource.version()));
        if !same || pending.range.start != first.start {
            // It would have to be read and discarded before the next answer.
            (self.line.connection, self.line.due) = (None, None);
            let unused = pending.range.end - pending.range.start;
            self.tell(Report::Unused(unused.min(HEAD))).await;
            return Ok(());
        }
        let wanted = first.start..first.end.min(pending.range.end);
        first.start = wanted.end;
        let rest = first.clone();
        if first.is_empty() {
            ranges.pop_front();
        }
        self.tell(Report::Sent).await;
        let is_part = pending.answered.head.status == StatusCode::PARTIAL_CONTENT;
        let end = pending.range.end;
        let unused = end - wanted.end;
        let main = Stream::new(pending.answered, wanted.start, end);
        let body = self.deliver(main, wanted, resource, rest).await?;
        if unused > 0 {
            self.tell(Report::Unused(unused.min(HEAD))).await;
        }
        self.settle(body).await;
        if is_part && ranges.is_empty() && end == resource.length {
            // One answer delivered everything, so no later one can fail.
            self.shared.server.ranges_hold();
        }
        Ok(())
    }

    async fn fetch_one(
        &mut self,
        range: Range<u64>,
        resource: &mut Arc<Resource>,
    ) -> Result<(), PathError> {
        let mut left = range;
        // A server may send less than requested (RFC 9110 §15.3.7), but never nothing.
        while !left.is_empty() {
            let asked = std::slice::from_ref(&left);
            let answered = self.ask(resource, asked).await?;
            let held = check_segment(&answered.head, left.clone(), resource, self.shared.by_hash)?;
            self.ranges_hold();
            let wanted = left.start..left.end.min(held.end);
            left.start = wanted.end;
            let main = Stream::new(answered, wanted.start, held.end);
            let body = self.deliver(main, wanted, resource, left.clone()).await?;
            self.settle(body).await;
        }
        Ok(())
    }

    /// Records that an answer was a segment as requested.
    fn ranges_hold(&mut self) {
        self.line.may_refresh = true;
        self.shared.served_segment.store(true, Ordering::Relaxed);
        self.shared.server.ranges_hold();
    }

    /// Fetches the first of `ranges` with one multipart answer, and removes the received ranges. If the server declines
    /// or answers otherwise than requested, the rest is left for single requests.
    async fn fetch_joined(
        &mut self,
        ranges: &mut VecDeque<Range<u64>>,
        resource: &mut Arc<Resource>,
    ) -> Result<(), PathError> {
        let asked = list(ranges);
        let HttpAnswer { head, mut body, .. } = self.ask(resource, &asked).await?;
        match check_joined(&head, resource, self.shared.by_hash)? {
            Some(mut parts) => {
                self.ranges_hold();
                let asked = asked.into();
                if self.read_parts(&mut body, &mut parts, asked, ranges, resource).await? {
                    self.settle(body).await;
                    return Ok(());
                }
                self.line.connection = None;
            }
            None => self.settle(body).await,
        }
        self.shared.one_by_one.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Reads the parts that were `asked` for, and removes their ranges from `ranges`. Returns false if the parts are
    /// others. A part counts once the delimiter after it has been received: the bytes of a part that is shorter than
    /// stated end with a piece of the delimiter.
    async fn read_parts(
        &mut self,
        body: &mut Incoming,
        parts: &mut Multipart,
        mut asked: VecDeque<Range<u64>>,
        ranges: &mut VecDeque<Range<u64>>,
        resource: &Resource,
    ) -> Result<bool, PathError> {
        let (mut input, mut held) = (Bytes::new(), Vec::new());
        let mut open = None::<Range<u64>>;
        loop {
            let piece = match parts.next(&mut input) {
                Ok(Some(piece)) => piece,
                Err(_) => return Ok(false),
                Ok(None) => match next_bytes(body).await? {
                    Some(data) => {
                        input = data;
                        continue;
                    }
                    // The body has ended without a delimiter after the part.
                    None => return Ok(false),
                },
            };
            if let Piece::Data(data) = piece {
                self.tell(Report::Held(data.len() as u64)).await;
                held.push(data);
                continue;
            }
            if let Some(done) = open.take() {
                self.release(done.start, std::mem::take(&mut held)).await;
                take_off(ranges, done.end);
                if asked.is_empty() {
                    return Ok(piece == Piece::End);
                }
            }
            let Piece::Part(got) = piece else { return Ok(false) };
            let Some(wanted) = take_covered(&mut asked, got) else { return Ok(false) };
            match check_range(got, wanted.clone(), resource) {
                Err(PathError::Range { .. }) => return Ok(false),
                checked => checked?,
            }
            open = Some(wanted);
        }
    }

    /// Reports a part's bytes, from position `at` on.
    async fn release(&self, mut at: u64, held: Vec<Bytes>) {
        for data in held {
            let n = data.len() as u64;
            self.tell(Report::Verified(at, data)).await;
            at += n;
        }
    }

    pub(super) fn request_for(
        &self,
        resource: &Resource,
        ranges: &[Range<u64>],
    ) -> Request<Empty<Bytes>> {
        let fields = self.fields_for(&resource.url);
        match self.shared.by_hash {
            true => range_request(&resource.url, ranges, &fields),
            false => segment_request(resource, ranges, &fields),
        }
    }

    /// Requests `ranges`. If the URL has expired, as signed ones do, asks the original URL for the new place and stores
    /// it in `resource`; once, until bytes are received again.
    async fn ask(
        &mut self,
        resource: &mut Arc<Resource>,
        ranges: &[Range<u64>],
    ) -> Result<HttpAnswer, PathError> {
        loop {
            let url = resource.url.clone();
            let answered = match self.take_ahead(&url, ranges).await {
                Some(answered) => answered,
                None => {
                    let request = self.request_for(resource, ranges);
                    HttpAnswer::new(self.send(&url, &request, RequestPurpose::Ordered).await?)
                }
            };
            let status = answered.head.status;
            let expired = is_expired(status, &url, &self.url);
            if !expired || !std::mem::take(&mut self.line.may_refresh) {
                return Ok(answered);
            }
            self.settle(answered.body).await;
            let Some(new) = self.refresh(resource).await? else {
                return Err(PathError::Status(status));
            };
            *resource = new;
            self.tell(Report::Moved(Arc::clone(resource))).await;
        }
    }
}

/// Answers that may fall silent.
impl Worker {
    /// Reports the bytes of `wanted`, the first part of the answer `main`; `rest` is the remainder of the same range.
    /// Returns the body that delivered the last byte.
    ///
    /// If the answer falls silent and no other path is left, it is not given up at once.
    async fn deliver(
        &mut self,
        main: Stream,
        wanted: Range<u64>,
        resource: &Arc<Resource>,
        rest: Range<u64>,
    ) -> Result<Incoming, PathError> {
        let silence = SilenceWatch::new(self.shared.stall, rest.is_empty());
        let mut reading = AnswerReader { main, again: None, silence };
        let mut at = wanted.start;
        while at < wanted.end {
            match reading.next(resource, self.shared.by_hash).await {
                ReadEvent::Main(Ok(Some((from, data)))) => {
                    let is_new = from + data.len() as u64 > at;
                    at = self.hand_over(at..wanted.end, from, data).await;
                    self.ask_if_due(at);
                    if is_new {
                        // The answer continues, and the second one may still have its pause ahead.
                        reading.again = None;
                        reading.silence.reset();
                    }
                }
                ReadEvent::Main(end) => {
                    let early = PathError::Early(ByteSize::from_bytes(wanted.end - at));
                    if !self.change_over(&mut reading) {
                        return Err(end.err().unwrap_or(early));
                    }
                }
                ReadEvent::Again(Ok(Some((from, data)))) => {
                    at = self.hand_over(at..wanted.end, from, data).await;
                    if at == wanted.end || reading.silence.is_too_long() {
                        self.change_over(&mut reading);
                    }
                }
                ReadEvent::Again(end) => {
                    reading.again = None;
                    // Each further request would make the server generate the file again.
                    if matches!(end, Err(PathError::NotPartial | PathError::Status(_))) {
                        reading.silence.is_in_vain = true;
                    }
                }
                ReadEvent::Silence if self.may_ask_beside(resource) => {
                    self.ask_beside(&mut reading, resource, at..wanted.end, &rest);
                }
                ReadEvent::Silence => {}
            }
        }
        Ok(reading.main.into_body())
    }

    /// Whether a second answer may replace a silent one: no other path is left, and something proves that both are of
    /// one version.
    fn may_ask_beside(&self, resource: &Resource) -> bool {
        let is_proven = resource.validator.is_some() || self.shared.is_verifiable;
        is_proven && self.shared.is_alone.load(Ordering::Relaxed)
    }

    /// Sends the requests that are due while the answer is silent; `left` is the range that it has not delivered yet.
    fn ask_beside(
        &mut self,
        reading: &mut AnswerReader,
        resource: &Arc<Resource>,
        left: Range<u64>,
        rest: &Range<u64>,
    ) {
        let takes_two = !self.shared.server.is_asked_in_turn();
        if takes_two && reading.silence.is_rest_due() && self.line.ahead.is_none() {
            self.line.ahead = Some(self.ask_early(resource, rest.clone(), ReadAhead::Held));
        }
        if reading.silence.is_repeat_due() && reading.again.is_none() {
            let asked = self.ask_early(resource, left, ReadAhead::Nothing);
            reading.again = Some(RepeatedRequest::Asked(asked));
        }
        // While the second answer is silent too, both are kept: the pause of the first may end first.
    }

    /// Continues with the second answer alone. Returns false if there is none.
    fn change_over(&mut self, reading: &mut AnswerReader) -> bool {
        let came = reading.again.take_if(|again| matches!(again, RepeatedRequest::Answered(..)));
        let Some(RepeatedRequest::Answered(stream, connection, closes)) = came else {
            return false;
        };
        (reading.main, self.line.connection, self.line.closes) =
            (*stream, Some(connection), closes);
        reading.silence.reset();
        true
    }

    /// Reports the new bytes of `data`, whose position is `from`; `left` is the range still wanted. Returns the
    /// position of the next byte.
    async fn hand_over(&self, left: Range<u64>, from: u64, mut data: Bytes) -> u64 {
        let known = left.start.saturating_sub(from).min(data.len() as u64);
        if known > 0 {
            self.tell(Report::Unused(known)).await;
        }
        // At most the length of the data.
        data = data.slice(known as usize..);
        let from = from + known;
        // Below 2^32: a piece of what hyper holds in memory.
        data.truncate(left.end.saturating_sub(from) as usize);
        if data.is_empty() {
            return left.start;
        }
        let reached = from + data.len() as u64;
        self.tell(Report::Data(from, data)).await;
        reached
    }

    /// Requests `range` on a separate connection.
    fn ask_early(
        &mut self,
        resource: &Resource,
        range: Range<u64>,
        read_ahead: ReadAhead,
    ) -> EarlyRequest {
        let mut request = self.request_for(resource, std::slice::from_ref(&range));
        if self.shared.server.refuses_identity() {
            request.headers_mut().remove(ACCEPT_ENCODING);
        }
        let request = self.signed(&resource.url, &request);
        let (web, route, url) = (self.shared.web.clone(), self.route.clone(), resource.url.clone());
        let spare = self.line.spare.take().filter(|_| self.leads_to(&url));
        EarlyRequest::start(range, read_ahead, async move {
            let mut connection = match spare_connection(spare).await {
                Some(connection) => connection,
                None => Connection::open(&web, &route, &url).await?,
            };
            let response = connection.ask(request).await?;
            Ok((connection, response))
        })
    }

    /// Sends the request that follows the first answer if enough of that answer, up to `at`, has been received.
    fn ask_if_due(&mut self, at: u64) {
        // After a silence it was already sent.
        if let Some(due) = self.line.due.take_if(|due| at >= due.at)
            && self.line.ahead.is_none()
        {
            let asked = self.ask_early(&due.resource, due.rest, ReadAhead::Nothing);
            self.line.ahead = Some(asked);
        }
    }
}

/// The ranges of one request: the first of `ranges`, cut into parts.
fn list(ranges: &VecDeque<Range<u64>>) -> Vec<Range<u64>> {
    let short = ranges.iter().take_while(|r| r.end - r.start <= ALONE);
    let parts = short.flat_map(|r| {
        let starts = (r.start..r.end).step_by(MAX_PART as usize);
        starts.map(|at| at..r.end.min(at.saturating_add(MAX_PART)))
    });
    parts.take(MAX_JOINED).collect()
}

/// Removes the range that a part covers from `asked`: its next range, or several adjacent ones, which servers may
/// coalesce (RFC 9110 §15.3.7.2). Returns the range that the part must have.
fn take_covered(asked: &mut VecDeque<Range<u64>>, got: ContentRange) -> Option<Range<u64>> {
    let mut wanted = asked.pop_front()?;
    let end = match got {
        ContentRange::Bytes { range, .. } => range.last().saturating_add(1),
        ContentRange::Unsatisfied { .. } => return None,
    };
    while let Some(next) = asked.front().filter(|n| n.start == wanted.end && n.end <= end) {
        wanted.end = next.end;
        asked.pop_front();
    }
    Some(wanted)
}

/// Removes the bytes before `end` from the first of `ranges`, because they were received.
fn take_off(ranges: &mut VecDeque<Range<u64>>, end: u64) {
    if let Some(first) = ranges.front_mut() {
        first.start = end.min(first.end);
        if first.is_empty() {
            ranges.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_a_list_are_cut_into_small_parts() {
        let m = MAX_PART;
        let asked = list(&VecDeque::from([0..5, m..3 * m + 1, 9 * m..10 * m]));
        assert_eq!(asked, [0..5, m..2 * m, 2 * m..3 * m, 3 * m..3 * m + 1, 9 * m..10 * m]);
        let long = list(&VecDeque::from([0..ALONE, 50 * m..50 * m + ALONE, 99 * m..100 * m]));
        assert_eq!((long.len(), long.last()), (MAX_JOINED, Some(&(65 * m..66 * m))));
        assert_eq!(list(&VecDeque::from([0..5, 9 * m..9 * m + ALONE + 1])), vec![0..5; 1]);
    }

    #[test]
    fn a_part_may_cover_several_adjacent_ranges_but_only_whole_ones() {
        let mut asked = VecDeque::from([0..10, 10..20, 20..30, 40..50]);
        let got = |text: &str| text.parse().unwrap();
        assert_eq!(take_covered(&mut asked, got("bytes 0-24/99")), Some(0..20));
        assert_eq!(take_covered(&mut asked, got("bytes 20-49/99")), Some(20..30));
        assert_eq!(take_covered(&mut asked, got("bytes 40-49/99")), Some(40..50));
        assert_eq!(take_covered(&mut asked, got("bytes 40-49/99")), None);
    }
}
