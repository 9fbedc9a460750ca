//! The state of a bond, and the choice of the link that carries each chunk.

use super::{
    flow::{Birth, Broken, FIRST, Flow},
    memory::Memory,
    status::LinkStatus,
};
use bytes::Bytes;
use past::Past;
use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::Arc,
    time::Duration,
};
use thalweg_bond::{LinkId, SenderSettings, State as Life, StripeMethod, StripeScheduler};
use thalweg_units::Time;
use thalweg_wire::bond::{ChunkHead, MAX_LINKS, Refusal, Target, Word};
use tokio::sync::Notify;

mod account;
mod assign;
mod link;
mod past;
mod words;

pub use link::{Joining, LinkState};

/// Streams of a bond at a time: more than a browser opens to all its servers.
pub const MAX_STREAMS: usize = 512;

/// With those that are refused as too many, until their words have gone. An honest far end has no more than
/// [`MAX_STREAMS`] itself, but hears of their ends sooner than they have ended here.
const MOST_FLOWS: usize = 2 * MAX_STREAMS;

/// Broken links that are reported to the far end as soon as a link works: as many as a bond can
/// have. Beyond that, the oldest is not reported.
const MOST_BROKEN: usize = MAX_LINKS;

/// A link that does not answer is asked again so often.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// One through relays is asked so often: only its answers tell how far the far end is.
const ASK_RELAYED: Duration = Duration::from_secs(1);

/// Links are looked at far more often: where a look comes later than this after the last one, this process did not run.
const HELD_UP: Duration = Duration::from_millis(100);

/// How a bond works.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Who gets the next chunk.
    pub method: StripeMethod,
    /// How streams are cut.
    pub sender: SenderSettings,
    /// Bytes that a stream's receiver holds at this end, at most; it begins with fewer.
    pub window: u64,
}

impl Default for Settings {
    /// Windows of 16 MiB.
    fn default() -> Self {
        Self {
            method: StripeMethod::default(),
            sender: SenderSettings::default(),
            window: 16 << 20,
        }
    }
}

impl Settings {
    /// Bytes that a stream's receiver holds at first: what the far end is told.
    pub fn first_window(&self) -> u64 {
        self.window.min(FIRST)
    }
}

/// All of a bond, under one lock.
#[derive(Debug)]
pub struct State {
    pub links: BTreeMap<LinkId, LinkState>,
    pub flows: BTreeMap<u32, Flow>,
    pub settings: Settings,
    scheduler: StripeScheduler,
    /// Bytes that the far end holds of each new stream.
    pub theirs: u64,
    /// 0 at the end that dialled: the lowest bit of the streams that it opens.
    side: u32,
    next_stream: u32,
    /// The highest stream that the far end opened.
    newest: Option<u32>,
    /// Streams that are over, the oldest first.
    past: VecDeque<(u32, Past)>,
    /// The stream that was served last.
    turn: u32,
    /// Links that broke here, of which the far end is not told yet.
    broken_links: VecDeque<LinkId>,
    /// Streams that the far end opened and nobody took yet.
    pub offered: VecDeque<(u32, Target)>,
    /// Why it carries nothing any more.
    pub broken: Option<String>,
    /// When the links were looked at last.
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

    /// A link is there: who is told of work, and of its end.
    pub fn join(&mut self, id: LinkId, link: Joining, now: Time) -> (Arc<Notify>, Arc<Notify>) {
        let mut link = LinkState::new(link);
        if link.is_relayed() {
            // How long the greeting took is how long two busy hosts took as well.
            link.ask(now);
        }
        let told = (Arc::clone(&link.wake), Arc::clone(&link.gone));
        self.links.insert(id, link);
        told
    }

    /// The links, as they are now.
    pub fn links(&mut self, now: Time) -> Vec<LinkStatus> {
        let all = self.links.iter_mut();
        all.map(|(id, link)| link.status(*id, now)).collect()
    }

