//! Arbitrary targets and messages. `THALWEG_FUZZ_CASES` (20,000 by default) of each, from
//! `THALWEG_FUZZ_SEED` (random by default, and printed).

use super::scene::{key, member, roster, tags};
use crate::relay::{EgressPolicy, OwnAddresses, Refusal, handshake::Greeting, mesh::Gate};
use std::{
    collections::BTreeMap,
    env,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::pin,
    task::{Context, Poll, Waker},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thalweg_wire::{
    Destination, Signer as _,
    mesh::{LegKind, METHOD, Roster, Terms},
    socks5,
};

/// splitmix64 (Steele, Lea, Flood 2014): enough to pick cases.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.next() as u8).collect()
    }
}

/// How many cases, and their seed, which is printed.
fn plan(what: &str) -> (u64, Chance) {
    let read = |name: &str| env::var(name).ok().map(|v| v.parse::<u64>().unwrap());
    let nanos = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
    let seed = read("THALWEG_FUZZ_SEED").unwrap_or_else(|| nanos().into());
    let cases = read("THALWEG_FUZZ_CASES").unwrap_or(20_000);
    println!("{what}: {cases} cases, THALWEG_FUZZ_SEED={seed}");
    (cases, Chance(seed))
}

/// Addresses at and around every edge that matters.
const V4: [[u8; 4]; 26] = [
    [0, 0, 0, 0],
    [0, 1, 2, 3],
    [8, 8, 8, 8],
    [9, 255, 255, 255],
    [10, 0, 0, 1],
    [10, 0, 0, 2],
    [10, 0, 0, 3],
    [10, 66, 1, 1],
    [100, 64, 0, 1],
    [100, 100, 100, 200],
    [127, 0, 0, 1],
    [127, 255, 255, 254],
    [168, 63, 129, 16],
    [169, 254, 1, 1],
    [169, 254, 169, 254],
    [172, 16, 0, 1],
    [172, 32, 0, 1],
    [192, 0, 0, 192],
    [192, 0, 2, 1],
    [192, 168, 0, 1],
    [198, 18, 0, 1],
    [203, 0, 113, 1],
    [224, 0, 0, 1],
    [240, 0, 0, 1],
    [255, 255, 255, 255],
    [11, 0, 0, 0],
];

fn ip(chance: &mut Chance) -> IpAddr {
    let v4 = match chance.below(3) {
        0 => Ipv4Addr::from(chance.next() as u32),
        _ => Ipv4Addr::from(chance.pick(&V4)),
    };
    let bits = u32::from(v4);
    let [a, b] = [(bits >> 16) as u16, bits as u16];
    let v6 = match chance.below(12) {
        0..=3 => return v4.into(),
        4 => v4.to_ipv6_mapped(),
        5 => v4.to_ipv6_compatible(),
        6 => Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b),
        7 => Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, a, b),
        8 => Ipv6Addr::new(0x2002, a, b, 0, 0, 0, 0, 1),
        9 => Ipv6Addr::new(0x2001, 0, a, b, 0, 0, !a, !b),
        10 => Ipv6Addr::new(0x2a00, 1, 2, 3, 0, 0x5efe, a, b),
        _ => {
            let first = chance.pick(&[0x2a00, 0xfd00, 0xfe80, 0xff02, 0, 0x2001, 0x4000, 0xfd54]);
            let low = u128::from(chance.next()) << 64 | u128::from(chance.next());
            Ipv6Addr::from(low >> 16 | u128::from(first as u16) << 112)
        }
    };
    v6.into()
}

fn port(chance: &mut Chance) -> u16 {
    match chance.below(3) {
        0 => chance.next() as u16,
        _ => chance.pick(&[25, 80, 443, 7373, 9000, 22, 6379]),
    }
}

