//! Traffic under way by each interface: connections of programs, links of bonds, and the bytes of those.

use super::{doubt::Server, estimate::Load};
use std::{collections::BTreeMap, time::Duration};
use thalweg_bond::Application;
use thalweg_units::Time;

/// A connection that has moved nothing for this long rests: it is no load. Programs keep connections for later
/// requests.
const RESTS: Duration = Duration::from_secs(3);

/// A second is cut into this many parts. Most of them must have brought bytes before the rate of the second says
/// anything about the interface.
const PARTS: u32 = 4;

/// A bond's link counts as this many connections: the kernel gives twice the buffer that is asked for, and a far end
/// fills it whenever the link must wait.
const EACH_LINK: u64 = 2;

/// A connection under way.
#[derive(Clone, Debug)]
pub(super) struct OpenConnection {
    pub(super) application: Application,
    pub(super) destination: String,
    pub(super) interface: u32,
    pub(super) expected: u64,
    /// Bytes to and from this host so far.
    pub(super) moved: (u64, u64),
    /// The sum of both when the last second ended.
    pub(super) before: u64,
    /// Whether no route to its destination leaves by the assigned interface.
    pub(super) is_routeless: bool,
    /// Whether it is established; before, it is being dialled.
    pub(super) is_established: bool,
    /// When it began, or last moved something.
    pub(super) active: Time,
    /// It waits for a request, and so is no load.
    pub(super) rests: bool,
}

impl OpenConnection {
    pub(super) fn server(&self) -> Server {
        (self.destination.clone(), self.application.port)
    }
}

/// Bytes that an interface moved since the last tick.
#[derive(Clone, Copy, Debug, Default)]
struct SecondCounts {
    down: u64,
    up: u64,
    /// The parts of the second in which bytes came, as bits.
    parts: u8,
}

impl SecondCounts {
    /// Adds bytes to and from this host that came `since` after the second began.
    fn add(&mut self, more: (u64, u64), since: Duration) {
        let part = since.as_millis() * u128::from(PARTS) / 1000;
        self.down = self.down.saturating_add(more.0);
        self.up = self.up.saturating_add(more.1);
        self.parts |= 1 << part.min(u128::from(PARTS - 1));
    }

    /// Whether bytes came most of the time.
    fn is_busy(&self) -> bool {
        self.parts.count_ones() + 1 >= PARTS
    }
}

/// Traffic by an interface beside programs' connections: by links of bonds, and by downloads.
#[derive(Clone, Copy, Debug)]
struct OtherTraffic {
    /// Bytes in both directions since it last rested.
    moved: u64,
    /// Of those, the bytes until the last second ended.
    before: u64,
    /// When it last moved something.
    active: Time,
}

/// What one interface moved in a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct SecondTraffic {
    /// The interface's index.
    pub(super) interface: u32,
    /// Bytes to and from this host.
    pub(super) bytes: (u64, u64),
    /// The kind of traffic that moved it.
    pub(super) load: Load,
}

/// All traffic under way.
#[derive(Debug)]
pub(super) struct Traffic {
    open: BTreeMap<u64, OpenConnection>,
    /// The number of the next connection.
    next: u64,
    /// Number of links of bonds, by their interface's name.
    links: BTreeMap<String, u64>,
    /// Traffic by those, and by downloads, by interface.
    flowing: BTreeMap<u32, OtherTraffic>,
    /// Bytes to and from this host since the last second ended.
    second: BTreeMap<u32, SecondCounts>,
    /// When the last second ended.
    ticked: Time,
}

impl Traffic {
    pub(super) fn new(now: Time) -> Self {
        Self {
            open: BTreeMap::new(),
            next: 0,
            links: BTreeMap::new(),
            flowing: BTreeMap::new(),
            second: BTreeMap::new(),
            ticked: now,
        }
    }

    /// When the last second ended.
    pub(super) fn ticked(&self) -> Time {
        self.ticked
    }

    /// Forgets the traffic beside programs' connections by interfaces that are gone.
    pub(super) fn keep(&mut self, is_there: impl Fn(&u32) -> bool) {
        self.flowing.retain(|index, _| is_there(index));
    }

    /// A connection is being dialled by this interface; returns its number.
    pub(super) fn begin(
        &mut self,
        application: Application,
        destination: &str,
        interface: u32,
        expected: u64,
        now: Time,
    ) -> u64 {
        let id = self.next;
        self.next += 1;
        let open = OpenConnection {
            application,
            destination: destination.to_owned(),
            interface,
            expected,
            moved: (0, 0),
            before: 0,
            is_routeless: false,
            is_established: false,
            active: now,
            rests: false,
        };
        self.open.insert(id, open);
        id
    }

