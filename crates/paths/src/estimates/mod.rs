//! Estimates of the legs between members, from the oracle or from a file.

mod read;

use crate::detours::KnownPaths;
use crate::overlay::Overlay;
use std::{cmp::Reverse, collections::BTreeMap, time::Duration};
use thalweg_plan::{Graph, graph::MAX_AGE, tree::Access};
use thalweg_units::{Rate, WallTime};
use thalweg_wire::mesh::Name;

/// Estimates of legs, by sender and receiver. Legs that are not in it are unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimates {
    legs: BTreeMap<(Name, Name), Leg>,
    /// The stated access rates of hosts.
    access: BTreeMap<Name, Access>,
}

/// The estimate of a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Leg {
    /// c′(u,v): its rate in the presence of other traffic. Zero: nothing gets through.
    pub rate: Option<Rate>,
    /// Whether the rate is a lower bound: the leg carried this much and may carry more.
    pub at_least: bool,
    pub rtt: Option<Duration>,
    /// p of ROMA's Eq. (1): the share of packets with which a loss event begins, 0 to 1.
    pub loss: Option<f64>,
    /// How old the rate is; `None` if that is unknown.
    pub age: Option<Duration>,
}

impl Estimates {
    /// Creates estimates from the oracle's answer, without rates that are too old. Unlike for paths of single flows
    /// ([`Graph::from_table`]), lower bounds count: a plan over them can be kept, although there may be a better one
    /// ([`Leg::at_least`]).
    pub fn of_paths(known: &KnownPaths, now: WallTime) -> Self {
        let since = known.age(now);
        let mut estimates = Self::default();
        let name = |at: u32| known.reply.nodes.get(at as usize).cloned();
        for leg in known.reply.legs.iter().filter(|leg| leg.age + since <= MAX_AGE) {
            let (Some(from), Some(to)) = (name(leg.from), name(leg.to)) else { continue };
            // The cast truncates positive numbers.
            let rate = Some(Rate::from_bps(leg.planned_bps(since) as u64));
            let rtt = leg.rtt_s.and_then(|s| Duration::try_from_secs_f64(s).ok());
            let age = Some(leg.age + since);
            let known = Leg { rate, at_least: leg.at_least, rtt, loss: None, age };
            estimates.legs.insert((from, to), known);
        }
        estimates
    }

    /// The estimate of a leg; empty if it is unknown.
    pub fn leg(&self, from: &Name, to: &Name) -> Leg {
        self.legs.get(&(from.clone(), to.clone())).copied().unwrap_or_default()
    }

    /// The leg's round trip, or else that of the reverse leg, which uses the same two directions.
    pub fn rtt(&self, from: &Name, to: &Name) -> Option<Duration> {
        self.leg(from, to).rtt.or_else(|| self.leg(to, from).rtt)
    }

    /// The stated rates of a host's access, over all its legs together; empty if not stated.
    pub fn access(&self, host: &Name) -> Access {
        self.access.get(host).copied().unwrap_or_default()
    }

    /// States the most that a host sends, over all its legs together.
    pub fn state_egress(&mut self, host: Name, egress: Rate) {
        self.access.entry(host).or_default().egress = Some(egress);
    }

    /// The number of known legs.
    pub fn len(&self) -> usize {
        self.legs.len()
    }

    /// Whether no leg is known.
    pub fn is_empty(&self) -> bool {
        self.legs.is_empty()
    }

    /// The legs: senders and receivers.
    pub fn pairs(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.legs.keys().map(|(from, to)| (from, to))
    }

