//! Tests of the plain relay on loopback: what reaches the other side, and when connections end.

use super::super::*;
use socket2::SockRef;
use std::{sync::mpsc::Receiver, time::Duration};
use thalweg_base::log::Event;
use thalweg_net::{Cause, Destination, DialError, Dialer, Route, Stream};
use thalweg_wire::socks5::Reply;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
    time::sleep,
};

/// A running relay, its log, and the handle that stops it.
struct Running {
    at: Destination,
    log: Receiver<Event>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Summary>,
}

impl Running {
    async fn with(change: impl FnOnce(&mut RelayConfig)) -> Self {
        let mut config = RelayConfig::new("127.0.0.1:0".parse().unwrap());
        let nets = ["127.0.0.0/8", "::1/128"].map(|net| net.parse().unwrap());
        config.egress = EgressPolicy::new(nets.to_vec(), vec!["1-65535".parse().unwrap()]);
        change(&mut config);
        let (log, queue) = Log::to_queue();
        let relay = Relay::bind(config, log).await.unwrap();
        let at = relay.local_addr().unwrap().into();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(relay.run(async { _ = stopped.await }));
        Self { at, log: queue, stop, serving }
    }

    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    async fn dial(&self, to: &Destination) -> Result<Stream, DialError> {
        let route = Route::through([self.at.clone()]).unwrap();
        Dialer::default().dial(&route, to).await
    }

    /// Stops the relay. Returns its summary and its log.
    async fn stop(self) -> (Summary, Vec<String>) {
        drop(self.stop);
        let summary = self.serving.await.unwrap();
        (summary, self.log.iter().map(|e| e.to_string()).collect())
    }
}

async fn destination() -> (TcpListener, Destination) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap().into();
    (listener, at)
}

/// Opens a relayed connection and returns both ends.
async fn relayed(relay: &Running) -> (Stream, TcpStream) {
    let (listener, at) = destination().await;
    let (client, accepted) = tokio::join!(relay.dial(&at), listener.accept());
    (client.unwrap(), accepted.unwrap().0)
}

async fn read_all(from: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

fn logged<'a>(lines: &'a [String], event: &str) -> Vec<&'a String> {
    let start = format!("event={event} ");
    lines.iter().filter(|line| line.starts_with(&start)).collect()
}

#[tokio::test]
async fn each_side_may_end_first_and_still_receives() {
    let relay = Running::start().await;
    let (mut client, mut server) = relayed(&relay).await;
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut server).await.unwrap(), b"question");
    server.write_all(b"late answer").await.unwrap();
    drop(server);
    assert_eq!(read_all(&mut client).await.unwrap(), b"late answer");

    let (mut client, mut server) = relayed(&relay).await;
    server.write_all(b"greeting").await.unwrap();
    server.shutdown().await.unwrap();
    assert_eq!(read_all(&mut client).await.unwrap(), b"greeting");
    client.write_all(b"late thanks").await.unwrap();
    drop(client);
    assert_eq!(read_all(&mut server).await.unwrap(), b"late thanks");
    drop(server);

    let (summary, lines) = relay.stop().await;
    assert_eq!(summary, Summary { served: 2, strangers: 0, cut: 0 });
    let closed = logged(&lines, "closed");
    assert_eq!(closed.len(), 2, "{lines:?}");
    assert!(closed[0].contains(" up_bytes=8 down_bytes=11 "), "{lines:?}");
    assert!(closed[1].contains(" up_bytes=11 down_bytes=8 "), "{lines:?}");
}

#[tokio::test]
async fn a_broken_leg_resets_the_other_so_that_no_truncated_stream_looks_complete() {
    let relay = Running::start().await;
    let (mut client, mut server) = relayed(&relay).await;
    server.write_all(b"half of it").await.unwrap();
    client.read_exact(&mut [0; 10]).await.unwrap();
    SockRef::from(&server).set_linger(Some(Duration::ZERO)).unwrap();
    drop(server);
    let error = read_all(&mut client).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let (_, lines) = relay.stop().await;
    assert_eq!(logged(&lines, "broken").len(), 1, "{lines:?}");
}

