//! A connection that was assigned to an interface, from its dial to its end.

use super::{
    NoMore, Uplinks,
    bill::Bill,
    caps::{CONNECTION, with_headers},
    resent::Resent,
    under_way::UnderWay,
};
use std::{
    num::NonZeroU32,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use thalweg_net::TcpInfo;
use thalweg_net::{
    legs::{LegWatcher, Sender},
    pump::Moved,
};

/// Tells the table what becomes of a connection; dropped when it has ended.
#[derive(Debug)]
pub struct Passage {
    uplinks: Uplinks,
    id: u64,
    account: Box<Mutex<Account>>,
    /// Whether the program's first bytes are TLS's.
    speaks_tls: AtomicBool,
}

/// What it paid, what it sent again, and what may come yet.
#[derive(Debug)]
struct Account {
    bill: Bill,
    resent: Resent,
    under_way: UnderWay,
    /// Whether it stood.
    has_stood: bool,
    /// The kernel's counts at the last look.
    last: Option<TcpInfo>,
}

impl Account {
    fn new() -> Self {
        let (bill, resent) = (Bill::default(), Resent::default());
        let under_way = UnderWay::new(Instant::now());
        Self { bill, resent, under_way, has_stood: false, last: None }
    }
}

impl Passage {
    pub(super) fn new(uplinks: Uplinks, id: u64) -> Self {
        Self {
            uplinks,
            id,
            account: Box::new(Mutex::new(Account::new())),
            speaks_tls: AtomicBool::new(false),
        }
    }

    /// It stands, by this interface, with this round trip. `None`: by what the kernel chose.
    pub fn stands(&self, interface: Option<NonZeroU32>, rtt: Option<Duration>) {
        let now = self.uplinks.now();
        {
            let mut table = self.uplinks.table();
            match interface {
                Some(index) => table.stands(self.id, index.get(), rtt, now),
                None => table.stands_free(self.id, now),
            }
        }
        self.account().has_stood = true;
        self.settle(None);
    }

    /// It was tried by this interface, and does not stand by it: that took packets, too.
    pub fn tried(&self, interface: NonZeroU32) {
        let name = self.uplinks.table().name(interface.get());
        if let Some(name) = name {
            self.uplinks.counted(&name, CONNECTION);
        }
    }

    /// No route to its destination leaves by this interface.
    pub fn leads_not_by(&self, interface: NonZeroU32) {
        self.uplinks.table().leads_not_by(self.id, interface.get());
    }

    /// It has moved so many bytes by now, to and from this host. A rate limit goes by that, and by nothing that has come and
    /// was not read.
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

    /// Its interface.
    fn name(&self) -> Option<String> {
        self.uplinks.table().interface_of(self.id)
    }

    /// Somebody else answered than who was asked.
    pub fn answered_falsely(&self) {
        self.uplinks.table().answered_falsely(self.id, self.uplinks.now());
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, counts: Option<&TcpInfo>) {
        if let Some(name) = self.name() {
            let owed = self.account().bill.settle(counts, 0);
            self.uplinks.counted(&name, owed);
        }
    }

    /// It is kept for a later request, or has one: what rests is no load of its interface.
    pub fn rests(&self, rests: bool) {
        self.uplinks.table().rests(self.id, rests);
    }

    /// Whether it has a cap or a limit to wait for.
    pub fn is_tolled(&self) -> bool {
        let name = self.uplinks.table().interface_of(self.id);
        name.is_some_and(|name| self.uplinks.is_tolled(&name))
    }

    /// Why nothing more may move by its interface, if so: also where a cap was set since it began.
    pub fn is_over(&self) -> Option<NoMore> {
        let name = self.uplinks.table().interface_of(self.id)?;
        self.uplinks.is_over(&name)
    }

    /// Waits until it may move more.
    ///
    /// # Errors
    /// Its interface's cap is used up, or cannot be kept to.
    pub async fn may(&self) -> Result<(), NoMore> {
        let name = self.uplinks.table().interface_of(self.id);
        match name {
            Some(name) => self.uplinks.may(&name).await,
            None => Ok(()),
        }
    }

    /// The same, from where a pump counts.
    pub fn counts(&self, moved: &Moved) {
        self.moved(moved.down.load(Relaxed), moved.up.load(Relaxed));
    }

    /// What the kernel counts of it.
    pub fn saw(&self, info: &TcpInfo) {
        let now = self.uplinks.now();
        let resent = {
            let mut account = self.account();
            account.under_way.look(info, Instant::now());
            account.last = Some(*info);
            account.resent.look(info, now)
        };
        self.uplinks.table().saw(self.id, info.rtt, resent, now);
        self.settle(Some(info));
    }
}

impl LegWatcher for Passage {
    fn saw(&self, _: &TcpInfo, destination: &TcpInfo) {
        self.saw(destination);
    }

    fn ends(&self, destination: &TcpInfo) {
        self.saw(destination);
    }

    fn wants_beginnings(&self) -> bool {
        true
    }

    /// Who speaks TLS and is answered otherwise did not reach whom he meant: networks where one has to log in
    /// first answer for everybody. To who speaks HTTP some of them say so.
    fn begins(&self, from: Sender, bytes: &[u8]) {
        match from {
            Sender::Client => self.speaks_tls.store(is_tls(bytes, HELLO), Relaxed),
            Sender::Destination if self.speaks_tls.load(Relaxed) => {
                let (now, mut table) = (self.uplinks.now(), self.uplinks.table());
                match is_tls(bytes, HELLO) || is_tls(bytes, ALERT) {
                    true => table.proven(self.id, now),
                    false => table.answered_falsely(self.id, now),
                }
            }
            Sender::Destination if is_portals(bytes) => self.answered_falsely(),
            Sender::Destination => {}
        }
    }
}

/// Whether it is HTTP's answer of a network on the way that wants a login first: 511 is no server's (RFC 6585 §6).
fn is_portals(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0' | b'1', b' ', b'5', b'1', b'1', ..]
    )
}

