//! The state of a bond, and the choice of the link that carries each chunk.

mod link;
mod message_delivery;

pub use link::{LinkState, NewLink};

use super::{
    flow::{FIRST, Flow, OpeningState, StreamError},
    memory::Memory,
    status::LinkStatus,
};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write as _,
    ops::Range,
    sync::Arc,
    time::Duration,
};
use thalweg_bond::{
    Chunk, Link, LinkId, SenderSettings, State as Life, StripeMethod, StripeScheduler, Verdict,
    stripe::{Load, StreamLoads},
};
use thalweg_units::Time;
use thalweg_wire::bond::{BondMessage, ChunkHead, Frame, MAX_LINKS, Refusal, Target};
use tokio::sync::Notify;

/// Streams of a bond at a time: more than a browser opens to all its servers together.
pub const MAX_STREAMS: usize = 512;

/// Streams including those refused as too many, until the refusals are sent. An honest far end has no more than
/// [`MAX_STREAMS`] itself, but may see their ends sooner than they have ended here.
const MOST_FLOWS: usize = 2 * MAX_STREAMS;

/// Broken links that are reported to the far end as soon as a link works: as many as a bond can
/// have. Beyond that, the oldest is not reported.
const MOST_BROKEN: usize = MAX_LINKS;

/// How often a link that does not answer is asked.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// How often a link through relays is asked: only its answers tell how far the far end is.
const ASK_RELAYED: Duration = Duration::from_secs(1);

/// Links are checked far more often than this: if a check comes later than this after the last one, this process did
/// not run.
const HELD_UP: Duration = Duration::from_millis(100);

/// How many streams are asked in a row whether an idle link should carry their next chunk.
const MOST_ASKED: usize = 8;

/// Streams that ended and are still answered for, at most. Beyond that, the oldest is forgotten.
const REMEMBERED: usize = 1024;

/// Answers that wait for a link, at most. Further ones are dropped: an end that gets no answer asks again.
const MOST_ANSWERS: usize = 64;

/// The parameters of a bond.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How the link of the next chunk is chosen.
    pub method: StripeMethod,
    /// How streams are cut into chunks.
    pub sender: SenderSettings,
    /// Bytes that a stream's receiver holds at this end, at most; it begins with fewer.
    pub window: u64,
}

impl Default for Settings {
    /// Windows of at most 16 MiB.
    fn default() -> Self {
        Self {
            method: StripeMethod::default(),
            sender: SenderSettings::default(),
            window: 16 << 20,
        }
    }
}

impl Settings {
    /// The window of a new stream, bytes, as told to the far end.
    pub fn first_window(&self) -> u64 {
        self.window.min(FIRST)
    }
}

/// The state of a bond, under one lock.
#[derive(Debug)]
pub struct State {
    pub links: BTreeMap<LinkId, LinkState>,
    pub flows: BTreeMap<u32, Flow>,
    pub settings: Settings,
    scheduler: StripeScheduler,
    /// Bytes that the far end holds of each new stream.
    pub theirs: u64,
    /// 0 at the end that dialled, 1 at the other: the lowest bit of the numbers of the streams that it opens.
    side: u32,
    next_stream: u32,
    /// The highest stream that the far end opened.
    newest: Option<u32>,
    /// Streams that are over, the oldest first.
    past: VecDeque<(u32, StreamEnd)>,
    /// The stream whose chunk was sent last.
    turn: u32,
    /// Links that broke here, and that the far end was not told of yet.
    broken_links: VecDeque<LinkId>,
    /// Streams that the far end opened, and that nobody here took yet.
    pub offered: VecDeque<(u32, Target)>,
    /// Why the bond is broken.
    pub broken: Option<String>,
    /// When the links were last checked.
    watched: Time,
    memory: Memory,
}

impl State {
    pub fn new(settings: Settings, theirs: u64, has_dialled: bool, memory: Memory) -> Self {
        let side = u32::from(!has_dialled);
        Self {
            links: BTreeMap::new(),
            flows: BTreeMap::new(),
            settings,
            scheduler: StripeScheduler::new(settings.method),
            theirs,
            side,
            next_stream: side,
            newest: None,
            past: VecDeque::new(),
            turn: 0,
            broken_links: VecDeque::new(),
            offered: VecDeque::new(),
            broken: None,
            watched: Time::ZERO,
            memory,
        }
    }