    pub(super) fn get(&self, id: u64) -> Option<&OpenConnection> {
        self.open.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut OpenConnection> {
        self.open.get_mut(&id)
    }

    /// The connection has ended.
    pub(super) fn end(&mut self, id: u64) -> Option<OpenConnection> {
        self.open.remove(&id)
    }

    pub(super) fn open(&self) -> impl Iterator<Item = &OpenConnection> {
        self.open.values()
    }

    pub(super) fn by(&self, index: u32) -> impl Iterator<Item = &OpenConnection> {
        self.open.values().filter(move |open| open.interface == index)
    }

    /// The connection has moved this many bytes by now, to and from this host. Returns how many more than before.
    pub(super) fn moved(&mut self, id: u64, down: u64, up: u64, now: Time) -> u64 {
        let Some(open) = self.open.get_mut(&id) else { return 0 };
        let more = (down.saturating_sub(open.moved.0), up.saturating_sub(open.moved.1));
        let all = more.0.saturating_add(more.1);
        if all == 0 {
            return 0;
        }
        open.moved = (down.max(open.moved.0), up.max(open.moved.1));
        open.active = now;
        let interface = open.interface;
        let since = now.since(self.ticked);
        self.second.entry(interface).or_default().add(more, since);
        all
    }

    /// This many bytes more came and went by an interface, over connections that belong to no program.
    pub(super) fn record_bytes(&mut self, index: u32, more: (u64, u64), now: Time) {
        let since = now.since(self.ticked);
        self.second.entry(index).or_default().add(more, since);
        let new = OtherTraffic { moved: 0, before: 0, active: now };
        let flowing = self.flowing.entry(index).or_insert(new);
        if now.since(flowing.active) >= RESTS {
            *flowing = new;
        }
        flowing.moved = flowing.moved.saturating_add(more.0).saturating_add(more.1);
        flowing.active = now;
    }

    /// A bond's link, or another connection of this process, uses this interface from now on.
    pub(super) fn link_began(&mut self, name: &str) {
        *self.links.entry(name.to_owned()).or_default() += 1;
    }

    /// A connection that [`Self::link_began`] counted has ended.
    pub(super) fn link_ended(&mut self, name: &str) {
        if let Some(links) = self.links.get_mut(name) {
            *links = links.saturating_sub(1);
        }
        self.links.retain(|_, links| *links > 0);
    }

    /// Connections of programs by an interface (`index`, `name`), plus what links of bonds count as.
    pub(super) fn ends_by(&self, index: u32, name: &str) -> u64 {
        let links = self.links.get(name).copied().unwrap_or_default().saturating_mul(EACH_LINK);
        links.saturating_add(self.by(index).count() as u64)
    }

    /// As [`ends_by`](Self::ends_by), including one link of a bond, which may be counted already.
    pub(super) fn ends_with_link(&self, index: u32, name: &str) -> u64 {
        let new = if self.links.contains_key(name) { 0 } else { EACH_LINK };
        self.ends_by(index, name).saturating_add(new)
    }

    /// Bytes that programs' connections, and the traffic beside them, are still expected to move. A connection that has
    /// moved more than expected is taken to move as much again. This is ours: by Eq. (1) alone a long flow would count
    /// nothing from then on.
    pub(super) fn load(&self, index: u32) -> u64 {
        let left = |open: &OpenConnection| {
            let moved = open.moved.0.saturating_add(open.moved.1);
            open.expected.checked_sub(moved).filter(|left| *left > 0).unwrap_or(moved)
        };
        let is_active =
            |open: &OpenConnection| !open.rests && self.ticked.since(open.active) < RESTS;
        let active = self.by(index).filter(|open| is_active(open));
        active.fold(self.flow(index), |sum: u64, open| sum.saturating_add(left(open)))
    }

    /// Bytes that the traffic beside programs' connections is still expected to move: as much as since it last rested,
    /// as for connections of which nothing else is known.
    fn flow(&self, index: u32) -> u64 {
        let flowing = self.flowing.get(&index).filter(|f| self.ticked.since(f.active) < RESTS);
        flowing.map_or(0, |flowing| flowing.moved)
    }

    /// A second or so has passed. Returns how long it was, and what each busy interface moved. `name` gives the name of
    /// an interface that is there.
    pub(super) fn tick(
        &mut self,
        now: Time,
        name: impl Fn(u32) -> Option<String>,
    ) -> (Duration, Vec<SecondTraffic>) {
        let took = now.since(std::mem::replace(&mut self.ticked, now));
        let lasting = self.lasting(name);
        // A second with pauses says nothing: nobody asked for more.
        let seconds = std::mem::take(&mut self.second).into_iter();
        let busy = seconds.filter(|(_, second)| second.is_busy());
        let brought = busy.map(|(interface, second)| {
            let (bytes, connections) = lasting.get(&interface).copied().unwrap_or_default();
            let all = second.down.saturating_add(second.up);
            let load = match connections {
                _ if bytes < all / 2 => Load::Passing,
                1 => Load::One,
                _ => Load::Several,
            };
            SecondTraffic { interface, bytes: (second.down, second.up), load }
        });
        (took, brought.collect())
    }

    /// By interface, the bytes of this second over connections that had moved something before it and have not ended
    /// since, and the number of those: they had the whole second.
    fn lasting(&mut self, name: impl Fn(u32) -> Option<String>) -> BTreeMap<u32, (u64, u32)> {
        let mut lasting: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        for open in self.open.values_mut() {
            let all = open.moved.0.saturating_add(open.moved.1);
            let before = std::mem::replace(&mut open.before, all);
            if before > 0 && all > before {
                let (bytes, connections) = lasting.entry(open.interface).or_default();
                *bytes = bytes.saturating_add(all - before);
                *connections += 1;
            }
        }
        for (index, flowing) in &mut self.flowing {
            let before = std::mem::replace(&mut flowing.before, flowing.moved);
            if before > 0 && flowing.moved > before {
                let links =
                    name(*index).and_then(|name| self.links.get(&name).copied()).unwrap_or(1);
                let (bytes, connections) = lasting.entry(*index).or_default();
                *bytes = bytes.saturating_add(flowing.moved - before);
                *connections += u32::try_from(links).unwrap_or(u32::MAX);
            }
        }
        lasting
    }
}