    /// A link is gone.
    pub fn leave(&mut self, id: LinkId, now: Time) {
        if let Some(link) = self.links.remove(&id) {
            link.wake.notify_one();
            self.elsewhere(id);
            self.broken_links.push_back(id);
            if self.broken_links.len() > MOST_BROKEN {
                self.broken_links.pop_front();
            }
            self.dispatch(now);
        }
    }

    /// What a link carried goes elsewhere.
    fn elsewhere(&mut self, id: LinkId) {
        for flow in self.flows.values_mut() {
            flow.sender.lost(id);
            flow.say_again();
        }
        if let Some(link) = self.links.get_mut(&id) {
            link.acknowledged = link.sent;
        }
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// There are too many, or the bond is broken.
    pub fn open(&mut self, to: Target, now: Time) -> Result<u32, String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        if self.flows.len() >= MAX_STREAMS {
            return Err(Refusal::Busy.to_string());
        }
        let flow = self.flow(Birth::Asked(to));
        if flow.broken.is_some() {
            return Err("there is no memory left for another stream".to_owned());
        }
        let stream = self.next_stream;
        self.next_stream = stream.checked_add(2).ok_or("the bond has had all its streams")?;
        self.flows.insert(stream, flow);
        self.dispatch(now);
        Ok(stream)
    }

    fn flow(&self, birth: Birth) -> Flow {
        let Settings { sender, window, .. } = self.settings;
        Flow::new(birth, sender, self.theirs, window, &self.memory)
    }

    /// The stream of a frame that came; `None`: it is over.
    fn find(&mut self, stream: u32) -> Result<Option<&mut Flow>, String> {
        let is_theirs = stream & 1 != self.side;
        let is_new = is_theirs && self.newest.is_none_or(|newest| stream > newest);
        if !is_theirs && stream >= self.next_stream {
            return Err(format!("stream {stream} was never opened"));
        }
        if is_new {
            // Chunks may overtake the word that opens it; others between them are on their way too.
            let first = self.newest.map_or(1 - self.side, |newest| newest + 2);
            if self.flows.len() + (stream - first) as usize / 2 >= MOST_FLOWS {
                return Err("too many streams".to_owned());
            }
            for between in (first..=stream).step_by(2) {
                let mut flow = self.flow(Birth::Offered);
                if self.flows.len() >= MAX_STREAMS {
                    flow.refuse();
                }
                self.flows.insert(between, flow);
            }
            self.newest = Some(stream);
        }
        Ok(self.flows.get_mut(&stream))
    }