#[tokio::test]
async fn idle_open_and_half_closed_connections_are_reset() {
    let short = Duration::from_millis(40);
    let relay = Running::with(|c| c.idle = short).await;
    let (mut client, _server) = relayed(&relay).await;
    assert!(read_all(&mut client).await.is_err());
    let (_, lines) = relay.stop().await;
    assert!(logged(&lines, "broken")[0].contains("given up: idle"), "{lines:?}");

    let relay = Running::with(|c| c.linger = short).await;
    let (mut client, mut server) = relayed(&relay).await;
    client.shutdown().await.unwrap();
    assert!(read_all(&mut server).await.unwrap().is_empty(), "the end is passed on");
    assert!(read_all(&mut client).await.is_err());
    let (_, lines) = relay.stop().await;
    assert!(logged(&lines, "broken")[0].contains("half-closed and idle"), "{lines:?}");
}

#[tokio::test]
async fn a_reader_that_pauses_for_longer_than_idle_loses_nothing() {
    // More bytes than all buffers on the path hold, so the relay has data that it cannot deliver.
    let sent: Vec<u8> = (0..32_000_000u32).map(|i| (i / 7) as u8).collect();
    let expected = blake3::hash(&sent);
    let idle = Duration::from_millis(300);
    let relay = Running::with(|c| (c.idle, c.linger) = (idle, idle)).await;
    let (mut client, mut server) = relayed(&relay).await;
    let writer = tokio::spawn(async move {
        server.write_all(&sent).await.unwrap();
        server.shutdown().await.unwrap();
        server
    });
    // This is no synchronisation: nothing may happen in this time.
    sleep(idle * 4).await;
    let got = read_all(&mut client).await.unwrap();
    assert_eq!((got.len(), blake3::hash(&got)), (32_000_000, expected));
    drop((client, writer.await.unwrap()));
    let (_, lines) = relay.stop().await;
    assert_eq!(logged(&lines, "closed").len(), 1, "{lines:?}");
}

#[tokio::test]
async fn strangers_get_no_byte() {
    let relay = Running::with(|c| c.allow_from = vec!["10.0.0.0/8".parse().unwrap()]).await;
    for greeting in [&b""[..], b"\x05\x01\x00", b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stranger = TcpStream::connect(relay.at.address().unwrap()).await.unwrap();
        // The relay may close the connection before anything is sent, as it should.
        _ = stranger.write_all(greeting).await;
        let mut got = Vec::new();
        _ = stranger.read_to_end(&mut got).await;
        assert_eq!(got, b"");
    }
    let (summary, lines) = relay.stop().await;
    assert_eq!(summary, Summary { served: 0, strangers: 3, cut: 0 });
    assert!(!logged(&lines, "stranger").is_empty(), "{lines:?}");
}

/// Sends these bytes and returns everything that the relay sends until it closes.
async fn answers(relay: &Running, sent: &[u8]) -> Vec<u8> {
    let mut client = TcpStream::connect(relay.at.address().unwrap()).await.unwrap();
    client.write_all(sent).await.unwrap();
    let mut got = Vec::new();
    _ = client.read_to_end(&mut got).await;
    got
}