    /// Adds a link. Returns what notifies of work for it, and of its end at the far end.
    pub fn join(&mut self, id: LinkId, link: NewLink, now: Time) -> (Arc<Notify>, Arc<Notify>) {
        let mut link = LinkState::new(link);
        if link.is_relayed() {
            // The duration of the greeting includes delays of two busy hosts.
            link.ask(now);
        }
        let told = (Arc::clone(&link.wake), Arc::clone(&link.gone));
        self.links.insert(id, link);
        told
    }

    /// The status of the links.
    pub fn links(&mut self, now: Time) -> Vec<LinkStatus> {
        let all = self.links.iter_mut();
        all.map(|(id, link)| link.status(*id, now)).collect()
    }

    /// A link is gone.
    pub fn leave(&mut self, id: LinkId, now: Time) {
        if let Some(link) = self.links.remove(&id) {
            link.wake.notify_one();
            self.reassign(id);
            self.broken_links.push_back(id);
            if self.broken_links.len() > MOST_BROKEN {
                self.broken_links.pop_front();
            }
            self.dispatch(now);
        }
    }

    /// Has other links carry the chunks of this one, and repeats messages.
    fn reassign(&mut self, id: LinkId) {
        for flow in self.flows.values_mut() {
            flow.sender.release_link(id);
            flow.repeat_messages();
        }
        if let Some(link) = self.links.get_mut(&id) {
            link.acknowledged = link.sent;
        }
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// There are too many streams, the memory is used up, or the bond is broken.
    pub fn open(&mut self, to: Target, now: Time) -> Result<u32, String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        if self.flows.len() >= MAX_STREAMS {
            return Err(Refusal::Busy.to_string());
        }
        let flow = self.flow(OpeningState::Requested(to));
        if flow.broken.is_some() {
            return Err("there is no memory left for another stream".to_owned());
        }
        let stream = self.next_stream;
        self.next_stream =
            stream.checked_add(2).ok_or("the bond has used all its stream numbers")?;
        self.flows.insert(stream, flow);
        self.dispatch(now);
        Ok(stream)
    }

    fn flow(&self, opening: OpeningState) -> Flow {
        let Settings { sender, window, .. } = self.settings;
        Flow::new(opening, sender, self.theirs, window, &self.memory)
    }

    /// The stream of a frame that arrived, which is created if the far end opens it. `None`: the stream is over.
    fn find(&mut self, stream: u32) -> Result<Option<&mut Flow>, String> {
        let is_theirs = stream & 1 != self.side;
        let is_new = is_theirs && self.newest.is_none_or(|newest| stream > newest);
        if !is_theirs && stream >= self.next_stream {
            return Err(format!("stream {stream} was never opened"));
        }
        if is_new {
            // Chunks may overtake the message that opens their stream; those of the streams numbered in between are in
            // transit, too.
            let first = self.newest.map_or(1 - self.side, |newest| newest + 2);
            if self.flows.len() + (stream - first) as usize / 2 >= MOST_FLOWS {
                return Err("too many streams".to_owned());
            }
            for between in (first..=stream).step_by(2) {
                let mut flow = self.flow(OpeningState::Offered);
                if self.flows.len() >= MAX_STREAMS {
                    flow.refuse();
                }
                self.flows.insert(between, flow);
            }
            self.newest = Some(stream);
        }
        Ok(self.flows.get_mut(&stream))
    }

    /// Takes a chunk that arrived by a link.
    ///
    /// # Errors
    /// The far end violates the protocol.
    pub fn chunk(
        &mut self,
        by: LinkId,
        head: ChunkHead,
        bytes: Bytes,
        now: Time,
    ) -> Result<(), String> {
        if let Some(link) = self.links.get_mut(&by) {
            link.received += u64::from(head.length);
        }
        self.record_arrival_by(by, now);
        match self.find(head.stream)? {
            Some(flow) => flow.chunk(head.offset, bytes)?,
            None => self.answer_for_past(by, head.stream),
        }
        self.dispatch(now);
        Ok(())
    }

