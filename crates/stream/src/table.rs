//! The streams at a node, by name, with their sources, publishers and ends.
//!
//! One lock guards all changes, so that a publisher that returns either finds its stream or begins another one.

use crate::{
    Clock, Settings, Stream,
    slots::{Slot, Slots, member_limit},
    stream::Source,
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};
use thalweg_wire::{
    mesh::Name,
    stream::leg::{Accepted, Ending, LimitedResource, Refusal},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The streams of a node.
#[derive(Debug)]
pub(crate) struct StreamTable {
    settings: Settings,
    clock: Clock,
    slots: Arc<Slots>,
    /// Notified of changes that the oracle should learn at once.
    news: Arc<Notify>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<Name, TableEntry>,
    /// The number of publishers' connections so far.
    connections: u64,
}

#[derive(Debug)]
enum TableEntry {
    /// Received from another node.
    Relayed(Arc<Stream>),
    /// Published at this node.
    Published(Publication),
}

/// A stream that is published at this node. It stays while its publisher is absent.
#[derive(Debug)]
struct Publication {
    stream: Arc<Stream>,
    /// Its publisher; `None`: a program of this host. Nobody else may publish the stream until it ends.
    member: Option<Name>,
    /// The number of the publisher's last connection. The ends of earlier connections, and of their grace periods, are
    /// ignored.
    connection: u64,
    is_connected: bool,
    /// Cancelled when another connection of the publisher replaces the last one.
    displaced: CancellationToken,
    /// The member's slot, held until the stream ends.
    _slot: Option<Slot>,
}

/// A connection of a publisher.
#[derive(Debug)]
pub(crate) struct Connection {
    pub stream: Arc<Stream>,
    /// Cancelled when another connection of the publisher replaces this one.
    pub displaced: CancellationToken,
    number: u64,
}

/// The display name of a publisher.
pub(crate) fn publisher_name(member: Option<&Name>) -> String {
    member.map_or_else(|| "a program of this host".to_owned(), Name::to_string)
}

impl TableEntry {
    fn stream(&self) -> &Arc<Stream> {
        match self {
            Self::Relayed(stream) => stream,
            Self::Published(publication) => &publication.stream,
        }
    }

    /// Whether the parent has not answered the request for it.
    fn is_open(&self) -> bool {
        matches!(self, Self::Relayed(stream) if stream.progress().borrow().run == 0)
    }

    /// The publisher that holds the name, if this one cannot have it. A new connection of the same member replaces its
    /// old one, which may be dead; connections of this host's programs end with the programs.
    fn other_holder(&self, member: Option<&Name>) -> Option<String> {
        match self {
            _ if self.is_open() => None,
            Self::Relayed(stream) => Some(match stream.source() {
                Source::Parent(route) => route.node.to_string(),
                // Its parent is lost, and the node looks for another one.
                Source::Absent | Source::Publisher(_) => stream.about().origin.to_string(),
            }),
            Self::Published(Publication { member: holder, is_connected, .. }) => {
                let may_return = holder.as_ref() == member && (member.is_some() || !is_connected);
                (!may_return).then(|| publisher_name(holder.as_ref()))
            }
        }
    }
}

impl State {
    /// The publication of this connection, if the connection is its last one.
    fn current(&mut self, connection: &Connection) -> Option<&mut Publication> {
        match self.entries.get_mut(&connection.stream.name) {
            Some(TableEntry::Published(publication))
                if publication.connection == connection.number =>
            {
                Some(publication)
            }
            _ => None,
        }
    }
}

impl StreamTable {
    /// Creates an empty table, which notifies `news` of changes that the oracle should learn at once.
    pub fn new(settings: &Settings, clock: Clock, slots: &Arc<Slots>, news: &Arc<Notify>) -> Self {
        Self {
            settings: settings.clone(),
            clock,
            slots: Arc::clone(slots),
            news: Arc::clone(news),
            state: Mutex::default(),
        }
    }

    /// The stream of this name.
    pub fn get(&self, name: &Name) -> Option<Arc<Stream>> {
        self.state.lock().entries.get(name).map(|entry| Arc::clone(entry.stream()))
    }

    /// All streams.
    pub fn all(&self) -> Vec<Arc<Stream>> {
        self.state.lock().entries.values().map(|entry| Arc::clone(entry.stream())).collect()
    }

    /// Returns the stream of this name, or creates one that is received from `parent`, and whether it is new.
    /// `is_owners`: for a program of this host.
    pub fn get_or_relay(
        &self,
        name: &Name,
        parent: &Name,
        is_owners: bool,
    ) -> Result<(Arc<Stream>, bool), Refusal> {
        let mut state = self.state.lock();
        if let Some(entry) = state.entries.get(name) {
            return Ok((Arc::clone(entry.stream()), false));
        }
        self.check_room(&state, name, is_owners)?;
        let stream = self.create(name, parent, true);
        state.entries.insert(name.clone(), TableEntry::Relayed(Arc::clone(&stream)));
        Ok((stream, true))
    }

    fn check_room(&self, state: &State, name: &Name, is_owners: bool) -> Result<(), Refusal> {
        let max = self.settings.max_streams;
        let max = if is_owners { max } else { member_limit(max) };
        match state.entries.contains_key(name) || state.entries.len() < max {
            true => Ok(()),
            false => Err(Refusal::Busy(LimitedResource::Streams)),
        }
    }

    fn create(&self, name: &Name, origin: &Name, is_relayed: bool) -> Arc<Stream> {
        let (name, origin) = (name.clone(), origin.clone());
        let stream = Stream::new(name, self.clock, &self.settings, origin, is_relayed);
        Arc::new(stream.with_news(Arc::clone(&self.news)))
    }

    /// Connects a publisher to a new stream, or to the one that it published before; `member` is `None` for a program of
    /// this host.
    pub fn publish(
        &self,
        name: &Name,
        member: Option<Name>,
        about: Accepted,
    ) -> Result<Connection, Refusal> {
        let mut state = self.state.lock();
        let earlier = state.entries.get(name);
        if let Some(by) = earlier.and_then(|entry| entry.other_holder(member.as_ref())) {
            return Err(Refusal::Taken { stream: name.clone(), by });
        }
        if !matches!(earlier, Some(TableEntry::Published(_))) {
            let publication = self.create_publication(&state, name, member, &about.origin)?;
            // It may replace a relayed stream whose parent has not answered.
            state.entries.insert(name.clone(), TableEntry::Published(publication));
        }
        state.connections += 1;
        let State { entries, connections } = &mut *state;
        let Some(TableEntry::Published(publication)) = entries.get_mut(name) else {
            return Err(Refusal::Unknown(name.clone()));
        };
        Ok(publication.connect(*connections, about))
    }

    fn create_publication(
        &self,
        state: &State,
        name: &Name,
        member: Option<Name>,
        origin: &Name,
    ) -> Result<Publication, Refusal> {
        self.check_room(state, name, member.is_none())?;
        let slot = match &member {
            // The bound on streams is enough for this host's programs.
            None => None,
            Some(_) => {
                let slot = self.slots.claim(member.clone());
                Some(slot.ok_or(Refusal::Busy(LimitedResource::Streams))?)
            }
        };
        Ok(Publication {
            stream: self.create(name, origin, false),
            member,
            connection: 0,
            is_connected: false,
            displaced: CancellationToken::new(),
            _slot: slot,
        })
    }

    /// Records that a connection of a publisher was cut off. Returns whether the stream waits for the publisher now.
    pub fn leave(&self, connection: &Connection) -> bool {
        let mut state = self.state.lock();
        let Some(publication) = state.current(connection) else { return false };
        publication.is_connected = false;
        publication.stream.clear_source();
        true
    }

    /// Ends the stream if its publisher has not returned since this connection was cut off.
    pub fn expire(&self, connection: &Connection) {
        let mut state = self.state.lock();
        if state.current(connection).is_some_and(|publication| !publication.is_connected) {
            self.remove(&mut state, &connection.stream, Ending::Gone);
        }
    }

    /// Ends the stream, unless another connection of its publisher has replaced this one. Returns whether it ended it.
    pub fn end_published(&self, connection: &Connection, why: Ending) -> bool {
        let mut state = self.state.lock();
        let is_current = state.current(connection).is_some();
        if is_current {
            self.remove(&mut state, &connection.stream, why);
        }
        is_current
    }

    /// Ends a relayed stream.
    pub fn end_relayed(&self, stream: &Arc<Stream>, why: Ending) {
        self.remove(&mut self.state.lock(), stream, why);
    }

    fn remove(&self, state: &mut State, stream: &Arc<Stream>, why: Ending) {
        stream.clear_source();
        stream.end(why);
        let held = state.entries.get(&stream.name);
        if held.is_some_and(|entry| Arc::ptr_eq(entry.stream(), stream)) {
            state.entries.remove(&stream.name);
            self.news.notify_one();
        }
    }
}

impl Publication {
    fn connect(&mut self, number: u64, about: Accepted) -> Connection {
        self.displaced.cancel();
        self.displaced = CancellationToken::new();
        (self.connection, self.is_connected) = (number, true);
        self.stream.publish(about, publisher_name(self.member.as_ref()));
        let (stream, displaced) = (Arc::clone(&self.stream), self.displaced.clone());
        Connection { stream, displaced, number }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn table() -> StreamTable {
        let settings = Settings::default();
        let slots = Slots::new(&settings);
        StreamTable::new(&settings, Clock::start(), &slots, &Arc::default())
    }

    fn about(run: u64) -> Accepted {
        Accepted {
            run,
            start: 0,
            tracks: Vec::new(),
            latency_ms: 1000,
            origin: name("n0"),
            allow: Vec::new(),
        }
    }

    impl StreamTable {
        fn begin(&self, stream: &str, member: Option<&str>) -> Result<Connection, Refusal> {
            self.publish(&name(stream), member.map(name), about(7))
        }
    }

    fn ending(connection: &Connection) -> Option<Ending> {
        connection.stream.progress().borrow().ended.clone()
    }

    #[test]
    fn a_stream_has_the_whole_grace_after_each_death_of_its_publisher() {
        let table = table();
        let first = table.begin("stage", Some("n1")).unwrap();
        assert!(table.leave(&first));
        let second = table.begin("stage", Some("n1")).unwrap();
        assert!(Arc::ptr_eq(&first.stream, &second.stream));
        assert!(table.leave(&second));
        // The time after the first death is over.
        table.expire(&first);
        assert_eq!((ending(&second), table.all().len()), (None, 1));
        table.expire(&second);
        assert_eq!((ending(&second), table.all().len()), (Some(Ending::Gone), 0));
    }

    #[test]
    fn a_publisher_that_returns_is_not_removed_by_the_end_of_its_absence() {
        let table = table();
        let first = table.begin("stage", None).unwrap();
        table.leave(&first);
        let second = table.begin("stage", None).unwrap();
        table.expire(&first);
        assert!(!table.end_published(&first, Ending::Over) && !table.leave(&first));
        assert_eq!(
            (ending(&second), second.stream.source()),
            (None, Source::Publisher("a program of this host".to_owned()),)
        );
        assert!(table.end_published(&second, Ending::Over));
        assert_eq!((ending(&second), table.all().len()), (Some(Ending::Over), 0));
    }

    #[test]
    fn a_member_that_opens_and_drops_names_leaves_places_to_others() {
        let table = table();
        for n in 0..1000 {
            if let Ok(connection) = table.begin(&format!("s{n}"), Some("n1")) {
                table.leave(&connection);
            }
        }
        assert_eq!(table.all().len(), 32, "as many as it may have at a time");
        let again = table.begin("s31", Some("n1"));
        assert!(again.is_ok(), "it returns to a stream of its own: {again:?}");
        assert!(table.begin("other", Some("n2")).is_ok());
        assert!(table.get_or_relay(&name("far"), &name("n3"), false).is_ok());
        for n in 0..1000 {
            _ = table.begin(&format!("t{n}"), Some("n2"));
        }
        assert_eq!(table.all().len(), 56);
        let full = Refusal::Busy(LimitedResource::Streams);
        assert_eq!(table.get_or_relay(&name("more"), &name("n3"), false).unwrap_err(), full);
        for n in 0..8 {
            assert!(table.begin(&format!("own{n}"), None).is_ok(), "the owner has places");
        }
        assert_eq!(table.begin("own8", None).unwrap_err(), full);
        // The end of a stream frees its slot.
        let last = table.begin("s0", Some("n1")).unwrap();
        table.end_published(&last, Ending::Over);
        assert!(table.begin("own8", None).is_ok());
    }

    #[test]
    fn nobody_takes_over_a_stream_whose_publisher_is_absent() {
        let table = table();
        let of_member = table.begin("stage", Some("n1")).unwrap();
        let of_host = table.begin("hall", None).unwrap();
        let taken = |stream: &str, by: &str| Refusal::Taken { stream: name(stream), by: by.into() };
        for _ in 0..2 {
            assert_eq!(table.begin("stage", Some("n2")).unwrap_err(), taken("stage", "n1"));
            assert_eq!(table.begin("stage", None).unwrap_err(), taken("stage", "n1"));
            let host = taken("hall", "a program of this host");
            assert_eq!(table.begin("hall", Some("n1")).unwrap_err(), host);
            table.leave(&of_member);
            table.leave(&of_host);
        }
        table.expire(&of_member);
        assert!(table.begin("stage", Some("n2")).is_ok(), "the name is free");
        assert!(table.begin("hall", None).is_ok(), "the host's program returns");
    }

    #[test]
    fn a_member_replaces_its_own_dead_connection() {
        let table = table();
        let dead = table.begin("stage", Some("n1")).unwrap();
        let alive = table.begin("stage", Some("n1")).unwrap();
        assert!(dead.displaced.is_cancelled() && !alive.displaced.is_cancelled());
        assert!(Arc::ptr_eq(&dead.stream, &alive.stream));
        assert!(!table.leave(&dead), "the stream has its publisher");
        assert_eq!(alive.stream.source(), Source::Publisher("n1".to_owned()));
        // Two programs of one host are two publishers.
        let _first = table.begin("hall", None).unwrap();
        assert!(matches!(table.begin("hall", None), Err(Refusal::Taken { .. })));
    }

    #[test]
    fn a_publisher_replaces_a_stream_for_which_a_parent_was_asked() {
        let table = table();
        let (requested, is_new) = table.get_or_relay(&name("stage"), &name("n3"), true).unwrap();
        assert!(is_new && requested.is_relayed);
        let published = table.begin("stage", None).unwrap();
        assert!(!published.stream.is_relayed);
        table.end_relayed(&requested, Ending::Over);
        assert_eq!((ending(&published), table.all().len()), (None, 1));
    }
}
