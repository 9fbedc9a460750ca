//! One link in the state of a bond.

use super::{
    super::{
        gauge::{Gauge, Reading},
        status::{LinkLife, LinkStatus},
    },
    message_delivery::MessageDelivery,
};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use thalweg_bond::{Link, LinkId, Liveness, RelayedPath, State as Life};
use thalweg_units::{Rate, Time};
use thalweg_wire::bond::BondMessage;
use tokio::sync::Notify;

/// The longest silence that bytes queued at relays excuse.
const LONGEST_QUEUE: Duration = Duration::from_secs(2);

/// A link that joins a bond.
#[derive(Debug)]
pub struct NewLink {
    pub gauge: Arc<Gauge>,
    pub may_duplicate: bool,
    pub interface: Option<String>,
    pub via: Option<String>,
    pub beyond: Option<RelayedPath>,
}

/// The state of a link.
#[derive(Debug)]
pub struct LinkState {
    pub gauge: Arc<Gauge>,
    pub reading: Reading,
    pub liveness: Liveness,
    /// It does not answer; other links carry its chunks.
    pub is_silent: bool,
    /// Its writer waits for a frame.
    pub is_idle: bool,
    /// The next frame for its writer.
    pub work: Option<Vec<u8>>,
    pub wake: Arc<Notify>,
    /// Notified when the far end says that the link broke there.
    pub gone: Arc<Notify>,
    /// Answers and questions that must go by this link.
    pub own: VecDeque<BondMessage>,
    pub may_duplicate: bool,
    /// The interface that it leaves by, if this end dialled.
    interface: Option<String>,
    via: Option<String>,
    /// The path beyond the first relay, if there is one.
    beyond: Option<RelayedPath>,
    /// Bytes of chunks given to it.
    pub sent: u64,
    /// Of those, the bytes that another link carries as well and that were not accounted for yet.
    pub twice: u64,
    /// Bytes of chunks that arrived by it.
    pub received: u64,
    pub(super) acknowledged: u64,
    /// When it was last asked whether it is alive.
    pub(super) asked: Time,
    /// Whether chunks were under way by it then.
    asked_behind: bool,
    pub(super) messages: MessageDelivery,
}

impl LinkState {
    pub(super) fn new(link: NewLink) -> Self {
        let NewLink { gauge, may_duplicate, interface, via, beyond } = link;
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
            messages: MessageDelivery::default(),
        }
    }

    /// The link as the scheduler sees it, after a fresh look at the kernel's counters.
    pub(super) fn scheduler_view(&mut self, id: LinkId, now: Time) -> Link {
        self.gauge.look(&mut self.reading, now);
        let pending = self.work.as_ref().map_or(0, |work| work.len() as u64);
        let seen = self.reading.link(id);
        let own = self.own_round_trip();
        let beyond = self.beyond.as_ref();
        // Bytes that wait at a relay count like bytes that wait here.
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

    /// Asks the link whether it is alive.
    pub(super) fn ask(&mut self, now: Time) {
        self.own.push_back(BondMessage::Ping(now.as_nanos()));
        // The chunks of a silent link are assigned to others, and may still be under way by it.
        (self.asked, self.asked_behind) = (now, self.owed() > 0 || self.is_silent);
    }

    /// The delivery rate; zero: not known.
    fn rate(&self) -> Rate {
        match &self.beyond {
            Some(beyond) => beyond.rate().unwrap_or_default(),
            None => self.reading.rate(),
        }
    }

    /// TCP's own round trip, to the first relay if there is one.
    fn own_round_trip(&self) -> Duration {
        self.reading.info().rtt
    }

    /// The round trip to the far end.
    pub fn round_trip(&self) -> Duration {
        let beyond = self.beyond.as_ref().map_or(Duration::ZERO, RelayedPath::rtt);
        self.own_round_trip() + beyond
    }

    /// Bytes of chunks that the far end has not acknowledged.
    pub(super) fn owed(&self) -> u64 {
        self.sent.saturating_sub(self.acknowledged)
    }

    /// How long bytes wait at relays.
    pub(super) fn queue(&self) -> Duration {
        let beyond = self.beyond.as_ref();
        let queue = beyond.map(|beyond| beyond.queue(self.owed(), self.own_round_trip()));
        queue.unwrap_or_default().min(LONGEST_QUEUE)
    }

    /// The far end acknowledged this many bytes more.
    pub(super) fn record_acknowledged(&mut self, bytes: u32, now: Time) {
        let (owed, own) = (self.owed(), self.own_round_trip());
        self.acknowledged += u64::from(bytes);
        if let Some(beyond) = &mut self.beyond {
            beyond.record_arrival(bytes, owed, own, now);
        }
    }

    /// The far end answered the question that was asked at `asked`.
    pub(super) fn record_answer(&mut self, asked: Time, now: Time) {
        self.messages.record_answer(asked);
        let own = self.own_round_trip();
        let waited = self.asked_behind || asked != self.asked;
        if let Some(beyond) = &mut self.beyond {
            beyond.record_answer(now.since(asked), own, waited);
        }
    }

    /// The link answers. If it was silent, its rate is forgotten: what it delivered while it fell silent says nothing
    /// about now.
    pub(super) fn restore(&mut self) {
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

/// The link's state as text, for debugging.
impl LinkState {
    pub(super) fn describe(&self, now: Time) -> String {
        let info = self.reading.info();
        let life = self.liveness.state(Duration::ZERO, now);
        let silent = if self.is_silent { "silent" } else { "in use" };
        let writer = match (self.is_idle, &self.work) {
            (true, _) => "idle",
            (false, Some(_)) => "given work",
            (false, None) => "at work",
        };
        format!(
            "{silent}, {life:?}, writer {writer}, {} messages of its own, {} of {} bytes \
             acknowledged, {} received, asked {:?} ago; TCP holds {} unsent, {} unacknowledged",
            self.own.len(),
            self.acknowledged,
            self.sent,
            self.received,
            now.since(self.asked),
            info.unsent,
            info.unacknowledged,
        )
    }
}
