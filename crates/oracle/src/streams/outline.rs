//! The reports of members as a problem for the scheduler.

use super::{
    decisions::Decisions,
    layout::{Layout, Position},
    state::{LastReport, LegEnds, LegEstimates, MOST_MEMBERS, ReportState},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use thalweg_plan::streams::{
    Configuration, Leg, Node, Preference, Problem, ProblemError, Stream, Subscriber, Terms,
};
use thalweg_units::{NodeId, Time};
use thalweg_wire::{
    mesh::Name,
    stream::plan::{Published, Reason, Subscription},
};

/// The most relays in one plan. If there are more, those with the lowest keys are used.
const MOST_RELAYS: usize = 64;

/// The most kinds of transcoders in one plan.
const MOST_TRANSCODERS: usize = thalweg_plan::streams::MAX_TRANSCODERS;

/// The assumed delay of a leg without a measured one: short, because a wrong guess must not exclude the leg.
const DELAY: Duration = Duration::from_millis(1);

/// The share of TCP's throughput on an idle leg that a plan may use.
const OF_RATE: f64 = 0.88;

/// The share of a node's weight that its further subscriptions to the same stream have together: less than any level.
const FURTHER: f64 = 0.01;

/// A planned subscription.
#[derive(Clone, Debug)]
pub(super) struct PlannedSubscription {
    pub node: NodeId,
    pub id: u32,
    /// For each preference of the problem, its position in the subscription.
    pub positions: Vec<Position>,
    /// Whether the subscription takes one of several renditions.
    pub has_renditions: bool,
}

impl PlannedSubscription {
    /// The problem's preference for this position. If its rendition was unknown when the problem was created, the best
    /// one with the same preference, which the leg sends meanwhile.
    fn choice(&self, position: Position) -> Option<u8> {
        let is_it = |own: &Position| *own == position;
        let is_like = |own: &Position| own.preference == position.preference;
        let at = self.positions.iter().position(is_it);
        at.or_else(|| self.positions.iter().position(is_like)).map(|at| at as u8)
    }
}

/// A configuration by names, which stay valid when the indices of an outline do not.
#[derive(Clone, Debug, Default)]
pub(super) struct NamedConfiguration {
    /// The choice of each subscription.
    pub choices: BTreeMap<(NodeId, u32), Position>,
    /// The stream, node and parent of each leg.
    pub parents: Vec<(Name, NodeId, NodeId)>,
}

/// A planned stream.
#[derive(Clone, Debug)]
pub(super) struct PlannedStream {
    pub name: Name,
    pub layout: Layout,
}

/// The indices of a problem and their meaning.
#[derive(Clone, Debug, Default)]
pub(super) struct Outline {
    pub nodes: Vec<NodeId>,
    pub streams: Vec<PlannedStream>,
    pub wishes: Vec<PlannedSubscription>,
    pub ends: Vec<LegEnds>,
    /// Subscriptions that cannot be planned, with the reasons.
    pub unplanned: Vec<(NodeId, u32, Reason)>,
    index: BTreeMap<NodeId, u32>,
    of_nodes: Vec<Node>,
    of_streams: Vec<Stream>,
    subscribers: Vec<Subscriber>,
}

impl NamedConfiguration {
    /// Adds the choices of another configuration for subscriptions that are not in `known`.
    pub fn add_others(&mut self, other: Self, known: &BTreeSet<(NodeId, u32)>) {
        self.choices.extend(other.choices.into_iter().filter(|(key, _)| !known.contains(key)));
        self.parents.extend(other.parents);
    }
}

impl Outline {
    /// Collects the members, the subscriptions and the legs that may serve them.
    pub fn of(state: &ReportState, decided: &Decisions, now: Time) -> Self {
        let mut outline = Self::default();
        let transcoders = transcoders(state);
        for (key, reported) in state.reported.iter().take(MOST_MEMBERS) {
            outline.index.insert(*key, outline.nodes.len() as u32);
            outline.nodes.push(*key);
            let known = reported.report.transcoders.iter().filter_map(|name| transcoders.get(name));
            outline.of_nodes.push(Node {
                relays: reported.report.relays,
                transcoders: known.fold(0, |all, number| all | 1 << number),
                egress: reported.report.egress_bps,
            });
        }
        outline.limit_relays();
        let requested = requested_tracks(state);
        let planned = planned_streams(state, most_streams(outline.nodes.len()));
        let mut shown: BTreeMap<&Name, u32> = BTreeMap::new();
        for (key, reported) in &state.reported {
            for wanted in &reported.report.subscriptions {
                let unplanned = |reason| (*key, wanted.id, reason);
                let (holder, published) = match requested_stream(state, key, wanted) {
                    Ok((_, published)) if !planned.contains(&published.stream) => {
                        outline.unplanned.push(unplanned(Reason::Busy));
                        continue;
                    }
                    Ok(found) => found,
                    Err(reason) => {
                        outline.unplanned.push(unplanned(reason));
                        continue;
                    }
                };
                let at = shown.get(&published.stream).copied();
                let at = at.unwrap_or_else(|| {
                    shown.insert(&published.stream, outline.streams.len() as u32);
                    outline.show(state, holder, published, &requested)
                });
                let is_held = decided.is_held(*key, wanted.id, now, &state.rules);
                let report = &reported.report;
                if !outline.wish(*key, at, (wanted, report.keeps_levels), is_held, &transcoders) {
                    outline.unplanned.push(unplanned(Reason::Full));
                }
            }
        }
        for (shown, stream) in outline.streams.iter().zip(&mut outline.of_streams) {
            stream.parts = shown.layout.parts();
        }
        outline.ends = outline.all_ends(state, now);
        outline
    }

    /// The members and numbers of the planned subscriptions.
    pub fn keys(&self) -> BTreeSet<(NodeId, u32)> {
        self.wishes.iter().map(|wish| (wish.node, wish.id)).collect()
    }

    fn limit_relays(&mut self) {
        let relays = self.of_nodes.iter_mut().filter(|node| node.relays);
        relays.skip(MOST_RELAYS).for_each(|node| node.relays = false);
    }

    /// Adds a stream. Its relays must be allowed to subscribe, because they see the content.
    fn show(
        &mut self,
        state: &ReportState,
        holder: NodeId,
        published: &Published,
        requested: &BTreeMap<&Name, usize>,
    ) -> u32 {
        let relays = self.nodes.iter().zip(&self.of_nodes).zip(0..);
        let relays = relays.filter(|((_, node), _)| node.relays);
        let may = relays.filter(|((key, _), _)| state.members.is_allowed(key, &published.allow));
        let stream = Stream {
            publisher: self.index[&holder],
            parts: Vec::new(),
            relays: Some(may.map(|(_, at)| at).collect()),
        };
        self.of_streams.push(stream);
        let requested = requested.get(&published.stream).copied().unwrap_or_default();
        let layout = Layout::new(&published.tracks, requested);
        self.streams.push(PlannedStream { name: published.stream.clone(), layout });
        self.streams.len() as u32 - 1
    }

    /// Adds a subscription, and returns whether any of its preferences can be planned. Utilities are scaled so that
    /// the best one is 1; otherwise a member could outweigh others by its report.
    fn wish(
        &mut self,
        key: NodeId,
        stream: u32,
        (wanted, keeps_levels): (&Subscription, bool),
        is_held: bool,
        transcoders: &BTreeMap<Name, u8>,
    ) -> bool {
        let layout = &mut self.streams[stream as usize].layout;
        let best = wanted.preferences.iter().map(|one| one.utility).fold(0.0, f64::max);
        let (mut positions, mut preferences) = (Vec::new(), Vec::new());
        for (position, preference) in layout.choices(wanted, keeps_levels) {
            if let Some(parts) = layout.needs(&preference, transcoders) {
                positions.push(position);
                preferences.push(Preference { parts, utility: preference.utility / best });
            }
        }
        if preferences.is_empty() {
            return false;
        }
        self.subscribers.push(Subscriber {
            stream,
            node: self.index[&key],
            preferences,
            weight: wanted.weight,
            latency: wanted.latency,
            is_held,
        });
        let has_renditions = positions.iter().any(|position| position.track.is_some());
        self.wishes.push(PlannedSubscription {
            node: key,
            id: wanted.id,
            positions,
            has_renditions,
        });
        true
    }

    /// The legs that may serve a stream: from its publisher and relays to its subscribers and relays.
    fn all_ends(&self, state: &ReportState, now: Time) -> Vec<LegEnds> {
        let count = self.nodes.len();
        let mut is_needed = vec![false; count * count];
        let mut receivers = vec![Vec::new(); self.streams.len()];
        for subscriber in &self.subscribers {
            receivers[subscriber.stream as usize].push(subscriber.node);
        }
        for (stream, receivers) in self.of_streams.iter().zip(&receivers) {
            let relays = stream.relays.iter().flatten();
            for from in [stream.publisher].iter().chain(relays.clone()) {
                for to in receivers.iter().chain(relays.clone()) {
                    is_needed[*from as usize * count + *to as usize] |= from != to;
                }
            }
        }
        let is_reached = |key: &NodeId| {
            state.members.get(key).is_some_and(|member| !member.addresses.is_empty())
        };
        let needed = is_needed.iter().enumerate().filter(|(_, is)| **is);
        let ends = needed.map(|(at, _)| (self.nodes[at / count], self.nodes[at % count]));
        ends.filter(|ends| is_reached(&ends.0) && state.is_up(ends, now)).collect()
    }

    /// Builds the problem with the current estimates of its legs. `estimates` come from the measuring service's table.
    pub fn problem(
        &self,
        state: &ReportState,
        decided: &Decisions,
        estimates: &BTreeMap<LegEnds, LegEstimates>,
        now: Time,
    ) -> Result<Problem, ProblemError> {
        let legs = self.ends.iter().map(|ends| self.leg(state, *ends, estimates.get(ends), now));
        let (nodes, streams) = (self.of_nodes.clone(), self.of_streams.clone());
        let mut subscribers = self.subscribers.clone();
        weigh(&mut subscribers, &streams);
        let problem = Problem::new(nodes, legs.collect(), streams, subscribers, Terms::default())?;
        Ok(problem.with_present(self.present(state, decided)))
    }

    fn leg(
        &self,
        state: &ReportState,
        ends: LegEnds,
        found: Option<&LegEstimates>,
        now: Time,
    ) -> Leg {
        let (from, to) = (self.index[&ends.0], self.index[&ends.1]);
        let (known, rules) = (state.legs.get(&ends), &state.rules);
        let delay = known.and_then(|leg| leg.delay).unwrap_or(DELAY);
        let limit = known.and_then(|leg| leg.view.limit(leg.carries, now, rules));
        let is_unknown = known.is_none_or(|leg| leg.view.is_unknown(now, rules));
        let may_lift = known.is_some_and(|leg| leg.view.may_lift(now, rules));
        // Without streams and trains, TCP's throughput is the best estimate.
        match found.and_then(|found| found.rate).filter(|_| limit.is_none() && is_unknown) {
            Some((bps, age)) => {
                let limit = Some((bps.max(0.0) * OF_RATE) as u64);
                Leg { from, to, limit, is_unknown: false, may_lift: age <= rules.fresh, delay }
            }
            None => Leg { from, to, limit, is_unknown, may_lift, delay },
        }
    }

    /// The present configuration: the decisions, and where there are none, what members report.
    fn present(&self, state: &ReportState, decided: &Decisions) -> Configuration {
        let mut named = decided.configuration();
        for (node, reported) in &state.reported {
            for one in &reported.report.subscriptions {
                let gets =
                    one.gets.map(|preference| Position { preference, track: one.gets_track });
                if let (Some(position), None) = (gets, decided.choice(*node, one.id)) {
                    named.choices.insert((*node, one.id), position);
                }
            }
            for parent in &reported.report.parents {
                if let Some(key) = state.members.by_name(&parent.node) {
                    named.parents.push((parent.stream.clone(), *node, key));
                }
            }
        }
        self.indexed(&named)
    }

    /// Converts a configuration to names.
    pub fn named(&self, configuration: &Configuration) -> NamedConfiguration {
        let choices = self.wishes.iter().zip(&configuration.choices);
        let choices = choices.filter_map(|(wish, choice)| {
            Some(((wish.node, wish.id), wish.positions[usize::from((*choice)?)]))
        });
        let node = |at: &u32| self.nodes[*at as usize];
        let parents = self.streams.iter().zip(&configuration.parents);
        let parents = parents.flat_map(|(shown, parents)| {
            parents.iter().map(move |(of, parent)| (shown.name.clone(), node(of), node(parent)))
        });
        NamedConfiguration { choices: choices.collect(), parents: parents.collect() }
    }

    /// Converts names to a configuration, as far as they exist here. If a node has several parents, the first counts.
    pub fn indexed(&self, named: &NamedConfiguration) -> Configuration {
        let choice =
            |wish: &PlannedSubscription| wish.choice(*named.choices.get(&(wish.node, wish.id))?);
        let choices = self.wishes.iter().map(choice).collect();
        let streams: BTreeMap<&Name, usize> =
            self.streams.iter().enumerate().map(|(at, shown)| (&shown.name, at)).collect();
        let mut parents = vec![BTreeMap::new(); self.streams.len()];
        for (stream, node, parent) in &named.parents {
            let nodes = self.index.get(node).zip(self.index.get(parent));
            if let (Some(at), Some((node, parent))) = (streams.get(stream), nodes) {
                parents[*at].entry(*node).or_insert(*parent);
            }
        }
        Configuration { choices, parents }
    }
}

/// The most streams of a problem with so many nodes, by the bounds of its tables.
fn most_streams(nodes: usize) -> usize {
    thalweg_plan::streams::MAX_PLACES / nodes.max(1)
}

/// The stream that a member's subscription asks for and the member that holds its name, or why there is none.
fn requested_stream<'a>(
    state: &'a ReportState,
    key: &NodeId,
    wanted: &Subscription,
) -> Result<(NodeId, &'a Published), Reason> {
    let (holder, published) = state.published(&wanted.stream).ok_or(Reason::Unpublished)?;
    let may = holder == *key || state.members.is_allowed(key, &published.allow);
    may.then_some((holder, published)).ok_or(Reason::Forbidden)
}

