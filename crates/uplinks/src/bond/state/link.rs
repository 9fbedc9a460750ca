//! One link, as the bond sees it.

use super::{
    super::{
        gauge::{Gauge, Reading},
        status::{LinkLife, LinkStatus},
    },
    words::Words,
};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use thalweg_bond::{Beyond, Link, LinkId, Liveness, State as Life};
use thalweg_units::{Rate, Time};
use thalweg_wire::bond::Word;
use tokio::sync::Notify;

/// What waits at relays excuses a silence for so long at most.
const LONGEST_QUEUE: Duration = Duration::from_secs(2);

/// A link that joins a bond.
#[derive(Debug)]
pub struct Joining {
    pub gauge: Arc<Gauge>,
    pub may_duplicate: bool,
    pub interface: Option<String>,
    pub via: Option<String>,
    pub beyond: Option<Beyond>,
}

/// A link as the bond sees it.
#[derive(Debug)]
pub struct LinkState {
    pub gauge: Arc<Gauge>,
    pub reading: Reading,
    pub liveness: Liveness,
    /// It does not answer; what it carried goes elsewhere.
    pub is_silent: bool,
    /// Its writer waits for something to carry.
    pub is_idle: bool,
    /// What its writer is to carry next.
    pub work: Option<Vec<u8>>,
    pub wake: Arc<Notify>,
    /// Told when it broke at the far end.
    pub gone: Arc<Notify>,
    /// Answers and questions for this link alone.
    pub own: VecDeque<Word>,
    pub may_duplicate: bool,
    /// That it leaves by, and relays, where this end dialled.
    interface: Option<String>,
    via: Option<String>,
    /// What lies beyond the first relay, if there is one.
    beyond: Option<Beyond>,
    /// Bytes of chunks that were given to it.
    pub sent: u64,
    /// Of them those that went by another one as well, and are not accounted for yet.
    pub twice: u64,
    /// Bytes of chunks that came by it.
    pub received: u64,
    pub(super) acknowledged: u64,
    /// When it was asked last whether it is alive.
    pub(super) asked: Time,
    /// Chunks were under way by it then.
    asked_behind: bool,
    pub(super) words: Words,
}

impl LinkState {
    pub(super) fn new(link: Joining) -> Self {
        let Joining { gauge, may_duplicate, interface, via, beyond } = link;
        Self {
            gauge,
            reading: Reading::default(),
            liveness: Liveness::default(),
            is_silent: false,
            is_idle: false,
            work: None,
            wake: Arc::new(Notify::new()),
            gone: Arc::new(Notify::new()),
            own: VecDeque::new(),
            may_duplicate,
            interface,
            via,
            beyond,
            sent: 0,
            twice: 0,
            received: 0,
            acknowledged: 0,
            asked: Time::ZERO,
            asked_behind: false,
            words: Words::default(),
        }
    }

    /// As the scheduler sees it.
    pub(super) fn seen(&mut self, id: LinkId, now: Time) -> Link {
        self.gauge.look(&mut self.reading, now);
        let pending = self.work.as_ref().map_or(0, |work| work.len() as u64);
        let seen = self.reading.link(id);
        let own = self.own_round_trip();
        let beyond = self.beyond.as_ref();
        // What waits at a relay does not differ from what waits here.
        let waiting = beyond.map_or(0, |beyond| beyond.waiting(self.owed(), own));
        let has_room = beyond.is_none_or(|beyond| self.owed() < beyond.window(own));
        Link {
            rate: self.rate(),
            rtt: self.round_trip(),
            unsent: seen.unsent.max(waiting) + pending,
            writable: self.is_idle && has_room,
            usable: !self.is_silent,
            may_duplicate: self.may_duplicate,
            ..seen
        }
    }

    /// Whether it goes through relays.
    pub(super) fn is_relayed(&self) -> bool {
        self.beyond.is_some()
    }

    /// It is to be asked whether it is alive.
    pub(super) fn ask(&mut self, now: Time) {
        self.own.push_back(Word::Ping(now.as_nanos()));
        // What a silent one carries is nobody's any more, and may be under way all the same.
        (self.asked, self.asked_behind) = (now, self.owed() > 0 || self.is_silent);
    }

    /// What it delivers; zero: not known.
    fn rate(&self) -> Rate {
        match &self.beyond {
            Some(beyond) => beyond.rate().unwrap_or_default(),
            None => self.reading.rate(),
        }
    }

    /// TCP's own.
    fn own_round_trip(&self) -> Duration {
        self.reading.info().rtt
    }

    /// To the far end and back.
    pub fn round_trip(&self) -> Duration {
        let beyond = self.beyond.as_ref().map_or(Duration::ZERO, Beyond::rtt);
        self.own_round_trip() + beyond
    }

    /// Bytes of chunks of which the far end has said nothing.
    pub(super) fn owed(&self) -> u64 {
        self.sent.saturating_sub(self.acknowledged)
    }

    /// How long what waits at relays does so.
    pub(super) fn queue(&self) -> Duration {
        let beyond = self.beyond.as_ref();
        let queue = beyond.map(|beyond| beyond.queue(self.owed(), self.own_round_trip()));
        queue.unwrap_or_default().min(LONGEST_QUEUE)
    }

    /// The far end has so many bytes more.
    pub(super) fn arrived(&mut self, bytes: u32, now: Time) {
        let (owed, own) = (self.owed(), self.own_round_trip());
        self.acknowledged += u64::from(bytes);
        if let Some(beyond) = &mut self.beyond {
            beyond.arrived(bytes, owed, own, now);
        }
    }

    /// It answers what was asked then.
    pub(super) fn answered(&mut self, asked: Time, now: Time) {
        self.words.proven(asked);
        let own = self.own_round_trip();
        let waited = self.asked_behind || asked != self.asked;
        if let Some(beyond) = &mut self.beyond {
            beyond.answered(now.since(asked), own, waited);
        }
    }

    /// It answers. What it delivered while it fell silent says nothing of how it is now.
    pub(super) fn comes_back(&mut self) {
        if std::mem::replace(&mut self.is_silent, false) {
            self.reading.forget_rate();
        }
    }

    pub(super) fn status(&mut self, id: LinkId, now: Time) -> LinkStatus {
        self.gauge.look(&mut self.reading, now);
        let life = match self.liveness.state(self.queue(), now) {
            _ if self.is_silent => LinkLife::Silent,
            Life::Alive => LinkLife::Alive,
            Life::Late | Life::Silent => LinkLife::Late,
        };
        LinkStatus {
            link: id.0,
            interface: self.interface.clone(),
            via: self.via.clone(),
            life,
            rate: self.rate(),
            rtt: self.round_trip(),
            loss: self.reading.loss(),
            sent: self.sent,
            received: self.received,
            may_duplicate: self.may_duplicate,
        }
    }

    pub(super) fn carry(&mut self, frame: Vec<u8>, data: u64) {
        self.sent += data;
        self.is_idle = false;
        self.work = Some(frame);
        self.wake.notify_one();
    }
}
