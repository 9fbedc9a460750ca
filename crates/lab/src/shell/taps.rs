//! Passes copies of packets that enter links to captures.

use super::{engine::Packet, pcap};
use std::{
    collections::HashMap,
    sync::mpsc::{SyncSender, TrySendError},
    time::{Instant, SystemTime},
};
use thalweg_lab::emu::Network;
use thalweg_units::Time;

/// The running captures.
pub struct Taps {
    by_link: HashMap<usize, Vec<SyncSender<pcap::PcapRecord>>>,
    /// Packets that did not fit into a capture's backlog, since the lab's start.
    pub missed: u64,
}

impl Taps {
    /// Creates the state without captures.
    pub fn new() -> Self {
        Self { by_link: HashMap::new(), missed: 0 }
    }

    /// Starts a capture of the packets that enter `link`.
    pub fn add(
        &mut self,
        network: &mut Network<Packet>,
        link: usize,
        sink: SyncSender<pcap::PcapRecord>,
    ) {
        network.tap(link, true);
        self.by_link.entry(link).or_default().push(sink);
    }

    /// Passes on the packets that entered since the last turn. `epoch` is the network's time zero.
    ///
    /// The network does not wait for a slow capture: the packets that it misses are counted.
    pub fn pass_on(&mut self, network: &mut Network<Packet>, epoch: Instant) {
        if self.by_link.is_empty() {
            return;
        }
        let zero = SystemTime::now() - epoch.elapsed();
        let (seen, missed) = network.take_tapped();
        self.missed += missed;
        for tapped in seen {
            let Some(sinks) = self.by_link.get_mut(&tapped.link) else { continue };
            let at = zero + tapped.at.since(Time::ZERO);
            sinks.retain(|sink| {
                let sent = sink.try_send(pcap::PcapRecord::new(at, &tapped.packet));
                self.missed += u64::from(matches!(sent, Err(TrySendError::Full(_))));
                !matches!(sent, Err(TrySendError::Disconnected(_)))
            });
            if sinks.is_empty() {
                self.by_link.remove(&tapped.link);
                network.tap(tapped.link, false);
            }
        }
    }
}
