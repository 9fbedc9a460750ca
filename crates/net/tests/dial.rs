//! Tests of dialing on loopback: directly, and through scripted relays.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{net::SocketAddr, num::NonZeroU32, time::Duration};
use thalweg_net::{
    Cause, Destination, DialError, DialOptions, Dialer, Hop, Medium, Route, SocketOptions, Stream,
    connect,
};
use thalweg_wire::socks5::Reply;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const OK: &[u8] = b"\x05\x00\x00\x01\0\0\0\0\0\0";

async fn listener() -> (TcpListener, Destination) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap().into();
    (listener, at)
}

/// A relay that accepts one client, expects the two messages of SOCKS5, and sends the scripted answers.
async fn scripted(request_bytes: usize, said: &'static [&'static [u8]]) -> Destination {
    let (listener, at) = listener().await;
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        client.set_nodelay(true).unwrap();
        for (expected, answer) in [3, request_bytes].into_iter().zip(said) {
            client.read_exact(&mut vec![0; expected]).await.unwrap();
            client.write_all(answer).await.unwrap();
        }
        client.shutdown().await.unwrap();
        // Stays open until the client closes, so that a reset discards no byte of the script.
        while client.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {}
    });
    at
}

fn www() -> Destination {
    "www.example:80".parse().unwrap()
}

/// `05 01 00 03 0b www.example 00 50`.
const WWW_REQUEST: usize = 18;

async fn dial_by(relay: &Destination) -> Result<Stream, DialError> {
    let route = Route::through([relay.clone()]).unwrap();
    Dialer::default().dial(&route, &www()).await
}

#[tokio::test]
async fn a_direct_stream_carries_bytes_and_ends_one_direction_at_a_time() {
    let (listener, at) = listener().await;
    let server = async {
        let (mut peer, _) = listener.accept().await.unwrap();
        let mut request = String::new();
        peer.read_to_string(&mut request).await.unwrap();
        peer.write_all(format!("got {request}").as_bytes()).await.unwrap();
    };
    let client = async {
        let mut stream = Dialer::default().dial(&Route::direct(), &at).await.unwrap();
        assert_eq!(stream.to_string(), format!("{at} direct"));
        stream.write_all(b"it").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "got it");
        assert_eq!(stream.tcp_info().unwrap().received, 6 + 1, "six bytes and the FIN");
        let monitor = stream.monitor();
        assert!(monitor.tcp_info().is_ok());
        drop(stream);
        assert_eq!(monitor.tcp_info().unwrap_err().kind(), std::io::ErrorKind::NotConnected);
    };
    tokio::join!(server, client);
}

#[tokio::test]
async fn bytes_that_arrive_with_the_reply_belong_to_the_stream() {
    // The server sends first: its greeting is in the same packet as the reply.
    let said: &[&[u8]] = &[b"\x05\x00", b"\x05\x00\x00\x03\x04host\x00\x50220 ready\r\n"];
    let relay = scripted(WWW_REQUEST, said).await;
    let mut stream = dial_by(&relay).await.unwrap();
    assert_eq!(stream.to_string(), format!("www.example:80 via {relay}"));
    let mut greeting = String::new();
    stream.read_to_string(&mut greeting).await.unwrap();
    assert_eq!(greeting, "220 ready\r\n");
}

#[tokio::test]
async fn a_refusal_names_the_relay_the_destination_and_the_reason() {
    let relay = scripted(WWW_REQUEST, &[b"\x05\x00", b"\x05\x05\x00\x01\0\0\0\0\0\0"]).await;
    let error = dial_by(&relay).await.unwrap_err();
    let text = format!("relay {relay} refused www.example:80: connection refused by destination");
    assert_eq!(error.to_string(), text);
    assert_eq!(error.relay(), Some(&relay));
    assert!(matches!(error.cause, Cause::Refused(Reply::ConnectionRefused)), "{error:?}");
}

#[tokio::test]
async fn a_server_that_is_no_relay_is_reported_as_such() {
    let cases: [(&[&[u8]], &str); 4] = [
        (&[b"HTTP/1.1 400 Bad Request\r\n\r\n"], "is it a SOCKS5 relay?"),
        (&[b"\x05\xff"], "an authentication method that is not supported"),
        (&[b"\x05"], "closed the connection without an answer"),
        (&[b"\x05\x00", b"\x05\x00\x00\x07\x00"], "unknown address type 0x07"),
    ];
    for (said, reason) in cases {
        let relay = scripted(WWW_REQUEST, said).await;
        let text = dial_by(&relay).await.unwrap_err().to_string();
        let start = format!("relay {relay}, asked for www.example:80: ");
        assert!(text.starts_with(&start) && text.contains(reason), "{text}");
    }
}

