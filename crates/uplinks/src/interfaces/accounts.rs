//! Accounts of connections that belong to no program and count all the same: downloads, channels to members that use no
//! bond, and links of bonds.

use super::{
    CapError, Uplinks, bill::Bill, caps::with_headers, in_flight::InFlight,
    retransmissions::Retransmissions,
};
use std::{
    fmt, io,
    num::NonZeroU32,
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};
use thalweg_net::{Account, AccountEntry, Bookkeeper, ByteDirection, TcpInfo};
use thalweg_units::Time;

/// Keeps the accounts of a dialler's connections, by the settings and counts of these interfaces; cheap to clone.
#[derive(Clone, Debug)]
pub struct Accounts(Uplinks);

/// A wait until more may move.
type PermissionWait = Pin<Box<dyn Future<Output = Result<(), CapError>> + Send + Sync>>;

/// The account of one connection, which counts as a link does until it is dropped.
struct ConnectionAccount {
    uplinks: Uplinks,
    interface: String,
    bill: Bill,
    /// Waits in progress, down and up.
    waiting: [Option<PermissionWait>; 2],
    in_flight: InFlight,
    /// Bytes received, and bytes acknowledged, when the kernel was last asked.
    seen: (u64, u64),
    resent: Retransmissions,
}

impl Accounts {
    /// Creates accounts for these interfaces.
    pub fn new(uplinks: Uplinks) -> Self {
        Self(uplinks)
    }

    /// Opens the account of one connection by the interface of this name.
    pub fn open(&self, name: &str) -> Box<dyn Account> {
        Box::new(ConnectionAccount::new(self.0.clone(), name.to_owned()))
    }
}

impl Bookkeeper for Accounts {
    fn open_account(&self, interface: NonZeroU32) -> io::Result<Option<AccountEntry>> {
        let Some(name) = self.0.name_of(interface) else { return Ok(None) };
        let today = self.0.today();
        let (has_room, ahead) = {
            let table = self.0.table();
            (table.has_left_for_link(&name, today), table.ahead_by(&name))
        };
        if !has_room {
            return Err(io::Error::other(self.0.cap_error(&name)));
        }
        let ahead = ahead.and_then(|bytes| usize::try_from(bytes).ok());
        Ok(Some(AccountEntry { ahead, account: self.open(&name) }))
    }
}

impl ConnectionAccount {
    /// Opens an account by the interface of this name, and charges the interface for the handshake.
    fn new(uplinks: Uplinks, interface: String) -> Self {
        uplinks.table().link_began(&interface);
        let (bill, waiting) = (Bill::default(), [None, None]);
        let (seen, resent) = ((0, 0), Retransmissions::default());
        let in_flight = InFlight::new(Instant::now());
        let mut tally = Self { uplinks, interface, bill, waiting, in_flight, seen, resent };
        tally.settle(None, 0);
        tally
    }

    fn settle(&mut self, counts: Option<&TcpInfo>, more: u64) {
        let owed = self.bill.settle(counts, more);
        self.uplinks.counted(&self.interface, owed);
    }

    fn mark(&mut self, info: &TcpInfo, now: Time) {
        if self.in_flight.update(info, Instant::now()) {
            let resent = self.resent.update(info, now);
            self.uplinks.table().record_link_tcp_info(&self.interface, info.rtt, resent, now);
        }
        let more = (
            info.received.saturating_sub(self.seen.0),
            info.acknowledged.saturating_sub(self.seen.1),
        );
        self.seen = (info.received, info.acknowledged);
        if more != (0, 0) {
            self.uplinks.table().record_link_bytes(&self.interface, more, now);
        }
    }
}

impl Account for ConnectionAccount {
    fn poll_permission(
        &mut self,
        way: ByteDirection,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let waiting = &mut self.waiting[usize::from(way == ByteDirection::Up)];
        if waiting.is_none() && self.uplinks.may_move_now(&self.interface) {
            return Poll::Ready(Ok(()));
        }
        let (uplinks, name) = (&self.uplinks, &self.interface);
        let wait = waiting.get_or_insert_with(|| {
            let (uplinks, name) = (uplinks.clone(), name.clone());
            Box::pin(async move { uplinks.wait_to_move(&name).await })
        });
        let done = wait.as_mut().poll(cx);
        if done.is_ready() {
            *waiting = None;
        }
        done.map_err(io::Error::other)
    }

    /// The rate limit is charged with what the owner moved, not with what has arrived unread. Otherwise a reader would
    /// have to wait for the unread bytes first, and a bond's link that reads nothing for that long counts as silent.
    fn moved(&mut self, bytes: usize, counts: Option<&TcpInfo>) {
        self.bill.moved(bytes as u64);
        self.uplinks.charge(&self.interface, with_headers(bytes as u64));
        if let Some(info) = counts {
            self.mark(info, self.uplinks.now());
        }
        self.settle(counts, 0);
    }

    fn close(&mut self, counts: Option<&TcpInfo>) {
        let in_flight = counts.map_or(0, |info| self.in_flight.upper_bound(info));
        self.settle(counts, with_headers(in_flight));
    }
}

impl Drop for ConnectionAccount {
    fn drop(&mut self) {
        self.uplinks.table().link_ended(&self.interface);
    }
}

impl fmt::Debug for ConnectionAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionAccount")
            .field("interface", &self.interface)
            .field("bill", &self.bill)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Settings, UsableInterface},
        *,
    };
    use std::time::Duration;

    #[test]
    fn a_link_reports_losses_of_its_interface() {
        let uplinks = Uplinks::without_file(Settings::default());
        let present = UsableInterface { index: 9, name: "wan0".to_owned() };
        uplinks.table().follow(vec![present], uplinks.now(), uplinks.today());
        let mut tally = ConnectionAccount::new(uplinks.clone(), "wan0".to_owned());
        let info =
            TcpInfo { acknowledged: 90_000, retransmitted: 10, mss: 1000, ..TcpInfo::default() };
        tally.mark(&info, Time::from_nanos(2_000_000_000));
        let shown = uplinks.table().show(uplinks.today());
        assert_eq!(shown[0].estimate.loss(), Some(0.1));
    }

    #[test]
    fn a_connection_that_is_given_up_pays_for_what_may_still_arrive() {
        let rtt = Duration::from_secs(3600);
        let info = TcpInfo { received: 16_000, rtt, ..TcpInfo::default() };
        let offered = TcpInfo { offered: 16_000, ..info };
        let rests = TcpInfo { since_data: 2 * rtt, ..info };
        let ended = TcpInfo { peer_has_ended: true, ..info };
        for (info, more) in [(info, 34_000), (offered, 17_000), (rests, 0), (ended, 0)] {
            let mut tally = ConnectionAccount::new(
                Uplinks::without_file(Settings::default()),
                "wan0".to_owned(),
            );
            tally.moved(16_000, None);
            assert_eq!(with_headers(tally.in_flight.upper_bound(&info)), more, "{info:?}");
            tally.close(Some(&info));
            assert_eq!(tally.bill.settle(Some(&info), more), 0, "it was paid: {info:?}");
        }
    }
}
