//! The bound of a cast: of the receiver that was last, or of all of them.
//!
//! | | If | Bound |
//! |---|---|---|
//! | 1 | nothing was missing, or it was shorter than slow start | `small` |
//! | 2 | the last receiver was clearly slower than the others, with several parents | `receiver` |
//! | 3 | the same, with one parent: this host's counters say that the receiver was waited for; else | `receiver`; `path` |
//! | 4 | no receiver was faster than the others, and queues grew on this host's legs | `access` |
//! | 5 | no receiver was faster, and they were waited for on all legs from this host | `receiver` |
//!
//! A receiver leaves a slow parent for another one. So one that is slow with several parents is slow itself.

use super::{
    Bound, Duration, Evidence, Rate, SMALL, SenderFacts, Verdict, observed, percent, ratio, seconds,
};
use thalweg_units::ByteSize;

/// A receiver is clearly slower than the others if the slowest of them is this many times as fast.
const SLOWER: f64 = 1.5;

/// A parent of which a receiver has a smaller share of its bytes does not count.
const PARENT: f64 = 0.1;

/// The share of the time in which receivers must have been waited for.
const WAITING: f64 = 0.5;

/// What was observed in a cast, at its source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CastFacts {
    /// From the first offer to the end.
    pub took: Duration,
    /// Receivers that got bytes in this session.
    pub receivers: Vec<CastReceiver>,
    /// The kernel's counters of this host's legs, by child.
    pub legs: Vec<(String, SenderFacts)>,
    /// The highest rate at which this host sent for a second.
    pub peak: Option<Rate>,
}

/// What was observed of a receiver.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CastReceiver {
    pub name: String,
    /// From the first offer until it had the object.
    pub ended: Duration,
    /// New bytes.
    pub bytes: u64,
    /// New bytes over the time from its search for parents to the last symbol.
    pub rate: Rate,
    /// The parents, and the new bytes of each; this host by the empty name.
    pub parents: Vec<(String, u64)>,
    /// The rate of the slowest hop on the widest path to it, as known before.
    pub known: Option<Rate>,
}

/// The bound that the cast met.
pub fn cast_verdict(facts: &CastFacts) -> Verdict {
    let rules: [fn(&CastFacts) -> Option<Verdict>; 4] = [short, slow_receiver, own_access, waiting];
    rules.iter().find_map(|rule| rule(facts)).unwrap_or_else(|| unknown(facts))
}

impl CastFacts {
    /// The receiver that had the object last, if it got any of it.
    fn last(&self) -> Option<&CastReceiver> {
        let moved = self.receivers.iter().filter(|receiver| receiver.bytes > 0);
        moved.max_by_key(|receiver| receiver.ended)
    }

    /// The lowest rate of the others.
    fn slowest_other(&self, last: &CastReceiver) -> Option<&CastReceiver> {
        let others = self.receivers.iter();
        let others = others.filter(|other| other.name != last.name && other.bytes > 0);
        others.min_by_key(|other| other.rate)
    }

    fn leg_to(&self, child: &str) -> Option<SenderFacts> {
        self.legs.iter().find(|(name, _)| name == child).map(|(_, leg)| *leg)
    }

    /// This host's legs that carried something.
    fn used_legs(&self) -> Vec<&(String, SenderFacts)> {
        let most = self.legs.iter().map(|(_, leg)| leg.bytes).max().unwrap_or(0);
        let is_used = |(_, leg): &&(String, SenderFacts)| leg.bytes as f64 > PARENT * most as f64;
        self.legs.iter().filter(is_used).collect()
    }
}

impl CastReceiver {
    /// The parents that count, by name.
    fn main_parents(&self) -> Vec<&str> {
        let all: u64 = self.parents.iter().map(|(_, bytes)| bytes).sum();
        let counts = |(_, bytes): &&(String, u64)| *bytes as f64 >= PARENT * (all as f64).max(1.0);
        self.parents.iter().filter(counts).map(|(name, _)| shown(name)).collect()
    }
}

fn shown(name: &str) -> &str {
    if name.is_empty() { "this host" } else { name }
}

