//! The node's link to the oracle: reports the node's streams and follows the oracle's plan.
//!
//! ```text
//! streams, legs, requests ─► report, each second and at once on news ─► oracle
//! adaptation, parents     ◄─ plan, by the reply or a long poll      ◄─┘
//! ```
//!
//! While no oracle answers, the last plan stays in force. In MGRP §3.1 the global scheduler is always reachable.

use crate::{
    Adapt, Measure, NoRoute, ParentRoute, Plan, Settings, Streams,
    oracle_plan::effective_plan,
    oracle_report::{LegSamples, shrink_to_bounds},
    stream::{Source, Stream},
};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use thalweg_base::log::Event;
use thalweg_mesh::OracleClient;
use thalweg_units::Rate;
use thalweg_wire::{
    mesh::Name,
    stream::{
        leg::{Level, SubscribeRequest, Track},
        plan::{
            self, MAX_AGE, MAX_LOST, MAX_MEASURED, Measured, NameHolder, Parent, Preference,
            Published, Reply, Report, Subscription,
        },
    },
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout_at},
};

/// The time between two reports.
const INTERVAL: Duration = Duration::from_secs(1);

/// The same for a relay that carries nothing; below a third of the protocol's silence.
const IDLE_INTERVAL: Duration = Duration::from_secs(4);

/// The least time between two reports.
const LEAST_INTERVAL: Duration = Duration::from_millis(30);

/// The pause after a failure; doubled by each further one.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause after a failure.
const MAX_FAILURE_PAUSE: Duration = Duration::from_secs(16);

/// How long the oracle keeps a request for a plan: below the idle times of most middleboxes.
const POLL: Duration = Duration::from_secs(20);

/// How long a publisher waits for the oracle to confirm a name before its frames are taken.
pub(crate) const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a subscriber without a parent waits for a plan if no oracle answers.
const ROUTE_TIMEOUT: Duration = Duration::from_secs(10);

/// The same if an oracle answers but has not decided yet.
const PLANNING_TIMEOUT: Duration = Duration::from_secs(60);

/// The same for another member's node, which gives up after 10 s. An oracle collects reports for 3 s after its
/// election.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(8);

/// A request for a stream, from a program of this host or from a member without a plan.
#[derive(Clone, Debug, PartialEq)]
struct PlanRequest {
    stream: Name,
    level: Level,
    tracks: Vec<u8>,
    latency: Duration,
}

/// The state of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// This node has no link: it does not use the oracle's plan.
    #[default]
    Off,
    /// Nothing has been reported yet.
    Waiting,
    /// The oracle answered the last report.
    Live,
    /// The last report failed.
    Down,
}

/// The last reply to a report.
#[derive(Clone, Debug, Default)]
struct LastReply {
    link_state: LinkState,
    /// The number of the report.
    number: u64,
    held: Vec<NameHolder>,
    refused: Vec<String>,
    /// The error of the last report; empty if it succeeded.
    why: String,
}

#[derive(Debug, Default)]
struct State {
    plan_requests: BTreeMap<u32, PlanRequest>,
    samples: LegSamples,
    measured: BTreeMap<Name, (Measured, Instant)>,
    /// Members to which there was no connection for a measurement since the last report.
    unreachable: BTreeSet<Name>,
    /// The plan in force, and when it was received.
    plan: Option<(plan::Plan, Instant)>,
    /// The number of the last report that was begun.
    number: u64,
    is_cut: bool,
}

/// The link to the oracle.
#[derive(Debug)]
pub(crate) struct OracleLink {
    state: Mutex<State>,
    /// Wakes the reporter before its interval ends.
    pub news: Arc<Notify>,
    replied: watch::Sender<LastReply>,
    /// Whether this node has anything to do with streams.
    is_active: watch::Sender<bool>,
}

impl Default for OracleLink {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            news: Arc::default(),
            replied: watch::channel(LastReply::default()).0,
            is_active: watch::channel(false).0,
        }
    }
}

/// A registered [`PlanRequest`]; removed on drop.
pub(crate) struct PlanRequestGuard {
    streams: Streams,
    id: u32,
}

impl Drop for PlanRequestGuard {
    fn drop(&mut self) {
        self.streams.0.link.lock().plan_requests.remove(&self.id);
        self.streams.0.link.news.notify_one();
    }
}

impl OracleLink {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The link's state.
    pub fn link_state(&self) -> LinkState {
        self.replied.borrow().link_state
    }

    /// Whether an answer of an oracle can be expected.
    fn may_answer(&self) -> bool {
        matches!(self.link_state(), LinkState::Waiting | LinkState::Live)
    }

