//! The bound of files that this host sends to a member. The sender's counters tell directly who waited.
//!
//! | | If | Bound |
//! |---|---|---|
//! | 1 | rules 1 to 3, 5 and 6 of downloads apply, with reading as the disk | as there |
//! | 2 | for half of the time there was nothing under way but answers, or the receiver's window was full | `receiver` |
//! | 3 | the send buffer was too small for half of the time | `window` |
//! | 4 | queues grew or packets were lost on the first legs of several paths | `access` |
//! | 5 | the first leg of a relayed path was free although the path carried as much as the direct one, which was full | `receiver` |
//! | 6 | packets were lost, or a queue grew, on one path | `path` |
//! | 7 | a path through a relay waited for the relay | `path` |
//!
//! With one path, a full access link of either end looks like a full link between them: `path`.

use super::SenderFacts;
use super::{
    AT_LIMIT, Bound, COMPARABLE, Duration, ENOUGH_PACKETS, Estimate, Evidence, Facts,
    InterfaceFacts, LOSSY, PathFacts, Rate, TcpFacts, Verdict, aged, interface, is_inflated,
    observed, own_limit, percent, ratio, seconds, share, short, waits,
};
use thalweg_units::ByteSize;

/// The share of the time in which one end must have waited for the other.
const WAITING: f64 = 0.5;

/// What was observed while files were sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SendFacts {
    /// The receiver's name.
    pub to: String,
    /// From the first connection to the receiver's last answer.
    pub took: Duration,
    /// From the beginning to the first piece under way.
    pub set_up: Duration,
    /// Bytes that arrived.
    pub sent: u64,
    pub paths: Vec<SentPath>,
    /// The interface of this host that sent the most bytes.
    pub interface: Option<InterfaceFacts>,
    /// The share of their time in which connections waited for data to be read from the disk, as a part of `took`.
    pub read_wait: Duration,
    /// The same of the own limit.
    pub limit_wait: Duration,
    pub limit: Option<Rate>,
}

/// What was observed of one path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SentPath {
    pub name: String,
    pub is_relayed: bool,
    /// Bytes that arrived over it.
    pub bytes: u64,
    /// The kernel's counters of the connections of its first leg.
    pub tcp: Option<SenderFacts>,
    /// The rate that was known of it before.
    pub known: Option<Estimate>,
}

/// The bound that sending met.
pub fn send_verdict(facts: &SendFacts) -> Verdict {
    let whole = facts.as_download();
    let first: [fn(&Facts) -> Option<Verdict>; 4] = [waits, own_limit, short, interface];
    let rules: [fn(&SendFacts) -> Option<Verdict>; 5] =
        [receiver, buffer, several, congestion, relayed];
    nothing_sent(facts)
        .or_else(|| {
            first.iter().find_map(|rule| rule(&whole)).map(|found| facts.in_own_words(found))
        })
        .or_else(|| rules.iter().find_map(|rule| rule(facts)))
        .unwrap_or_else(|| unknown(facts))
}

impl SendFacts {
    /// The facts that the rules of downloads need, with this host as the server.
    fn as_download(&self) -> Facts {
        let path = |path: &SentPath| PathFacts {
            name: path.name.clone(),
            is_relayed: path.is_relayed,
            bytes: path.bytes,
            tcp: path.tcp.map(|tcp| TcpFacts {
                packets: tcp.packets,
                out_of_order: tcp.repeated,
                shortest: tcp.shortest,
                usual: tcp.usual,
                window: 0,
            }),
            ..PathFacts::default()
        };
        Facts {
            took: self.took,
            set_up: self.set_up,
            fetched: self.sent,
            paths: self.paths.iter().map(path).collect(),
            interface: self.interface.clone(),
            disk_wait: self.read_wait,
            limit_wait: self.limit_wait,
            limit: self.limit,
            ..Facts::default()
        }
    }

    /// Replaces words that are of downloads.
    fn in_own_words(&self, mut found: Verdict) -> Verdict {
        if found.bound == Bound::Disk {
            let part = percent(share(self.read_wait, self.took));
            found.text = format!(
                "The disk was read more slowly than the network sends: it was waited for in {part} of the time."
            );
        }
        for fact in &mut found.evidence {
            fact.what = fact.what.replace("fetched", "sent").replace("first byte", "first data");
        }
        found
    }

    /// The path that carried the most bytes.
    fn main(&self) -> Option<(&SentPath, SenderFacts)> {
        let used = self.paths.iter().filter(|path| path.bytes > 0);
        let main = used.max_by_key(|path| path.bytes)?;
        Some((main, main.tcp?))
    }

    /// Paths that carried a comparable part of the bytes, with their counters.
    fn comparable(&self) -> Vec<(&SentPath, SenderFacts)> {
        let is_meant = |path: &&SentPath| path.bytes as f64 >= COMPARABLE * self.sent as f64;
        let all = self.paths.iter().filter(is_meant);
        all.filter_map(|path| Some((path, path.tcp?))).collect()
    }

