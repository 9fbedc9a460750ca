//! The messages of the attacks on each door: the request of a well-behaved peer, the longest message, and the costliest
//! ones.

use super::plan::Entrance;
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
};
use thalweg_units::NodeId;
use thalweg_wire::{
    bistro::{self, Commitment, Intent},
    bond::{self, BondMessage, Frame, Hello, MAX_GREETING, Target},
    cast::{self, CastId, ServiceMode},
    doctor,
    mesh::{self, METHOD, Name, Tag, Terms, measure_flow, measure_flow::Message as _},
    object::{self, ListRequest, Request},
    probe::{self, PlannedProbe},
    stream::leg,
};

/// The name of the drop box.
pub const BOX: &str = "box";

/// The longest body that the oracle reads.
const API_BODY: usize = 64 << 10;

/// Names that the messages of an attack contain.
#[derive(Clone, Debug)]
pub struct MessageNames {
    /// The directory of files that only the member `good` may read.
    pub files: String,
    /// The server that relays may connect to.
    pub server: SocketAddr,
}

/// The costliest messages: one that begins a channel, and one that is repeated as often as the node accepts it.
#[derive(Debug, Default)]
pub struct CostlyMessages {
    /// The first message.
    pub first: Vec<u8>,
    /// The repeated message; empty: nothing follows the first.
    pub further: Vec<u8>,
}

/// Parses a name that is a constant.
fn name(text: &str) -> Name {
    text.parse().unwrap_or_else(|_| unreachable!("{text} is a name"))
}

/// The request of a well-behaved peer, which a slow attacker also begins. `number` identifies a bond and must be used
/// once.
pub fn small(door: Entrance, names: &MessageNames, number: u64) -> Vec<u8> {
    match door {
        Entrance::Api => {
            b"GET /v1/status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_vec()
        }
        Entrance::Join => post("/v1/join", b"{}", 2),
        Entrance::Relay => relayed(&Terms::default(), names.server),
        Entrance::Measure => flow(80),
        Entrance::Object => {
            object::encode(&Request::List(listing(vec![names.files.clone().into()])))
        }
        Entrance::Submit => object::encode(&bistro::SubmitRequest::Sheet(name(BOX))),
        Entrance::Bond => object::encode(&greeting(number)),
        Entrance::Cast => object::encode(&cast::Opening::Hello {
            cast: CastId::from_bytes([7; 16]),
            pass: vec![7; 200],
            want: ServiceMode::Pull,
        }),
        Entrance::Probe => object::encode(&probe::ProbeRequest::Open),
        Entrance::Stream => object::encode(&subscription(vec![])),
        Entrance::Doctor => object::encode(&doctor::Request::Hello),
        Entrance::Reach => object::encode(&mesh::ReachOpening::Stand),
        Entrance::Handshake | Entrance::Metrics | Entrance::Datagrams => {
            b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()
        }
    }
}

/// The longest message, without its last byte.
pub fn largest(door: Entrance) -> Vec<u8> {
    let framed = |most: usize| [&(most as u32).to_be_bytes()[..], &vec![7; most - 1]].concat();
    match door {
        Entrance::Api => post("/v1/measure/reports", &vec![b' '; API_BODY - 1], API_BODY),
        Entrance::Join => post("/v1/join", &vec![b' '; API_BODY - 1], API_BODY),
        Entrance::Relay => {
            let most = mesh::RelayRequest::MAX_BYTES;
            [&[5, 1, METHOD], &(most as u16).to_be_bytes()[..], &vec![7; most - 1]].concat()
        }
        Entrance::Measure => {
            let most = measure_flow::MAX_MESSAGE;
            [&(most as u16).to_be_bytes()[..], &vec![7; most - 1]].concat()
        }
        Entrance::Object => framed(object::MAX_REQUEST),
        Entrance::Submit => framed(bistro::MAX_SUBMIT_REQUEST),
        Entrance::Bond => framed(MAX_GREETING),
        Entrance::Cast => framed(cast::MAX_OPENING),
        Entrance::Probe => framed(probe::MAX_MESSAGE),
        Entrance::Stream => framed(leg::MAX_OPENING),
        Entrance::Doctor => framed(doctor::MAX_REQUEST),
        Entrance::Reach => framed(mesh::MAX_REACH_MESSAGE),
        // A TLS record with the beginning of a ClientHello of 64 KiB.
        Entrance::Handshake => {
            [&[22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff], &vec![7; 0x3ff0][..]].concat()
        }
        Entrance::Metrics => [b"GET /metrics HTTP/1.1\r\nX: ", &vec![b'a'; 1 << 20][..]].concat(),
        Entrance::Datagrams => vec![7; probe::MAX_DATAGRAM],
    }
}