    /// Handles a message that arrived by a link.
    ///
    /// # Errors
    /// The far end violates the protocol.
    pub fn handle_message(
        &mut self,
        by: LinkId,
        message: BondMessage,
        now: Time,
    ) -> Result<(), String> {
        self.record_arrival_by(by, now);
        match message {
            BondMessage::Open { stream, to } => match self.find(stream)? {
                Some(flow) => {
                    if flow.opening == OpeningState::Offered
                        && flow.broken.is_none()
                        && !self.offered.iter().any(|(offered, _)| *offered == stream)
                    {
                        self.offered.push_back((stream, to));
                    }
                }
                None => self.answer_for_broken(by, stream),
            },
            BondMessage::Opened { stream } => self.with(stream, Flow::confirm)?,
            BondMessage::Refused { stream, why } => {
                self.with(stream, |flow| flow.break_off(StreamError::Refused(why)))?;
            }
            BondMessage::Reset { stream, why } => {
                self.with(stream, |flow| flow.break_off(StreamError::Reset(why)))?;
            }
            BondMessage::End { stream, at } => match self.find(stream)? {
                Some(flow) => flow.ends_at(at)?,
                None => self.answer_for_past(by, stream),
            },
            BondMessage::Acks { stream, arrived, limit, ranges, ended } => {
                let ranges: Vec<Range<u64>> = ranges.into_iter().map(|(a, b)| a..b).collect();
                match self.find(stream)? {
                    Some(flow) => {
                        let freed = flow.acks(arrived, limit, &ranges, ended)?;
                        self.release_chunks(&freed, now);
                    }
                    None => self.answer_for_broken(by, stream),
                }
            }
            BondMessage::Ping(token) => {
                if let Some(link) = self.links.get_mut(&by) {
                    link.own.retain(|message| !matches!(message, BondMessage::Pong { .. }));
                    link.own.push_back(BondMessage::Pong { token, received: link.received });
                }
            }
            BondMessage::Pong { token, .. } => {
                if let Some(link) = self.links.get_mut(&by) {
                    link.record_answer(Time::from_nanos(token).min(now), now);
                }
                self.record_alive(by, now);
            }
            // The link's reader ends with this message.
            BondMessage::Bye => {}
            // The link's own connection may report this much later, or never.
            BondMessage::Gone { link } => {
                if let Some(link) = self.links.get(&LinkId(link)) {
                    link.gone.notify_one();
                }
            }
        }
        self.remove_ended();
        self.dispatch(now);
        Ok(())
    }

    fn with(&mut self, stream: u32, act: impl FnOnce(&mut Flow)) -> Result<(), String> {
        if let Some(flow) = self.find(stream)? {
            act(flow);
        }
        Ok(())
    }

    fn release_chunks(&mut self, freed: &[thalweg_bond::ReleasedChunk], now: Time) {
        for one in freed {
            let Some(link) = self.links.get_mut(&one.link) else { continue };
            link.record_acknowledged(one.bytes, now);
            let owes = link.owed() > 0;
            link.liveness.record_heard(now, owes);
            link.restore();
            if one.is_plain {
                link.liveness.sample(now.since(one.sent));
            }
        }
    }

    /// Records that something arrived over a link. If no chunk is outstanding on it, the link counts as alive;
    /// otherwise the arrival does not show that the other direction works.
    pub fn record_arrival_by(&mut self, id: LinkId, now: Time) {
        if let Some(link) = self.links.get_mut(&id)
            && link.owed() == 0
        {
            link.liveness.record_heard(now, false);
        }
    }

    /// A link answered a question.
    pub fn record_alive(&mut self, id: LinkId, now: Time) {
        if let Some(link) = self.links.get_mut(&id) {
            link.restore();
            link.liveness.record_heard(now, false);
        }
    }

