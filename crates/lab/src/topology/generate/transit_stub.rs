//! Transit-stub: routers of transit providers, stub networks at the routers, and hosts in the stub networks.

use super::{Generated, access_name, check_count, downstream_link, pairs, upstream_link};
use crate::topology::{Draws, LinkSpec, TopologyError, derive_seed};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// `kind = "transit-stub"` (after Zegura, Calvert, Bhattacharjee 1996).
///
/// Transit routers `t1` … form a ring; every other pair is linked with probability 0.3. The links are `t1_t2` …, with a
/// delay of `transit_link.delay` × a uniform draw from 0.5 to 1.5. Each transit router has `stubs` stub networks `t1s1`
/// … on links `t1s1.uplink`, and each stub network has `hosts` hosts `t1s1h1` … on links `t1s1h1.access`; forward is
/// upstream in both. A path takes the transit links with the smallest total delay; within a stub network it takes only
/// the two access links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransitStub {
    /// Number of transit routers T.
    pub transit: usize,
    /// Stub networks per transit router.
    pub stubs: usize,
    /// Hosts per stub network.
    pub hosts: usize,
    /// Links between transit routers.
    pub transit_link: LinkSpec,
    /// Links from stub networks to their transit routers.
    pub stub_link: LinkSpec,
    /// Links from hosts to their stub networks.
    pub access: LinkSpec,
}

const CHORD_PROBABILITY: f64 = 0.3;
/// The most transit routers: computing the shortest paths takes T³ steps.
const TRANSIT_MAX: usize = 200;

/// A stub network: the transit router and the number of the stub at it, both from 0.
type Stub = (usize, usize);

/// All-pairs shortest paths: `next[i][j]`, T×T, is the router after i towards j.
struct Core {
    next: Vec<Vec<usize>>,
}

impl TransitStub {
    pub(super) fn expand(&self, seed: u64) -> Result<Generated, TopologyError> {
        check_count("transit", self.transit)?;
        check_count("stubs", self.stubs)?;
        check_count("hosts", self.hosts)?;
        check_count("transit × stubs × hosts", self.transit * self.stubs * self.hosts)?;
        if self.transit > TRANSIT_MAX {
            let why = format!("at most {TRANSIT_MAX}");
            return Err(TopologyError::value("generate.transit", self.transit, why));
        }
        let mut out = Generated::default();
        let core = self.core(seed, &mut out);
        let stubs_of_hosts = self.stubs_and_hosts(&mut out);
        let names: Vec<_> = out.hosts.keys().cloned().collect();
        for (a, b) in pairs(&names) {
            let (Some(from), Some(to)) = (out.hosts.get_index_of(a), out.hosts.get_index_of(b))
            else {
                continue;
            };
            out.path(a, b, core.route((a, stubs_of_hosts[from]), (b, stubs_of_hosts[to])));
        }
        Ok(out)
    }

    /// Adds the transit links. Returns the shortest paths over them.
    fn core(&self, seed: u64, out: &mut Generated) -> Core {
        let t = self.transit;
        let mut draws = Draws::new(derive_seed(seed, "transit-stub"));
        let mut delay = vec![vec![None; t]; t];
        for (i, j) in (0..t).flat_map(|i| (i + 1..t).map(move |j| (i, j))) {
            let ring = j == i + 1 || (i == 0 && j == t - 1);
            // Drawn for every pair, so that the sequence of draws does not depend on the ring.
            let (chord, stretch) = (draws.chance(CHORD_PROBABILITY), draws.between(0.5, 1.5));
            if ring || chord {
                let mut link = self.transit_link.clone();
                let one_way = link.delay.unwrap_or_default().mul_f64(stretch);
                link.delay = Some(Duration::from_micros(one_way.as_micros() as u64));
                (delay[i][j], delay[j][i]) = (link.delay, link.delay);
                out.link(format!("t{}_t{}", i + 1, j + 1), &link);
            }
        }
        Core::shortest(&delay)
    }

    fn stubs_and_hosts(&self, out: &mut Generated) -> Vec<Stub> {
        let mut stubs_of_hosts = Vec::new();
        for (t, s) in (0..self.transit).flat_map(|t| (0..self.stubs).map(move |s| (t, s))) {
            out.link(uplink((t, s)), &self.stub_link);
            for h in 1..=self.hosts {
                let name = format!("t{}s{}h{h}", t + 1, s + 1);
                out.host(&name);
                out.link(access_name(&name), &self.access);
                stubs_of_hosts.push((t, s));
            }
        }
        stubs_of_hosts
    }
}

impl Core {
    /// Computes the shortest paths (Floyd–Warshall). `delay[i][j]`, T×T; `None`: no link.
    ///
    /// The cost of a link is its delay and a nanosecond, so that of paths with equal delay the one with the fewest hops
    /// is chosen.
    fn shortest(delay: &[Vec<Option<Duration>>]) -> Self {
        let t = delay.len();
        let cost = |d: &Option<Duration>| d.map_or(u128::MAX / 4, |d| d.as_nanos() + 1);
        let mut costs: Vec<Vec<_>> = delay.iter().map(|r| r.iter().map(cost).collect()).collect();
        let mut next: Vec<Vec<_>> = (0..t).map(|_| (0..t).collect()).collect();
        for k in 0..t {
            for i in 0..t {
                for j in 0..t {
                    let via = costs[i][k] + costs[k][j];
                    if i != j && via < costs[i][j] {
                        (costs[i][j], next[i][j]) = (via, next[i][k]);
                    }
                }
            }
        }
        Self { next }
    }

    fn route(&self, (a, from): (&str, Stub), (b, to): (&str, Stub)) -> Vec<String> {
        let mut links = vec![upstream_link(a)];
        if from != to {
            links.push(format!("{}.fwd", uplink(from)));
            let mut at = from.0;
            while at != to.0 {
                let next = self.next[at][to.0];
                links.push(transit_half(at, next));
                at = next;
            }
            links.push(format!("{}.rev", uplink(to)));
        }
        links.push(downstream_link(b));
        links
    }
}

fn uplink((t, s): Stub) -> String {
    format!("t{}s{}.uplink", t + 1, s + 1)
}

fn transit_half(i: usize, j: usize) -> String {
    let half = if i < j { "fwd" } else { "rev" };
    format!("t{}_t{}.{half}", i.min(j) + 1, i.max(j) + 1)
}
