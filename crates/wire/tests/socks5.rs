//! SOCKS5 messages: the layouts of the RFC, and round trips.

use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};
use thalweg_wire::{
    Destination, Host,
    socks5::{self, Decoded, Reply, Socks5Error},
};

/// Decodes each prefix of a message: only the whole message decodes, and the decoder never asks to read past its end.
fn incrementally<T: std::fmt::Debug + PartialEq>(
    message: &[u8],
    decode: impl Fn(&[u8]) -> Result<Decoded<T>, Socks5Error>,
) -> T {
    for have in 0..message.len() {
        match decode(&message[..have]) {
            Ok(Decoded::Needs(n)) => assert!(n > 0 && have + n <= message.len(), "{have}: {n}"),
            other => panic!("with {have} of {} bytes: {other:?}", message.len()),
        }
    }
    let mut followed = message.to_vec();
    followed.extend(b"\x05\x01payload");
    match decode(&followed) {
        Ok(Decoded::Message(value, length)) if length == message.len() => value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_are_laid_out_as_in_rfc_1928_section_4() {
    for (bytes, text) in [
        (&b"\x05\x01\x00\x01\x0a\x01\x00\x03\x00\x50"[..], "10.1.0.3:80"),
        (b"\x05\x01\x00\x03\x0bwww.example\x01\xbb", "www.example:443"),
        (b"\x05\x01\x00\x04\xfd\x54\x00\x01\0\0\0\0\0\0\0\0\0\0\0\x02\x1f\x90", "[fd54:1::2]:8080"),
    ] {
        let to = incrementally(bytes, socks5::decode_request);
        assert_eq!(Ok(&to), text.parse().as_ref());
        assert_eq!(socks5::encode_connect(&to), bytes);
    }
}

#[test]
fn an_address_spelled_as_a_name_is_an_address() {
    for (bytes, ip) in [
        (&b"\x05\x01\x00\x03\x09127.0.0.1\x00\x50"[..], "127.0.0.1"),
        (b"\x05\x01\x00\x03\x03::1\x00\x50", "::1"),
        (b"\x05\x01\x00\x03\x05[::1]\x00\x50", "::1"),
        (b"\x05\x01\x00\x03\x0f0:0:0:0:0:0:0:1\x00\x50", "::1"),
    ] {
        let to = incrementally(bytes, socks5::decode_request);
        assert_eq!(to.host, Host::Ip(ip.parse().unwrap()), "{ip}");
    }
}

#[test]
fn invalid_requests_are_refused_with_the_reason() {
    for (bytes, error) in [
        (&b"\x04"[..], Socks5Error::Version(4)),
        (b"GET", Socks5Error::Version(b'G')),
        (b"\x05\x01\x01", Socks5Error::Reserved(1)),
        (b"\x05\x01\x00\x02\x00", Socks5Error::AddressType(2)),
        (b"\x05\x01\x00\x01\x0a\x01\x00\x03\x00\x00", Socks5Error::Port),
        (b"\x05\x01\x00\x03\x00\x00\x50", Socks5Error::Name),
        (b"\x05\x01\x00\x03\x03a\x00b\x00\x50", Socks5Error::Name),
        (b"\x05\x01\x00\x03\x02\xc3\xa9\x00\x50", Socks5Error::Name),
        (b"\x05\x01\x00\x03\x02\xff\xff\x00\x50", Socks5Error::Name),
    ] {
        assert_eq!(socks5::decode_request(bytes), Err(error), "{bytes:x?}");
    }
}

/// The error does not depend on the bytes after the command: reserved bytes, no address, port 0, an unknown type, or
/// nothing.
#[test]
fn an_unsupported_command_is_refused_before_its_address_is_decoded() {
    for command in (0..=255).filter(|command| *command != socks5::CONNECT) {
        for behind in [
            &b""[..],
            b"\x00",
            b"\x07",
            b"\x00\x01",
            b"\x00\x01\0\0\0\0\0\0",
            b"\x00\x01\x7f\0\0\x01\0\0",
            b"\x00\x01\x7f\0\0\x01\x13\x88",
            b"\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x00\x03\x09localhost\0\0",
            b"\x00\x03\x00\0\0",
            b"\x00\x09\x00",
        ] {
            let bytes = [&[socks5::VERSION, command][..], behind].concat();
            assert_eq!(
                socks5::decode_request(&bytes),
                Err(Socks5Error::Command(command)),
                "{bytes:x?}"
            );
        }
    }
    let told = |command| Socks5Error::Command(command).to_string();
    assert_eq!(told(3), "command UDP ASSOCIATE is not supported; only CONNECT is");
    assert_eq!(told(9), "command 0x09 is not supported; only CONNECT is");
}

#[test]
fn methods_are_negotiated_as_in_section_3() {
    assert!(incrementally(&socks5::encode_methods(), socks5::decode_methods));
    assert!(incrementally(b"\x05\x03\x02\x01\x00", socks5::decode_methods));
    assert!(!incrementally(b"\x05\x02\x01\x02", socks5::decode_methods));
    assert_eq!(socks5::decode_methods(b"\x05\x00"), Err(Socks5Error::NoMethods));
    assert_eq!(socks5::decode_methods(b"\x16\x03"), Err(Socks5Error::Version(0x16)));
    assert_eq!(incrementally(b"\x05\xff", socks5::decode_method), 0xff);
    assert_eq!(incrementally(&socks5::encode_method(0), socks5::decode_method), 0);
}

#[test]
fn each_reply_code_round_trips_and_has_a_text() {
    for code in 0..=255 {
        let reply = Reply::from_code(code);
        assert_eq!(reply.code(), code);
        let bytes = socks5::encode_reply(reply, "10.0.0.1:4000".parse().unwrap());
        assert_eq!(incrementally(&bytes, socks5::decode_reply), reply);
    }
    assert_eq!(Reply::ConnectionRefused.to_string(), "connection refused by destination");
    assert_eq!(Reply::Unassigned(0x7f).to_string(), "unassigned reply code 0x7f");
    // Some relays send a name, or a non-zero RSV.
    let named = b"\x05\x00\x07\x03\x04host\x00\x50";
    assert_eq!(incrementally(named, socks5::decode_reply), Reply::Succeeded);
}

fn destination() -> impl Strategy<Value = Destination> {
    let ip = any::<IpAddr>().prop_map(Host::Ip);
    let name = "[a-zA-Z0-9_.-]{1,253}".prop_map(|name| Host::parse(&name).expect("a name"));
    (prop_oneof![ip, name], 1..=u16::MAX).prop_map(|(host, port)| Destination { host, port })
}

proptest! {
    #[test]
    fn connects_round_trip(to in destination()) {
        let bytes = socks5::encode_connect(&to);
        prop_assert!(bytes.len() <= socks5::MAX_MESSAGE);
        let read = incrementally(&bytes, socks5::decode_request);
        prop_assert_eq!(read.to_string().parse(), Ok(to.clone()));
        prop_assert_eq!(read, to);
    }

    #[test]
    fn replies_round_trip(code: u8, bound: SocketAddr) {
        let bytes = socks5::encode_reply(Reply::from_code(code), bound);
        prop_assert_eq!(incrementally(&bytes, socks5::decode_reply).code(), code);
    }
}