    fn rate(&self) -> Rate {
        Rate::over(ByteSize::from_bytes(self.sent), self.took.saturating_sub(self.set_up))
    }
}

impl SenderFacts {
    /// The share of the packets that were sent again.
    pub(super) fn repeated_share(&self) -> f64 {
        self.repeated as f64 / (self.packets as f64).max(1.0)
    }

    /// Whether packets were lost or a queue grew.
    pub(super) fn is_congested(&self) -> bool {
        let is_lossy = self.repeated_share() >= LOSSY;
        self.packets >= ENOUGH_PACKETS && (is_lossy || self.has_queue())
    }

    /// Whether a queue grew.
    pub(super) fn has_queue(&self) -> bool {
        is_inflated(self.usual, self.shortest)
    }

    /// The share of the time in which the other end was waited for: it did not read, or it had read everything and did
    /// not answer.
    pub(super) fn waiting_share(&self) -> f64 {
        let idle = self.open.saturating_sub(self.busy);
        share(idle + self.receiver_limited, self.open)
    }
}

fn nothing_sent(facts: &SendFacts) -> Option<Verdict> {
    (facts.sent == 0).then(|| Verdict {
        bound: Bound::Small,
        text: "Nothing was sent: the files were there already.".to_owned(),
        evidence: Vec::new(),
    })
}

fn receiver(facts: &SendFacts) -> Option<Verdict> {
    let (main, tcp) = facts.main()?;
    if main.is_relayed || tcp.waiting_share() < WAITING {
        return None;
    }
    let part = percent(tcp.waiting_share());
    let idle = share(tcp.open.saturating_sub(tcp.busy), tcp.open);
    let mut evidence = evidence(facts);
    evidence.push(observed(
        "receive window of the receiver full",
        percent(share(tcp.receiver_limited, tcp.open)),
    ));
    evidence.push(observed("everything arrived, no answer yet", percent(idle)));
    let text = format!(
        "{} was waited for in {part} of the time: it wrote the data more slowly than it arrived.",
        facts.to
    );
    Some(Verdict { bound: Bound::Receiver, text, evidence })
}

fn buffer(facts: &SendFacts) -> Option<Verdict> {
    let (_, tcp) = facts.main()?;
    let part = share(tcp.buffer_limited, tcp.open);
    (part >= WAITING).then(|| Verdict {
        bound: Bound::Window,
        text: format!(
            "The send buffer of this host was too small for the round trip in {} of the time.",
            percent(part)
        ),
        evidence: evidence(facts),
    })
}

fn several(facts: &SendFacts) -> Option<Verdict> {
    let all = facts.comparable();
    let congested = all.iter().filter(|(_, tcp)| tcp.is_congested()).count();
    if all.len() < 2 || congested == 0 {
        return None;
    }
    let evidence = evidence(facts);
    if congested == all.len() {
        let text = "This host's access link was full: queues grew on the first legs of all paths.";
        return Some(Verdict { bound: Bound::Access, text: text.to_owned(), evidence });
    }
    let is_direct_full = all.iter().any(|(path, tcp)| !path.is_relayed && tcp.is_congested());
    let is_relay_free = all.iter().all(|(path, tcp)| !path.is_relayed || !tcp.is_congested());
    (is_direct_full && is_relay_free).then(|| Verdict {
        bound: Bound::Receiver,
        text: format!(
            "{} takes no faster: a queue grew on the direct path, and none on the way to relays.",
            facts.to
        ),
        evidence,
    })
}

fn congestion(facts: &SendFacts) -> Option<Verdict> {
    let (main, tcp) = facts.main()?;
    if !tcp.is_congested() {
        return None;
    }
    let text = if tcp.has_queue() {
        let to = &facts.to;
        format!(
            "The path {} was full: a queue grew between this host's access link and {to}'s.",
            main.name
        )
    } else {
        format!("The path {} was the limit: it lost packets.", main.name)
    };
    Some(Verdict { bound: Bound::Path, text, evidence: evidence(facts) })
}

fn relayed(facts: &SendFacts) -> Option<Verdict> {
    let (main, tcp) = facts.main()?;
    (main.is_relayed && tcp.waiting_share() >= WAITING).then(|| Verdict {
        bound: Bound::Path,
        text: format!("The path {} was the limit, beyond its leg from this host.", main.name),
        evidence: evidence(facts),
    })
}

fn unknown(facts: &SendFacts) -> Verdict {
    let text = format!(
        "What limited it does not show: the path, {} or this host's access link.",
        facts.to
    );
    Verdict { bound: Bound::Unknown, text, evidence: evidence(facts) }
}