    /// Checks which links are late or silent, and asks those in doubt. Returns whether one fell silent.
    pub fn watch(&mut self, now: Time) -> bool {
        let (mut silent, mut repeat_messages) = (Vec::new(), false);
        let held_up = now.since(std::mem::replace(&mut self.watched, now));
        for (id, link) in &mut self.links {
            // Only the excess is excused: on a host that is always late, a silence is found late, but it is found.
            link.liveness.excuse(held_up.saturating_sub(HELD_UP), now);
            link.gauge.look(&mut link.reading, now);
            if link.liveness.round_trip().is_none() && !link.round_trip().is_zero() {
                link.liveness.sample(link.round_trip());
            }
            if link.reading.drains() {
                link.liveness.record_heard(now, true);
            }
            let life = link.liveness.state(link.queue(), now);
            // A silent link is asked until it answers, even if something arrived by it: a good way back says nothing
            // about the way there.
            let is_doubtful =
                link.is_silent || life != Life::Alive || link.messages.need_proof(now);
            let patience = if is_doubtful { ASK_AGAIN } else { ASK_RELAYED };
            let is_asked = is_doubtful || link.is_relayed();
            if is_asked && link.own.is_empty() && now.since(link.asked) >= patience {
                link.ask(now);
            }
            // Bytes that arrived and were not read yet may be the answer that is due.
            if life == Life::Silent && !link.is_silent && !link.gauge.has_unread() {
                link.is_silent = true;
                silent.push(*id);
            }
            repeat_messages |= link.messages.are_lost(now);
        }
        silent.iter().for_each(|id| self.reassign(*id));
        if repeat_messages {
            self.flows.values_mut().for_each(Flow::repeat_messages);
        }
        self.remove_ended();
        self.dispatch(now);
        !silent.is_empty()
    }
}

/// The choice of what each link carries.
impl State {
    /// Gives idle links frames to carry, as long as there is something that should go now.
    pub fn dispatch(&mut self, now: Time) {
        for link in self.links.values_mut().filter(|link| link.is_idle) {
            if let Some(message) = link.own.pop_front() {
                link.carry(Frame::encode_message(&message), 0);
                link.liveness.record_sent(now);
            }
        }
        while self.links.values().any(|link| link.is_idle) {
            if !(self.give_message(now) || self.give_chunk(now)) {
                break;
            }
        }
    }

    /// The links as the scheduler sees them.
    fn view(&mut self, now: Time) -> Vec<Link> {
        self.links.iter_mut().map(|(id, link)| link.scheduler_view(*id, now)).collect()
    }

    /// Gives a message that belongs to no particular link to the idle link with the shortest round trip; links in doubt
    /// come last.
    fn give_message(&mut self, now: Time) -> bool {
        let idle = self.links.iter().filter(|(_, link)| link.is_idle && !link.is_silent);
        let rank = |link: &LinkState| (link.messages.is_doubted, link.round_trip());
        let best = idle.min_by_key(|(_, link)| rank(link)).map(|(id, _)| *id);
        let Some(best) = best else { return false };
        let gone = self.broken_links.pop_front().map(|link| BondMessage::Gone { link: link.0 });
        let message = gone.or_else(|| {
            self.flows.iter_mut().find_map(|(stream, flow)| flow.take_message(*stream))
        });
        let (Some(message), Some(link)) = (message, self.links.get_mut(&best)) else {
            return false;
        };
        link.carry(Frame::encode_message(&message), 0);
        link.liveness.record_sent(now);
        link.messages.record_sent(now);
        true
    }

    /// Gives an idle link the next chunk of the next stream that has one for it; otherwise a second copy of a late
    /// chunk, if its stream has nothing new.
    fn give_chunk(&mut self, now: Time) -> bool {
        let links = self.view(now);
        let crowd = crowd(self.flows.values());
        let after = self.flows.range(self.turn + 1..).chain(self.flows.range(..=self.turn));
        let waiting =
            after.filter(|(_, flow)| flow.broken.is_none()).filter_map(|(stream, flow)| {
                let chunk = flow.sender.next()?;
                Some((*stream, chunk))
            });
        // A stream that waits for a better link does not hold up the others.
        for (stream, chunk) in waiting.take(MOST_ASKED).collect::<Vec<_>>() {
            let Some(flow) = self.flows.get_mut(&stream) else { continue };
            let load = Load {
                chunk: chunk.length.into(),
                backlog: flow.expected_bytes(),
                window: flow.sender.window(),
                waits: flow.waits,
            };
            let verdict = self.scheduler.next(&links, crowd.load(load));
            flow.waits = verdict.waits(flow.waits);
            if let Verdict::Send(id) = verdict {
                return self.give(stream, chunk, &links, id, now);
            }
        }
        // A link that no stream's next chunk goes to is free for late chunks.
        self.give_second(&links, now)
    }

