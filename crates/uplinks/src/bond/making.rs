//! Makes single links: dials by an interface, greets the far end, and runs the link to its end.

use super::{
    engine::{Ended, Engine},
    greet::{self, Greeted},
    keeping::Outcome,
    link::LinkIo,
    standing::Standing,
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
pub(super) struct Making {
    pub dialer: Dialer,
    pub to: Hop,
    /// The routes to the member from each interface; at least one.
    pub routes: Vec<Route>,
    pub bond: BondId,
    pub engine: Arc<Engine>,
    pub standing: watch::Sender<Standing>,
    /// The interfaces' caps and limits, if links keep to them.
    pub uplinks: Option<Uplinks>,
}

/// Why a link did not come up, and whether the far end said so.
struct Failed {
    why: String,
    is_refusal: bool,
    /// The far end does not admit this host: no link will ever come up.
    is_for_good: bool,
    /// Another host than the member answered by this interface.
    is_somebody_else: bool,
}

impl Making {
    /// Sets how many links there are to be.
    pub fn wants(&self, links: usize) {
        self.standing.send_if_modified(|standing| {
            let before = std::mem::replace(&mut standing.wanted, links);
            before != links
        });
    }

    /// Makes one link by this interface and route, and runs it to its end.
    pub async fn link(
        &self,
        (interface, route): (&Interface, usize),
        number: u32,
        stop: CancellationToken,
    ) -> Outcome {
        let Some(route) = self.routes.get(route) else { return Outcome::Failed };
        let dialled = tokio::select! {
            dialled = self.dial((interface, route), number) => dialled,
            () = stop.cancelled() => {
                self.standing.send_modify(Standing::left);
                return Outcome::Stopped;
            }
        };
        let failed = match dialled {
            Ok(Ok((link, window))) => {
                self.engine.far_window(window);
                self.tell(|uplinks| {
                    uplinks.table().is_genuine(interface.index.get(), uplinks.now());
                });
                self.standing.send_modify(|standing| standing.came(&interface.name));
                let link = self.paying(link.by(&interface.name, route), &interface.name);
                let until = stop.cancelled();
                let ended = self.engine.run_link_until(LinkId(number), link, until).await;
                let why = match &ended {
                    _ if stop.is_cancelled() => None,
                    Ended::Lost(why) => Some(format!("the link broke: {why}")),
                    Ended::Bye | Ended::Hostile(_) => None,
                };
                self.standing.send_modify(|standing| {
                    standing.went(&interface.name, why);
                    if let Ended::Hostile(why) = &ended {
                        standing.refused = Some(format!("it does not keep to the protocol: {why}"));
                    }
                });
                return match ended {
                    _ if stop.is_cancelled() => Outcome::Stopped,
                    Ended::Lost(_) | Ended::Bye => Outcome::Lost,
                    Ended::Hostile(_) => Outcome::Failed,
                };
            }
            Ok(Err(why)) => self.refused(&why),
            Err(failed) => failed,
        };
        if failed.is_for_good && self.standing.borrow().live == 0 {
            self.engine.break_off(&format!("{}: {}", interface.name, failed.why));
        }
        if failed.is_somebody_else && self.standing.borrow().live > 0 {
            // Another interface reaches the member itself.
            self.tell(|uplinks| uplinks.table().is_impostor(interface.index.get(), uplinks.now()));
        }
        let Failed { why, is_refusal, .. } = failed;
        self.standing.send_modify(|standing| standing.failed(&interface.name, &why, is_refusal));
        Outcome::Failed
    }

    fn refused(&self, why: &Refusal) -> Failed {
        // A far end that forgot the bond has forgotten its streams, too.
        if *why == Refusal::Unknown {
            self.engine.break_off(&why.to_string());
        }
        let is_refusal = *why != Refusal::Number;
        let (is_for_good, is_somebody_else) = (false, false);
        Failed { why: why.to_string(), is_refusal, is_for_good, is_somebody_else }
    }

    fn tell(&self, what: impl FnOnce(&Uplinks)) {
        if let Some(uplinks) = &self.uplinks {
            what(uplinks);
        }
    }

    /// Applies the policy of its interface to a link.
    fn paying(&self, link: LinkIo, name: &str) -> LinkIo {
        let Some(uplinks) = &self.uplinks else { return link };
        let link = if self.is_metered(name) { link.metered() } else { link };
        link.paying(uplinks.clone(), name)
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
    ) -> Result<Greeted, Failed> {
        let bound = route.clone().by_interface(interface.index);
        let dialled = self.dialer().channel(&bound, &self.to, Protocol::Bond).await;
        // A relay's error says nothing about the far end.
        let channel = dialled.map_err(|why| Failed {
            is_refusal: why.relay().is_none() && matches!(why.cause, Cause::Channel(_)),
            is_for_good: why.relay().is_none()
                && matches!(why.cause, Cause::Channel(ChannelError::NotAdmitted)),
            is_somebody_else: route.is_direct()
                && matches!(&why.cause, Cause::Channel(why) if why.is_somebody_else()),
            why: why.to_string(),
        })?;
        let goes_on = self.standing.borrow().most > 0;
        let (window, is_metered) = (self.engine.window(), self.is_metered(&interface.name));
        let is_relayed = !route.is_direct();
        let hello = Hello { bond: self.bond, link, window, goes_on, is_metered, is_relayed };
        let greeted = greet::greet(channel, &hello).await;
        // A far end that does not admit this host may say so only now.
        greeted.map_err(|why| {
            let is_refusal = ChannelError::is_not_admitted(&why);
            let (is_for_good, is_somebody_else) = (is_refusal, false);
            Failed { why: why.to_string(), is_refusal, is_for_good, is_somebody_else }
        })
    }

    /// The dialler of links. It counts connections from their first packet on, including those that fail, and does not
    /// let far ends send more ahead than a cap has in reserve.
    fn dialer(&self) -> Dialer {
        let dialer = self.dialer.clone().giving_up_after(GIVEN_UP);
        match &self.uplinks {
            Some(uplinks) => dialer.booked_by(Arc::new(Accounts::new(uplinks.clone()))),
            None => dialer,
        }
    }
}
