//! A connection that was assigned to an interface, from its dial to its end.

use super::{
    CapError, Uplinks,
    bill::Bill,
    caps::{CONNECTION, with_headers},
    in_flight::InFlight,
    retransmissions::Retransmissions,
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    num::NonZeroU32,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};
use thalweg_net::TcpInfo;
use thalweg_net::{
    legs::{LegEnd, LegWatcher},
    pump::Moved,
};

/// Reports to the table what becomes of a connection. It is dropped when the connection has ended.
#[derive(Debug)]
pub struct Passage {
    uplinks: Uplinks,
    id: u64,
    account: Box<Mutex<PassageAccount>>,
    /// Whether the program's first bytes are those of TLS.
    speaks_tls: AtomicBool,
}

/// What the connection paid, what TCP sent again, and what may still arrive.
#[derive(Debug)]
struct PassageAccount {
    bill: Bill,
    resent: Retransmissions,
    in_flight: InFlight,
    /// Whether it was ever established.
    has_stood: bool,
    /// The kernel's counts at the last look.
    last: Option<TcpInfo>,
}

impl PassageAccount {
    fn new() -> Self {
        let (bill, resent) = (Bill::default(), Retransmissions::default());
        let in_flight = InFlight::new(Instant::now());
        Self { bill, resent, in_flight, has_stood: false, last: None }
    }
}

impl Passage {
    pub(super) fn new(uplinks: Uplinks, id: u64) -> Self {
        Self {
            uplinks,
            id,
            account: Box::new(Mutex::new(PassageAccount::new())),
            speaks_tls: AtomicBool::new(false),
        }
    }

    /// The connection is established by this interface, with this round trip. `None`: by the kernel's choice.
    pub fn record_established(&self, interface: Option<NonZeroU32>, rtt: Option<Duration>) {
        let now = self.uplinks.now();
        {
            let mut table = self.uplinks.table();
            match interface {
                Some(index) => table.record_established(self.id, index.get(), rtt, now),
                None => table.record_unbound(self.id, now),
            }
        }
        self.account().has_stood = true;
        self.settle(None);
    }

    /// A dial by this interface failed, which took packets, too.
    pub fn record_failed_dial(&self, interface: NonZeroU32) {
        let name = self.uplinks.table().name(interface.get());
        if let Some(name) = name {
            self.uplinks.counted(&name, CONNECTION);
        }
    }

    /// No route to the destination leaves by this interface.
    pub fn record_no_route(&self, interface: NonZeroU32) {
        self.uplinks.table().record_no_route(self.id, interface.get());
    }

    /// The connection has moved this many bytes by now, to and from this host. The rate limit is charged with these,
    /// and not with what has arrived unread.
    pub fn moved(&self, down: u64, up: u64) {
        let more = self.uplinks.table().moved(self.id, down, up, self.uplinks.now());
        if more > 0
            && let Some(name) = self.name()
        {
            self.uplinks.charge(&name, with_headers(more));
            self.account().bill.moved(more);
            self.settle(None);
        }
    }

    /// The name of its interface.
    fn name(&self) -> Option<String> {
        self.uplinks.table().interface_of(self.id)
    }

    /// Another host answered than the one that was asked.
    pub fn record_impostor(&self) {
        self.uplinks.table().record_impostor(self.id, self.uplinks.now());
    }

    fn account(&self) -> MutexGuard<'_, PassageAccount> {
        self.account.lock()
    }

    fn settle(&self, counts: Option<&TcpInfo>) {
        if let Some(name) = self.name() {
            let owed = self.account().bill.settle(counts, 0);
            self.uplinks.counted(&name, owed);
        }
    }

    /// The connection waits for a later request, or has one. A waiting connection is no load of its interface.
    pub fn set_resting(&self, rests: bool) {
        self.uplinks.table().set_resting(self.id, rests);
    }

    /// Whether it has a cap or a limit to wait for.
    pub fn is_limited(&self) -> bool {
        let name = self.uplinks.table().interface_of(self.id);
        name.is_some_and(|name| self.uplinks.is_limited(&name))
    }

    /// Why nothing more may move by its interface, if so; also when the cap was set after it began.
    pub fn is_over(&self) -> Option<CapError> {
        let name = self.uplinks.table().interface_of(self.id)?;
        self.uplinks.is_over(&name)
    }

    /// Waits until the connection may move more.
    ///
    /// # Errors
    /// The cap of its interface is used up, or cannot be enforced.
    pub async fn wait_to_move(&self) -> Result<(), CapError> {
        let name = self.uplinks.table().interface_of(self.id);
        match name {
            Some(name) => self.uplinks.wait_to_move(&name).await,
            None => Ok(()),
        }
    }

    /// As [`Self::moved`], with the counts of a pump.
    pub fn counts(&self, moved: &Moved) {
        self.moved(moved.down.load(Relaxed), moved.up.load(Relaxed));
    }

    /// Takes the kernel's counters of the connection.
    pub fn record_tcp_info(&self, info: &TcpInfo) {
        let now = self.uplinks.now();
        let resent = {
            let mut account = self.account();
            account.in_flight.update(info, Instant::now());
            account.last = Some(*info);
            account.resent.update(info, now)
        };
        self.uplinks.table().record_tcp_info(self.id, info.rtt, resent, now);
        self.settle(Some(info));
    }
}