    fn give_second(&mut self, links: &[Link], now: Time) -> bool {
        let idle = links.iter().filter(|link| link.writable && link.usable);
        let found = idle.flat_map(|link| self.flows.iter().map(move |flow| (link, flow)));
        let found = found.into_iter().find_map(|(link, (stream, flow))| {
            let chunk = flow.sender.next_copy(link, now).filter(|_| flow.broken.is_none())?;
            Some((*stream, chunk, link.id))
        });
        let Some((stream, chunk, id)) = found else { return false };
        let is_given = self.give(stream, chunk, links, id, now);
        if let Some(link) = self.links.get_mut(&id).filter(|_| is_given) {
            link.twice += u64::from(chunk.length);
        }
        is_given
    }

    fn give(&mut self, stream: u32, chunk: Chunk, links: &[Link], id: LinkId, now: Time) -> bool {
        let seen = links.iter().find(|link| link.id == id);
        let (Some(flow), Some(link), Some(seen)) =
            (self.flows.get_mut(&stream), self.links.get_mut(&id), seen)
        else {
            return false;
        };
        let head = ChunkHead { stream, offset: chunk.offset, length: chunk.length };
        let mut frame = Vec::with_capacity(32 + chunk.length as usize);
        frame.extend(Frame::Chunk(head).encode());
        flow.copy(chunk, &mut frame);
        flow.record_assignment(chunk, seen, now);
        link.carry(frame, chunk.length.into());
        link.liveness.record_sent(now);
        self.turn = stream;
        true
    }
}

/// Streams that are over. Messages about them may still be in transit, or may have been lost with a link.
impl State {
    /// Tells the far end again how a stream ended.
    fn answer_for_past(&mut self, by: LinkId, stream: u32) {
        let past = self.past.iter().find(|(past, _)| *past == stream).map(|(_, past)| *past);
        let (Some(past), Some(link)) = (past, self.links.get_mut(&by)) else { return };
        let answer = match past {
            StreamEnd::Whole(length) => {
                let (arrived, limit, ranges) = (length, length, Vec::new());
                BondMessage::Acks { stream, arrived, limit, ranges, ended: true }
            }
            StreamEnd::Broken => {
                BondMessage::Reset { stream, why: "the stream broke earlier".to_owned() }
            }
        };
        if link.own.len() < MOST_ANSWERS && !link.own.contains(&answer) {
            link.own.push_back(answer);
        }
    }

    /// As [`Self::answer_for_past`], for messages that need no answer if the stream ended well.
    fn answer_for_broken(&mut self, by: LinkId, stream: u32) {
        if self.past.iter().any(|(past, how)| *past == stream && matches!(how, StreamEnd::Broken)) {
            self.answer_for_past(by, stream);
        }
    }

    /// Removes streams that are over, and remembers how they ended.
    pub fn remove_ended(&mut self) {
        let over = self.flows.iter().filter(|(_, flow)| flow.is_over());
        let past = |flow: &Flow| match flow.broken {
            Some(_) => StreamEnd::Broken,
            None => StreamEnd::Whole(flow.received()),
        };
        let over: Vec<_> = over.map(|(stream, flow)| (*stream, past(flow))).collect();
        for (stream, past) in over {
            self.flows.remove(&stream);
            self.past.push_back((stream, past));
        }
        while self.past.len() > REMEMBERED {
            self.past.pop_front();
        }
    }
}

