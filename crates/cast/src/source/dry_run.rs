//! A dry run: asks receivers whether they would accept a cast, and starts nothing. A receiver compares a short file
//! with the same name. It does not compare larger copies, because reading them takes as long as the cast itself would,
//! and any member could make the receiver do so.

use super::event::{Event, EventSink, Outcome, Totals};
use crate::{
    disk::{InboxPolicy, OwnerPolicy, count_ignored_owners, refused_links},
    leg,
    store::Store,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_net::channel::Protocol;
use thalweg_wire::{
    cast::{InboxRules, Layout, LinkRule, MAX_REPORT, Opening, Refusal, Report},
    mesh::Name,
};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

/// The time limit for a connection and one answer. The receiver may read up to 64 MiB before it answers.
const PATIENCE: Duration = Duration::from_secs(20);

/// A receiver's answer.
enum DryRunAnswer {
    /// `rules`: the rules of its inbox; `None` for a relay and for a node of an earlier version.
    Accepted {
        uncompared: bool,
        rules: Option<InboxRules>,
    },
    Refused(Refusal),
    NoAnswer(String),
}

/// The questions of a dry run.
pub struct DryRun {
    /// The encoded `Signed<Offer>`.
    pub offer: Vec<u8>,
    /// Receivers and relays, each with its encoded `Signed<Pass>`.
    pub passes: Vec<(Name, Vec<u8>)>,
    pub relays: BTreeSet<Name>,
    pub store: Arc<Store>,
    /// The number of its files that cannot be read.
    pub failed_files: u64,
    pub dialer: MemberDialer,
}

impl DryRun {
    /// Asks all members at once. Reports each answer and the end as events. In the result, `complete` counts the
    /// receivers that would accept the cast.
    pub async fn run(self, events: Arc<dyn EventSink>) -> Totals {
        let began = Instant::now();
        let is_relay = |name: &Name| self.relays.contains(name);
        let receivers = self.passes.iter().filter(|(name, _)| !is_relay(name)).count();
        let mut asking = JoinSet::new();
        for (name, pass) in &self.passes {
            let (name, dialer) = (name.clone(), self.dialer.clone().without_carrier());
            let (offer, pass, relays) = (self.offer.clone(), pass.clone(), is_relay(&name));
            let opening = Opening::DryRun { offer, pass, relays };
            asking.spawn(async move {
                let answer = timeout(PATIENCE, ask(&dialer, &name, &opening)).await;
                let late = |_| DryRunAnswer::NoAnswer(format!("no answer in {PATIENCE:?}"));
                (name, answer.unwrap_or_else(late))
            });
        }
        let (mut complete, mut refused_links) = (0, 0);
        while let Some(answered) = asking.join_next().await {
            // The tasks do not panic.
            let Ok((receiver, answer)) = answered else { continue };
            let rules = match &answer {
                DryRunAnswer::Accepted { rules, .. } if !is_relay(&receiver) => Some(*rules),
                _ => None,
            };
            events.event(&answer_event(receiver.clone(), answer));
            if let Some(rules) = rules {
                complete += 1;
                refused_links += self.report_left_out(&receiver, rules, &*events);
            }
        }
        let outcome = match complete {
            all if all == receivers && self.failed_files == 0 && refused_links == 0 => {
                Outcome::Complete
            }
            0 => Outcome::Failed,
            _ => Outcome::Partial,
        };
        let (bytes, seconds) = (self.store.known.offer.length, began.elapsed().as_secs_f64());
        let totals = Totals {
            outcome,
            dry_run: true,
            bytes,
            complete,
            receivers,
            failed_files: self.failed_files,
            refused_links,
            seconds,
            ..Totals::default()
        };
        events.event(&Event::Ended(totals.clone()));
        totals
    }

    /// Reports what a receiver would leave out. Returns the number of links among that.
    fn report_left_out(
        &self,
        receiver: &Name,
        rules: Option<InboxRules>,
        events: &dyn EventSink,
    ) -> u64 {
        let layout = self.store.files.layout();
        let ignored = count_ignored_owners(layout, OwnerPolicy::Ignore);
        if ignored > 0 && rules.is_some_and(|rules| !rules.sets_owners) {
            let receiver = receiver.clone();
            events.event(&Event::OwnersIgnored { receiver, count: ignored });
        }
        let Some((count, first)) = self.refused_links(layout, rules) else { return 0 };
        events.event(&Event::LinksRefused { receiver: receiver.clone(), count, first });
        count
    }

    /// The links that a receiver with these rules would leave out. By default links must stay in the inbox.
    fn refused_links(&self, layout: &Layout, rules: Option<InboxRules>) -> Option<(u64, String)> {
        let links = rules.map_or(LinkRule::Within([0; 32]), |rules| rules.links);
        let name = self.store.known.offer.name.as_bytes();
        refused_links(name, layout, &InboxPolicy::of_receiver(links, layout))
    }
}

fn answer_event(receiver: Name, answer: DryRunAnswer) -> Event {
    match answer {
        DryRunAnswer::Accepted { uncompared, .. } => Event::WouldTake { receiver, uncompared },
        DryRunAnswer::Refused(why) => {
            Event::Refused { receiver, why: why.to_string(), again: false }
        }
        DryRunAnswer::NoAnswer(why) => Event::Unreached { receiver, why },
    }
}

async fn ask(dialer: &MemberDialer, name: &Name, opening: &Opening) -> DryRunAnswer {
    let channel = match dialer.channel(name, &[], Protocol::Cast).await {
        Ok(channel) => channel,
        Err(why) => return DryRunAnswer::NoAnswer(why.to_string()),
    };
    match leg::open(channel, opening).await {
        Ok(Ok(mut leg)) => {
            let (mut uncompared, mut rules) = (false, None);
            // The channel ends after at most two reports.
            while let (None, Ok(report)) =
                (rules, leg.reader.read_message::<Report>(MAX_REPORT).await)
            {
                match report {
                    Report::Uncompared => uncompared = true,
                    Report::InboxRules(inbox_rules) => rules = Some(inbox_rules),
                    _ => break,
                }
            }
            leg.writer.close().await;
            DryRunAnswer::Accepted { uncompared, rules }
        }
        Ok(Err(why)) => DryRunAnswer::Refused(why),
        Err(why) => DryRunAnswer::NoAnswer(format!(
            "it did not say whether it would accept the cast ({why}); nodes of earlier versions cannot"
        )),
    }
}
