//! Happy eyeballs: attempts to several addresses of one host, each started a little after the previous one.

use super::{Cause, DialOptions};
use crate::{RouteAnswer, leads, sys};
use socket2::SockRef;
use std::{io, net::SocketAddr, num::NonZeroU32, os::fd::AsFd, time::Duration};
use tokio::{
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::sleep,
};

/// The most addresses of one name that are tried.
///
/// At 250 ms apart, 16 take 4 s: less than half the default deadline, so that the last one still has time to answer.
pub const MAX_ADDRESSES: usize = 16;

/// Connects to the address that answers first (RFC 8305 §4–5).
///
/// The families alternate, beginning with that of the first address, and at most [`MAX_ADDRESSES`] are tried. The next
/// attempt starts after [`DialOptions::stagger`], or at once when one fails. The losers are closed. There is no
/// deadline here: the caller sets one.
///
/// # Errors
/// The first failure (later ones are mostly of a family that the host lacks), or [`Cause::NoAddress`] if there is no
/// address.
pub async fn connect(
    addresses: &[SocketAddr],
    interface: Option<NonZeroU32>,
    options: &DialOptions,
) -> Result<TcpStream, Cause> {
    let attempts = turns(addresses).into_iter().map(|address| {
        let socket = options.socket.clone();
        async move { attempt(address, interface, &socket).await }
    });
    staggered(attempts, options.stagger).await
}

/// Returns the first success among `attempts`. The next attempt begins `stagger` after the last one, or at once when
/// one fails. The others are dropped.
///
/// # Errors
/// The first failure, where missing routes count only if nothing else failed; or [`Cause::NoAddress`] if there is no
/// attempt.
pub(super) async fn staggered<T, F>(
    attempts: impl ExactSizeIterator<Item = F>,
    stagger: Duration,
) -> Result<T, Cause>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Cause>> + Send + 'static,
{
    let mut waiting = attempts;
    let mut racing = JoinSet::new();
    let mut first_failure = None;
    loop {
        match waiting.next() {
            Some(attempt) => drop(racing.spawn(attempt)),
            None if racing.is_empty() => return Err(first_failure.unwrap_or(Cause::NoAddress)),
            None => {}
        }
        let result = tokio::select! {
            Some(done) = racing.join_next() => done,
            () = sleep(stagger), if waiting.len() > 0 => continue,
        };
        match result.map_err(io::Error::other).map_err(Cause::Socket).and_then(|done| done) {
            Ok(won) => return Ok(won),
            // A missing route in one family is less informative than the failure in the other.
            Err(cause) if !matches!(first_failure, None | Some(Cause::NoRoute { .. })) => {
                drop(cause)
            }
            Err(cause) => first_failure = Some(cause),
        }
    }
}

/// The first [`MAX_ADDRESSES`] addresses, with alternating families, each family in its order.
///
/// The list is cut after the interleaving, so many addresses of one family do not displace the other.
fn turns(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let Some(first) = addresses.first() else { return Vec::new() };
    let (mut lead, mut other): (Vec<SocketAddr>, Vec<SocketAddr>) =
        addresses.iter().copied().rev().partition(|a| a.is_ipv4() == first.is_ipv4());
    let mut turns = Vec::with_capacity(addresses.len());
    while turns.len() < addresses.len() {
        turns.extend(lead.pop());
        turns.extend(other.pop());
    }
    turns.truncate(MAX_ADDRESSES);
    turns
}

async fn attempt(
    address: SocketAddr,
    interface: Option<NonZeroU32>,
    options: &super::SocketOptions,
) -> Result<TcpStream, Cause> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = socket.map_err(Cause::Socket)?;
    options.apply(SockRef::from(&socket)).map_err(Cause::Socket)?;
    if let Some(index) = interface {
        let unusable = |source| Cause::Interface { index, source };
        sys::bind_to_interface(socket.as_fd(), index).map_err(unusable)?;
        match leads(index, address.ip()) {
            RouteAnswer::Yes => {}
            RouteAnswer::From(own) => socket.bind(SocketAddr::new(own, 0)).map_err(unusable)?,
            RouteAnswer::No => return Err(Cause::NoRoute { address, index }),
        }
    }
    socket.connect(address).await.map_err(|source| match interface {
        // The kernel accepts any index and notices a missing interface only now.
        Some(index) if source.raw_os_error() == Some(libc::ENODEV) => {
            Cause::Interface { index, source }
        }
        _ => Cause::Connect { address, source },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let list = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<_>>();
        let given = list(&["[::1]:1", "[::2]:1", "[::3]:1", "0.0.0.1:1", "0.0.0.2:1"]);
        let taken = list(&["[::1]:1", "0.0.0.1:1", "[::2]:1", "0.0.0.2:1", "[::3]:1"]);
        assert_eq!(turns(&given), taken);
        assert_eq!(turns(&given[3..]), given[3..]);
        assert_eq!(turns(&[]), []);
    }

    #[test]
    fn a_name_with_very_many_addresses_keeps_both_families() {
        let v6 = (1..=40).map(|i| SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, i], 1)));
        let v4 = SocketAddr::from(([127, 0, 0, 1], 1));
        let tried = turns(&v6.chain([v4]).collect::<Vec<_>>());
        assert_eq!((tried.len(), tried[1]), (MAX_ADDRESSES, v4));
    }
}