    /// The members that occur in legs, with repetitions.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.legs.keys().flat_map(|(from, to)| [from, to])
    }

    /// Whether the rate of some leg between these is only a lower bound.
    pub fn has_bounds(&self, among: &[Name]) -> bool {
        let is_among = |name: &Name| among.contains(name);
        let mut legs = self.legs.iter().filter(|((u, v), _)| is_among(u) && is_among(v));
        legs.any(|(_, leg)| leg.at_least)
    }

    /// Whether the rate of any leg to `here` is known.
    pub fn is_measured_to(&self, here: &Name) -> bool {
        self.legs.iter().any(|((_, to), leg)| to == here && leg.rate.is_some())
    }

    /// Records an observed round trip.
    pub fn learn_rtt(&mut self, from: &Name, to: &Name, rtt: Duration) {
        self.legs.entry((from.clone(), to.clone())).or_default().rtt = Some(rtt);
    }

    /// The best `candidates`, at most `most`, by the highest rate at which they could forward from any of the sources;
    /// after those, candidates with an unknown rate. Equal ones are sorted by name.
    pub fn intermediates(
        &self,
        sources: &[Name],
        candidates: impl IntoIterator<Item = Name>,
        here: &Name,
        most: usize,
    ) -> Vec<Name> {
        let carries = |name: &Name| {
            let on = self.leg(name, here).rate?;
            let by = |source: &Name| Some(self.leg(source, name).rate?.min(on));
            sources.iter().filter_map(by).max()
        };
        let others = candidates.into_iter().filter(|name| name != here && !sources.contains(name));
        let mut ranked: Vec<_> = others.map(|name| (Reverse(carries(&name)), name)).collect();
        ranked.sort();
        ranked.dedup();
        // Drop candidates that are known to carry nothing.
        let useless = |rank: &Reverse<Option<Rate>>| rank.0 == Some(Rate::ZERO);
        let ranked = ranked.into_iter().filter(|(rank, _)| !useless(rank));
        ranked.take(most).map(|(_, name)| name).collect()
    }

    /// The overlay of these participants: sources first, the destination last.
    pub fn overlay(&self, sources: &[Name], intermediates: &[Name], here: &Name) -> Overlay {
        let ends = std::iter::once(here);
        let names: Vec<Name> = sources.iter().chain(intermediates).chain(ends).cloned().collect();
        let mut rates = Graph::new(names.len());
        let mut rtts = BTreeMap::new();
        for (i, from) in names.iter().enumerate() {
            for (j, to) in names.iter().enumerate().filter(|(j, _)| *j != i) {
                let leg = self.leg(from, to);
                rates.set(i, j, leg.rate);
                if let Some(rtt) = leg.rtt {
                    rtts.insert((i as u32, j as u32), rtt);
                }
            }
        }
        Overlay { names, sources: sources.len(), rates, rtts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::mesh::measure::{LegEntry, PathsReply};

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn names(texts: &[&str]) -> Vec<Name> {
        texts.iter().map(|t| name(t)).collect()
    }

    fn entry(from: u32, to: u32, mbps: f64, at_least: bool, days: u64) -> LegEntry {
        let age = Duration::from_secs(days * 86_400);
        let (bps, method) = (mbps * 1e6, "transfer".into());
        let rtt_s = (from == 1).then_some(0.08);
        LegEntry { from, to, bps, spread_bps: None, method, at_least, rtt_s, age, available: None }
    }

    #[test]
    fn recent_rates_of_the_oracle_count_and_lower_bounds_are_marked() {
        let legs = vec![
            entry(0, 1, 40.0, false, 13),
            entry(1, 0, 40.0, true, 1),
            entry(0, 2, 40.0, false, 15),
            entry(2, 7, 1.0, false, 0),
        ];
        let reply = PathsReply { nodes: names(&["a", "b", "c"]), legs, ..PathsReply::default() };
        let day = 86_400_000_000_000;
        let asked = WallTime::from_unix_nanos(100 * day);
        let known = KnownPaths::new(reply, asked);
        let estimates = Estimates::of_paths(&known, asked);
        assert_eq!(estimates.len(), 2);
        let rate = Some(Rate::from_mbps(40.0));
        let rtt = Some(Duration::from_millis(80));
        let days = |days: u64| Some(Duration::from_secs(days * 86_400));
        let exact = Leg { rate, age: days(13), ..Leg::default() };
        let bound = Leg { rate, at_least: true, rtt, loss: None, age: days(1) };
        assert_eq!(estimates.leg(&name("a"), &name("b")), exact);
        assert_eq!(estimates.leg(&name("b"), &name("a")), bound);
        assert_eq!(estimates.rtt(&name("a"), &name("b")), rtt, "the way back's");
        assert!(
            estimates.has_bounds(&names(&["a", "b"])) && !estimates.has_bounds(&names(&["a", "c"]))
        );
        assert!(estimates.is_measured_to(&name("b")) && !estimates.is_measured_to(&name("c")));
        // A stored answer gets older.
        let later = WallTime::from_unix_nanos(102 * day);
        assert_eq!(Estimates::of_paths(&known, later).len(), 1);
    }

    #[test]
    fn the_best_intermediates_are_taken_first_and_unknown_ones_last() {
        let text = "from,to,rate\ns,x,10 Mbit/s\nx,d,90 Mbit/s\ns,y,50 Mbit/s\ny,d,20 Mbit/s\n\
                    s,zero,9 Mbit/s\nzero,d,0 bit/s\n";
        let estimates = Estimates::parse(text).unwrap();
        let taken = |most| {
            let candidates = names(&["a", "d", "s", "x", "y", "zero", "x"]);
            estimates.intermediates(&names(&["s"]), candidates, &name("d"), most)
        };
        assert_eq!(taken(9), names(&["y", "x", "a"]));
        assert_eq!(taken(1), names(&["y"]));
    }

    #[test]
    fn the_overlay_has_sources_first_and_the_destination_last() {
        let text = "from,to,rate,rtt\ns,d,10 Mbit/s,80 ms\nx,d,90 Mbit/s,\nd,s,1 Mbit/s,1 ms\n";
        let estimates = Estimates::parse(text).unwrap();
        let overlay = estimates.overlay(&names(&["s"]), &names(&["x"]), &name("d"));
        assert_eq!((overlay.names.clone(), overlay.sources), (names(&["s", "x", "d"]), 1));
        assert_eq!(overlay.rates.rate(0, 2), Some(Rate::from_mbps(10.0)));
        assert_eq!(overlay.rates.rate(0, 1), None);
        let ms = Duration::from_millis;
        assert_eq!(overlay.rtts, BTreeMap::from([((0, 2), ms(80)), ((2, 0), ms(1))]));
    }
}