    /// Records the free rate on the leg to a member, bit/s, as measured by probe trains.
    pub fn add_measurement(&self, to: &Name, free: f64, at_least: bool, took: Duration) {
        let free_bps = free.max(0.0) as u64;
        let found = Measured { free_bps, at_least, took, age: Duration::ZERO };
        self.lock().measured.insert(to.clone(), (found, Instant::now()));
        self.news.notify_one();
    }

    /// Records that there is no connection to a member.
    pub fn add_unreachable(&self, to: &Name) {
        self.lock().unreachable.insert(to.clone());
        self.news.notify_one();
    }

    /// The link's state, for the status report.
    pub fn report(&self) -> Value {
        let replied = self.replied.borrow().clone();
        let state = self.lock();
        let plan = state.plan.as_ref();
        let link_state = match replied.link_state {
            LinkState::Off => "off",
            LinkState::Waiting => "waiting",
            LinkState::Live => "live",
            LinkState::Down => "down",
        };
        json!({
            "standing": link_state,
            "reports": replied.number,
            "why": replied.why,
            "refused": replied.refused,
            "held": replied.held,
            "plan": plan.map(|(plan, _)| plan),
            "plan_age_s": plan.map(|(_, came)| came.elapsed().as_secs_f64()),
        })
    }
}

impl Streams {
    /// Reports to the oracle and follows its plan; runs until the future is dropped.
    pub async fn follow_oracle(self, client: OracleClient) {
        self.0.link.replied.send_modify(|replied| replied.link_state = LinkState::Waiting);
        tokio::join!(self.keep_reporting(client.beside()), self.keep_polling(client));
    }

    async fn keep_reporting(&self, client: OracleClient) {
        let (mut pause, mut was_active) = (FAILURE_PAUSE, false);
        loop {
            let (number, report) = self.make_report();
            let is_active = is_active(&report);
            self.0.link.is_active.send_replace(is_active || report.relays);
            if !(is_active || was_active || report.relays) {
                self.0.link.news.notified().await;
                continue;
            }
            let began = Instant::now();
            match client.report_streams(&report).await {
                Ok(reply) => {
                    self.take_reply(number, reply);
                    pause = FAILURE_PAUSE;
                }
                Err(why) => {
                    self.record_failure(why.to_string());
                    sleep(pause).await;
                    pause = (pause * 2).min(MAX_FAILURE_PAUSE);
                    continue;
                }
            }
            was_active = is_active;
            if is_active || report.relays {
                let interval = if is_active { INTERVAL } else { IDLE_INTERVAL };
                // The next report is due after the interval, or earlier if there is news.
                _ = timeout_at(began + interval, self.0.link.news.notified()).await;
            }
            sleep(LEAST_INTERVAL.saturating_sub(began.elapsed())).await;
        }
    }

    /// Waits for newer plans, while this node has anything to do with streams.
    async fn keep_polling(&self, client: OracleClient) {
        let mut active = self.0.link.is_active.subscribe();
        loop {
            if active.wait_for(|active| *active).await.is_err() {
                return;
            }
            let after = self.plan_version();
            let polled = tokio::select! {
                polled = client.stream_plan(after, POLL) => polled,
                _ = active.wait_for(|active| !*active) => continue,
            };
            match polled {
                Ok(Some(plan)) => {
                    // An oracle whose clock is behind answers at once with a plan that is older than the one here.
                    if !self.adopt(plan) {
                        sleep(FAILURE_PAUSE).await;
                    }
                }
                Ok(None) => {}
                Err(_) => sleep(FAILURE_PAUSE).await,
            }
        }
    }

    fn plan_version(&self) -> u64 {
        self.0.link.lock().plan.as_ref().map_or(0, |(plan, _)| plan.version)
    }

    /// Makes the next report, and returns its number.
    fn make_report(&self) -> (u64, Report) {
        let (status, streams) = (self.status(), self.all());
        let settings = self.0.settings.get();
        let mut state = self.0.link.lock();
        state.number += 1;
        state.samples.add(Instant::now(), &status);
        let aged = |(to, (found, at)): (Name, (Measured, Instant))| {
            (to, Measured { age: at.elapsed(), ..found })
        };
        let measured = std::mem::take(&mut state.measured).into_iter().map(aged);
        let measured = measured.filter(|(_, found)| found.age < plan::SILENCE).collect();
        let unreachable = std::mem::take(&mut state.unreachable);
        let lost: BTreeSet<Name> = streams.iter().flat_map(|stream| stream.take_lost()).collect();
        let lost = lost.into_iter().take(MAX_LOST).collect();
        let mut report = Report {
            version: state.plan.as_ref().map_or(0, |(plan, _)| plan.version),
            published: streams.iter().filter_map(|stream| self.published(stream)).collect(),
            subscriptions: subscriptions(&state),
            parents: streams.iter().filter_map(reported_parent).collect(),
            legs: state.samples.reports(measured, unreachable),
            lost,
            ..settings_report(&settings)
        };
        let is_cut = shrink_to_bounds(&mut report);
        if is_cut && !state.is_cut {
            self.0.log.put(Event::new("stream_report_cut"));
        }
        state.is_cut = is_cut;
        (state.number, report)
    }