    /// A chunk came by a link.
    ///
    /// # Errors
    /// The far end does not keep to the protocol.
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
        self.heard_by(by, now);
        match self.find(head.stream)? {
            Some(flow) => flow.chunk(head.offset, bytes)?,
            None => self.answer_for_past(by, head.stream),
        }
        self.dispatch(now);
        Ok(())
    }

    /// A word came by a link.
    ///
    /// # Errors
    /// The far end does not keep to the protocol.
    pub fn word(&mut self, by: LinkId, word: Word, now: Time) -> Result<(), String> {
        self.heard_by(by, now);
        match word {
            Word::Open { stream, to } => match self.find(stream)? {
                Some(flow) => {
                    if flow.birth == Birth::Offered
                        && flow.broken.is_none()
                        && !self.offered.iter().any(|(offered, _)| *offered == stream)
                    {
                        self.offered.push_back((stream, to));
                    }
                }
                None => self.answer_for_broken(by, stream),
            },
            Word::Opened { stream } => self.with(stream, Flow::opened)?,
            Word::Refused { stream, why } => {
                self.with(stream, |flow| flow.break_off(Broken::Refused(why)))?;
            }
            Word::Reset { stream, why } => {
                self.with(stream, |flow| flow.break_off(Broken::Reset(why)))?;
            }
            Word::End { stream, at } => match self.find(stream)? {
                Some(flow) => flow.ends_at(at)?,
                None => self.answer_for_past(by, stream),
            },
            Word::Acks { stream, arrived, limit, ranges, ended } => {
                let ranges: Vec<Range<u64>> = ranges.into_iter().map(|(a, b)| a..b).collect();
                match self.find(stream)? {
                    Some(flow) => {
                        let freed = flow.acks(arrived, limit, &ranges, ended)?;
                        self.freed(&freed, now);
                    }
                    None => self.answer_for_broken(by, stream),
                }
            }
            Word::Ping(token) => {
                if let Some(link) = self.links.get_mut(&by) {
                    link.own.retain(|word| !matches!(word, Word::Pong { .. }));
                    link.own.push_back(Word::Pong { token, received: link.received });
                }
            }
            Word::Pong { token, .. } => {
                if let Some(link) = self.links.get_mut(&by) {
                    link.answered(Time::from_nanos(token).min(now), now);
                }
                self.alive(by, now);
            }
            // The link's reader ends with it.
            Word::Bye => {}
            // Its own connection may say so much later, or never.
            Word::Gone { link } => {
                if let Some(link) = self.links.get(&LinkId(link)) {
                    link.gone.notify_one();
                }
            }
        }
        self.bury();
        self.dispatch(now);
        Ok(())
    }

    fn with(&mut self, stream: u32, act: impl FnOnce(&mut Flow)) -> Result<(), String> {
        if let Some(flow) = self.find(stream)? {
            act(flow);
        }
        Ok(())
    }

    fn freed(&mut self, freed: &[thalweg_bond::Freed], now: Time) {
        for one in freed {
            let Some(link) = self.links.get_mut(&one.link) else { continue };
            link.arrived(one.bytes, now);
            let owes = link.owed() > 0;
            link.liveness.heard(now, owes);
            link.comes_back();
            if one.is_plain {
                link.liveness.sample(now.since(one.sent));
            }
        }
    }

    /// Something came by a link: words that went by it may count as heard. What it carries of
    /// streams is another matter; that the way back is good says nothing of the way there.
    pub fn heard_by(&mut self, id: LinkId, now: Time) {
        if let Some(link) = self.links.get_mut(&id)
            && link.owed() == 0
        {
            link.liveness.heard(now, false);
        }
    }

    /// A link answered.
    pub fn alive(&mut self, id: LinkId, now: Time) {
        if let Some(link) = self.links.get_mut(&id) {
            link.comes_back();
            link.liveness.heard(now, false);
        }
    }

    /// Looks for links that are late or silent; asks the late ones. Whether one fell silent.
    pub fn watch(&mut self, now: Time) -> bool {
        let (mut silent, mut say_again) = (Vec::new(), false);
        let held_up = now.since(std::mem::replace(&mut self.watched, now));
        for (id, link) in &mut self.links {
            // Not all of it: on a host that is always late silence is found late, and found.
            link.liveness.excuse(held_up.saturating_sub(HELD_UP), now);
            link.gauge.look(&mut link.reading, now);
            if link.liveness.round_trip().is_none() && !link.round_trip().is_zero() {
                link.liveness.sample(link.round_trip());
            }
            if link.reading.drains() {
                link.liveness.heard(now, true);
            }
            let life = link.liveness.state(link.queue(), now);
            // A silent one is asked until it answers, also when something was heard by it: that the way
            // back is good says nothing of the way there.
            let is_doubtful =
                link.is_silent || life != Life::Alive || link.words.are_to_be_proven(now);
            let patience = if is_doubtful { ASK_AGAIN } else { ASK_RELAYED };
            let is_asked = is_doubtful || link.is_relayed();
            if is_asked && link.own.is_empty() && now.since(link.asked) >= patience {
                link.ask(now);
            }
            // What came and was not read yet may be what it owes.
            if life == Life::Silent && !link.is_silent && !link.gauge.has_unread() {
                link.is_silent = true;
                silent.push(*id);
            }
            say_again |= link.words.are_lost(now);
        }
        silent.iter().for_each(|id| self.elsewhere(*id));
        if say_again {
            self.flows.values_mut().for_each(Flow::say_again);
        }
        self.bury();
        self.dispatch(now);
        !silent.is_empty()
    }
}