/// The costliest messages. `number` differs from channel to channel, because the node would cache an answer.
pub fn costliest(door: Entrance, names: &MessageNames, number: u64) -> CostlyMessages {
    let once = |first: Vec<u8>| CostlyMessages { first, further: Vec::new() };
    let again = |message: Vec<u8>| CostlyMessages { first: message.clone(), further: message };
    match door {
        // Requests whose answers are computed from all measurements.
        Entrance::Api => again(
            b"GET /v1/paths HTTP/1.1\r\nHost: a\r\n\r\nGET /v1/candidates HTTP/1.1\r\nHost: a\r\n\r\n\
              GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n"
                .to_vec(),
        ),
        Entrance::Join => {
            let body = [&b"{\"secret\":\""[..], &vec![b'a'; API_BODY - 13], b"\"}"].concat();
            once(post("/v1/join", &body, body.len()))
        }
        Entrance::Relay => once(relayed(&avoiding(), (Ipv4Addr::new(10, 9, 8, 7), 80).into())),
        Entrance::Measure => once(flow(200)),
        Entrance::Object => again(object::encode(&Request::List(listing(patterns(number))))),
        Entrance::Submit => {
            // As many commitments as a stranger's first question may contain.
            let few = object::encode(&bistro::SubmitRequest::Commit(name(BOX), intents(number, 8)));
            let many = bistro::SubmitRequest::Commit(name(BOX), intents(number, bistro::MOST_INTENTS));
            CostlyMessages { first: few, further: object::encode(&many) }
        }
        Entrance::Bond => CostlyMessages {
            first: object::encode(&greeting(number)),
            further: ping_messages(),
        },
        Entrance::Cast => once(object::encode(&cast::Opening::Offer {
            offer: vec![7; 7 << 10],
            pass: vec![7; 900],
        })),
        Entrance::Probe => again(train()),
        Entrance::Stream => again(object::encode(&subscription((0..16).collect()))),
        Entrance::Doctor => again(object::encode(&doctor::Request::Findings)),
        Entrance::Reach => CostlyMessages {
            first: object::encode(&mesh::ReachOpening::Stand),
            further: object::encode(&mesh::MemberSignal::Ping),
        },
        Entrance::Handshake => CostlyMessages::default(),
        Entrance::Metrics => once(small(door, names, number)),
        Entrance::Datagrams => once(vec![7; 1400]),
    }
}

/// An HTTP request with a body whose announced length is `length` bytes.
fn post(path: &str, body: &[u8], length: usize) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// A connection through the node, which is a relay.
fn relayed(terms: &Terms, to: SocketAddr) -> Vec<u8> {
    let ip = match to.ip() {
        std::net::IpAddr::V4(ip) => ip,
        std::net::IpAddr::V6(_) => Ipv4Addr::LOCALHOST,
    };
    [&[5, 1, METHOD], &terms.encode()[..], &[5, 1, 0, 1], &ip.octets(), &to.port().to_be_bytes()]
        .concat()
}

/// Terms of the maximum length.
fn avoiding() -> Terms {
    let tags = (0..32).filter_map(|n| format!("provider=hostile{n}").parse::<Tag>().ok());
    Terms { avoid: tags.collect::<BTreeSet<_>>(), ..Terms::default() }
}