/// At most `most` streams with subscribers: first one of each member, then a second one of each, and so on, so that a
/// member with many subscriptions takes none of the others' places.
fn planned_streams(state: &ReportState, most: usize) -> BTreeSet<&Name> {
    let of_member = |(key, reported): (&NodeId, &'_ LastReport)| {
        let all = reported.report.subscriptions.iter();
        let found = all.filter_map(|wanted| requested_stream(state, key, wanted).ok());
        let mut names: Vec<&Name> = Vec::new();
        for (_, published) in found {
            if !names.contains(&&published.stream) {
                names.push(&published.stream);
            }
        }
        names
    };
    let by_member: Vec<Vec<&Name>> = state.reported.iter().map(of_member).collect();
    let longest = by_member.iter().map(Vec::len).max().unwrap_or_default();
    let mut planned = BTreeSet::new();
    for rank in 0..longest {
        for name in by_member.iter().filter_map(|names| names.get(rank)) {
            if planned.len() >= most {
                return planned;
            }
            planned.insert(*name);
        }
    }
    planned
}

/// For each stream, the number of tracks that subscriptions mention.
fn requested_tracks(state: &ReportState) -> BTreeMap<&Name, usize> {
    let mut counts = BTreeMap::new();
    for wanted in state.reported.values().flat_map(|reported| &reported.report.subscriptions) {
        let tracks = wanted.preferences.iter().filter_map(|one| one.quality.track);
        let count = tracks.map(|track| usize::from(track) + 1).max().unwrap_or_default();
        let most = counts.entry(&wanted.stream).or_default();
        *most = count.max(*most);
    }
    counts
}