#[tokio::test]
async fn replies_carry_the_rfcs_codes() {
    let relay = Running::start().await;
    const BOUND: &[u8] = b"\x00\x01\0\0\0\0\0\0";
    for (request, code) in [
        (&b"\x05\x01\x00\x02\x7f\x00\x00\x01\x00\x50"[..], Reply::AddressTypeNotSupported),
        (b"\x05\x01\x07\x01\x7f\x00\x00\x01\x00\x50", Reply::GeneralFailure),
        (b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x19", Reply::NotAllowed),
        (b"\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50", Reply::NotAllowed),
        (b"\x05\x01\x00\x03\x0810.0.0.1\x00\x50", Reply::NotAllowed),
        (b"\x05\x01\x00\x03\x0chost.invalid\x00\x50", Reply::HostUnreachable),
        (b"\x05\x01\x00\x03\x03a/b\x00\x50", Reply::GeneralFailure),
        (b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x00", Reply::GeneralFailure),
    ] {
        // The second message and early data are sent together with the first; the reply still arrives.
        let sent = [b"\x05\x01\x00", request, b"data too early"].concat();
        let expected = [&b"\x05\x00\x05"[..], &[code.code()], BOUND].concat();
        assert_eq!(answers(&relay, &sent).await, expected, "{request:x?}");
    }
    assert_eq!(answers(&relay, b"\x05\x01\x02").await, b"\x05\xff");
    assert_eq!(answers(&relay, b"\x05\x00").await, b"\x05\xff");
    assert_eq!(answers(&relay, b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00").await, b"");
    assert_eq!(answers(&relay, b"GET / HTTP/1.1\r\n\r\n").await, b"");
}

/// UDP ASSOCIATE, BIND and commands of extensions, as programs really send them (RFC 1928 §7: without an address of
/// their own), also truncated.
#[tokio::test]
async fn unsupported_commands_are_refused_with_any_address() {
    let relay = Running::start().await;
    for command in [2, 3, 9, 0xf0, 0xf1] {
        for behind in [
            &b"\x00\x01\0\0\0\0\0\0"[..],
            b"\x00\x01\0\0\0\0\x13\x88",
            b"\x00\x01\x7f\0\0\x01\0\0",
            b"\x00\x01\x7f\0\0\x01\0\x15",
            b"\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x00\x03\x09localhost\0\0",
            b"\x00\x03\x00\0\0",
            b"\x00\x09\0\0",
            b"",
        ] {
            let sent = [&b"\x05\x01\x00\x05"[..], &[command], behind].concat();
            let got = answers(&relay, &sent).await;
            assert_eq!(got, b"\x05\x00\x05\x07\x00\x01\0\0\0\0\0\0", "{command:#x} {behind:x?}");
        }
    }
    let (_, lines) = relay.stop().await;
    let refused = logged(&lines, "refused");
    assert!(refused[0].contains("command BIND is not supported"), "{refused:?}");
}

#[tokio::test]
async fn refusals_are_explained_to_the_client_and_in_the_log() {
    let relay = Running::start().await;
    let (closed, at) = destination().await;
    drop(closed);
    let error = relay.dial(&at).await.unwrap_err();
    let start = format!("relay {} refused {at}: ", relay.at);
    assert_eq!(error.to_string(), start + "connection refused by destination");

    let strict = Running::with(|c| c.egress = EgressPolicy::new(vec![], vec![])).await;
    let local = "localhost:80".parse().unwrap();
    let error = strict.dial(&local).await.unwrap_err();
    assert!(matches!(error.cause, Cause::Refused(Reply::NotAllowed)), "{error:?}");
    let (_, lines) = strict.stop().await;
    let refused = logged(&lines, "refused");
    assert!(refused[0].contains("loopback address") && refused[0].contains("to=localhost:80"));
}

#[tokio::test]
async fn names_and_ipv6_are_connected_to() {
    let relay = Running::start().await;
    let (listener, at) = destination().await;
    let by_name = Destination::new("localhost", at.port).unwrap();
    let (client, accepted) = tokio::join!(relay.dial(&by_name), listener.accept());
    assert!(client.is_ok() && accepted.is_ok());
    let Ok(listener) = TcpListener::bind("[::1]:0").await else {
        eprintln!("skipped in part: this host has no IPv6 loopback");
        return;
    };
    let at = listener.local_addr().unwrap().into();
    let (client, accepted) = tokio::join!(relay.dial(&at), listener.accept());
    assert!(client.is_ok() && accepted.is_ok());
}

#[tokio::test]
async fn a_chain_of_three_relays_is_one_stream() {
    let relays = [Running::start().await, Running::start().await, Running::start().await];
    let route = Route::through(relays.iter().map(|r| r.at.clone())).unwrap();
    let (listener, at) = destination().await;
    let dialer = Dialer::default();
    let (client, accepted) = tokio::join!(dialer.dial(&route, &at), listener.accept());
    let (mut client, mut server) = (client.unwrap(), accepted.unwrap().0);
    client.write_all(b"through three").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut server).await.unwrap(), b"through three");
    drop((client, server));
    for (relay, next) in relays.into_iter().zip(1..) {
        let (summary, lines) = relay.stop().await;
        assert_eq!(summary.served, 1, "relay {next}: {lines:?}");
    }
}

#[tokio::test]
async fn a_client_that_never_asks_is_closed_at_the_deadline() {
    let relay = Running::with(|c| c.handshake = Duration::from_millis(30)).await;
    for start in [&b""[..], b"\x05", b"\x05\x01\x00\x05\x01"] {
        let got = answers(&relay, start).await;
        assert!(got == b"" || got == b"\x05\x00", "{got:x?}");
    }
    let (_, lines) = relay.stop().await;
    assert_eq!(logged(&lines, "refused").len(), 3, "{lines:?}");
}

#[tokio::test]
async fn connections_beyond_the_bound_wait() {
    let relay = Running::with(|c| c.max_connections = 1).await;
    let (mut first, mut server) = relayed(&relay).await;
    let (listener, at) = destination().await;
    let mut second = std::pin::pin!(relay.dial(&at));
    // The first connection goes on while the second waits.
    for _ in 0..50 {
        let exchange = async {
            first.write_all(b"ping").await.unwrap();
            server.read_exact(&mut [0; 4]).await.unwrap();
        };
        tokio::select! {
            biased;
            done = &mut second => panic!("served beyond the bound: {done:?}"),
            () = exchange => {}
        }
    }
    drop((first, server));
    let (second, accepted) = tokio::join!(second, listener.accept());
    assert!(second.is_ok() && accepted.is_ok());
}

// Two threads: one waits for the log's line while the other writes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_lets_live_connections_finish_and_takes_no_new_ones() {
    let relay = Running::start().await;
    let (mut client, mut server) = relayed(&relay).await;
    let Running { at, log, stop, serving } = relay;
    drop(stop);
    let draining = log.iter().find(|e| e.to_string().starts_with("event=draining"));
    assert_eq!(draining.unwrap().to_string(), "event=draining live=1");
    let refused = TcpStream::connect(at.address().unwrap()).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    server.write_all(b"the rest").await.unwrap();
    drop(server);
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut client).await.unwrap(), b"the rest");
    drop(client);
    assert_eq!(serving.await.unwrap(), Summary { served: 1, strangers: 0, cut: 0 });
}

