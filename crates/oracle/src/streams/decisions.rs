//! The decisions for each member, with time and reason.

use super::{
    layout::Position,
    outline::{NamedConfiguration, Outline},
    state::{LegEnds, ReportState},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use thalweg_plan::streams::{HoldDown, Parts, Planned, Problem, Rules, Source};
use thalweg_units::{NodeId, Time};
use thalweg_wire::{
    mesh::Name,
    stream::plan::{
        Child, Estimate, Explanation, Plan, Reason, Report, StreamPlan, SubscriptionDecision,
    },
};

/// The longest route.
const MOST_LEGS: usize = 8;

/// The decision for one subscription. `why.since` is an absolute time here; it becomes an age when a plan is sent.
#[derive(Clone, Debug, PartialEq)]
struct SubscriptionChoice {
    stream: Name,
    /// The position among its preferences; `None`: it gets nothing.
    position: Option<Position>,
    /// Whether no other choice is better.
    is_best: bool,
    parent: Option<NodeId>,
    why: Explanation,
    hold: HoldDown,
}

/// The decision for one leg of a stream.
#[derive(Clone, Debug, PartialEq)]
struct StreamFlow {
    from: NodeId,
    parts: Parts,
    bps: u64,
    why: Explanation,
}

/// The present decisions.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    /// The last version given to a plan.
    version: u64,
    /// The version at the start; reports may raise the version only to a limit above it.
    first: u64,
    choices: BTreeMap<(NodeId, u32), SubscriptionChoice>,
    flows: BTreeMap<(Name, NodeId), StreamFlow>,
    plans: BTreeMap<NodeId, Plan>,
}

impl Decisions {
    /// Creates an empty set of decisions with versions above this one.
    pub fn from_version(version: u64) -> Self {
        Self { version, first: version, ..Self::default() }
    }

    /// Handles the version that a member follows. If it is higher than ours, because the clock of an earlier oracle
    /// was ahead, our versions continue above it and the member's plan gets a new one: nodes ignore lower versions.
    /// Versions more than `most` above the first one are ignored.
    pub fn exceed(&mut self, node: &NodeId, followed: u64, most: u64) {
        if followed > self.version.max(self.first.saturating_add(most)) {
            return;
        }
        self.version = self.version.max(followed);
        if let Some(plan) = self.plans.get_mut(node).filter(|plan| plan.version < followed) {
            self.version += 1;
            plan.version = self.version;
        }
    }

    /// The chosen preference of a subscription; the outer `None`: it is not planned yet.
    pub fn choice(&self, node: NodeId, id: u32) -> Option<Option<Position>> {
        self.choices.get(&(node, id)).map(|choice| choice.position)
    }

    /// Whether each of these subscriptions has a decision.
    pub fn has_all(&self, node: NodeId, report: &Report) -> bool {
        report.subscriptions.iter().all(|one| self.choices.contains_key(&(node, one.id)))
    }

    /// The stream, node and parent of all legs.
    pub fn parents(&self) -> impl Iterator<Item = (&Name, &NodeId, &NodeId)> {
        self.flows.iter().map(|((stream, node), flow)| (stream, node, &flow.from))
    }

    /// Whether a subscription was lowered so recently that it may not be raised yet.
    pub fn is_held(&self, node: NodeId, id: u32, now: Time, rules: &Rules) -> bool {
        self.choices.get(&(node, id)).is_some_and(|choice| choice.hold.is_held(now, rules))
    }

    /// Whether some subscription gets less than its best preference.
    pub fn is_degraded(&self) -> bool {
        self.choices.values().any(|choice| {
            let is_vain = matches!(choice.why.reason, Reason::Unpublished | Reason::Forbidden);
            !is_vain && !choice.is_best
        })
    }

    /// The decisions as a configuration by names.
    pub fn configuration(&self) -> NamedConfiguration {
        let choices = self.choices.iter();
        NamedConfiguration {
            choices: choices.filter_map(|(key, choice)| Some((*key, choice.position?))).collect(),
            parents: self
                .parents()
                .map(|(stream, node, parent)| (stream.clone(), *node, *parent))
                .collect(),
        }
    }

    /// Forgets the decisions about a member's subscriptions that no longer exist.
    pub fn forget(&mut self, node: NodeId, is_still: impl Fn(u32) -> bool) {
        self.choices.retain(|(of, id), _| *of != node || is_still(*id));
    }

