//! Feeds arbitrary SOCKS messages to the relay's parser: each is parsed or refused and never read past its end.

use super::{
    Account, Chance,
    cases::{ip, port},
};
use std::{
    net::SocketAddr,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use thalweg_relay::{Handshake, Refusal};
use thalweg_wire::{
    mesh::{LegKind, METHOD, Tag, Terms},
    socks5,
};

/// A client's messages: complete ones, altered ones, and random bytes.
fn message(chance: &mut Chance, avoided: &Tag) -> Vec<u8> {
    let leg = chance.pick(&[LegKind::Sealed, LegKind::Open]);
    let terms = Terms { leg, avoid: [avoided.clone()].into() }.encode();
    let to = SocketAddr::new(ip(chance), port(chance).max(1)).into();
    let connect = socks5::encode_connect(&to);
    let mut bytes = match chance.below(4) {
        0 => chance.bytes(300),
        1 => [&socks5::encode_methods()[..], &connect].concat(),
        _ => [&[5, 1, METHOD][..], &terms, &connect].concat(),
    };
    for _ in 0..chance.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = chance.below(bytes.len());
        match chance.below(3) {
            0 => bytes[at] = chance.next() as u8,
            1 => bytes.truncate(at),
            _ => bytes.insert(at, chance.next() as u8),
        }
    }
    bytes
}

/// The result of parsing, the bytes that were answered, and the number of unread bytes.
type Read = (Result<(), Refusal>, Vec<u8>, usize);

/// Parses a request from `bytes`; the connection ends after them.
fn read(bytes: &[u8]) -> Result<Read, String> {
    let (mut greeting, mut left, mut reply) = (Handshake::default(), bytes, Vec::new());
    let mut io = tokio::io::join(&mut left, &mut reply);
    let done = {
        let reading = pin!(greeting.read(&mut io, Duration::from_secs(1)));
        match reading.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => done.map(drop),
            Poll::Pending => return Err(format!("waits for more than there is: {bytes:x?}")),
        }
    };
    let left = left.len();
    Ok((done, reply, left))
}

/// Parses `cases` messages drawn from `seed`. Must be called within a tokio runtime.
///
/// # Errors
/// The first message that is answered too early, waited on, or read past its end.
pub fn messages(cases: u64, seed: u64) -> Result<Account, String> {
    let avoided: Tag = "country=xx".parse().map_err(|_| "no tag".to_owned())?;
    let (mut chance, mut passed) = (Chance(seed), 0);
    for _ in 0..cases {
        let bytes = message(&mut chance, &avoided);
        let (done, reply, left) = read(&bytes)?;
        // Before the reply only the choice of the plain method is sent.
        if !reply.is_empty() && reply != [5, 0] {
            return Err(format!("{bytes:x?} got {reply:x?}"));
        }
        match done {
            Ok(()) => {
                passed += 1;
                // The consumed bytes are a request by themselves, and one byte less is not.
                let taken = bytes.get(..bytes.len() - left).unwrap_or_default();
                let less = taken.get(..taken.len().saturating_sub(1)).unwrap_or_default();
                if read(taken)?.0.is_err() || read(less)?.0.is_ok() {
                    return Err(format!("{bytes:x?} was read to another end"));
                }
            }
            Err(refusal) if refusal.message().len() > 10 => {
                return Err(format!("{bytes:x?}: a long answer, {refusal}"));
            }
            Err(_) => {}
        }
    }
    Ok(Account { cases, passed })
}