fn short(facts: &CastFacts) -> Option<Verdict> {
    let Some(last) = facts.last() else {
        let text = "Nothing was sent: all receivers had it already.".to_owned();
        return Some(Verdict { bound: Bound::Small, text, evidence: Vec::new() });
    };
    (last.bytes < SMALL).then(|| Verdict {
        bound: Bound::Small,
        text: "It was short: its set-up took most of the time.".to_owned(),
        evidence: vec![
            observed("bytes for each receiver", ByteSize::from_bytes(last.bytes).to_string()),
            observed("the whole time", seconds(facts.took)),
        ],
    })
}

fn slow_receiver(facts: &CastFacts) -> Option<Verdict> {
    let last = facts.last()?;
    let other = facts.slowest_other(last)?;
    if ratio(other.rate, last.rate) < SLOWER {
        return None;
    }
    let (name, parents) = (&last.name, last.main_parents());
    let evidence = evidence(facts);
    if let [parent] = parents[..] {
        let leg = facts.leg_to(name).filter(|_| parent == "this host");
        let is_waited_for = leg.is_some_and(|leg| leg.waiting_share() >= WAITING);
        if !is_waited_for {
            let text = format!("{name} was last, and the hop from {parent} to it was the limit.");
            return Some(Verdict { bound: Bound::Path, text, evidence });
        }
    }
    let text = format!(
        "{name} was last and takes no faster: it had {} from {}.",
        last.rate,
        listed(&parents)
    );
    Some(Verdict { bound: Bound::Receiver, text, evidence })
}

fn own_access(facts: &CastFacts) -> Option<Verdict> {
    let used = facts.used_legs();
    let is_full = !used.is_empty() && used.iter().all(|(_, leg)| leg.is_congested());
    if !is_full {
        return None;
    }
    let mut evidence = evidence(facts);
    if let [(child, _)] = used[..]
        && facts.receivers.len() == 1
    {
        let text = format!("The hop from this host to {child} was full.");
        return Some(Verdict { bound: Bound::Path, text, evidence });
    }
    evidence.extend(facts.peak.map(|peak| observed("this host, highest rate", peak.to_string())));
    let text =
        "This host's access link was full: queues grew on its legs, and no receiver was faster.";
    Some(Verdict { bound: Bound::Access, text: text.to_owned(), evidence })
}

fn waiting(facts: &CastFacts) -> Option<Verdict> {
    let (used, last) = (facts.used_legs(), facts.last()?);
    let is_waited_for = |(_, leg): &&(String, SenderFacts)| leg.waiting_share() >= WAITING;
    (!used.is_empty() && used.iter().all(is_waited_for)).then(|| Verdict {
        bound: Bound::Receiver,
        text: format!(
            "The receivers take no faster, {} the least: this host waited for them.",
            last.name
        ),
        evidence: evidence(facts),
    })
}

fn unknown(facts: &CastFacts) -> Verdict {
    let last = facts.last().map(|last| format!("; {} was last", last.name)).unwrap_or_default();
    let text = format!("What limited it does not show{last}.");
    Verdict { bound: Bound::Unknown, text, evidence: evidence(facts) }
}

