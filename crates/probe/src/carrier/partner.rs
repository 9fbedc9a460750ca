//! A member to which packets are carried: its waiting packets, its riders and its sessions.

use super::{
    boarding::PartnerBoarding,
    counts::RiderCounts,
    datagrams::{pack, shorter},
    filter::{OpenPorts, Replies},
    shared::LocalEnd,
};
use crate::trains::{AttachGuard, Boarding, Outlet, Riders};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::VecDeque,
    io,
    net::Ipv6Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use thalweg_measure::{
    riders::{
        FlowState, FlowWatch, Fragment, Hold, LegRule, PacketHead, Reassembly, ReassemblyLimits,
        Regulator, Ride, Seat, TrainId, rides, seats,
    },
    train::{Probe, Train},
};
use thalweg_net::probe::{now, too_long};
use thalweg_units::{NodeId, Time};
use thalweg_wire::{mesh::Name, probe::Payload};
use tokio::time::sleep;

/// The most packets that wait until a session is open: what TCP and `ping` send meanwhile, and little more. Beyond that
/// the oldest is dropped and counted.
const WAITING: usize = 64;

/// The number of epochs of the member's process whose riders are reassembled: the current one, and the one before it.
const EPOCHS: usize = 2;

/// The bounds of incomplete riders: a window of 40 packets for each of several trains. Beyond that the oldest rider is
/// given up and counted.
const LIMITS: ReassemblyLimits = ReassemblyLimits {
    bytes: 256 << 10,
    riders: 512,
    expiry: Duration::from_secs(2),
    longest: LONGEST,
};

/// The longest packet from members, bytes: jumbo frames, even if this node's device takes only shorter ones.
const LONGEST: usize = 9000;

/// The pause before the next attempt after a failed session: the first one, which doubles each time, and the longest.
const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// A member that packets go to or come from.
#[derive(Debug)]
pub struct Partner {
    pub(super) key: NodeId,
    pub(super) name: Name,
    pub(super) address: Ipv6Addr,
    /// Identifies the numbering of the riders sent to it, which begins at 0.
    epoch: u64,
    local: Arc<LocalEnd>,
    /// Whether the ports in the setting `open` are open to it.
    is_let_in: AtomicBool,
    state: Mutex<PartnerState>,
}

/// The mutable part of a partner.
#[derive(Debug)]
pub struct PartnerState {
    pub(super) hold: Hold,
    pub(super) counts: RiderCounts,
    flows: FlowWatch,
    replies: Replies,
    /// The last one is used.
    outlets: Vec<(u64, Outlet)>,
    attached: u64,
    waiting: VecDeque<Fragment>,
    incoming: Vec<(u64, Reassembly)>,
    /// Packets given up in epochs that are no longer kept.
    expired: u64,
    trains: usize,
    has_timer: bool,
    used: Time,
    session: SessionStatus,
    /// When the last train to or from the member ended that permits connections to ride.
    measured: Option<Time>,
    /// The bounds of incomplete riders.
    limits: ReassemblyLimits,
    /// The bytes that fragments may take of a datagram; fewer once the kernel has learnt that the path takes less.
    room: usize,
}

/// The session that this node opens.
#[derive(Clone, Debug)]
enum SessionStatus {
    None,
    Opening,
    Open,
    Failed { next: Time, pause: Duration, why: String },
}

impl Partner {
    /// Creates a partner without sessions.
    ///
    /// # Errors
    /// The kernel gives no random number.
    pub(super) fn new(
        local: Arc<LocalEnd>,
        key: NodeId,
        name: Name,
        address: Ipv6Addr,
    ) -> io::Result<Self> {
        let state = PartnerState {
            hold: Hold::new(local.settings.hold, 0),
            counts: RiderCounts::default(),
            flows: FlowWatch::default(),
            replies: Replies::default(),
            outlets: Vec::new(),
            attached: 0,
            waiting: VecDeque::new(),
            incoming: Vec::new(),
            expired: 0,
            trains: 0,
            has_timer: false,
            used: now(),
            session: SessionStatus::None,
            measured: None,
            limits: local.settings.limits(LIMITS),
            room: local.settings.room(),
        };
        let mut epoch = [0; 8];
        getrandom::fill(&mut epoch).map_err(io::Error::other)?;
        let epoch = u64::from_be_bytes(epoch);
        let is_let_in = AtomicBool::new(false);
        Ok(Self { key, name, address, epoch, local, is_let_in, state: Mutex::new(state) })
    }

