//! Tests that each reason for a refusal has a reply for the client and a label for the counter.

use crate::{Denial, IpNet, Refusal, ReverseError, address_class::Class, quota::OverQuota};
use std::{collections::BTreeSet, io, net::IpAddr, time::Duration};
use thalweg_net::Cause;
use thalweg_units::ByteSize;
use thalweg_wire::{
    mesh::TermsError,
    socks5::{Reply, Socks5Error},
};

fn denials() -> Vec<Denial> {
    let (ip, net) = (IpAddr::from([10, 0, 0, 1]), "10.0.0.0/8".parse::<IpNet>().unwrap());
    let tag = || "country=xx".parse().unwrap();
    vec![
        Denial::Smtp,
        Denial::Port(22),
        Denial::Address(ip, Class::Private),
        Denial::Listed(ip, net),
        Denial::Own(ip),
        Denial::Admin((ip, 7373).into()),
        Denial::RuleNetwork(ip, net),
        Denial::RulePort(22),
        Denial::AvoidsUs(tag()),
        Denial::Avoids("r1".parse().unwrap(), tag()),
        Denial::Itself,
        Denial::TooDeep(3),
        Denial::NotMember,
    ]
}

fn connect(kind: io::ErrorKind) -> Refusal {
    let address = ([10, 0, 0, 1], 80).into();
    Refusal::NoLeg(Cause::Connect { address, source: kind.into() })
}

/// The refusal and its message: a method, a reply, or nothing.
fn cases() -> Vec<(Refusal, Vec<u8>)> {
    let reply = |reply: Reply| [&[5, reply.code()][..], b"\x00\x01\0\0\0\0\0\0"].concat();
    let silent = Vec::new();
    let no_method = vec![5, 0xff];
    let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
    let limit = ByteSize::from_bytes(1);
    let day = OverQuota::Bytes { limit, retry: Duration::from_secs(1) };
    let mut cases = vec![
        (Refusal::Slow, silent.clone()),
        (Refusal::Left(broken()), silent.clone()),
        (Refusal::NotSocks(Socks5Error::Version(4)), silent),
        (Refusal::NotSocks(Socks5Error::NoMethods), no_method.clone()),
        (Refusal::NotSocks(Socks5Error::Reserved(1)), reply(Reply::GeneralFailure)),
        (Refusal::NotSocks(Socks5Error::Command(9)), reply(Reply::CommandNotSupported)),
        (Refusal::NotSocks(Socks5Error::AddressType(2)), reply(Reply::AddressTypeNotSupported)),
        (Refusal::NotSocks(Socks5Error::Name), reply(Reply::GeneralFailure)),
        (Refusal::NotSocks(Socks5Error::Port), reply(Reply::GeneralFailure)),
        (Refusal::NoMethod, no_method.clone()),
        (Refusal::Terms(TermsError::Invalid), no_method),
        (Refusal::Quota(OverQuota::Connections(1)), reply(Reply::NotAllowed)),
        (Refusal::Quota(day), reply(Reply::NotAllowed)),
        (Refusal::Full, reply(Reply::GeneralFailure)),
        (Refusal::NoLeg(Cause::Resolve(broken())), reply(Reply::HostUnreachable)),
        (Refusal::NoLeg(Cause::NoAddress), reply(Reply::HostUnreachable)),
        (Refusal::NoLeg(Cause::TimedOut(Duration::ZERO)), reply(Reply::TtlExpired)),
        (Refusal::NoLeg(Cause::Socket(broken())), reply(Reply::GeneralFailure)),
        (connect(io::ErrorKind::ConnectionRefused), reply(Reply::ConnectionRefused)),
        (connect(io::ErrorKind::NetworkUnreachable), reply(Reply::NetworkUnreachable)),
        (connect(io::ErrorKind::HostUnreachable), reply(Reply::HostUnreachable)),
        (connect(io::ErrorKind::TimedOut), reply(Reply::TtlExpired)),
        (connect(io::ErrorKind::AddrNotAvailable), reply(Reply::GeneralFailure)),
        (Refusal::MemberQuota(OverQuota::Connections(1)), reply(Reply::NotAllowed)),
        (ReverseError::Unnamed.into(), reply(Reply::NotAllowed)),
        (ReverseError::NotStanding.into(), reply(Reply::HostUnreachable)),
        (ReverseError::Full.into(), reply(Reply::GeneralFailure)),
        (ReverseError::Declined.into(), reply(Reply::ConnectionRefused)),
        (ReverseError::Late(Duration::ZERO).into(), reply(Reply::TtlExpired)),
    ];
    let denied = |denial| (Refusal::Denied(denial), reply(Reply::NotAllowed));
    cases.extend(denials().into_iter().map(denied));
    cases
}

#[test]
fn every_refusal_has_its_message_and_its_reason() {
    for (refusal, message) in cases() {
        assert_eq!(refusal.message(), message, "{refusal:?}");
        assert!(!refusal.to_string().is_empty() && !refusal.reason().is_empty(), "{refusal:?}");
    }
}

#[test]
fn denials_have_distinct_texts_and_labels() {
    let texts: BTreeSet<_> = denials().iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), denials().len());
    let reasons: BTreeSet<_> = denials().iter().map(Denial::reason).collect();
    // Both kinds of "avoid" have the same label.
    assert_eq!(reasons.len(), denials().len() - 1);
}