/// The numbers of all transcoders.
fn transcoders(state: &ReportState) -> BTreeMap<Name, u8> {
    let mut numbers = BTreeMap::new();
    for name in state.reported.values().flat_map(|reported| &reported.report.transcoders) {
        let next = numbers.len();
        if next < MOST_TRANSCODERS && !numbers.contains_key(name) {
            numbers.insert(name.clone(), next as u8);
        }
    }
    numbers
}

/// Scales weights so that none of a node's streams has more than 1. A mean would not do: with many streams that cost
/// nothing and weigh nothing, one could have any weight.
///
/// A node counts once a stream, at its best subscription: the one that asks for the highest rate. The others keep
/// [`FURTHER`] of the weight together, so that they are served where there is room.
fn weigh(subscribers: &mut [Subscriber], streams: &[Stream]) {
    let rate = |subscriber: &Subscriber| -> u64 {
        let parts = streams[subscriber.stream as usize].parts.iter().enumerate();
        let wanted = subscriber.preferences.first().map_or(0, |best| best.parts);
        parts.filter(|(at, _)| wanted & (1 << at) != 0).map(|(_, part)| part.bps).sum()
    };
    let mut by_node: BTreeMap<u32, BTreeMap<u32, Vec<usize>>> = BTreeMap::new();
    for (at, subscriber) in subscribers.iter().enumerate() {
        by_node.entry(subscriber.node).or_default().entry(subscriber.stream).or_default().push(at);
    }
    for of_streams in by_node.into_values() {
        let weight =
            |all: &[usize]| all.iter().map(|at| subscribers[*at].weight).fold(0.0, f64::max);
        let weights: Vec<f64> = of_streams.values().map(|all| weight(all)).collect();
        let scale = weights.iter().copied().fold(1.0, f64::max);
        for (all, weight) in of_streams.into_values().zip(weights) {
            let best = all.iter().rev().max_by_key(|at| rate(&subscribers[**at])).copied();
            let further = weight * FURTHER / (all.len() - 1).max(1) as f64;
            for at in all {
                let own = if Some(at) == best { weight } else { further };
                subscribers[at].weight = own / scale;
            }
        }
    }
}
