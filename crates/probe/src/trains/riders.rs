//! Riders of trains (MGRP §2.2): the interface between trains and the source of packets for a member, and the way out
//! for packets without a train.

use super::{endpoint::Incoming, probe_sender::ProbeSender};
use std::{fmt, io, sync::Arc, time::Duration};
use thalweg_measure::{
    riders::Fragment,
    train::{Probe, Tally, Train},
};
use thalweg_units::{NodeId, Time};
use thalweg_wire::{mesh::Name, probe::Payload};

/// A source of riders for members, i.e. [`crate::carrier`].
pub trait RiderCarrier: Send + Sync + fmt::Debug {
    /// The riders for the node with this key; `None` if it is no member's daemon, or nothing is carried here.
    fn riders(&self, node: NodeId) -> Option<Arc<dyn Riders>>;

    /// Whether nothing is carried any more because the device is gone.
    fn is_gone(&self) -> bool;

    /// Bytes that this host's programs have sent to each member, whether they rode or not.
    fn sent(&self) -> Vec<(Name, u64)>;

    /// The carrier's state, for `thalweg carrier status`.
    fn report(&self) -> serde_json::Value;
}

/// The riders to and from one member.
pub trait Riders: Send + Sync + fmt::Debug {
    /// Identifies the numbering of riders by this process. The next process numbers them anew, under another epoch.
    fn epoch(&self) -> u64;

    /// Adds a way for datagrams to the member, until the returned value is dropped.
    fn attach(self: Arc<Self>, outlet: Outlet) -> AttachGuard;

    /// Takes fragments that came from the member, numbered under this epoch of its process.
    fn receive(&self, epoch: u64, fragments: Vec<Fragment>);

    /// Takes note of a train from the member: the probes that arrived, their bytes, and the time from the first to the
    /// last.
    fn note_received_train(&self, probes: usize, bytes: u64, took: Duration);

    /// Announces a train to the member that begins at this time: packets that come shortly before may wait for it.
    fn announce(&self, at: Time, train: &Train);

    /// Begins a train to the member.
    fn begin(self: Arc<Self>, train: &Train) -> Box<dyn Boarding>;
}

/// The riders of one train. The train ends when this is dropped.
pub trait Boarding: Send {
    /// The fragments that ride in the probe at this index, which has `room` bytes for them.
    fn fill(&mut self, place: usize, probe: Probe, room: usize) -> Vec<Fragment>;

    /// Takes back the riders of the probe that was filled last, which was not sent: they are sent as ordinary
    /// datagrams, and counted as such.
    fn take_back(&mut self, fragments: Vec<Fragment>);

    /// Ends the train. Returns what rode in it (§2.4 b and c).
    fn end(self: Box<Self>) -> Tally;
}

/// Undoes [`Riders::attach`] when dropped.
pub struct AttachGuard(Option<Box<dyn FnOnce() + Send + Sync>>);

impl AttachGuard {
    /// Creates the guard, which calls `undo` when dropped.
    pub fn new(undo: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(undo)))
    }
}

impl Drop for AttachGuard {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            undo();
        }
    }
}

impl fmt::Debug for AttachGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttachGuard").finish_non_exhaustive()
    }
}

/// Sends riders to a member without a train.
#[derive(Clone)]
pub struct Outlet {
    sender: ProbeSender,
    /// Knows the source address of the member's datagrams, if any have arrived.
    incoming: Arc<Incoming>,
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").field("to", &self.sender.to).finish_non_exhaustive()
    }
}

impl Outlet {
    pub(super) fn new(sender: ProbeSender, incoming: Arc<Incoming>) -> Self {
        Self { sender, incoming }
    }

    /// Sends the fragments in one datagram; never waits.
    ///
    /// # Errors
    /// The kernel's; `NotConnected` if the member's address is not known yet.
    pub fn send(&self, fragments: Vec<Fragment>) -> io::Result<()> {
        let to = self.incoming.from().unwrap_or(self.sender.to);
        if to.port() == 0 {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.sender.send_riders(to, fragments)
    }
}

/// The riders of a train, if any may ride in it.
pub(super) struct TrainRiders {
    riding: Option<Box<dyn Boarding>>,
    /// Riders' bytes in each probe.
    carried: Vec<u32>,
}

impl TrainRiders {
    pub(super) fn of(riders: Option<&Arc<dyn Riders>>, train: &Train) -> Self {
        let riding = riders.map(|riders| Arc::clone(riders).begin(train));
        Self { riding, carried: vec![0; train.probes().len()] }
    }

    /// The fragments that ride in the probe at this index.
    pub(super) fn fill(&mut self, place: usize, probe: Probe, header: &[u8]) -> Vec<Fragment> {
        let own = u16::try_from(header.len()).unwrap_or(u16::MAX);
        let room = Payload::padding(probe.size, own).filter(|_| probe.may_carry);
        let fill = |riding: &mut Box<dyn Boarding>| riding.fill(place, probe, room?).into();
        let riders: Vec<_> = self.riding.as_mut().and_then(fill).unwrap_or_default();
        self.carried[place] = riders.iter().map(|rider| rider.bytes.len() as u32).sum();
        riders
    }

    /// Takes back the riders of the probe that was filled last, which was not sent.
    pub(super) fn take_back(&mut self, place: usize, riders: Vec<Fragment>) {
        self.carried[place] = 0;
        if let Some(riding) = self.riding.as_mut().filter(|_| !riders.is_empty()) {
            riding.take_back(riders);
        }
    }

    /// The riders' tally, and their bytes in each probe.
    pub(super) fn end(self) -> (Tally, Vec<u32>) {
        (self.riding.map(|riding| riding.end()).unwrap_or_default(), self.carried)
    }
}
