//! Caps of interfaces, which hold across processes and crashes. Bytes are taken from the file in advance, an
//! *allotment* at a time, and only allotted bytes are moved. Bytes that may be under way on a process's connections are
//! allotted as well, and kept in reserve. The rest of a killed process's allotment counts as moved. Pure: the caller
//! reads and writes the file.

use std::collections::BTreeMap;
use thalweg_bond::Cap;
use thalweg_net::TcpInfo;

/// An allotment is this fraction of the cap, within the bounds below.
const PART: u64 = 64;
const LEAST: u64 = 256 << 10;
const MOST: u64 = 64 << 20;

/// Bounds of what a server may send ahead on a connection of a capped interface: bytes under way when the cap is used
/// up still arrive.
const LEAST_AHEAD: u64 = 64 << 10;
const MOST_AHEAD: u64 = 4 << 20;

/// Bytes of content per byte of headers and acknowledgements: 40 to 60 for 1,400, and as many for every second packet
/// in the other direction. Retransmissions are not included.
const HEADERS: u64 = 16;

/// What is left of the allotments, by interface name.
#[derive(Clone, Debug, Default)]
pub struct Caps(BTreeMap<String, Allotment>);

#[derive(Clone, Debug, Default)]
struct Allotment {
    /// Bytes left; below zero: more moved at the same moment than was allotted.
    balance: i64,
    /// The file is being asked for more.
    is_asked: bool,
    /// Nothing more is left in this period.
    is_over: bool,
    /// Why the file could not be asked the last time.
    fault: Option<String>,
    /// A connection waits for more.
    is_awaited: bool,
    /// The day of the newest allotment.
    day: u32,
}

/// The rest of an interface's allotments, when it is given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllotmentRest {
    /// The interface's name.
    pub name: String,
    /// Bytes; below zero: bytes that were moved beyond all allotments.
    pub bytes: i64,
    /// The day of the newest allotment.
    pub day: u32,
}

/// Whether a connection may move more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    Granted,
    /// It must wait until more is allotted.
    Wait,
    /// The cap is used up.
    UsedUp,
    /// The file cannot be asked for more.
    Fault,
}

/// Bytes that content takes on the wire, as operators count.
pub fn with_headers(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / HEADERS)
}

/// Bytes of a segment's headers: IPv6 and TCP with timestamps, and a little for the ranges of selective
/// acknowledgements. With IPv4 it is less.
const SEGMENT: u64 = 76;

/// Bytes that making and ending a connection takes, if nobody looked at its counters.
pub const CONNECTION: u64 = 8 * SEGMENT;

/// Bytes that a connection has moved in both directions, as operators count: by the kernel's counters, with headers,
/// handshakes and what this host sent again.
pub fn on_the_way(info: &TcpInfo) -> u64 {
    let headers = info.segments.saturating_mul(SEGMENT);
    info.sent.saturating_add(info.received).saturating_add(headers)
}

/// The size of an allotment of this cap, bytes.
pub fn allotment(cap: Cap) -> u64 {
    (cap.bytes / PART).clamp(LEAST, MOST)
}

/// What a server may send ahead on a connection of an interface with this cap, bytes.
pub fn ahead(cap: Cap) -> u64 {
    (cap.bytes / (4 * PART)).clamp(LEAST_AHEAD, MOST_AHEAD)
}

impl Caps {
    /// This many bytes, including headers, went by this interface.
    pub fn pay(&mut self, name: &str, bytes: u64) {
        let allotment = self.0.entry(name.to_owned()).or_default();
        allotment.balance = allotment.balance.saturating_sub(signed(bytes));
    }

    /// Whether more may move, if `reserve` bytes may be under way already.
    pub fn permission(&self, name: &str, reserve: u64) -> Permission {
        match self.0.get(name) {
            Some(allotment) if allotment.balance > signed(reserve) => Permission::Granted,
            Some(allotment) if allotment.is_over => Permission::UsedUp,
            Some(allotment) if allotment.fault.is_some() => Permission::Fault,
            _ => Permission::Wait,
        }
    }

    /// Why the file cannot be asked for more.
    pub fn fault(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.fault.as_deref()
    }

    /// A connection waits for more.
    pub fn await_more(&mut self, name: &str) {
        self.0.entry(name.to_owned()).or_default().is_awaited = true;
    }