#[tokio::test]
async fn connections_that_outlast_draining_are_reset() {
    let relay = Running::with(|c| c.drain = Duration::from_millis(20)).await;
    let (mut client, _server) = relayed(&relay).await;
    let (summary, _) = relay.stop().await;
    assert_eq!(summary, Summary { served: 1, strangers: 0, cut: 1 });
    let error = read_all(&mut client).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn an_address_in_use_and_an_open_listener_are_refused_at_start() {
    let (_taken, at) = destination().await;
    let (log, _queue) = Log::to_queue();
    let config = RelayConfig::new(at.address().unwrap());
    let error = Relay::bind(config, log.clone()).await.unwrap_err();
    assert!(error.to_string().contains(&format!("cannot listen on {at}")), "{error}");
    let open = RelayConfig::new("0.0.0.0:0".parse().unwrap());
    let error = Relay::bind(open, log).await.unwrap_err();
    assert!(error.to_string().contains("no clients are named"), "{error}");
}

#[tokio::test]
async fn a_dropped_relay_resets_its_connections() {
    let relay = Running::start().await;
    let (mut client, _server) = relayed(&relay).await;
    relay.serving.abort();
    assert!(read_all(&mut client).await.is_err());
    assert_eq!(relay.log.try_iter().count(), 0, "it was cut without a word");
}
