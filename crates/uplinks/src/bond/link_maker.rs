//! Makes single links: dials by an interface, greets the far end, and runs the link to its end.

use super::{
    engine::{Engine, LinkEnd},
    greet::{self, GreetingResult},
    link::LinkIo,
    link_keeper::LinkOutcome,
    readiness::Readiness,
};
use crate::interfaces::{Accounts, Uplinks};
use std::{sync::Arc, time::Duration};
use thalweg_bond::LinkId;
use thalweg_net::{
    Cause, Dialer, Hop, Interface, Route,
    channel::{ChannelError, Protocol},
};
use thalweg_wire::bond::{BondId, Hello, Refusal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A link is made anew if nothing on it is acknowledged for this long, however patient the owner of its streams is. A
/// path whose state was lost (an address translation) does not come back, and the kernel retransmits ever less often.
/// The far end always reads, so a window that stays shut is not a reader's pause.
const GIVEN_UP: Duration = Duration::from_secs(15);

/// What is needed to make the links of a bond.
pub(super) struct LinkMaker {
    pub dialer: Dialer,
    pub to: Hop,
    /// The routes to the member from each interface; at least one.
    pub routes: Vec<Route>,
    pub bond: BondId,
    pub engine: Arc<Engine>,
    pub readiness: watch::Sender<Readiness>,
    /// The interfaces' caps and limits, if links keep to them.
    pub uplinks: Option<Uplinks>,
}

/// Why a link did not come up, and whether the far end said so.
struct LinkFailure {
    why: String,
    is_refusal: bool,
    /// The far end does not admit this host: no link will ever come up.
    is_for_good: bool,
    /// Another host than the member answered by this interface.
    is_somebody_else: bool,
}

impl LinkMaker {
    /// Sets how many links there are to be.
    pub fn set_wanted(&self, links: usize) {
        self.readiness.send_if_modified(|readiness| {
            let before = std::mem::replace(&mut readiness.wanted, links);
            before != links
        });
    }

    /// Makes one link by this interface and route, and runs it to its end.
    pub async fn run_link(
        &self,
        (interface, route): (&Interface, usize),
        number: u32,
        stop: CancellationToken,
    ) -> LinkOutcome {
        let Some(route) = self.routes.get(route) else { return LinkOutcome::Failed };
        let dialled = tokio::select! {
            dialled = self.dial((interface, route), number) => dialled,
            () = stop.cancelled() => {
                self.readiness.send_modify(Readiness::abandon_link);
                return LinkOutcome::Stopped;
            }
        };
        let failed = match dialled {
            Ok(Ok((link, window))) => {
                self.engine.set_far_window(window);
                self.with_uplinks(|uplinks| {
                    uplinks.table().mark_genuine(interface.index.get(), uplinks.now());
                });
                self.readiness.send_modify(|readiness| readiness.link_up(&interface.name));
                let link =
                    self.apply_policy(link.with_route(&interface.name, route), &interface.name);
                let until = stop.cancelled();
                let ended = self.engine.run_link_until(LinkId(number), link, until).await;
                let why = match &ended {
                    _ if stop.is_cancelled() => None,
                    LinkEnd::Lost(why) => Some(format!("the link broke: {why}")),
                    LinkEnd::Bye | LinkEnd::Hostile(_) => None,
                };
                self.readiness.send_modify(|readiness| {
                    readiness.link_down(&interface.name, why);
                    if let LinkEnd::Hostile(why) = &ended {
                        readiness.refused =
                            Some(format!("it does not keep to the protocol: {why}"));
                    }
                });
                return match ended {
                    _ if stop.is_cancelled() => LinkOutcome::Stopped,
                    LinkEnd::Lost(_) | LinkEnd::Bye => LinkOutcome::Lost,
                    LinkEnd::Hostile(_) => LinkOutcome::Failed,
                };
            }
            Ok(Err(why)) => self.handle_refusal(&why),
            Err(failed) => failed,
        };
        if failed.is_for_good && self.readiness.borrow().live == 0 {
            self.engine.break_off(&format!("{}: {}", interface.name, failed.why));
        }
        if failed.is_somebody_else && self.readiness.borrow().live > 0 {
            // Another interface reaches the member itself.
            self.with_uplinks(|uplinks| {
                uplinks.table().mark_impostor(interface.index.get(), uplinks.now())
            });
        }
        let LinkFailure { why, is_refusal, .. } = failed;
        self.readiness
            .send_modify(|readiness| readiness.link_failed(&interface.name, &why, is_refusal));
        LinkOutcome::Failed
    }

    fn handle_refusal(&self, why: &Refusal) -> LinkFailure {
        // A far end that forgot the bond has forgotten its streams, too.
        if *why == Refusal::Unknown {
            self.engine.break_off(&why.to_string());
        }
        let is_refusal = *why != Refusal::Number;
        let (is_for_good, is_somebody_else) = (false, false);
        LinkFailure { why: why.to_string(), is_refusal, is_for_good, is_somebody_else }
    }

    fn with_uplinks(&self, what: impl FnOnce(&Uplinks)) {
        if let Some(uplinks) = &self.uplinks {
            what(uplinks);
        }
    }

    /// Applies the policy of its interface to a link.
    fn apply_policy(&self, link: LinkIo, name: &str) -> LinkIo {
        let Some(uplinks) = &self.uplinks else { return link };
        let link = if self.is_metered(name) { link.metered() } else { link };
        link.with_meter(uplinks.clone(), name)
    }

    /// Whether the policy of this interface forbids second copies.
    fn is_metered(&self, name: &str) -> bool {
        let policy = self.uplinks.as_ref().map(|u| u.table().settings().policy(name));
        policy.is_some_and(|policy| !policy.may_spend())
    }

    async fn dial(
        &self,
        (interface, route): (&Interface, &Route),
        link: u32,
    ) -> Result<GreetingResult, LinkFailure> {
        let bound = route.clone().by_interface(interface.index);
        let dialled = self.dialer().channel(&bound, &self.to, Protocol::Bond).await;
        // A relay's error says nothing about the far end.
        let channel = dialled.map_err(|why| LinkFailure {
            is_refusal: why.relay().is_none() && matches!(why.cause, Cause::Channel(_)),
            is_for_good: why.relay().is_none()
                && matches!(why.cause, Cause::Channel(ChannelError::NotAdmitted)),
            is_somebody_else: route.is_direct()
                && matches!(&why.cause, Cause::Channel(why) if why.is_somebody_else()),
            why: why.to_string(),
        })?;
        let goes_on = self.readiness.borrow().most > 0;
        let (window, is_metered) = (self.engine.window(), self.is_metered(&interface.name));
        let is_relayed = !route.is_direct();
        let hello = Hello { bond: self.bond, link, window, goes_on, is_metered, is_relayed };
        let greeted = greet::greet(channel, &hello).await;
        // A far end that does not admit this host may say so only now.
        greeted.map_err(|why| {
            let is_refusal = ChannelError::is_not_admitted(&why);
            let (is_for_good, is_somebody_else) = (is_refusal, false);
            LinkFailure { why: why.to_string(), is_refusal, is_for_good, is_somebody_else }
        })
    }

    /// The dialler of links. It counts connections from their first packet on, including those that fail, and does not
    /// let far ends send more ahead than a cap has in reserve.
    fn dialer(&self) -> Dialer {
        let dialer = self.dialer.clone().with_user_timeout(GIVEN_UP);
        match &self.uplinks {
            Some(uplinks) => dialer.with_bookkeeper(Arc::new(Accounts::new(uplinks.clone()))),
            None => dialer,
        }
    }
}