/// IPv4 addresses that a packet to `ip` may reach, by an account of our own, read off the text
/// of the RFCs (4291 §2.5.5, 6052 §2.1, 3056, 4380, 5214), and not by the relay's code.
fn reaches(ip: IpAddr) -> Vec<Ipv4Addr> {
    let IpAddr::V6(v6) = ip else {
        let IpAddr::V4(v4) = ip else { return vec![] };
        return vec![v4];
    };
    let bits = u128::from(v6);
    let low = Ipv4Addr::from(bits as u32);
    let mut found = Vec::new();
    if bits >> 32 == 0xffff || bits >> 32 == 0 && bits > 1 {
        found.push(low);
    }
    if bits >> 32 == 0x64_ff9b_u128 << 64 || bits >> 80 == 0x64_ff9b_0001 {
        found.push(low);
    }
    if bits >> 112 == 0x2002 {
        found.push(Ipv4Addr::from((bits >> 80) as u32));
    }
    if bits >> 96 == 0x2001_0000 {
        found.push(Ipv4Addr::from((bits >> 64) as u32));
        found.push(Ipv4Addr::from(!(bits as u32)));
    }
    found
}

/// Never to be reached by anybody's word: metadata, unspecified, multicast, the host itself.
fn sacred(v4: Ipv4Addr) -> bool {
    let metadata = [[169, 254, 169, 254], [168, 63, 129, 16], [100, 100, 100, 200]];
    v4.is_unspecified()
        || v4.is_loopback()
        || v4.is_multicast()
        || v4.is_broadcast()
        || metadata.contains(&v4.octets())
        || v4 == Ipv4Addr::new(10, 0, 0, 1)
        || v4.octets()[..2] == [10, 66]
}

fn special(v4: Ipv4Addr) -> bool {
    v4.is_private() || v4.is_link_local() || v4.is_documentation()
}

fn world() -> (EgressPolicy, Roster) {
    let own = OwnAddresses::fixed(["10.0.0.1".parse().unwrap()]);
    let policy = EgressPolicy::new(vec![], vec![])
        .deny(["10.66.0.0/16".parse().unwrap()])
        .with_own(&own)
        .with_admin(["0.0.0.0:7373".parse().unwrap()]);
    let grabbed = ["127.0.0.1:6379", "169.254.169.254:80", "10.0.0.1:22", "10.66.1.1:443"];
    let members = vec![
        member("c", 90, &[], &[]),
        member("us", 1, &["10.0.0.1:7373"], &[]),
        member("near", 2, &["10.0.0.2:7373"], &[]),
        member("far", 3, &["10.0.0.3:9000"], &["country=xx"]),
        member("evil", 4, &grabbed, &[]),
    ];
    (policy, roster(1, members, vec![]))
}

/// What must hold of every address that passes.
fn assert_may_pass(to: SocketAddr, is_member: bool, avoiding: bool) {
    let text = format!("{to} passed, member: {is_member}, avoiding: {avoiding}");
    let reached = reaches(to.ip());
    assert_ne!(to.port(), 25, "{text}");
    assert!(!reached.iter().any(|v4| sacred(*v4)), "{text}");
    let bare = to.ip().to_canonical();
    if is_member {
        let near = bare == IpAddr::from([10, 0, 0, 2]) && to.port() == 7373;
        let far = bare == IpAddr::from([10, 0, 0, 3]) && to.port() == 9000 && !avoiding;
        assert!(near || far, "{text}");
        return;
    }
    assert!(to.port() == 80 || to.port() == 443, "{text}");
    assert!(!reached.iter().any(|v4| special(*v4)), "{text}");
    // Nothing but ordinary unicast, and no address within an address, is listed.
    let global = match to.ip() {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => u128::from(v6) >> 125 == 1 && reached.is_empty(),
    };
    assert!(global, "{text}");
}

/// Judges `cases` targets; how many passed.
fn targets(cases: u64, chance: &mut Chance, (policy, roster): &(EgressPolicy, Roster)) -> u64 {
    let mut passed = 0;
    for _ in 0..cases {
        let to = SocketAddr::new(ip(chance), port(chance).max(1));
        let avoiding = chance.below(2) == 0;
        let avoid = if avoiding { tags(&["country=xx"]) } else { tags(&[]) };
        let terms = Terms { avoid, ..Terms::default() };
        let (own, client) = (key_id(1), key_id(190));
        let gate = Gate::new(policy, roster, own, &client, &terms, 0).unwrap();
        let asked: Destination = match chance.below(2) {
            0 => to.into(),
            _ => Destination::new("name.test", to.port()).unwrap(),
        };
        if let Ok(admitted) = gate.check(&asked, to) {
            passed += 1;
            assert_may_pass(to, admitted.member, avoiding);
        }
        if policy.check(to).is_ok() {
            assert_may_pass(to, false, avoiding);
        }
    }
    passed
}