    /// The member's plan, unless its version is `but`.
    pub fn plan(&self, node: &NodeId, but: u64, now: Time) -> Option<Plan> {
        let mut plan = self.plans.get(node).filter(|plan| plan.version != but)?.clone();
        for stream in &mut plan.streams {
            let children = stream.children.iter_mut().map(|child| &mut child.why);
            let whys = children.chain(stream.subscriptions.iter_mut().map(|given| &mut given.why));
            whys.for_each(|why| why.since = now.since(date(why)));
        }
        Some(plan)
    }

    /// The version of the member's plan; 0 if it has none.
    pub fn version(&self, node: &NodeId) -> u64 {
        self.plans.get(node).map_or(0, |plan| plan.version)
    }

    /// Applies a plan. Refuses only those new subscriptions without room that the search included (`searched`), because
    /// a search may find room for the others. Returns whether the plan of any member changed.
    pub fn apply(
        &mut self,
        outline: &Outline,
        problem: &Problem,
        (planned, searched): (&Planned, &BTreeSet<(NodeId, u32)>),
        state: &mut ReportState,
        now: Time,
    ) -> bool {
        let new = NextPlan { outline, problem, planned, searched, state, now };
        let choices = new.choices(&self.choices);
        let flows = new.flows(&self.flows);
        let plans = new.plans(&choices, &flows);
        let changed = changed_legs(&self.flows, &flows);
        (self.choices, self.flows) = (choices, flows);
        carry(outline, planned, &changed, state, now);
        self.renew(plans)
    }

    fn renew(&mut self, plans: BTreeMap<NodeId, Vec<StreamPlan>>) -> bool {
        self.plans.retain(|node, _| plans.contains_key(node));
        let mut is_changed = false;
        for (node, streams) in plans {
            let old = self.plans.get(&node);
            let is_same = old.map_or(streams.is_empty(), |old| old.streams == streams);
            if !is_same {
                self.version += 1;
                self.plans.insert(node, Plan { version: self.version, streams });
                is_changed = true;
            }
        }
        is_changed
    }
}

fn date(why: &Explanation) -> Time {
    Time::from_nanos(why.since.as_nanos() as u64)
}

/// The legs over which other parts of streams are sent than before. A different load alone is no change, because the
/// rates of real video vary all the time.
fn changed_legs(
    old: &BTreeMap<(Name, NodeId), StreamFlow>,
    new: &BTreeMap<(Name, NodeId), StreamFlow>,
) -> BTreeSet<LegEnds> {
    let of = |flow: Option<&StreamFlow>| flow.map(|flow| (flow.from, flow.parts));
    let keys = old.keys().chain(new.keys());
    let changed = keys.filter(|key| of(old.get(key)) != of(new.get(key)));
    let legs = changed.flat_map(|key| {
        let flows = [old.get(key), new.get(key)].into_iter().flatten();
        flows.map(|flow| (flow.from, key.1))
    });
    legs.collect()
}

/// Records the load of each leg and which legs have changed, so that reports of changed legs are ignored for a while.
fn carry(
    outline: &Outline,
    planned: &Planned,
    changed: &BTreeSet<LegEnds>,
    state: &mut ReportState,
    now: Time,
) {
    let loads = outline.ends.iter().copied().zip(planned.flows.loads.iter().copied());
    let loads: BTreeMap<LegEnds, u64> = loads.filter(|(_, load)| *load > 0).collect();
    for (ends, leg) in &mut state.legs {
        leg.carries = loads.get(ends).copied().unwrap_or_default();
        if changed.contains(ends) {
            leg.view.changed(now);
        }
    }
    for (ends, load) in loads {
        if !state.legs.contains_key(&ends)
            && let Some(leg) = state.leg_entry(ends)
        {
            leg.carries = load;
            leg.view.changed(now);
        }
    }
}

/// A plan before it is applied.
struct NextPlan<'a> {
    outline: &'a Outline,
    problem: &'a Problem,
    planned: &'a Planned,
    searched: &'a BTreeSet<(NodeId, u32)>,
    state: &'a ReportState,
    now: Time,
}

