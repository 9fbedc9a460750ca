//! Receives a stream from its parent: opens the leg, follows the plan to other parents, and tries again after a loss.

use crate::{
    Chains, ParentRoute, Plan, Stream, Streams,
    child::follow,
    hub::stopping_ending,
    io::{Leg, duplicate},
    oracle_link::LinkState,
    slots::Slot,
    stream::Source,
};
use std::{io, pin::pin, sync::Arc, time::Duration};
use thalweg_base::log::Event;
use thalweg_net::channel::{Channel, Protocol};
use thalweg_wire::stream::leg::{Accepted, Answer, Ending, Opening, Refusal, SubscribeRequest};
use tokio::{sync::watch, time::timeout};

/// The delay between two attempts to reach a parent.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Opening a leg takes four round trips; a parent that has not answered by now may be dead.
const SLOW_OPENING: Duration = Duration::from_secs(1);

/// How often a lost parent is tried again before the stream ends.
const MAX_RETRIES: u32 = 20;

/// Receives a stream from another node.
struct Upstream {
    hub: Streams,
    stream: Arc<Stream>,
    route: ParentRoute,
    chains: Chains,
    /// The refusal, if the parent could not be reached.
    refusal: watch::Sender<Option<Refusal>>,
    /// The slot of the member that requested it.
    _slot: Slot,
}

/// A leg to a parent that has accepted the request.
struct OpenLeg {
    leg: Leg,
    accepted: Accepted,
    route: ParentRoute,
}

/// How following a leg ended.
enum LegOutcome {
    /// The leg ended; `None`: nobody subscribes any more.
    Ended(io::Result<Option<Ending>>),
    /// The plan names another parent, to which there is a leg already.
    Moved(Box<OpenLeg>),
}

/// The parent to try next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextParent {
    /// The planned parent, or the last one if the plan names none.
    Planned,
    /// The publisher's node, if no oracle answers.
    Origin,
}

/// The attempts to receive the stream since its last frame.
#[derive(Debug)]
struct Attempts {
    failures: u32,
    next: NextParent,
}

impl Attempts {
    fn new() -> Self {
        Self { failures: 0, next: NextParent::Planned }
    }

    /// Records a failure. The next attempt goes to the other one of the two parents.
    fn fail(&mut self) {
        self.failures += 1;
        self.next = match self.next {
            NextParent::Planned => NextParent::Origin,
            NextParent::Origin => NextParent::Planned,
        };
    }
}

/// Begins to receive a stream by this route, until it ends or nobody subscribes to it any more. The returned receiver
/// gets the refusal if the parent cannot be reached.
pub(crate) fn start(
    hub: Streams,
    stream: Arc<Stream>,
    route: ParentRoute,
    slot: Slot,
    request: &SubscribeRequest,
) -> watch::Receiver<Option<Refusal>> {
    let (refusal, answer) = watch::channel(None);
    let upstream = Upstream { hub, stream, route, chains: Chains::default(), refusal, _slot: slot };
    tokio::spawn(upstream.run(request.clone()));
    answer
}

impl Upstream {
    /// Runs until the stream ends or nobody subscribes to it any more.
    async fn run(mut self, request: SubscribeRequest) {
        let hub = self.hub.clone();
        let end = hub.0.end.clone();
        let ended = tokio::select! {
            // The children may find another parent.
            () = end.cancelled() => stopping_ending(),
            ended = self.keep_following(request) => ended,
        };
        self.stream.set_lost(None);
        hub.0.streams.end_relayed(&self.stream, ended);
    }

    /// Opens legs to the planned parent, again after each loss, until the stream ends.
    async fn keep_following(&mut self, mut request: SubscribeRequest) -> Ending {
        request.hops += 1;
        let (mut attempts, mut next) = (Attempts::new(), None);
        loop {
            let opened = match next.take() {
                Some(opened) => Ok(opened),
                None => self.open(&request).await,
            };
            let OpenLeg { leg, accepted, route } = match opened {
                Ok(opened) => opened,
                Err(why) => {
                    attempts.fail();
                    if !self.may_retry(&why, attempts.failures) {
                        self.refusal.send_replace(Some(why.clone()));
                        return Ending::Failed(why.to_string());
                    }
                    self.stream.set_lost(Some(self.route.node.clone()));
                    self.wait_for_another_parent().await;
                    self.update(&mut request, attempts.next);
                    continue;
                }
            };
            self.route = route;
            let start = accepted.start;
            let is_new = self.stream.progress().borrow().run == 0;
            let is_continued =
                |(run, last): (u64, u64)| run == accepted.run && last.checked_add(1) == Some(start);
            if is_new && request.after.is_some_and(is_continued) {
                // The child that requested it has all earlier frames.
                self.chains = Chains::intact();
            }
            let source = Source::Parent(self.route.clone());
            if !self.stream.begin(accepted, source, start) {
                return Ending::Failed(format!(
                    "{}: the number of its first frame is out of range",
                    self.route
                ));
            }
            let before = self.stream.progress().borrow().next;
            let followed = self.follow(leg, &request).await;
            // A parent that accepts and sends nothing is no success.
            match self.stream.progress().borrow().next > before {
                true => attempts = Attempts::new(),
                false => attempts.fail(),
            }
            match followed {
                LegOutcome::Moved(opened) => {
                    next = Some(*opened);
                    continue;
                }
                LegOutcome::Ended(Ok(None)) => return Ending::Over,
                LegOutcome::Ended(Ok(Some(Ending::Failed(_) | Ending::Stalled)) | Err(_)) => {}
                LegOutcome::Ended(Ok(Some(why))) => return why,
            }
            self.stream.set_lost(Some(self.route.node.clone()));
            self.stream.clear_source();
            self.update(&mut request, attempts.next);
        }
    }