    /// Whether a connection waits for more.
    pub fn is_awaited(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|allotment| allotment.is_awaited)
    }

    /// Bytes left of its allotment.
    pub fn balance(&self, name: &str) -> u64 {
        self.0.get(name).map_or(0, |allotment| allotment.balance.max(0).unsigned_abs())
    }

    /// Bytes to ask the file for now, if less than half of `size` is left beyond the reserve: up to all of both. `None`
    /// until the file has answered the last time.
    pub fn wants(&mut self, name: &str, size: u64, reserve: u64) -> Option<u64> {
        let allotment = self.0.entry(name.to_owned()).or_default();
        let has_enough = allotment.balance >= signed(reserve.saturating_add(size / 2));
        if allotment.is_asked || allotment.is_over || has_enough {
            return None;
        }
        allotment.is_asked = true;
        let lacks = signed(reserve.saturating_add(size)).saturating_sub(allotment.balance);
        Some(lacks.unsigned_abs())
    }

    /// The file has granted this many bytes on this day; zero: nothing more is left in this period.
    pub fn granted(&mut self, name: &str, bytes: u64, day: u32) {
        let allotment = self.0.entry(name.to_owned()).or_default();
        allotment.balance = allotment.balance.saturating_add(signed(bytes));
        (allotment.is_asked, allotment.is_over) = (false, bytes == 0);
        (allotment.is_awaited, allotment.fault, allotment.day) = (false, None, day);
    }

    /// The file could not be asked; it is asked again.
    pub fn unanswered(&mut self, name: &str, why: String) {
        if let Some(allotment) = self.0.get_mut(name) {
            (allotment.is_asked, allotment.fault) = (false, Some(why));
        }
    }

    /// Another period may have begun, or the file may work again: interfaces without more bytes, or at fault, are asked
    /// for again.
    pub fn ask_again(&mut self) {
        for allotment in self.0.values_mut() {
            (allotment.is_over, allotment.fault) = (false, None);
        }
    }

    /// Takes all that is left, to give it back.
    pub fn take(&mut self) -> Vec<AllotmentRest> {
        let names: Vec<String> = self.0.keys().cloned().collect();
        names.iter().filter_map(|name| self.take_of(name)).collect()
    }

    /// Takes what is left of an interface that no connection uses or waits for.
    pub fn take_idle(&mut self, name: &str) -> Option<AllotmentRest> {
        let is_idle = |a: &&Allotment| a.balance > 0 && !a.is_asked && !a.is_awaited;
        self.0.get(name).filter(is_idle)?;
        self.take_of(name)
    }

    fn take_of(&mut self, name: &str) -> Option<AllotmentRest> {
        let allotment = self.0.get_mut(name)?;
        let bytes = std::mem::take(&mut allotment.balance);
        (bytes != 0).then(|| AllotmentRest { name: name.to_owned(), bytes, day: allotment.day })
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_count_is_at_least_what_ethernet_carries() {
        // 1,000 segments of 1,448 bytes, and an acknowledgement with two ranges for each.
        let info = TcpInfo { received: 1_448_000, segments: 2_000, ..TcpInfo::default() };
        let packets = 1_000 * (1_448 + 52) + 1_000 * (52 + 20);
        assert!(on_the_way(&info) >= packets && on_the_way(&info) < packets * 11 / 10);
        let again = TcpInfo { sent: 1_448, ..info };
        assert_eq!(on_the_way(&again), on_the_way(&info) + 1_448);
    }

    #[test]
    fn only_allotted_bytes_are_moved() {
        let mut caps = Caps::default();
        let may = |caps: &Caps| caps.permission("lte0", 0);
        assert_eq!(may(&caps), Permission::Wait);
        assert_eq!(caps.wants("lte0", 1000, 0), Some(1000));
        assert_eq!(caps.wants("lte0", 1000, 0), None);
        caps.granted("lte0", 1000, 7);
        assert_eq!((may(&caps), caps.wants("lte0", 1000, 0)), (Permission::Granted, None));
        caps.pay("lte0", 501);
        assert_eq!(caps.wants("lte0", 1000, 0), Some(501));
        caps.pay("lte0", 600);
        assert_eq!((may(&caps), caps.balance("lte0")), (Permission::Wait, 0));
        caps.granted("lte0", 0, 7);
        assert_eq!((may(&caps), caps.wants("lte0", 1000, 0)), (Permission::UsedUp, None));
        caps.ask_again();
        assert_eq!(caps.wants("lte0", 1000, 0), Some(1101));
        caps.granted("lte0", 1000, 8);
        assert_eq!(caps.take(), [AllotmentRest { name: "lte0".to_owned(), bytes: 899, day: 8 }]);
        assert_eq!(may(&caps), Permission::Wait);
    }

    #[test]
    fn bytes_that_may_be_under_way_are_allotted_and_kept_in_reserve() {
        let mut caps = Caps::default();
        assert_eq!(caps.wants("lte0", 1000, 300), Some(1300));
        assert_eq!(caps.take_idle("lte0"), None, "an answer is due");
        caps.granted("lte0", 1300, 7);
        caps.pay("lte0", 999);
        assert_eq!(
            (caps.permission("lte0", 300), caps.permission("lte0", 301)),
            (Permission::Granted, Permission::Wait)
        );
        caps.granted("lte0", 0, 7);
        assert_eq!(caps.permission("lte0", 301), Permission::UsedUp);
        assert_eq!(caps.take_idle("lte0").map(|left| left.bytes), Some(301));
        assert_eq!(caps.take_idle("lte0"), None);
    }

    #[test]
    fn if_the_file_cannot_be_asked_nobody_waits() {
        let mut caps = Caps::default();
        assert!(caps.wants("lte0", 1000, 0).is_some());
        caps.unanswered("lte0", "no space".to_owned());
        assert_eq!(
            (caps.permission("lte0", 0), caps.fault("lte0")),
            (Permission::Fault, Some("no space"))
        );
        assert!(caps.wants("lte0", 1000, 0).is_some(), "it is asked again");
        caps.granted("lte0", 1000, 7);
        assert_eq!((caps.permission("lte0", 0), caps.fault("lte0")), (Permission::Granted, None));
    }
}