    /// Sets whether the ports in the setting `open` are open to this member.
    pub(super) fn set_let_in(&self, is_let_in: bool) {
        self.is_let_in.store(is_let_in, Relaxed);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, PartnerState> {
        self.state.lock()
    }

    /// Sends a packet of this host to the member. Returns whether a session is to be opened now. Needs a runtime.
    pub(super) fn send(self: &Arc<Self>, packet: Vec<u8>, head: &PacketHead) -> bool {
        let settings = &self.local.settings;
        let now = now();
        let mut state = self.lock();
        state.used = now;
        state.counts.sent_packets += 1;
        state.counts.sent_bytes += packet.len() as u64;
        if settings.watches_flows() {
            state.flows.observe_sent(&packet, now);
        }
        state.replies.sent(&packet, self.doors(), now);
        let fragments = match settings.selection.matches(head) {
            true => state.hold.offer(packet, now),
            false => state.hold.send_alone(packet).into_iter().collect(),
        };
        if state.hold.packets() > 0 && !state.has_timer {
            state.has_timer = true;
            tokio::spawn(Arc::clone(self).release_in_time());
        }
        let wants_session = state.wants_session(now);
        drop(state);
        self.put(fragments);
        wants_session
    }

    /// Sends packets without a probe when they have waited long enough, until none waits.
    async fn release_in_time(self: Arc<Self>) {
        loop {
            let deadline = {
                let mut state = self.lock();
                let deadline = state.hold.deadline();
                state.has_timer = deadline.is_some();
                deadline
            };
            let Some(deadline) = deadline else { return };
            sleep(deadline.since(now())).await;
            self.release_due();
        }
    }

    /// Sends packets without a probe that have waited long enough, or wait for probes that will not come.
    pub(super) fn release_due(&self) {
        let mut state = self.lock();
        let due = state.hold.release_due(now());
        state.counts.timed_out_packets += due.len() as u64;
        drop(state);
        self.put(due);
    }

    /// Sends these without a probe, or keeps them until a session is open.
    pub(super) fn put(&self, fragments: Vec<Fragment>) {
        if fragments.is_empty() {
            return;
        }
        let (outlet, mut room) = {
            let mut state = self.lock();
            match state.outlets.last() {
                Some((_, outlet)) => (outlet.clone(), state.room),
                None => return state.keep(fragments),
            }
        };
        let (mut sent, mut dropped) = (0, 0);
        for datagram in pack(fragments, room) {
            match outlet.send(datagram) {
                Ok(()) => sent += 1,
                Err(why) => {
                    dropped += 1;
                    room = if too_long(&why) { shorter(room) } else { room };
                }
            }
        }
        let mut state = self.lock();
        state.room = state.room.min(room);
        state.counts.own_datagrams += sent;
        state.counts.dropped_packets += dropped;
    }

    /// The open ports, if they are open to this member.
    fn doors(&self) -> Option<&OpenPorts> {
        Some(&self.local.settings.doors).filter(|_| self.is_let_in.load(Relaxed))
    }

    /// Delivers a packet from the member to this host.
    fn deliver(&self, packet: &[u8]) {
        let head = PacketHead::read(packet);
        let is_its = head
            .is_some_and(|head| head.source == self.address && head.destination == self.local.own);
        if is_its && !self.lock().replies.lets_in(packet, self.doors(), now()) {
            self.lock().counts.unasked_packets += 1;
            return;
        }
        let written = is_its && self.local.write(packet);
        let mut state = self.lock();
        if self.local.settings.watches_flows() && is_its {
            state.flows.observe_received(packet);
        }
        match (is_its, written) {
            (true, true) => {
                state.counts.received_packets += 1;
                state.counts.received_bytes += packet.len() as u64;
            }
            (true, false) => state.counts.dropped_packets += 1,
            (false, _) => state.counts.strange_packets += 1,
        }
    }

    /// The rules for trains to the member.
    pub(super) fn regulators(&self) -> &[Regulator] {
        &self.local.settings.regulators
    }

    /// The state of the TCP flows that ride.
    pub(super) fn flows(&self) -> FlowState {
        self.lock().flows.state(now())
    }

    /// Notes the end of a train.
    pub(super) fn train_ended(&self, trip: TrainId) {
        let mut state = self.lock();
        state.trains = state.trains.saturating_sub(1);
        state.hold.end(trip);
        drop(state);
        self.release_due();
    }

    /// Notes that the session was opened.
    pub(super) fn opened(&self) {
        self.lock().session = SessionStatus::Open;
    }

    /// Notes that the session ended, or could not be opened.
    pub(super) fn closed(&self, why: Option<String>) {
        let mut state = self.lock();
        let before = match &state.session {
            SessionStatus::Failed { pause, .. } => *pause * 2,
            _ => RETRY[0],
        };
        let pause = before.clamp(RETRY[0], RETRY[1]);
        state.session = match why {
            None => SessionStatus::None,
            Some(why) => SessionStatus::Failed { next: now() + pause, pause, why },
        };
        if state.outlets.is_empty() {
            state.counts.dropped_packets += state.waiting.len() as u64;
            state.waiting.clear();
        }
    }

    /// Whether nothing was sent or received for this long.
    pub(super) fn is_unused_for(&self, long: Duration) -> bool {
        now().since(self.lock().used) >= long
    }

    /// Whether the partner can be forgotten: it has no session, and nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.lock();
        let is_calm = !matches!(state.session, SessionStatus::Opening | SessionStatus::Open);
        is_calm && state.outlets.is_empty() && state.hold.packets() == 0 && state.trains == 0
    }