    fn opener(&self) -> LegOpener {
        LegOpener { hub: self.hub.clone(), stream: Arc::clone(&self.stream) }
    }

    /// Opens a leg to the parent. If that takes long, reports the parent to the oracle, and gives up once another parent
    /// is planned.
    async fn open(&self, request: &SubscribeRequest) -> Result<OpenLeg, Refusal> {
        let is_slow = || self.stream.set_lost(Some(self.route.node.clone()));
        self.opener().open_while_planned(&self.route, request, is_slow).await
    }

    /// Whether to try again after this refusal. A relay of a plan may get its own plan later.
    fn may_retry(&self, why: &Refusal, failures: u32) -> bool {
        let is_begun = self.stream.progress().borrow().run > 0;
        let is_live = self.hub.0.link.link_state() == LinkState::Live;
        let is_planned = is_live && self.hub.0.plan.borrow().parent(&self.stream.name).is_some();
        let is_final = matches!(why, Refusal::Subscribe | Refusal::Hops | Refusal::Invalid(_));
        let may_pass = (is_planned && !is_final) || (is_begun && why.is_temporary());
        may_pass && failures <= MAX_RETRIES
    }

    /// Waits for a plan with another parent, or until it is time to try the same one again.
    async fn wait_for_another_parent(&self) {
        let (name, mut plan) = (&self.stream.name, self.hub.plan());
        let another = plan.wait_for(|plan| plan.parent(name).is_some_and(|to| *to != self.route));
        // No other parent: the same one may be back.
        _ = timeout(RETRY_DELAY, another).await;
    }

    /// Receives frames until the leg ends, or there is a leg to another parent that the plan names.
    async fn follow(&mut self, leg: Leg, request: &SubscribeRequest) -> LegOutcome {
        let clock = self.hub.0.clock;
        let moved = self.opener().open_next(self.route.clone(), request);
        let followed = tokio::select! {
            ended = follow(&self.stream, leg, &mut self.chains, clock) => LegOutcome::Ended(ended),
            opened = moved => LegOutcome::Moved(Box::new(opened)),
        };
        let event = match &followed {
            LegOutcome::Ended(Ok(_)) => return followed,
            LegOutcome::Ended(Err(why)) => Event::new("stream_parent_lost").with("why", why),
            LegOutcome::Moved(opened) => Event::new("stream_parent_left").with("to", &opened.route),
        };
        let event = event.with("stream", &self.stream.name).with("parent", &self.route);
        self.hub.0.log.put(event);
        followed
    }

    /// Updates the request to the present plan, position and demand.
    fn update(&mut self, request: &mut SubscribeRequest, next: NextParent) {
        let origin = self.stream.about().origin;
        if let Some(route) = self.hub.0.plan.borrow().parent_of(&self.stream.name, &origin) {
            self.route = route.clone();
        }
        let is_alone = self.hub.0.link.link_state() == LinkState::Down;
        if is_alone && next == NextParent::Origin {
            self.route = ParentRoute::direct(origin);
        }
        self.stream.update_request(request);
    }
}

/// Opens legs to parents of a stream.
struct LegOpener {
    hub: Streams,
    stream: Arc<Stream>,
}