fn evidence(facts: &SendFacts) -> Vec<Evidence> {
    let mut all = vec![observed("rate", facts.rate().to_string())];
    for (path, tcp) in facts.comparable() {
        let (name, repeated) = (&path.name, percent(tcp.repeated_share()));
        let trips = format!("{}, at least {}", seconds(tcp.usual), seconds(tcp.shortest));
        all.push(observed(&format!("{name}: packets sent again"), repeated));
        all.push(observed(&format!("{name}: round trip"), trips));
        let known = path.known.filter(|known| ratio(known.rate, facts.rate()) >= AT_LIMIT);
        all.extend(
            known.map(|known| aged(&format!("{name}, before"), known.rate.to_string(), known.age)),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Counters of a connection of 40 s, in which it had data to send for this long.
    fn tcp(
        busy: f64,
        receiver_limited: f64,
        repeated: u64,
        trips: (u64, u64),
    ) -> Option<SenderFacts> {
        Some(SenderFacts {
            bytes: 25_000_000,
            packets: 20_000,
            repeated,
            open: secs(40.0),
            busy: secs(busy),
            receiver_limited: secs(receiver_limited),
            buffer_limited: Duration::ZERO,
            shortest: Duration::from_millis(trips.0),
            usual: Duration::from_millis(trips.1),
        })
    }

    fn path(name: &str, tcp: Option<SenderFacts>) -> SentPath {
        let is_relayed = name != "direct";
        SentPath { name: name.into(), is_relayed, bytes: 25_000_000, tcp, known: None }
    }

    fn plain() -> SendFacts {
        SendFacts {
            to: "s".into(),
            took: secs(40.0),
            set_up: secs(0.2),
            sent: 25_000_000,
            paths: vec![path("direct", tcp(40.0, 0.0, 0, (40, 45)))],
            ..SendFacts::default()
        }
    }

    type Change = fn(&mut SendFacts);

    const SCENES: &[(&str, Change, Bound, Change, Bound)] = &[
        ("all was there", |f| f.sent = 0, Bound::Small, |_| {}, Bound::Unknown),
        (
            "an own limit",
            |f| f.limit_wait = secs(30.0),
            Bound::Limit,
            |f| f.limit_wait = secs(5.0),
            Bound::Unknown,
        ),
        (
            "a slow disk here",
            |f| f.read_wait = secs(30.0),
            Bound::Disk,
            |f| f.read_wait = secs(5.0),
            Bound::Unknown,
        ),
        (
            "a receiver that answers late",
            |f| f.paths[0].tcp = tcp(10.0, 1.0, 0, (40, 45)),
            Bound::Receiver,
            |f| f.paths[0].tcp = tcp(35.0, 1.0, 0, (40, 45)),
            Bound::Unknown,
        ),
        (
            "a receiver that does not read",
            |f| f.paths[0].tcp = tcp(39.0, 30.0, 0, (40, 45)),
            Bound::Receiver,
            |f| {
                f.paths[0].tcp = tcp(39.0, 30.0, 0, (40, 45));
                (f.paths[0].name, f.paths[0].is_relayed) = ("r".into(), true);
            },
            Bound::Path,
        ),
        (
            "queues on all first legs",
            |f| {
                f.paths[0].tcp = tcp(40.0, 0.0, 100, (40, 150));
                f.paths.push(path("r", tcp(40.0, 0.0, 90, (30, 140))));
            },
            Bound::Access,
            |f| {
                f.paths[0].tcp = tcp(40.0, 0.0, 100, (40, 150));
                f.paths.push(path("r", tcp(40.0, 30.0, 0, (30, 31))));
            },
            Bound::Receiver,
        ),
        (
            "a lossy path",
            |f| f.paths[0].tcp = tcp(40.0, 0.0, 400, (40, 45)),
            Bound::Path,
            |f| f.paths[0].tcp = tcp(40.0, 0.0, 4, (40, 45)),
            Bound::Unknown,
        ),
        (
            "one path with a queue",
            |f| f.paths[0].tcp = tcp(40.0, 0.0, 4, (40, 150)),
            Bound::Path,
            |f| {
                f.paths[0].tcp = tcp(40.0, 0.0, 4, (40, 150));
                f.paths[0].tcp.as_mut().unwrap().buffer_limited = secs(30.0);
            },
            Bound::Window,
        ),
    ];

    #[test]
    fn each_scene_has_its_bound_and_a_near_miss_another() {
        for (what, change, bound, miss, other) in SCENES {
            for (change, bound, which) in [(change, bound, "scene"), (miss, other, "near miss")] {
                let mut facts = plain();
                change(&mut facts);
                let found = send_verdict(&facts);
                assert_eq!(found.bound, *bound, "{what} ({which}): {found:#?}\n{facts:#?}");
                assert!(found.text.ends_with('.') && found.text.len() < 160, "{}", found.text);
            }
        }
    }

    #[test]
    fn no_facts_at_all_are_no_panic() {
        assert_eq!(send_verdict(&SendFacts::default()).bound, Bound::Small);
        let facts = SendFacts { sent: u64::MAX, took: Duration::MAX, ..SendFacts::default() };
        assert_eq!(send_verdict(&facts).bound, Bound::Unknown);
    }
}
