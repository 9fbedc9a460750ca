//! Caps of interfaces, which hold across processes and crashes: bytes are taken from the file in
//! advance, an *allotment* at a time, and only what was allotted is moved. What a process that was
//! killed had left of its allotment counts as moved. Pure: the file is the shell's.

use std::collections::BTreeMap;
use thalweg_bond::Cap;
use thalweg_net::TcpInfo;

/// Allotments are this part of the cap, within the bounds below.
const PART: u64 = 64;
const LEAST: u64 = 256 << 10;
const MOST: u64 = 64 << 20;

/// The least and the most that a server may send ahead on a connection of a capped interface:
/// what is under way when the cap is used up comes all the same.
const LEAST_AHEAD: u64 = 64 << 10;
const MOST_AHEAD: u64 = 4 << 20;

/// Content of so many bytes has one byte of headers and acknowledgements: 40 to 60 for 1,400, and
/// as many for each second packet the other way. What is sent again is not in it.
const HEADERS: u64 = 16;

/// What is left of allotments.
#[derive(Clone, Debug, Default)]
pub struct Caps(BTreeMap<String, Allotment>);

#[derive(Clone, Copy, Debug, Default)]
struct Allotment {
    /// Below zero: moved beyond what was allotted, by what came at the same moment.
    balance: i64,
    /// The file is being asked for more.
    is_asked: bool,
    /// There is no more in this period.
    is_over: bool,
    /// Somebody waits who is no program's connection.
    is_awaited: bool,
}

/// Whether a connection may move more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// Yes.
    Go,
    /// Not before more is allotted.
    Wait,
    /// The cap is used up.
    Over,
}

/// What content of so many bytes is on the way, as operators count.
pub fn with_headers(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / HEADERS)
}

/// What a segment takes beside its bytes: IPv6's header and TCP's with timestamps, and a bit for the ranges that
/// acknowledgements name; of IPv4 it is less.
const SEGMENT: u64 = 76;

/// What a connection whose counters nobody looked at takes beside its content: it is made and ended.
pub const CONNECTION: u64 = 8 * SEGMENT;

/// What a connection has moved by now, both ways, as operators count: by the kernel's counters, with headers,
/// handshakes and what this host sent again.
pub fn on_the_way(info: &TcpInfo) -> u64 {
    let headers = info.segments.saturating_mul(SEGMENT);
    info.sent.saturating_add(info.received).saturating_add(headers)
}

/// An allotment of this cap, bytes.
pub fn allotment(cap: Cap) -> u64 {
    (cap.bytes / PART).clamp(LEAST, MOST)
}

/// What a server may send ahead on a connection of an interface with this cap, bytes.
pub fn ahead(cap: Cap) -> u64 {
    (cap.bytes / (4 * PART)).clamp(LEAST_AHEAD, MOST_AHEAD)
}

impl Caps {
    /// So many bytes, headers included, went by this interface.
    pub fn pay(&mut self, name: &str, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let allotment = self.0.entry(name.to_owned()).or_default();
        allotment.balance = allotment.balance.saturating_sub(bytes);
    }

    /// Whether more may go.
    pub fn may(&self, name: &str) -> May {
        match self.0.get(name) {
            Some(allotment) if allotment.balance > 0 => May::Go,
            Some(allotment) if allotment.is_over => May::Over,
            _ => May::Wait,
        }
    }

    /// Somebody waits for more: a bond's link.
    pub fn await_more(&mut self, name: &str) {
        self.0.entry(name.to_owned()).or_default().is_awaited = true;
    }

    /// Whether somebody does.
    pub fn is_awaited(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|allotment| allotment.is_awaited)
    }

    /// What is left of its allotment.
    pub fn balance(&self, name: &str) -> u64 {
        self.0.get(name).map_or(0, |allotment| allotment.balance.max(0).unsigned_abs())
    }

    /// Whether the file is to be asked now, which is so once until it has answered: less than half
    /// of `size` is left.
    pub fn wants(&mut self, name: &str, size: u64) -> bool {
        let allotment = self.0.entry(name.to_owned()).or_default();
        let half = i64::try_from(size / 2).unwrap_or(i64::MAX);
        let wants = !allotment.is_asked && !allotment.is_over && allotment.balance < half;
        allotment.is_asked |= wants;
        wants
    }

    /// The file has answered; nothing: there is no more in this period.
    pub fn granted(&mut self, name: &str, bytes: u64) {
        let allotment = self.0.entry(name.to_owned()).or_default();
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        allotment.balance = allotment.balance.saturating_add(bytes);
        (allotment.is_asked, allotment.is_over) = (false, bytes == 0);
        allotment.is_awaited = false;
    }

    /// It could not be asked; it is again.
    pub fn unanswered(&mut self, name: &str) {
        if let Some(allotment) = self.0.get_mut(name) {
            allotment.is_asked = false;
        }
    }

    /// Another period may have begun: what was over is asked for again.
    pub fn ask_again(&mut self) {
        self.0.values_mut().for_each(|allotment| allotment.is_over = false);
    }

    /// All that is left, which is given back.
    pub fn take(&mut self) -> Vec<(String, u64)> {
        let all = std::mem::take(&mut self.0).into_iter();
        let left = all.map(|(name, a)| (name, a.balance.max(0).unsigned_abs()));
        left.filter(|(_, bytes)| *bytes > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_counts_is_never_less_than_ethernet_would_carry() {
        // 1,000 segments of 1,448 bytes, and an acknowledgement with two ranges for each.
        let info = TcpInfo { received: 1_448_000, segments: 2_000, ..TcpInfo::default() };
        let packets = 1_000 * (1_448 + 52) + 1_000 * (52 + 20);
        assert!(on_the_way(&info) >= packets && on_the_way(&info) < packets * 11 / 10);
        let again = TcpInfo { sent: 1_448, ..info };
        assert_eq!(on_the_way(&again), on_the_way(&info) + 1_448);
    }

    #[test]
    fn only_what_was_allotted_is_moved() {
        let mut caps = Caps::default();
        assert_eq!(caps.may("lte0"), May::Wait);
        assert!(caps.wants("lte0", 1000) && !caps.wants("lte0", 1000));
        caps.granted("lte0", 1000);
        assert_eq!((caps.may("lte0"), caps.wants("lte0", 1000)), (May::Go, false));
        caps.pay("lte0", 501);
        assert!(caps.wants("lte0", 1000));
        caps.pay("lte0", 600);
        assert_eq!((caps.may("lte0"), caps.balance("lte0")), (May::Wait, 0));
        caps.granted("lte0", 0);
        assert_eq!((caps.may("lte0"), caps.wants("lte0", 1000)), (May::Over, false));
        caps.ask_again();
        assert!(caps.wants("lte0", 1000));
        caps.granted("lte0", 1000);
        assert_eq!(caps.take(), [("lte0".to_owned(), 899)]);
        assert_eq!(caps.may("lte0"), May::Wait);
    }
}
