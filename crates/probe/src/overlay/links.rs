//! What this node knows of its links, and which of them are candidates for a measurement.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use thalweg_measure::{
    Bound,
    overlay::{Link, LinkEstimate, LinkMethod},
};
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::mesh::Name;
use tokio::time::Instant;

/// The time over which a link's traffic is averaged: two of the intervals at which the relay reads its legs.
const WINDOW: Duration = Duration::from_secs(60);

/// How many members without traffic are candidates: as many measurements by pathchirp easily fit in half an hour.
const SAMPLE: usize = 8;

/// How long a link rests after a failure. The rest doubles each time, up to [`LONGEST_REST`].
const FIRST_REST: Duration = Duration::from_secs(60);
const LONGEST_REST: Duration = Duration::from_secs(3600);

/// The known links, by member.
#[derive(Debug, Default)]
pub(super) struct Links(BTreeMap<Name, LinkState>);

/// What is known of one link.
#[derive(Debug, Default)]
struct LinkState {
    /// When bytes were sent, how many, and how many of them may ride in trains.
    uses: VecDeque<(Instant, u64, u64)>,
    known: Option<(Instant, LinkEstimate)>,
    /// The highest rate that TCP reached, bit/s.
    tcp: f64,
    /// Bytes that the latest trains on this link cost.
    paid: u64,
    /// Until when the link rests, and how long that rest is in total.
    rests: Option<(Instant, Duration)>,
}

impl Links {
    /// Counts bytes sent over the link, of which `riding` may ride in trains.
    pub fn add_use(&mut self, to: &Name, bytes: u64, riding: u64, now: Instant) {
        if bytes > 0 {
            self.0.entry(to.clone()).or_default().uses.push_back((now, bytes, riding));
        }
    }

    /// Notes a result. A lower bound that ordinary traffic shows does not replace a range that was measured.
    pub fn set_result(&mut self, to: &Name, known: LinkEstimate, now: Instant) {
        let seen = self.0.entry(to.clone()).or_default();
        if known.how == LinkMethod::Passive {
            seen.tcp = seen.tcp.max(known.high);
        }
        let is_bound = known.how == LinkMethod::Passive && known.bound == Bound::AtLeast;
        let is_worse =
            is_bound && seen.known.is_some_and(|(_, other)| other.how != LinkMethod::Passive);
        if !is_worse {
            seen.known = Some((now, known));
        }
        if known.how != LinkMethod::Passive {
            seen.rests = None;
        }
    }

    /// Notes the cost of a measurement, whatever its result. The cost of a sparse tool is ignored, because it says
    /// nothing about the other tools.
    pub fn set_cost(&mut self, to: &Name, how: LinkMethod, bytes: u64) {
        if how != LinkMethod::Sparse && bytes > 0 {
            self.0.entry(to.clone()).or_default().paid = bytes;
        }
    }

    /// Notes a measurement without a result: the link rests.
    pub fn rest_after_failure(&mut self, to: &Name, now: Instant) {
        let seen = self.0.entry(to.clone()).or_default();
        let rest = seen.rests.map_or(FIRST_REST, |(_, last)| (last * 2).min(LONGEST_REST));
        seen.rests = Some((now + rest, rest));
    }

    /// The candidates: members with traffic and a sample of the others, except links that rest.
    pub fn candidates(&mut self, me: &Name, members: &[Name], now: Instant) -> Vec<(Name, Link)> {
        self.0.retain(|name, _| members.contains(name));
        self.0.values_mut().for_each(|seen| seen.forget(now));
        let is_used = |name: &&Name| self.0.get(*name).is_some_and(|seen| !seen.uses.is_empty());
        let (mut asked, mut others): (Vec<&Name>, Vec<&Name>) =
            members.iter().filter(|name| *name != me).partition(is_used);
        // Sorted by a hash of both ends: each node samples other members, but always the same ones.
        others.sort_by_key(|name| *blake3::hash(format!("{me} {name}").as_bytes()).as_bytes());
        asked.extend(others.into_iter().take(SAMPLE));
        let rests = |name: &Name| self.0.get(name).is_some_and(|seen| seen.rests_at(now));
        let link = |name: &Name| self.0.get(name).map_or_else(Link::default, |seen| seen.link(now));
        asked.retain(|name| !rests(name));
        asked.into_iter().map(|name| (name.clone(), link(name))).collect()
    }
}

impl LinkState {
    fn forget(&mut self, now: Instant) {
        while self.uses.front().is_some_and(|(at, ..)| now.duration_since(*at) > WINDOW) {
            self.uses.pop_front();
        }
    }