/// The state as text, for debugging.
impl State {
    /// A line for each link and each stream.
    pub fn describe(&self, now: Time) -> String {
        let mut text = String::new();
        for (id, link) in &self.links {
            _ = writeln!(text, "link {}: {}", id.0, link.describe(now));
        }
        for (stream, flow) in &self.flows {
            _ = writeln!(text, "stream {stream}: {}", flow.describe());
        }
        text
    }
}

/// The streams that have something to send.
fn crowd<'a>(flows: impl Iterator<Item = &'a Flow>) -> StreamLoads {
    let mut crowd = StreamLoads::default();
    let waiting = flows.filter(|flow| flow.broken.is_none() && flow.sender.backlog() > 0);
    waiting.for_each(|flow| crowd.add(flow.expected_bytes(), flow.sender.window()));
    crowd
}

/// How a stream ended.
#[derive(Clone, Copy, Debug)]
enum StreamEnd {
    /// Regularly, after this many bytes were received.
    Whole(u64),
    Broken,
}

#[cfg(test)]
mod tests {
    use super::*;
    use super::{
        super::{gauge::Gauge, memory::Memory},
        NewLink, Settings,
    };
    use std::{
        os::fd::AsFd as _,
        sync::Arc,
        task::{Context, Poll, Waker},
        time::Duration,
    };
    use thalweg_bond::StripeMethod;
    use thalweg_wire::bond::{FRAME_HEAD, Target};
    use tokio::net::{TcpListener, TcpStream};

    const LATE: u32 = 0;
    const NEW: u32 = 2;

    /// A bond that has dialled, with two streams that have no messages due, and a link for each connection.
    fn state(links: &[TcpStream]) -> State {
        let settings = Settings { method: StripeMethod::RoundRobin, ..Settings::default() };
        let mut state = State::new(settings, 1 << 20, true, Memory::new(64 << 20));
        for stream in [LATE, NEW] {
            let to = Target::Service("node".to_owned());
            assert_eq!(state.open(to, Time::ZERO), Ok(stream));
            state.flows.get_mut(&stream).unwrap().due = Default::default();
        }
        for (id, tcp) in (0..).zip(links) {
            let gauge = Gauge::new(tcp.as_fd().try_clone_to_owned().unwrap()).unwrap();
            let (gauge, may_duplicate) = (Arc::new(gauge), true);
            let (interface, via, beyond) = (None, None, None);
            let link = NewLink { gauge, may_duplicate, interface, via, beyond };
            state.join(LinkId(id), link, Time::ZERO);
        }
        state
    }

    impl State {
        /// Writes 100 bytes to a stream and then makes this link idle; returns the frame that the link is given.
        fn gives(&mut self, stream: u32, link: u32, now: Time) -> Option<Frame> {
            let flow = self.flows.get_mut(&stream).unwrap();
            let written = flow.poll_write(&mut Context::from_waker(Waker::noop()), &[0; 100]);
            assert!(matches!(written, Poll::Ready(Ok(100))));
            self.links.get_mut(&LinkId(link)).unwrap().is_idle = true;
            self.dispatch(now);
            let work = self.links.get_mut(&LinkId(link)).unwrap().work.take()?;
            Some(Frame::decode(work[..FRAME_HEAD].try_into().unwrap()).unwrap())
        }
    }

    #[tokio::test]
    async fn a_link_without_new_chunks_carries_a_copy_of_a_late_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dial = || TcpStream::connect(listener.local_addr().unwrap());
        let mut state = state(&[dial().await.unwrap(), dial().await.unwrap()]);
        let chunk = |stream, offset| Some(Frame::Chunk(ChunkHead { stream, offset, length: 100 }));
        let later = Time::ZERO + Duration::from_secs(60);
        // Link 0 is busy with this chunk from now on.
        assert_eq!(state.gives(LATE, 0, Time::ZERO), chunk(LATE, 0));
        assert_eq!(state.gives(NEW, 1, Time::ZERO), chunk(NEW, 0));
        // Now it is the turn of link 0, which the new bytes wait for.
        assert_eq!(state.gives(NEW, 1, later), chunk(LATE, 0));
        // The copy is accounted for, by the link that carries it.
        let twice = |link| state.links[&LinkId(link)].twice;
        assert_eq!((twice(0), twice(1)), (0, 100));
    }
}