    /// Whether this rule lets a connection to the member ride that begins now.
    pub(super) fn is_measured(&self, rule: &LegRule) -> bool {
        let state = self.lock();
        !state.outlets.is_empty() && rule.rides(state.measured, now())
    }

    fn note_train(&self, probes: usize, bytes: u64, took: Duration) {
        if self.local.settings.legs.is_some_and(|rule| rule.tests_rate(probes, bytes, took)) {
            self.lock().measured = Some(now());
        }
    }

    /// The counters, and a description of the session.
    pub(super) fn report(&self) -> (RiderCounts, String) {
        let mut state = self.lock();
        // If nothing arrives any more, nobody else expires incomplete riders.
        state.incoming.iter_mut().for_each(|(_, all)| all.expire(now()));
        let mut counts = state.counts;
        let lost = |(_, all): &(u64, Reassembly)| all.lost();
        counts.expired_packets = state.expired + state.incoming.iter().map(lost).sum::<u64>();
        let session = match &state.session {
            _ if !state.outlets.is_empty() => "open".to_owned(),
            SessionStatus::None | SessionStatus::Open => "none".to_owned(),
            SessionStatus::Opening => "opening".to_owned(),
            SessionStatus::Failed { why, .. } => format!("none: {why}"),
        };
        (counts, session)
    }
}

impl PartnerState {
    fn wants_session(&mut self, now: Time) -> bool {
        let may = match &self.session {
            SessionStatus::None => true,
            SessionStatus::Opening | SessionStatus::Open => false,
            SessionStatus::Failed { next, .. } => now >= *next,
        };
        let wants = may && self.outlets.is_empty();
        if wants {
            self.session = SessionStatus::Opening;
        }
        wants
    }

    fn keep(&mut self, fragments: Vec<Fragment>) {
        self.waiting.extend(fragments);
        while self.waiting.len() > WAITING {
            self.waiting.pop_front();
            self.counts.dropped_packets += 1;
        }
    }

    fn seats(&self, train: &Train, rides: &[Option<Ride>], regulators: &[Regulator]) -> Vec<Seat> {
        seats(train, rides, regulators, &self.flows.state(now()))
    }

    fn reassembly(&mut self, epoch: u64) -> &mut Reassembly {
        let at = self.incoming.iter().position(|(known, _)| *known == epoch);
        let at = at.unwrap_or_else(|| {
            if self.incoming.len() >= EPOCHS {
                let (_, old) = self.incoming.remove(0);
                self.expired += old.lost();
            }
            self.incoming.push((epoch, Reassembly::new(self.limits)));
            self.incoming.len() - 1
        });
        &mut self.incoming[at].1
    }
}

impl Riders for Partner {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn attach(self: Arc<Self>, outlet: Outlet) -> AttachGuard {
        let (number, waiting) = {
            let mut state = self.lock();
            state.attached += 1;
            let number = state.attached;
            state.outlets.push((number, outlet));
            (number, Vec::from(std::mem::take(&mut state.waiting)))
        };
        self.put(waiting);
        AttachGuard::new(move || self.lock().outlets.retain(|(other, _)| *other != number))
    }

    fn receive(&self, epoch: u64, fragments: Vec<Fragment>) {
        let now = now();
        let mut whole = Vec::new();
        let mut state = self.lock();
        state.used = now;
        state.counts.received_fragments += fragments.len() as u64;
        for fragment in &fragments {
            match state.reassembly(epoch).take(fragment, now) {
                Ok(packet) => whole.extend(packet),
                Err(_) => state.counts.refused_fragments += 1,
            }
        }
        drop(state);
        whole.iter().for_each(|packet| self.deliver(packet));
    }

    fn note_received_train(&self, probes: usize, bytes: u64, took: Duration) {
        self.note_train(probes, bytes, took);
    }

    fn announce(&self, at: Time, train: &Train) {
        let mut state = self.lock();
        let seats = state.seats(train, &rides(train, padding), self.regulators());
        state.hold.announce(at, seats);
    }

    fn begin(self: Arc<Self>, train: &Train) -> Box<dyn Boarding> {
        let rides = rides(train, padding);
        self.note_train(rides.iter().flatten().count(), train.bytes(), train.duration());
        let mut state = self.lock();
        state.trains += 1;
        let seats = state.seats(train, &rides, self.regulators());
        let trip = state.hold.begin(now(), seats);
        let held = (state.hold.packets() as u64, state.hold.bytes() as u64);
        drop(state);
        Box::new(PartnerBoarding::new(self, trip, rides, held))
    }
}

/// The bytes that riders may have of a probe.
fn padding(probe: &Probe) -> Option<usize> {
    Payload::padding(probe.size, probe.header)
}