/// The types of TLS's first records (RFC 8446 §5.1): handshake, and alert.
const HELLO: u8 = 22;
const ALERT: u8 = 21;

/// Whether they begin a record of TLS, of this type.
fn is_tls(bytes: &[u8], kind: u8) -> bool {
    matches!(bytes, [found, 3, ..] if *found == kind)
}

impl Drop for Passage {
    /// What may come yet is paid: of one that was never looked at as much as its peer may have under way.
    fn drop(&mut self) {
        if let Some(name) = self.name() {
            let most = self.uplinks.table().ahead_by(&name).unwrap_or_default();
            let account = self.account.get_mut().unwrap_or_else(PoisonError::into_inner);
            let left = account.last.as_ref().map_or(most, |info| account.under_way.left(info));
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
        super::{Assigned, Present, Settings},
        *,
    };
    use thalweg_bond::Application;

    #[test]
    fn what_waited_unread_is_paid_once() {
        let uplinks = Uplinks::unkept(Settings::default());
        let (now, today) = (uplinks.now(), uplinks.today());
        let present = [(7, "wan0"), (8, "wan1")];
        let present = present.map(|(index, name)| Present { index, name: name.to_owned() });
        uplinks.table().follow(present.to_vec(), now, today);
        let application = Application { process: None, port: 80 };
        let assigned = uplinks.table().assign(application, "site", now, today);
        let Assigned::By(id, order) = assigned else { panic!("{assigned:?}") };
        let passage = Passage::new(uplinks.clone(), id);
        let used = |index: u32| {
            let shown = uplinks.table().show(today);
            shown.iter().find(|of| of.index == index).unwrap().used
        };
        // Another one answers than the first.
        passage.tried(NonZeroU32::new(order[0].0).unwrap());
        passage.stands(NonZeroU32::new(order[1].0), None);
        assert_eq!((used(order[0].0), used(order[1].0)), (CONNECTION, CONNECTION));
        let info = TcpInfo { received: 160_000, ..TcpInfo::default() };
        passage.saw(&info);
        assert_eq!(used(order[1].0), 160_000);
        passage.moved(160_000, 0);
        let paid = with_headers(160_000) + CONNECTION;
        assert_eq!(used(order[1].0), paid);
        // It is given up while its peer sends.
        drop(passage);
        assert_eq!(used(order[1].0), paid + with_headers(320_000));
    }

    #[test]
    fn who_answers_is_told_by_the_first_bytes() {
        assert!(is_portals(b"HTTP/1.1 511 Network Authentication Required\r\n"));
        assert!(is_portals(b"HTTP/1.0 511\r\n"));
        for other in [&b"HTTP/1.1 200 OK\r\n"[..], b"HTTP/1.1 51", b"", b"SSH-2.0-OpenSSH"] {
            assert!(!is_portals(other), "{other:?}");
        }
        assert!(is_tls(&[22, 3, 3, 0], HELLO) && !is_tls(b"HTTP", HELLO));
    }
}