/// Keys are derived once: signing keys are slow to make.
fn key_id(seed: u8) -> thalweg_units::NodeId {
    use std::sync::OnceLock;
    static KEYS: OnceLock<BTreeMap<u8, thalweg_units::NodeId>> = OnceLock::new();
    KEYS.get_or_init(|| [1, 190].map(|s| (s, key(s).id())).into())[&seed]
}

#[test]
fn no_target_passes_that_must_not() {
    let (cases, mut chance) = plan("targets");
    let passed = targets(cases, &mut chance, &world());
    assert!(passed > cases / 100, "only {passed} of {cases} passed: nothing was tried");
}

/// The account above is worth something: it sees each of these holes.
#[test]
fn a_policy_with_a_hole_is_found_out() {
    let (_, Chance(seed)) = plan("holes");
    let (whole, roster) = world();
    let net = |text: &str| text.parse().unwrap();
    let bare = || EgressPolicy::new(vec![], vec![]);
    let wide = |text: &str| EgressPolicy::new(vec![net(text)], vec![]);
    let own = OwnAddresses::fixed(["10.0.0.1".parse().unwrap()]);
    let mut grabbing = roster.clone();
    let stolen = member("evil", 4, &["192.168.0.1:22"], &[]);
    grabbing.members.retain(|m| m.name.as_str() != "evil");
    grabbing.members.push(stolen);
    grabbing.members.sort_by(|a, b| a.name.cmp(&b.name));
    for (what, policy, roster) in [
        ("no deny list, and nothing known of itself", bare(), &roster),
        ("no deny list", bare().with_own(&own), &roster),
        ("a private network is allowed", wide("10.0.0.0/8").with_own(&own), &roster),
        ("NAT64 and all within are allowed", wide("::/0"), &roster),
        ("a member has another address", whole, &grabbing),
    ] {
        let world = (policy, roster.clone());
        let judged = std::panic::catch_unwind(move || targets(50_000, &mut Chance(seed), &world));
        assert!(judged.is_err(), "not found out: {what}");
    }
}

/// A client's messages: whole ones, altered ones, and noise.
fn message(chance: &mut Chance) -> Vec<u8> {
    let leg = chance.pick(&[LegKind::Sealed, LegKind::Open]);
    let terms = Terms { leg, avoid: tags(&["country=xx"]) }.encode();
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

/// Reads a request off `bytes`, whose end is the connection's end; what is left of them.
fn read(bytes: &[u8]) -> (Result<(), Refusal>, Vec<u8>, usize) {
    let (mut greeting, mut left, mut said) = (Greeting::default(), bytes, Vec::new());
    let mut io = tokio::io::join(&mut left, &mut said);
    let done = {
        let reading = pin!(greeting.read(&mut io, Duration::from_secs(1)));
        match reading.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => done.map(drop),
            Poll::Pending => panic!("waits for more than there is: {bytes:x?}"),
        }
    };
    let left = left.len();
    (done, said, left)
}

#[tokio::test]
async fn messages_are_read_or_refused_and_never_beyond_their_end() {
    let (cases, mut chance) = plan("messages");
    let mut read_whole = 0;
    for _ in 0..cases {
        let bytes = message(&mut chance);
        let (done, said, left) = read(&bytes);
        // Before the reply nothing is said but the choice of the plain method.
        assert!(said.is_empty() || said == [5, 0], "{bytes:x?}: {said:x?}");
        match done {
            Ok(()) => {
                read_whole += 1;
                // What was taken is a request by itself, and one byte less is none.
                let taken = &bytes[..bytes.len() - left];
                assert!(read(taken).0.is_ok(), "{bytes:x?}");
                assert!(read(&taken[..taken.len() - 1]).0.is_err(), "{bytes:x?}");
            }
            Err(refusal) => assert!(refusal.message().len() <= 10, "{refusal}"),
        }
    }
    assert!(read_whole > cases / 20, "only {read_whole} of {cases} were requests");
}