impl LegWatcher for Passage {
    fn record_counters(&self, _: &TcpInfo, destination: &TcpInfo) {
        self.record_tcp_info(destination);
    }

    fn record_end(&self, destination: &TcpInfo) {
        self.record_tcp_info(destination);
    }

    fn wants_beginnings(&self) -> bool {
        true
    }

    /// A non-TLS answer to a ClientHello comes from another host than the intended one: networks that require a login
    /// answer for every host. To plain HTTP some of them answer that a login is needed.
    fn record_beginning(&self, from: LegEnd, bytes: &[u8]) {
        match from {
            LegEnd::Client => self.speaks_tls.store(is_tls(bytes, HELLO), Relaxed),
            LegEnd::Destination if self.speaks_tls.load(Relaxed) => {
                let (now, mut table) = (self.uplinks.now(), self.uplinks.table());
                match is_tls(bytes, HELLO) || is_tls(bytes, ALERT) {
                    true => table.record_proof(self.id, now),
                    false => table.record_impostor(self.id, now),
                }
            }
            LegEnd::Destination if is_portals(bytes) => self.record_impostor(),
            LegEnd::Destination => {}
        }
    }
}

/// Whether this is the HTTP answer of a network on the way that requires a login: a server never answers 511 (RFC 6585
/// §6).
fn is_portals(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0' | b'1', b' ', b'5', b'1', b'1', ..]
    )
}

/// Types of the first TLS records (RFC 8446 §5.1): handshake and alert.
const HELLO: u8 = 22;
const ALERT: u8 = 21;

/// Whether the bytes begin a TLS record of this type.
fn is_tls(bytes: &[u8], kind: u8) -> bool {
    matches!(bytes, [found, 3, ..] if *found == kind)
}

impl Drop for Passage {
    /// Pays for what may still arrive; if the counters were never looked at, for as much as the peer may have under
    /// way.
    fn drop(&mut self) {
        if let Some(name) = self.name() {
            let most = self.uplinks.table().ahead_by(&name).unwrap_or_default();
            let account = self.account.get_mut();
            let left =
                account.last.as_ref().map_or(most, |info| account.in_flight.upper_bound(info));
            let left = if account.has_stood { with_headers(left) } else { 0 };
            let owed = account.bill.settle(account.last.as_ref(), left);
            self.uplinks.counted(&name, owed);
        }
        self.uplinks.table().ended(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Assignment, Settings, UsableInterface},
        *,
    };
    use thalweg_bond::Application;

    #[test]
    fn bytes_that_waited_unread_are_paid_once() {
        let uplinks = Uplinks::without_file(Settings::default());
        let (now, today) = (uplinks.now(), uplinks.today());
        let present = [(7, "wan0"), (8, "wan1")];
        let present = present.map(|(index, name)| UsableInterface { index, name: name.to_owned() });
        uplinks.table().follow(present.to_vec(), now, today);
        let application = Application { process: None, port: 80 };
        let assigned = uplinks.table().assign(application, "site", now, today);
        let Assignment::By(id, order) = assigned else { panic!("{assigned:?}") };
        let passage = Passage::new(uplinks.clone(), id);
        let used = |index: u32| {
            let shown = uplinks.table().show(today);
            shown.iter().find(|of| of.index == index).unwrap().used
        };
        // The second interface answers, not the first.
        passage.record_failed_dial(NonZeroU32::new(order[0].0).unwrap());
        passage.record_established(NonZeroU32::new(order[1].0), None);
        assert_eq!((used(order[0].0), used(order[1].0)), (CONNECTION, CONNECTION));
        let info = TcpInfo { received: 160_000, ..TcpInfo::default() };
        passage.record_tcp_info(&info);
        assert_eq!(used(order[1].0), 160_000);
        passage.moved(160_000, 0);
        let paid = with_headers(160_000) + CONNECTION;
        assert_eq!(used(order[1].0), paid);
        // It is given up while its peer is sending.
        drop(passage);
        assert_eq!(used(order[1].0), paid + with_headers(320_000));
    }

    #[test]
    fn the_first_bytes_tell_a_login_network_from_the_server() {
        assert!(is_portals(b"HTTP/1.1 511 Network Authentication Required\r\n"));
        assert!(is_portals(b"HTTP/1.0 511\r\n"));
        for other in [&b"HTTP/1.1 200 OK\r\n"[..], b"HTTP/1.1 51", b"", b"SSH-2.0-OpenSSH"] {
            assert!(!is_portals(other), "{other:?}");
        }
        assert!(is_tls(&[22, 3, 3, 0], HELLO) && !is_tls(b"HTTP", HELLO));
    }
}
