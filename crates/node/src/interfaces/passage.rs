//! A connection that was assigned to an interface, from its dial to its end.

use super::{
    NoMore, Uplinks,
    caps::{CONNECTION, on_the_way, with_headers},
    resent::Resent,
};
use crate::relay::{
    legs::{LegWatcher, Sender},
    pump::Moved,
};
use std::{
    num::NonZeroU32,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use thalweg_net::TcpInfo;

/// Tells the table what becomes of a connection; dropped when it has ended.
#[derive(Debug)]
pub struct Passage {
    uplinks: Uplinks,
    id: u64,
    /// What it sent again.
    resent: Mutex<Resent>,
    /// Whether the program's first bytes are TLS's.
    speaks_tls: AtomicBool,
    /// Bytes that were paid for, headers among them.
    paid: AtomicU64,
}

impl Passage {
    pub(super) fn new(uplinks: Uplinks, id: u64) -> Self {
        let (speaks_tls, paid) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { uplinks, id, resent: Mutex::default(), speaks_tls, paid }
    }

    /// It stands, by this interface, with this round trip. `None`: by what the kernel chose.
    pub fn stands(&self, interface: Option<NonZeroU32>, rtt: Option<Duration>) {
        // What was tried first, and what is used then: both had packets.
        self.pay(CONNECTION);
        let (now, before) = (self.uplinks.now(), self.name());
        {
            let mut table = self.uplinks.table();
            match interface {
                Some(index) => table.stands(self.id, index.get(), rtt, now),
                None => table.stands_free(self.id, now),
            }
        }
        if self.name() != before {
            self.pay(CONNECTION);
        }
    }

    /// No route to its destination leaves by this interface.
    pub fn leads_not_by(&self, interface: NonZeroU32) {
        self.uplinks.table().leads_not_by(self.id, interface.get());
    }

    /// It has moved so many bytes by now, to and from this host.
    pub fn moved(&self, down: u64, up: u64) {
        let (now, today) = (self.uplinks.now(), self.uplinks.today());
        let (more, name) = {
            let mut table = self.uplinks.table();
            let more = table.moved(self.id, down, up, now, today);
            let name = if more > 0 { table.interface_of(self.id) } else { None };
            (more, name)
        };
        if let Some(name) = name {
            self.uplinks.charge(&name, more);
            self.paid.fetch_add(with_headers(more), Relaxed);
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

    /// Pays for what no content tells of.
    fn pay(&self, bytes: u64) {
        if let Some(name) = self.name() {
            self.paid.fetch_add(bytes, Relaxed);
            self.uplinks.carried(&name, bytes);
        }
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
            let mut resent = self.resent.lock().unwrap_or_else(PoisonError::into_inner);
            resent.look(info, now)
        };
        self.uplinks.table().saw(self.id, info.rtt, resent, now);
        let more = on_the_way(info).saturating_sub(self.paid.load(Relaxed));
        self.pay(more);
    }
}

impl LegWatcher for Passage {
    fn saw(&self, _: &TcpInfo, destination: &TcpInfo) {
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
    fn drop(&mut self) {
        self.uplinks.table().ended(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
