//! Riders of trains (MGRP §2.2): what the trains' code asks of whoever has packets for a member, and where those
//! go by themselves.

use super::{endpoint::Incoming, fly::Way};
use std::{fmt, io, sync::Arc, time::Duration};
use thalweg_measure::{
    riders::Fragment,
    train::{Probe, Tally, Train},
};
use thalweg_units::{NodeId, Time};
use thalweg_wire::{mesh::Name, probe::Payload};

/// Who has riders for members: [`crate::carrier`].
pub trait Carries: Send + Sync + fmt::Debug {
    /// The riders for the node with this key; `None`: it is no member's daemon, or nothing is carried here.
    fn riders(&self, node: NodeId) -> Option<Arc<dyn Riders>>;

    /// Whether nothing is carried any more, as the device is gone.
    fn is_gone(&self) -> bool;

    /// The bytes that this host's programs have sent to each member, whether they rode or not.
    fn sent(&self) -> Vec<(Name, u64)>;

    /// How it is, for `thalweg carrier status`.
    fn report(&self) -> serde_json::Value;
}

/// Riders for one member, and from it.
pub trait Riders: Send + Sync + fmt::Debug {
    /// A number of this life of who numbers them: riders are counted anew in the next.
    fn epoch(&self) -> u64;

    /// Datagrams to the member may go that way, until what is returned is dropped.
    fn attach(self: Arc<Self>, outlet: Outlet) -> Attached;

    /// These came from the member, of that life of its process.
    fn arrived(&self, epoch: u64, fragments: Vec<Fragment>);

    /// A train came from the member: so many probes that arrived, their bytes, and the time from the first to the last.
    fn passed(&self, probes: usize, bytes: u64, took: Duration);

    /// A train to the member begins then: what comes shortly before may wait for it.
    fn due(&self, at: Time, train: &Train);

    /// A train to the member begins.
    fn begin(self: Arc<Self>, train: &Train) -> Box<dyn Riding>;
}

/// What rides in one train. It is over when this is dropped.
pub trait Riding: Send {
    /// What rides in the probe at this place, which has so much room.
    fn fill(&mut self, place: usize, probe: Probe, room: usize) -> Vec<Fragment>;

    /// The probe that was filled last did not leave: what was to ride in it goes by itself, and is counted so.
    fn stayed(&mut self, fragments: Vec<Fragment>);

    /// The train is over; what rode in it (§2.4 b and c).
    fn end(self: Box<Self>) -> Tally;
}

/// Undoes [`Riders::attach`] when dropped.
pub struct Attached(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Attached {
    /// Does that when dropped.
    pub fn new(undo: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(undo)))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            undo();
        }
    }
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached").finish_non_exhaustive()
    }
}

/// Takes riders to a member without a train.
#[derive(Clone)]
pub struct Outlet {
    way: Way,
    /// Where the member's datagrams come from is where it is, if any came.
    incoming: Arc<Incoming>,
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").field("to", &self.way.to).finish_non_exhaustive()
    }
}

impl Outlet {
    pub(super) fn new(way: Way, incoming: Arc<Incoming>) -> Self {
        Self { way, incoming }
    }

    /// Sends them in one datagram; never waits.
    ///
    /// # Errors
    /// The kernel's; `NotConnected`: the member has not shown where it is.
    pub fn send(&self, fragments: Vec<Fragment>) -> io::Result<()> {
        let to = self.incoming.from().unwrap_or(self.way.to);
        if to.port() == 0 {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.way.send_riders(to, fragments)
    }
}

/// The riders of a train, if any may ride in it.
pub(super) struct Aboard {
    riding: Option<Box<dyn Riding>>,
    /// Riders' bytes in each of its probes.
    carried: Vec<u32>,
}

impl Aboard {
    pub(super) fn of(riders: Option<&Arc<dyn Riders>>, train: &Train) -> Self {
        let riding = riders.map(|riders| Arc::clone(riders).begin(train));
        Self { riding, carried: vec![0; train.probes().len()] }
    }

    /// What rides in the probe at this place.
    pub(super) fn fill(&mut self, place: usize, probe: Probe, header: &[u8]) -> Vec<Fragment> {
        let own = u16::try_from(header.len()).unwrap_or(u16::MAX);
        let room = Payload::padding(probe.size, own).filter(|_| probe.may_carry);
        let fill = |riding: &mut Box<dyn Riding>| riding.fill(place, probe, room?).into();
        let riders: Vec<_> = self.riding.as_mut().and_then(fill).unwrap_or_default();
        self.carried[place] = riders.iter().map(|rider| rider.bytes.len() as u32).sum();
        riders
    }

    /// That probe, the last one filled, did not leave.
    pub(super) fn stayed(&mut self, place: usize, riders: Vec<Fragment>) {
        self.carried[place] = 0;
        if let Some(riding) = self.riding.as_mut().filter(|_| !riders.is_empty()) {
            riding.stayed(riders);
        }
    }

    /// What rode, and in which of the probes.
    pub(super) fn end(self) -> (Tally, Vec<u32>) {
        (self.riding.map(|riding| riding.end()).unwrap_or_default(), self.carried)
    }
}