#[tokio::test]
async fn a_silent_relay_times_out_and_is_named() {
    let (_silent, relay) = listener().await;
    let options = DialOptions { deadline: Duration::from_millis(50), ..DialOptions::default() };
    let route = Route::through([relay.clone()]).unwrap();
    let error = Dialer::new(options).dial(&route, &www()).await.unwrap_err();
    assert!(matches!(error.cause, Cause::TimedOut(_)), "{error}");
    assert_eq!(error.relay(), Some(&relay));
    let text = format!("relay {relay}, asked for www.example:80: no answer within 50ms");
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn an_unreachable_host_is_named_with_its_role() {
    let (closed, at) = listener().await;
    drop(closed);
    let error = Dialer::default().dial(&Route::direct(), &at).await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot reach {at}: {at} refuses connections"));
    assert_eq!(error.relay(), None);
    let error = dial_by(&at).await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot reach relay {at}: {at} refuses connections"));
    let unknown = "host.invalid:80".parse().unwrap();
    let error = Dialer::default().dial(&Route::direct(), &unknown).await.unwrap_err();
    assert!(matches!(error.cause, Cause::Resolve(_)), "{error}");
}

#[tokio::test]
async fn chains_are_tunnelled_hop_by_hop_and_blame_the_hop_that_failed() {
    // One task plays both relays: the first one connects to itself.
    let (listener, first) = listener().await;
    let second: Destination = "second.example:1080".parse().unwrap();
    let relays = async {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        for (request, reply) in [(21, OK), (WWW_REQUEST, b"\x05\x02\x00\x01\0\0\0\0\0\0")] {
            client.read_exact(&mut [0; 3]).await.unwrap();
            client.write_all(b"\x05\x00").await.unwrap();
            let mut message = vec![0; request];
            client.read_exact(&mut message).await.unwrap();
            asked.push(String::from_utf8_lossy(&message[5..message.len() - 2]).into_owned());
            client.write_all(reply).await.unwrap();
        }
        asked
    };
    let route = Route::through([first, second.clone()]).unwrap();
    let dialer = Dialer::default();
    let to = www();
    let (asked, dialled) = tokio::join!(relays, dialer.dial(&route, &to));
    // Names are passed on unresolved, and resolved by the last relay.
    assert_eq!(asked, ["second.example", "www.example"]);
    let error = dialled.unwrap_err();
    assert_eq!(error.relay(), Some(&second));
    assert!(error.to_string().ends_with("not allowed by the relay's rules"), "{error}");
}

/// A listener whose queue is full: the kernel drops further SYNs, like a black hole.
async fn deaf() -> (socket2::Socket, SocketAddr, Vec<TcpStream>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.listen(0).unwrap();
    let at = socket.local_addr().unwrap().as_socket().unwrap();
    let mut queued = Vec::new();
    // With a backlog of 0 the first connection fills the queue; the kernel may accept one more.
    while let Ok(Ok(tcp)) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(at)).await
    {
        queued.push(tcp);
    }
    (socket, at, queued)
}

#[tokio::test]
async fn an_address_that_does_not_answer_is_overtaken_by_the_next() {
    let (_socket, black_hole, _queued) = deaf().await;
    let (listening, at) = listener().await;
    let good = at.address().unwrap();
    let (closed, refusing) = listener().await;
    drop(closed);
    let refusing = refusing.address().unwrap();
    let options = DialOptions::default();
    let tcp = connect(&[black_hole, refusing, good], None, &options).await.unwrap();
    assert_eq!(tcp.peer_addr().unwrap(), good);
    drop(listening);
    let error = connect(&[refusing], None, &options).await.unwrap_err();
    assert!(matches!(error, Cause::Connect { address, .. } if address == refusing), "{error}");
    assert!(matches!(connect(&[], None, &options).await, Err(Cause::NoAddress)));
}

#[tokio::test]
async fn ipv6_and_names_are_dialled() {
    let Ok(listening) = TcpListener::bind("[::1]:0").await else {
        eprintln!("skipped: this host has no IPv6 loopback");
        return;
    };
    let at: Destination = listening.local_addr().unwrap().into();
    assert!(Dialer::default().dial(&Route::direct(), &at).await.is_ok());
    let (listening, at) = listener().await;
    let by_name = Destination::new("localhost", at.port).unwrap();
    let dialer = Dialer::default();
    let route = Route::direct();
    let (dialled, accepted) = tokio::join!(dialer.dial(&route, &by_name), listening.accept());
    assert!(dialled.is_ok() && accepted.is_ok());
}

#[tokio::test]
async fn a_route_leaves_by_its_interface_or_not_at_all() {
    let (_listening, at) = listener().await;
    let index = |n| NonZeroU32::new(n).unwrap();
    let loopback = Route::direct().by_interface(index(loopback_index()));
    assert!(Dialer::default().dial(&loopback, &at).await.is_ok());
    let absent = Route::direct().by_interface(index(0x7fff_fff0));
    let error = Dialer::default().dial(&absent, &at).await.unwrap_err();
    assert!(matches!(error.cause, Cause::Interface { .. }), "{error}");
}

fn loopback_index() -> u32 {
    let text = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
    text.trim().parse().unwrap()
}

#[tokio::test]
async fn an_option_that_the_kernel_refuses_is_named() {
    let (_listening, at) = listener().await;
    let congestion = Some("no-such-control".into());
    let socket = SocketOptions { congestion, ..SocketOptions::default() };
    let dialer = Dialer::new(DialOptions { socket, ..DialOptions::default() });
    let error = dialer.dial(&Route::direct(), &at).await.unwrap_err().to_string();
    assert!(error.contains("`no-such-control`") && error.contains("sysctl"), "{error}");
}

#[tokio::test]
async fn a_route_with_a_carrier_is_refused_by_a_dialer_without_one() {
    for (medium, what) in
        [(Medium::Bond, "can use a bond"), (Medium::Ride, "can ride in probe trains")]
    {
        let hop = Hop { medium, ..Hop::socks(www()) };
        let route = Route::new(vec![hop]).unwrap();
        let error = Dialer::default().dial(&route, &www()).await.unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}