    fn published(&self, stream: &Stream) -> Option<Published> {
        let (about, progress) = (stream.about(), stream.progress().borrow().clone());
        if about.origin != *self.me() || progress.run == 0 || progress.ended.is_some() {
            return None;
        }
        let mut tracks = about.tracks;
        if tracks.is_empty() {
            tracks.push(Track::default());
        }
        // A publisher may declare any rate; the oracle would refuse the whole report.
        let rates = tracks.iter_mut().flat_map(|track| &mut track.rates);
        rates.for_each(|bps| *bps = (*bps).min(plan::MAX_BPS));
        let age = stream.published_for().min(MAX_AGE);
        Some(Published { stream: stream.name.clone(), tracks, allow: about.allow, age })
    }

    fn take_reply(&self, number: u64, reply: Reply) {
        let Reply { plan, held, mut measure, refused, .. } = reply;
        measure.truncate(MAX_MEASURED);
        let link = &self.0.link;
        let known = link.replied.borrow().held.clone();
        for NameHolder { stream, node } in held.iter().filter(|holder| !known.contains(holder)) {
            let event = Event::new("stream_name_held").with("stream", stream);
            self.0.log.put(event.with("by", node));
        }
        let is_back = link.link_state() == LinkState::Down;
        let is_other = link.replied.borrow().refused != refused;
        if is_back || (is_other && !refused.is_empty()) {
            let event = Event::new("stream_oracle").with("standing", "live");
            self.0.log.put(event.with("refused", refused.join("; ")));
        }
        if let Some(plan) = plan {
            self.adopt(plan);
        }
        self.0.adaptation.set_requested(measure);
        let (link_state, why) = (LinkState::Live, String::new());
        link.replied.send_replace(LastReply { link_state, number, held, refused, why });
    }

    fn record_failure(&self, why: String) {
        let link = &self.0.link;
        if link.link_state() != LinkState::Down {
            let event = Event::new("stream_oracle").with("standing", "down");
            self.0.log.put(event.with("why", &why));
        }
        self.0.adaptation.set_requested(Vec::new());
        link.replied
            .send_modify(|replied| (replied.link_state, replied.why) = (LinkState::Down, why));
    }

    /// Applies a plan if it is newer than the present one, and returns whether it is.
    fn adopt(&self, plan: plan::Plan) -> bool {
        let mut state = self.0.link.lock();
        if state.plan.as_ref().is_some_and(|(old, _)| old.version >= plan.version) {
            return false;
        }
        let keeps_levels = self.0.settings.get().adapt == Adapt::Levels;
        let effective = effective_plan(&plan, keeps_levels);
        state.plan = Some((plan, Instant::now()));
        drop(state);
        self.0.log.put(Event::new("stream_plan").with_number("version", effective.version));
        self.set_plan(effective);
        true
    }

    /// Requests a plan for a stream that a program of this host, or a member for which this node relays, requests.
    pub(crate) fn request_plan(&self, id: u32, request: &SubscribeRequest) -> PlanRequestGuard {
        let plan_request = PlanRequest {
            stream: request.stream.clone(),
            level: request.level,
            tracks: request.tracks.clone(),
            latency: Duration::from_millis(request.latency_ms.into()),
        };
        self.0.link.lock().plan_requests.insert(id, plan_request);
        self.0.link.news.notify_one();
        PlanRequestGuard { streams: self.clone(), id }
    }

    /// Waits for the oracle's answer about a name that is newly published here. Returns the other member that holds the
    /// name; `None` if there is none or no oracle answers. Not for streams that run already: they keep running.
    pub(crate) async fn holder_elsewhere(&self, name: &Name) -> Option<Name> {
        let link = &self.0.link;
        if !link.may_answer() {
            return None;
        }
        let before = link.lock().number;
        link.news.notify_one();
        let mut replied = link.replied.subscribe();
        let answered = replied
            .wait_for(|replied| replied.number > before || replied.link_state == LinkState::Down);
        let replied = answered.await.ok()?;
        if replied.number <= before {
            return None;
        }
        let held = replied.held.iter().find(|holder| holder.stream == *name);
        held.map(|holder| holder.node.clone())
    }