impl NextPlan<'_> {
    fn why(&self, reason: Reason, leg: Option<LegEnds>) -> Explanation {
        let name = |key: &NodeId| self.state.members.name(key).cloned();
        let known = leg
            .and_then(|ends| self.state.legs.get(&ends)?.view.known(self.now, &self.state.rules));
        let estimate = known.map(|known| Estimate {
            bps: known.bps,
            is_measured: known.source == Source::Active,
            age: self.now.since(known.at),
        });
        let leg = leg.and_then(|(from, to)| name(&from).zip(name(&to)));
        Explanation { reason, leg, estimate, since: Duration::from_nanos(self.now.as_nanos()) }
    }

    /// The leg with the least room on the route to a subscriber.
    fn tightest(&self, who: usize) -> Option<LegEnds> {
        let subscriber = &self.problem.subscribers()[who];
        let publisher = self.problem.streams()[subscriber.stream as usize].publisher;
        let parents = &self.planned.configuration.parents[subscriber.stream as usize];
        let way = std::iter::successors(Some(subscriber.node), |at| parents.get(at).copied());
        let way: Vec<u32> = way.take(MOST_LEGS + 1).collect();
        let way = if way.len() > 1 { way } else { vec![subscriber.node, publisher] };
        let legs = way.windows(2).filter_map(|ends| self.problem.leg_of(ends[1], ends[0]));
        let room = |leg: u32| {
            let limit = self.problem.legs()[leg as usize].limit?;
            Some((limit.saturating_sub(self.planned.flows.loads[leg as usize]), leg))
        };
        let (_, leg) = legs.filter_map(room).min()?;
        self.outline.ends.get(leg as usize).copied()
    }

    fn choices(
        &self,
        old: &BTreeMap<(NodeId, u32), SubscriptionChoice>,
    ) -> BTreeMap<(NodeId, u32), SubscriptionChoice> {
        let mut choices = BTreeMap::new();
        for (who, wish) in self.outline.wishes.iter().enumerate() {
            let subscriber = &self.problem.subscribers()[who];
            let shown = &self.outline.streams[subscriber.stream as usize];
            let choice = self.planned.configuration.choices[who];
            let is_best = choice == Some(0);
            let position = choice.map(|choice| wish.positions[usize::from(choice)]);
            let parents = &self.planned.configuration.parents[subscriber.stream as usize];
            let parent = parents.get(&subscriber.node).filter(|_| choice.is_some());
            let parent = parent.map(|parent| self.outline.nodes[*parent as usize]);
            let key = (wish.node, wish.id);
            let old = old.get(&key).filter(|old| old.stream == shown.name);
            if position.is_none() && old.is_none() && !self.searched.contains(&key) {
                continue;
            }
            let mut hold = old.map(|old| old.hold).unwrap_or_default();
            let kept = old.filter(|old| old.position == position && old.parent == parent);
            let why = match kept {
                // The same decision may have another reason now.
                Some(old) if position.is_some() || old.why.reason == Reason::Full => {
                    old.why.clone()
                }
                _ => {
                    let worth = |position: Option<Position>| {
                        let at = wish.positions.iter().position(|other| Some(*other) == position);
                        at.map_or(0.0, |at| subscriber.preferences[at].utility)
                    };
                    let was = old.filter(|old| old.position.is_some());
                    let reason = match was {
                        _ if position.is_none() => Reason::Full,
                        None => Reason::Begun,
                        Some(was) if worth(position) < worth(was.position) => Reason::Lowered,
                        Some(was) if worth(position) > worth(was.position) => Reason::Raised,
                        Some(_) => Reason::Rerouted,
                    };
                    match reason {
                        Reason::Lowered => hold.lowered(self.now, &self.state.rules),
                        Reason::Raised => hold.raised(self.now),
                        _ => {}
                    }
                    self.why(reason, self.tightest(who))
                }
            };
            let stream = shown.name.clone();
            choices
                .insert(key, SubscriptionChoice { stream, position, is_best, parent, why, hold });
        }
        for (node, id, reason) in &self.outline.unplanned {
            let (key, parent) = ((*node, *id), None);
            let Some(stream) = self.wanted(*node, *id) else { continue };
            let kept =
                old.get(&key).filter(|old| old.stream == stream && old.why.reason == *reason);
            let why = kept.map_or_else(|| self.why(*reason, None), |old| old.why.clone());
            let hold = kept.map(|old| old.hold).unwrap_or_default();
            let (position, is_best) = (None, false);
            choices
                .insert(key, SubscriptionChoice { stream, position, is_best, parent, why, hold });
        }
        choices
    }

    fn wanted(&self, node: NodeId, id: u32) -> Option<Name> {
        let all = &self.state.reported.get(&node)?.report.subscriptions;
        all.iter().find(|one| one.id == id).map(|one| one.stream.clone())
    }

    fn flows(
        &self,
        old: &BTreeMap<(Name, NodeId), StreamFlow>,
    ) -> BTreeMap<(Name, NodeId), StreamFlow> {
        let mut flows = BTreeMap::new();
        for ((stream, to), flow) in &self.planned.flows.by_place {
            let of = &self.problem.streams()[*stream as usize].parts;
            let parts = (0..of.len()).filter(|part| flow.parts & (1 << part) != 0);
            let bps = parts.map(|part| of[part].bps).sum();
            let (from, to) =
                (self.outline.nodes[flow.parent as usize], self.outline.nodes[*to as usize]);
            let key = (self.outline.streams[*stream as usize].name.clone(), to);
            let why = match old.get(&key) {
                Some(old) if old.from == from && old.parts == flow.parts => old.why.clone(),
                other => {
                    let reason = match other {
                        None => Reason::Begun,
                        Some(old) if old.from != from => Reason::Rerouted,
                        Some(old) if old.bps > bps => Reason::Lowered,
                        Some(_) => Reason::Raised,
                    };
                    self.why(reason, Some((from, to)))
                }
            };
            flows.insert(key, StreamFlow { from, parts: flow.parts, bps, why });
        }
        flows
    }

    /// The plan of each member.
    fn plans(
        &self,
        choices: &BTreeMap<(NodeId, u32), SubscriptionChoice>,
        flows: &BTreeMap<(Name, NodeId), StreamFlow>,
    ) -> BTreeMap<NodeId, Vec<StreamPlan>> {
        let mut plans: BTreeMap<NodeId, BTreeMap<Name, StreamPlan>> =
            self.state.reported.keys().map(|node| (*node, BTreeMap::new())).collect();
        let name = |node: &NodeId| self.state.members.name(node).cloned();
        let layouts: BTreeMap<&Name, _> =
            self.outline.streams.iter().map(|shown| (&shown.name, &shown.layout)).collect();
        for ((stream, to), flow) in flows {
            if let Some(plan) = self.stream_of(&mut plans, to, stream) {
                plan.parent = name(&flow.from);
            }
            let (Some(layout), Some(node)) = (layouts.get(stream), name(to)) else { continue };
            if let Some(plan) = self.stream_of(&mut plans, &flow.from, stream) {
                let (qualities, transcoded) = layout.describe(flow.parts);
                plan.children.push(Child { node, qualities, transcoded, why: flow.why.clone() });
            }
        }
        for made in &self.planned.flows.transcodings {
            let shown = &self.outline.streams[made.stream as usize];
            let node = &self.outline.nodes[made.node as usize];
            let transcoder = shown.layout.transcoder(made.part).cloned();
            if let Some(plan) = self.stream_of(&mut plans, node, &shown.name) {
                plan.transcoders.extend(transcoder);
            }
        }
        for ((node, id), choice) in choices {
            if let Some(plan) = self.stream_of(&mut plans, node, &choice.stream) {
                let (position, why) = (choice.position, choice.why.clone());
                let preference = position.map(|position| position.preference);
                let track = position.and_then(|position| position.track);
                plan.subscriptions.push(SubscriptionDecision { id: *id, preference, track, why });
            }
        }
        let listed =
            |(node, streams): (NodeId, BTreeMap<_, _>)| (node, streams.into_values().collect());
        plans.into_iter().map(listed).collect()
    }

    /// A member's part in a stream; `None` if the member has just left.
    fn stream_of<'p>(
        &self,
        plans: &'p mut BTreeMap<NodeId, BTreeMap<Name, StreamPlan>>,
        node: &NodeId,
        stream: &Name,
    ) -> Option<&'p mut StreamPlan> {
        let holder = self.state.holders.get(stream);
        let origin = holder.and_then(|holder| self.state.members.name(holder).cloned());
        let new = || StreamPlan {
            stream: stream.clone(),
            origin,
            parent: None,
            transcoders: Vec::new(),
            children: Vec::new(),
            subscriptions: Vec::new(),
        };
        Some(plans.get_mut(node)?.entry(stream.clone()).or_insert_with(new))
    }
}