fn evidence(facts: &CastFacts) -> Vec<Evidence> {
    let Some(last) = facts.last() else { return Vec::new() };
    let mut all = vec![
        observed(&format!("{}: had it after", last.name), seconds(last.ended)),
        observed(&last.name, last.rate.to_string()),
    ];
    all.extend(
        facts
            .slowest_other(last)
            .map(|other| observed(&format!("{}, the next", other.name), other.rate.to_string())),
    );
    all.extend(last.parents.iter().map(|(parent, bytes)| {
        let bytes = ByteSize::from_bytes(*bytes).to_string();
        observed(&format!("{} from {}", last.name, shown(parent)), bytes)
    }));
    all.extend(last.known.map(|known| {
        observed(&format!("{}: slowest hop, as known before", last.name), known.to_string())
    }));
    for (child, leg) in facts.used_legs() {
        let trips = format!("{}, at least {}", seconds(leg.usual), seconds(leg.shortest));
        all.push(observed(&format!("leg to {child}: round trip"), trips));
        let waited = percent(leg.waiting_share());
        all.push(observed(&format!("leg to {child}: waited for it"), waited));
    }
    all
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => "no parent for long".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last} together", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn receiver(name: &str, mbps: f64, parents: &[&str]) -> CastReceiver {
        let part = 25_000_000 / parents.len().max(1) as u64;
        CastReceiver {
            name: name.into(),
            ended: secs(200.0 / mbps),
            bytes: 25_000_000,
            rate: Rate::from_mbps(mbps),
            parents: parents.iter().map(|parent| ((*parent).to_owned(), part)).collect(),
            known: None,
        }
    }

    /// A leg of 40 s that had data to send for this long, and round trips of 30 ms at least.
    fn leg(child: &str, busy: f64, usual: u64) -> (String, SenderFacts) {
        let leg = SenderFacts {
            bytes: 25_000_000,
            packets: 20_000,
            open: secs(40.0),
            busy: secs(busy),
            shortest: Duration::from_millis(30),
            usual: Duration::from_millis(usual),
            ..SenderFacts::default()
        };
        (child.to_owned(), leg)
    }

    fn plain() -> CastFacts {
        CastFacts {
            took: secs(40.0),
            receivers: vec![receiver("r", 5.2, &["", "s"]), receiver("s", 5.0, &["", "r"])],
            legs: vec![leg("r", 40.0, 35), leg("s", 40.0, 35)],
            peak: None,
        }
    }

    type Change = fn(&mut CastFacts);

    const SCENES: &[(&str, Change, Bound, Change, Bound)] = &[
        ("all had it", |f| f.receivers.clear(), Bound::Small, |_| {}, Bound::Unknown),
        (
            "a small object",
            |f| f.receivers.iter_mut().for_each(|receiver| receiver.bytes = 100_000),
            Bound::Small,
            |f| f.receivers.iter_mut().for_each(|receiver| receiver.bytes = 1_000_000),
            Bound::Unknown,
        ),
        (
            "one slow receiver with several parents",
            |f| f.receivers.push(receiver("t", 1.0, &["", "r", "s"])),
            Bound::Receiver,
            |f| f.receivers.push(receiver("t", 1.0, &["r"])),
            Bound::Path,
        ),
        (
            "one slow receiver with this host as its only parent, which waits for it",
            |f| {
                f.receivers.push(receiver("t", 1.0, &[""]));
                f.legs.push(leg("t", 5.0, 35));
            },
            Bound::Receiver,
            |f| {
                f.receivers.push(receiver("t", 1.0, &[""]));
                f.legs.push(leg("t", 39.0, 150));
            },
            Bound::Path,
        ),
        (
            "queues on all legs of this host",
            |f| f.legs = vec![leg("r", 40.0, 130), leg("s", 39.0, 120)],
            Bound::Access,
            |f| f.legs = vec![leg("r", 40.0, 130), leg("s", 39.0, 40)],
            Bound::Unknown,
        ),
        (
            "receivers that are waited for",
            |f| f.legs = vec![leg("r", 10.0, 35), leg("s", 9.0, 35)],
            Bound::Receiver,
            |f| f.legs = vec![leg("r", 10.0, 35), leg("s", 39.0, 35)],
            Bound::Unknown,
        ),
    ];

    #[test]
    fn each_scene_has_its_bound_and_a_near_miss_another() {
        for (what, change, bound, miss, other) in SCENES {
            for (change, bound, which) in [(change, bound, "scene"), (miss, other, "near miss")] {
                let mut facts = plain();
                change(&mut facts);
                let found = cast_verdict(&facts);
                assert_eq!(found.bound, *bound, "{what} ({which}): {found:#?}\n{facts:#?}");
                assert!(found.text.ends_with('.') && found.text.len() < 160, "{}", found.text);
            }
        }
    }

    #[test]
    fn the_text_names_the_last_receiver_and_its_parents() {
        let mut facts = plain();
        facts.receivers.push(receiver("t", 1.0, &["", "r", "s"]));
        let found = cast_verdict(&facts);
        let wanted =
            "t was last and takes no faster: it had 1 Mbit/s from this host, r and s together.";
        assert_eq!(found.text, wanted);
    }
}
