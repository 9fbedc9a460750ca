//! The riders of one train.

use super::partner::Partner;
use crate::trains::Boarding;
use std::sync::Arc;
use thalweg_measure::{
    riders::{Fragment, Ride, TrainId},
    train::{Probe, Tally},
};
use thalweg_net::probe::now;

/// A train that is under way to a member.
pub struct PartnerBoarding {
    partner: Arc<Partner>,
    trip: TrainId,
    /// What the regulators decide on for each probe.
    rides: Vec<Option<Ride>>,
    /// Packets and bytes that waited when the train began: without the train they would have been sent before it.
    held: (u64, u64),
    packets: u64,
    tally: Tally,
    /// The riders of the last probe: packets that ended in it, and bytes that had not ridden before.
    last: (u64, u64),
}

impl PartnerBoarding {
    pub(super) fn new(
        partner: Arc<Partner>,
        trip: TrainId,
        rides: Vec<Option<Ride>>,
        held: (u64, u64),
    ) -> Self {
        Self { partner, trip, rides, held, packets: 0, tally: Tally::default(), last: (0, 0) }
    }

    fn may_carry(&self, place: usize) -> bool {
        let Some(ride) = self.rides.get(place).copied().flatten() else { return false };
        let regulators = self.partner.regulators();
        if regulators.is_empty() {
            return true;
        }
        let flows = self.partner.flows();
        regulators.iter().all(|one| one.allows(ride, &flows))
    }
}

impl Boarding for PartnerBoarding {
    fn fill(&mut self, place: usize, _probe: Probe, room: usize) -> Vec<Fragment> {
        let may_carry = self.may_carry(place);
        let mut state = self.partner.lock();
        if !may_carry {
            // Packets that wait for this probe wait no longer.
            return state.hold.board(self.trip, place, 0, now());
        }
        let before = (state.hold.packets(), state.hold.bytes());
        let fragments = state.hold.board(self.trip, place, room, now());
        let packets = (before.0 - state.hold.packets()) as u64;
        let bytes = (before.1 - state.hold.bytes()) as u64;
        let all: usize = fragments.iter().map(|fragment| fragment.bytes.len()).sum();
        let counts = &mut state.counts;
        match fragments.is_empty() {
            true => counts.empty_probes += 1,
            false => counts.carrying_probes += 1,
        }
        counts.ridden_packets += packets;
        counts.ridden_fragments += fragments.len() as u64;
        counts.ridden_bytes += bytes;
        counts.repeated_bytes += all as u64 - bytes;
        drop(state);
        self.last = (packets, bytes);
        self.packets += packets;
        self.tally.carriers += u64::from(!fragments.is_empty());
        self.tally.carried_bytes += bytes;
        fragments
    }

    fn take_back(&mut self, mut fragments: Vec<Fragment>) {
        let (packets, bytes) = std::mem::take(&mut self.last);
        let mut state = self.partner.lock();
        let counts = &mut state.counts;
        counts.carrying_probes -= 1;
        counts.ridden_packets -= packets;
        counts.ridden_fragments -= fragments.len() as u64;
        counts.ridden_bytes -= bytes;
        let all: usize = fragments.iter().map(|fragment| fragment.bytes.len()).sum();
        counts.repeated_bytes -= all as u64 - bytes;
        drop(state);
        self.packets -= packets;
        self.tally.carriers -= 1;
        self.tally.carried_bytes -= bytes;
        // Repeated fragments follow the new ones, and have ridden before.
        let mut new = 0;
        fragments.retain(|fragment| {
            new += fragment.bytes.len() as u64;
            new <= bytes
        });
        self.partner.put(fragments);
    }

    fn end(self: Box<Self>) -> Tally {
        Tally {
            hidden_packets: self.packets.saturating_sub(self.held.0),
            hidden_bytes: self.tally.carried_bytes.saturating_sub(self.held.1),
            ..self.tally
        }
    }
}

impl Drop for PartnerBoarding {
    fn drop(&mut self) {
        self.partner.train_ended(self.trip);
    }
}