impl LegOpener {
    /// Waits for a plan with another parent than this one, and opens a leg to it.
    async fn open_next(self, route: ParentRoute, request: &SubscribeRequest) -> OpenLeg {
        let (stream, mut plan, mut request) = (&self.stream, self.hub.plan(), request.clone());
        loop {
            let origin = stream.about().origin;
            let other = |plan: &Arc<Plan>| {
                let planned = plan.parent_of(&stream.name, &origin);
                planned.filter(|planned| **planned != route).cloned()
            };
            let planned = plan.wait_for(|plan| other(plan).is_some()).await;
            let next = planned.ok().and_then(|plan| other(&plan));
            if let Some(next) = &next {
                stream.update_request(&mut request);
                let is_slow = || stream.add_unreachable(next.node.clone());
                match self.open_while_planned(next, &request, is_slow).await {
                    Ok(opened) => return opened,
                    Err(why) => {
                        stream.add_unreachable(next.node.clone());
                        let event = Event::new("stream_parent_unreachable");
                        let event = event.with("stream", &stream.name).with("parent", next);
                        self.hub.0.log.put(event.with("why", why));
                    }
                }
            }
            // A plan with another parent than the one that cannot be reached is followed at once.
            let planned = |plan: &Arc<Plan>| plan.parent_of(&stream.name, &origin).cloned();
            let failed = next;
            let another = plan.wait_for(|plan| planned(plan).is_some() && planned(plan) != failed);
            _ = timeout(RETRY_DELAY, another).await;
        }
    }

    /// Opens a leg to a parent. If that takes long, it calls `is_slow`, and gives up once the plan names another parent.
    async fn open_while_planned(
        &self,
        route: &ParentRoute,
        request: &SubscribeRequest,
        is_slow: impl FnOnce(),
    ) -> Result<OpenLeg, Refusal> {
        let mut open = pin!(self.open(route.clone(), request));
        if let Ok(opened) = timeout(SLOW_OPENING, &mut open).await {
            return opened;
        }
        is_slow();
        let (name, mut plan) = (&self.stream.name, self.hub.plan());
        let another = plan.wait_for(|plan| plan.parent(name).is_some_and(|to| to != route));
        tokio::select! {
            opened = open => opened,
            _ = another => Err(Refusal::Upstream(format!("{route} does not answer"))),
        }
    }

    /// Opens a leg to a parent.
    async fn open(
        &self,
        route: ParentRoute,
        request: &SubscribeRequest,
    ) -> Result<OpenLeg, Refusal> {
        let upstream = |why: String| Refusal::Upstream(format!("{route}: {why}"));
        let channel = self.channel(&route).await.map_err(|why| upstream(why.to_string()))?;
        let socket = channel.get_ref().tcp().and_then(duplicate);
        let mut leg = Leg::new(channel, socket);
        let plan = self.hub.0.plan.borrow().clone();
        let planned = plan.streams.get(&self.stream.name).cloned().unwrap_or_default();
        let planned_origin = planned.origin.filter(|_| planned.parent.as_ref() == Some(&route));
        let request = match &planned_origin {
            // A relay may not have its own plan yet.
            Some(origin) => SubscribeRequest { from: Some(origin.clone()), ..request.clone() },
            // A subscriber that names this node as a relay does not know the origin.
            None => SubscribeRequest {
                from: request.from.clone().filter(|from| from != self.hub.me()),
                ..request.clone()
            },
        };
        match leg.open(&Opening::Subscribe(request)).await {
            Ok(Answer::Accepted(accepted)) if accepted.origin == *self.hub.me() => {
                Err(upstream("it names this node as the stream's origin".to_owned()))
            }
            Ok(Answer::Accepted(accepted))
                if planned_origin.as_ref().is_some_and(|origin| accepted.origin != *origin) =>
            {
                let origin = accepted.origin;
                Err(upstream(format!(
                    "it receives the stream from {origin}, not from the origin in the plan"
                )))
            }
            Ok(Answer::Accepted(accepted)) => Ok(OpenLeg { leg, accepted, route }),
            Ok(Answer::Refused(why)) => Err(why),
            Ok(Answer::Status(_) | Answer::Waiting(_)) => {
                Err(upstream("it sent an unexpected answer".to_owned()))
            }
            Err(why) => Err(upstream(why.to_string())),
        }
    }

    /// Opens a channel to the parent, over the carrier if `ride` is set and both ends have one.
    async fn channel(
        &self,
        route: &ParentRoute,
    ) -> Result<Channel<thalweg_net::Stream>, thalweg_mesh::member_dialer::DialMemberError> {
        let ParentRoute { node, via } = route;
        if self.hub.0.settings.get().ride
            && let Ok(riding) = self.hub.0.dialer.clone().riding()
        {
            match riding.channel(node, via, Protocol::Stream).await {
                Ok(channel) => return Ok(channel),
                Err(why) => {
                    let event = Event::new("stream_does_not_ride").with("parent", route);
                    self.hub.0.log.put(event.with("why", why));
                }
            }
        }
        self.hub.0.dialer.channel(node, via, Protocol::Stream).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_attempt_without_an_oracle_goes_to_the_publishers_node() {
        let mut attempts = Attempts::new();
        let mut next = vec![attempts.next];
        for _ in 0..3 {
            attempts.fail();
            next.push(attempts.next);
        }
        let (planned, origin) = (NextParent::Planned, NextParent::Origin);
        assert_eq!((&next[..], attempts.failures), (&[planned, origin, planned, origin][..], 3));
    }
}