/// A measured flow with a ticket that nobody issued.
fn flow(ticket: usize) -> Vec<u8> {
    let limits = measure_flow::Limits { bytes: 1 << 20, millis: 1000 };
    measure_flow::Hello { ticket: vec![7; ticket], limits }.encode()
}

fn listing(roots: Vec<Vec<u8>>) -> ListRequest {
    ListRequest { roots, exclude: Vec::new() }
}

/// As many patterns as fit, each with the highest cost that is known.
fn patterns(number: u64) -> Vec<Vec<u8>> {
    (0..1000).map(|n| format!("/{number}/{n}{}", "*a".repeat(500)).into_bytes()).collect()
}

fn intents(number: u64, many: usize) -> Vec<Intent> {
    let intent = |n: usize| {
        let mut hash = [7; 32];
        hash[..8].copy_from_slice(&number.to_be_bytes());
        hash[8..16].copy_from_slice(&(n as u64).to_be_bytes());
        let label = format!("l{n}").parse().ok()?;
        Some(Intent { label, commitment: Commitment { size: 1, hash } })
    };
    (0..many).filter_map(intent).collect()
}

/// The first message on a link of a bond.
fn greeting(number: u64) -> Hello {
    let mut id = [7; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    Hello {
        bond: bond::BondId(id),
        link: 0,
        window: 1 << 20,
        goes_on: false,
        is_metered: false,
        is_relayed: false,
    }
}

/// Pings, and a stream to a target that does not exist.
fn ping_messages() -> Vec<u8> {
    let pings = (0..64).map(BondMessage::Ping);
    let to = Target::Server("127.0.0.1".to_owned(), 1);
    let opens = [BondMessage::Open { stream: 0, to }].into_iter();
    pings.chain(opens).flat_map(|message| Frame::encode_message(&message)).collect()
}

/// A train to the client with the most probes, and with gaps so short that the node watches the clock all the time.
fn train() -> Vec<u8> {
    let probe = PlannedProbe { size: 200, header: 0, gap: 100_000, may_carry: false };
    object::encode(&probe::ProbeRequest::Send {
        train: 1,
        probes: vec![probe; 4096],
        accepts_busy: true,
    })
}

fn subscription(tracks: Vec<u8>) -> leg::Opening {
    leg::Opening::Subscribe(leg::SubscribeRequest {
        stream: name("stage"),
        level: leg::Level::All,
        tracks,
        latency_ms: 1000,
        after: None,
        from: Some(name("bad")),
        hops: 0,
    })
}

/// Parses a key, for an option of the attacking process.
pub fn key(text: &str) -> anyhow::Result<NodeId> {
    text.parse().map_err(|_| anyhow::anyhow!("`{text}` is not a valid key"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn the_costliest_messages_do_not_exceed_the_limits() {
        let names = MessageNames { files: "/srv".into(), server: ([127, 0, 0, 1], 9).into() };
        let framed = |message: &[u8]| message.len().saturating_sub(4);
        let of = |door| costliest(door, &names, 1);
        assert!((900_000..=object::MAX_REQUEST).contains(&framed(&of(Entrance::Object).first)));
        assert!(framed(&of(Entrance::Submit).first) <= 4 << 10);
        assert!(framed(&of(Entrance::Submit).further) <= bistro::MAX_SUBMIT_REQUEST);
        assert!(framed(&of(Entrance::Cast).first) <= cast::MAX_OPENING);
        assert!(framed(&of(Entrance::Probe).further) <= probe::MAX_MESSAGE);
        assert!(of(Entrance::Measure).first.len() <= 2 + measure_flow::MAX_MESSAGE);
        for door in Entrance::value_variants() {
            assert!(!small(*door, &names, 1).is_empty() && largest(*door).len() > 200, "{door:?}");
        }
    }
}