    /// Waits until the plan names a parent for the stream, or a reason why the plan request `id` gets none. `is_local`:
    /// the request is from a program of this host, which gets notices while it waits.
    pub(crate) async fn planned_route(
        &self,
        name: &Name,
        id: u32,
        is_local: bool,
    ) -> Result<ParentRoute, NoRoute> {
        if !self.0.link.may_answer() {
            return Err(NoRoute::Unknown);
        }
        let mut plan = self.plan();
        let answer = |plan: &Arc<Plan>| {
            let stream = plan.streams.get(name)?;
            if let Some(parent) = &stream.parent {
                return Some(Ok(parent.clone()));
            }
            stream.failures.get(&id).copied().map(Err)
        };
        let began = Instant::now();
        let first = if is_local { ROUTE_TIMEOUT } else { MEMBER_TIMEOUT };
        let mut until = began + first;
        loop {
            let answered = plan.wait_for(|plan| answer(plan).is_some());
            if let Ok(Ok(plan)) = timeout_at(until, answered).await {
                return answer(&plan).unwrap_or(Err(NoRoute::Unknown));
            }
            if self.0.link.link_state() != LinkState::Live {
                return Err(NoRoute::Unknown);
            }
            if !is_local || began.elapsed() >= PLANNING_TIMEOUT {
                return Err(NoRoute::Undecided);
            }
            until += INTERVAL;
        }
    }
}

/// Whether the node publishes, requests or carries a stream, or has a measurement to report.
fn is_active(report: &Report) -> bool {
    !(report.published.is_empty()
        && report.subscriptions.is_empty()
        && report.parents.is_empty()
        && report.legs.is_empty())
}

/// A report of the settings that the oracle needs, without streams.
fn settings_report(settings: &Settings) -> Report {
    Report {
        relays: settings.relay,
        egress_bps: settings.egress.map(Rate::as_bps),
        measures: settings.measure != Measure::Off,
        keeps_levels: settings.adapt == Adapt::Levels,
        ..Report::default()
    }
}

fn reported_parent(stream: &Arc<Stream>) -> Option<Parent> {
    match stream.source() {
        Source::Parent(ParentRoute { node, .. }) => {
            let origin = Some(stream.about().origin);
            Some(Parent { stream: stream.name.clone(), node, origin })
        }
        Source::Absent | Source::Publisher(_) => None,
    }
}

/// The requests of this host's programs and of members without a plan, with their decisions in the current plan.
fn subscriptions(state: &State) -> Vec<Subscription> {
    let plan = state.plan.as_ref();
    let streams = || plan.into_iter().flat_map(|(plan, _)| &plan.streams);
    let given: BTreeMap<u32, &plan::SubscriptionDecision> =
        streams().flat_map(|stream| &stream.subscriptions).map(|given| (given.id, given)).collect();
    let subscription = |(id, plan_request): (&u32, &PlanRequest)| {
        let lower = Preference::defaults()
            .into_iter()
            .filter(|one| one.quality.level <= plan_request.level);
        let track =
            crate::stream::requested_quality(plan_request.level, &plan_request.tracks).track;
        let quality = |level| plan::Quality { track, level };
        let tracks =
            if plan_request.tracks.len() > 1 { plan_request.tracks.clone() } else { Vec::new() };
        Subscription {
            id: *id,
            stream: plan_request.stream.clone(),
            preferences: lower
                .map(|one| Preference { quality: quality(one.quality.level), ..one })
                .collect(),
            weight: 1.0,
            latency: plan_request.latency,
            tracks,
            gets: given.get(id).and_then(|given| given.preference),
            gets_track: given.get(id).and_then(|given| given.track),
        }
    };
    state.plan_requests.iter().map(subscription).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn the_oracle_hears_what_a_node_can_send() {
        let egress = Some(Rate::from_bps(20_000_000));
        let report = settings_report(&Settings { egress, relay: true, ..Settings::default() });
        assert_eq!((report.egress_bps, report.relays), (Some(20_000_000), true));
        assert_eq!(settings_report(&Settings::default()).egress_bps, None);
    }

    #[test]
    fn a_program_prefers_its_level_and_takes_lower_ones() {
        let plan_request = PlanRequest {
            stream: name("stage"),
            level: Level::NoDisposable,
            tracks: vec![2],
            latency: Duration::from_secs(1),
        };
        let auto = PlanRequest { tracks: vec![0, 1, 2], ..plan_request.clone() };
        let state =
            State { plan_requests: [(5, plan_request), (6, auto)].into(), ..State::default() };
        let wanted = &subscriptions(&state)[0];
        let levels: Vec<_> = wanted.preferences.iter().map(|one| one.quality).collect();
        let of = |level| plan::Quality { track: Some(2), level };
        assert_eq!(levels, [of(Level::NoDisposable), of(Level::Keys)]);
        assert_eq!((wanted.id, wanted.gets, wanted.tracks.len()), (5, None, 0));
        let any = &subscriptions(&state)[1];
        assert_eq!((any.preferences[0].quality.track, &any.tracks[..]), (None, &[0, 1, 2][..]));
    }
}