    fn rests_at(&self, now: Instant) -> bool {
        self.rests.is_some_and(|(until, _)| now < until)
    }

    fn link(&self, now: Instant) -> Link {
        let rate = |of: fn(&(Instant, u64, u64)) -> u64| {
            let bytes: u64 = self.uses.iter().map(of).sum();
            Rate::from_bps(bytes.saturating_mul(8) / WINDOW.as_secs())
        };
        let aged = |(at, known): (Instant, LinkEstimate)| LinkEstimate {
            age: known.age + now.duration_since(at),
            ..known
        };
        let (traffic, riding) = (rate(|(_, bytes, _)| *bytes), rate(|(_, _, riding)| *riding));
        let (tcp, paid) = (Rate::from_bps(self.tcp as u64), ByteSize::from_bytes(self.paid));
        Link { traffic, riding, known: self.known.map(aged), tcp, paid, rivals: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: usize) -> Name {
        format!("n{n}").parse().unwrap()
    }

    fn names(count: usize) -> Vec<Name> {
        (0..count).map(name).collect()
    }

    fn known(how: LinkMethod, bound: Bound) -> LinkEstimate {
        LinkEstimate { low: 4e6, high: 5e6, bound, how, age: Duration::ZERO }
    }

    fn link(links: &mut Links, n: usize, now: Instant) -> Option<Link> {
        let asked = links.candidates(&name(0), &names(3), now);
        asked.into_iter().find(|(to, _)| *to == name(n)).map(|(_, link)| link)
    }

    #[test]
    fn used_links_and_a_sample_of_the_others_are_candidates() {
        let (mut links, now) = (Links::default(), Instant::now());
        links.add_use(&name(30), 750_000, 75_000, now);
        let asked = links.candidates(&name(0), &names(40), now);
        assert_eq!(asked.len(), 1 + SAMPLE);
        assert_eq!(asked[0].0, name(30));
        assert_eq!(asked[0].1.traffic, Rate::from_bps(100_000));
        assert_eq!(asked[0].1.riding, Rate::from_bps(10_000));
        assert!(asked.iter().all(|(to, _)| *to != name(0)), "there is no link to itself");
        assert_eq!(asked, links.candidates(&name(0), &names(40), now), "the same ones");
        let later = links.candidates(&name(0), &names(40), now + WINDOW * 2);
        assert_eq!(later.len(), SAMPLE, "nothing travels there any more");
        assert!(links.candidates(&name(0), &names(1), now).is_empty(), "it has left");
    }

    #[test]
    fn results_age_and_bounds_from_traffic_do_not_replace_ranges() {
        let (mut links, now) = (Links::default(), Instant::now());
        links.set_result(&name(1), known(LinkMethod::Trains, Bound::Exact), now);
        links.set_result(&name(1), known(LinkMethod::Passive, Bound::AtLeast), now);
        let minute = now + Duration::from_secs(60);
        let found = link(&mut links, 1, minute).unwrap().known.unwrap();
        assert_eq!((found.how, found.age), (LinkMethod::Trains, Duration::from_secs(60)));
        links.set_result(&name(1), known(LinkMethod::Passive, Bound::Exact), minute);
        assert_eq!(link(&mut links, 1, minute).unwrap().known.unwrap().how, LinkMethod::Passive);
    }

    #[test]
    fn the_rate_of_tcp_and_the_cost_of_trains_are_kept() {
        let (mut links, now) = (Links::default(), Instant::now());
        links.set_result(&name(1), known(LinkMethod::Passive, Bound::AtLeast), now);
        links.set_result(&name(1), known(LinkMethod::Trains, Bound::Exact), now);
        links.set_cost(&name(1), LinkMethod::Trains, 700);
        links.set_cost(&name(1), LinkMethod::Sparse, 9);
        let seen = link(&mut links, 1, now).unwrap();
        assert_eq!((seen.tcp, seen.paid), (Rate::from_mbps(5.0), ByteSize::from_bytes(700)));
    }

    #[test]
    fn the_rest_of_a_failing_link_doubles() {
        let (mut links, now) = (Links::default(), Instant::now());
        links.rest_after_failure(&name(1), now);
        assert_eq!(link(&mut links, 1, now), None);
        let later = now + FIRST_REST;
        assert!(link(&mut links, 1, later).is_some() && link(&mut links, 2, now).is_some());
        links.rest_after_failure(&name(1), later);
        assert_eq!(link(&mut links, 1, later + FIRST_REST), None);
        links.set_result(&name(1), known(LinkMethod::Sparse, Bound::Exact), later);
        assert!(link(&mut links, 1, later).is_some());
    }
}
