//! Translates the oracle's plan to the plan that this node's legs follow. Pure.

use crate::{LegPlan, NoRoute, ParentRoute, Plan, Quality, StreamPlan};
use thalweg_wire::stream::{
    leg::Level,
    plan::{self, Estimate, Reason},
};

/// The plan as this node's legs follow it. Without `keeps_levels` the legs send renditions with all frames.
pub(crate) fn effective_plan(plan: &plan::Plan, keeps_levels: bool) -> Plan {
    let child = |child: &plan::Child| {
        let planned = combined_quality(&child.qualities);
        let quality = match keeps_levels {
            true => planned,
            false => Quality { track: planned.track, level: Level::All },
        };
        let estimate = child.why.estimate.map(|found| (found.bps as f64, found.age.as_secs_f64()));
        (child.node.clone(), LegPlan { quality, why: explanation_text(&child.why), estimate })
    };
    let stream = |stream: &plan::StreamPlan| {
        let failures = stream.subscriptions.iter().filter_map(|given| {
            let failure = match given.why.reason {
                Reason::Unpublished | Reason::Busy => NoRoute::Unknown,
                Reason::Forbidden => NoRoute::Forbidden,
                Reason::Full => NoRoute::Full,
                Reason::Begun | Reason::Lowered | Reason::Raised | Reason::Rerouted => return None,
            };
            Some((given.id, failure))
        });
        let plan = StreamPlan {
            parent: stream.parent.clone().map(ParentRoute::direct),
            origin: stream.origin.clone(),
            children: stream.children.iter().map(child).collect(),
            failures: failures.collect(),
        };
        (stream.stream.clone(), plan)
    };
    Plan { version: plan.version, streams: plan.streams.iter().map(stream).collect() }
}

/// The least quality that includes all of these.
fn combined_quality(qualities: &[plan::Quality]) -> Quality {
    let level = qualities.iter().map(|quality| quality.level).max().unwrap_or(Level::Keys);
    let track = match qualities {
        [one] => one.track,
        _ => None,
    };
    Quality { track, level }
}

/// The explanation for people; empty if the decision needs none.
fn explanation_text(why: &plan::Explanation) -> String {
    let word = match why.reason {
        Reason::Begun => return String::new(),
        Reason::Lowered => "lowered",
        Reason::Raised => "raised",
        Reason::Rerouted => "rerouted",
        Reason::Full => "no path has enough free bandwidth",
        Reason::Unpublished => "nobody publishes it",
        Reason::Forbidden => "the publisher's node does not allow it",
        Reason::Busy => "the oracle plans no more streams",
    };
    let leg = why.leg.as_ref().map(|(from, to)| format!(": the leg {from} → {to}"));
    let found = why.estimate.as_ref().map(|Estimate { bps, is_measured, .. }| {
        let mbps = *bps as f64 / 1e6;
        match is_measured {
            true => format!(" has {mbps:.2} Mbit/s for all streams by probe trains"),
            false => format!(" carried only {mbps:.2} Mbit/s"),
        }
    });
    let detail = leg.zip(found).map(|(leg, found)| leg + &found);
    format!("{word}{}", detail.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use thalweg_wire::mesh::Name;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn why(reason: Reason) -> plan::Explanation {
        let estimate = Estimate { bps: 2_100_000, is_measured: true, age: Duration::from_secs(3) };
        let leg = Some((name("n0"), name("n1")));
        plan::Explanation { reason, leg, estimate: Some(estimate), since: Duration::ZERO }
    }

    fn plan(qualities: Vec<plan::Quality>, reason: Reason) -> plan::Plan {
        let child = plan::Child {
            node: name("n1"),
            qualities,
            transcoded: Vec::new(),
            why: why(Reason::Lowered),
        };
        let given =
            plan::SubscriptionDecision { id: 1, preference: None, track: None, why: why(reason) };
        let stream = plan::StreamPlan {
            stream: name("stage"),
            origin: Some(name("n0")),
            parent: None,
            transcoders: Vec::new(),
            children: vec![child],
            subscriptions: vec![given],
        };
        plan::Plan { version: 3, streams: vec![stream] }
    }

    #[test]
    fn legs_keep_to_a_plans_levels_if_the_settings_say_so() {
        let keys = plan::Quality { track: Some(1), level: Level::Keys };
        let all = plan::Quality { track: Some(2), level: Level::NoDisposable };
        let leg = |qualities: Vec<plan::Quality>, keeps_levels| {
            let effective = effective_plan(&plan(qualities, Reason::Begun), keeps_levels);
            effective.leg(&name("stage"), &name("n1")).unwrap().clone()
        };
        let kept = leg(vec![keys], true);
        assert_eq!(kept.quality, Quality { track: Some(1), level: Level::Keys });
        assert_eq!(
            kept.why,
            "lowered: the leg n0 → n1 has 2.10 Mbit/s for all streams by probe trains"
        );
        assert_eq!(kept.estimate, Some((2_100_000.0, 3.0)));
        let both = Quality { track: None, level: Level::NoDisposable };
        assert_eq!(leg(vec![keys, all], true).quality, both);
        let whole = Quality { track: Some(1), level: Level::All };
        assert_eq!(leg(vec![keys], false).quality, whole);
        assert_eq!(leg(vec![keys, all], false).quality, Quality::default());
    }

    #[test]
    fn a_plan_says_why_there_is_no_route() {
        let failure = |reason| {
            let effective = effective_plan(&plan(vec![], reason), true);
            effective.streams[&name("stage")].failures.get(&1).copied()
        };
        assert_eq!(failure(Reason::Forbidden), Some(NoRoute::Forbidden));
        assert_eq!(failure(Reason::Unpublished), Some(NoRoute::Unknown));
        assert_eq!((failure(Reason::Full), failure(Reason::Begun)), (Some(NoRoute::Full), None));
    }
}
