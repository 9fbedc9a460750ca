//! Captures of what enters links.

use super::{engine::Packet, pcap};
use std::{
    collections::HashMap,
    sync::mpsc::{SyncSender, TrySendError},
    time::{Instant, SystemTime},
};
use thalweg_lab::emu::Network;
use thalweg_units::Time;

/// The running captures, by link.
pub struct Taps(HashMap<usize, Vec<SyncSender<pcap::Record>>>);

impl Taps {
    /// None.
    pub fn new() -> Self {
        Self(HashMap::new())
    }

    /// Starts one.
    pub fn add(
        &mut self,
        network: &mut Network<Packet>,
        link: usize,
        sink: SyncSender<pcap::Record>,
    ) {
        network.tap(link, true);
        self.0.entry(link).or_default().push(sink);
    }

    /// Passes on what entered since the last turn; `epoch` is the network's time zero.
    ///
    /// A capture that cannot keep up misses packets: the network does not wait.
    pub fn pass_on(&mut self, network: &mut Network<Packet>, epoch: Instant) {
        if self.0.is_empty() {
            return;
        }
        let zero = SystemTime::now() - epoch.elapsed();
        for tapped in network.take_tapped().0 {
            let Some(sinks) = self.0.get_mut(&tapped.link) else { continue };
            let at = zero + tapped.at.since(Time::ZERO);
            sinks.retain(|sink| {
                let sent = sink.try_send(pcap::Record::new(at, &tapped.packet));
                !matches!(sent, Err(TrySendError::Disconnected(_)))
            });
            if sinks.is_empty() {
                self.0.remove(&tapped.link);
                network.tap(tapped.link, false);
            }
        }
    }
}
