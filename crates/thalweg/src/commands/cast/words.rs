//! What is said of a cast, to people.

use crate::commands::{
    gather::words::{rate, size, time},
    text::counted,
};
use thalweg_node::cast::source::{Event, Outcome, ReceiverProgress, Standing, Totals};

/// Lines of the event; none for what only the curious want to know.
pub fn told(event: &Event, verbose: bool) -> Vec<String> {
    match event {
        Event::PassedOver { path } => vec![format!("{path}: no file, directory or link; left out")],
        Event::Hashing { done_bytes, total_bytes } => {
            vec![format!("reading: {} of {}", size(*done_bytes), size(*total_bytes))]
        }
        Event::Started { name, bytes, receivers, cast, .. } => {
            let to = counted(receivers.len() as u64, "receiver");
            let id = if verbose { format!(", cast {cast}") } else { String::new() };
            vec![format!("{name}: {} to {to}{id}", size(*bytes))]
        }
        Event::Planned { receivers } if verbose => {
            let line = |planned: &thalweg_node::cast::source::Planned| {
                let parents: Vec<&str> = planned.parents.iter().map(|name| name.as_str()).collect();
                let width = planned.min_hop_bps.map(|bps| format!("; at most {}", rate(bps)));
                format!("{} from {}{}", planned.name, parents.join(", "), width.unwrap_or_default())
            };
            receivers.iter().map(line).collect()
        }
        Event::Accepted { receiver, held_bytes: held @ 1.. } => {
            vec![format!("{receiver}: has {} already", size(*held))]
        }
        Event::Unreached { receiver, why } => vec![format!("{receiver}: {why}")],
        Event::Refused { receiver, why, again } => {
            let again = if *again { "; it is tried again" } else { "" };
            vec![format!("{receiver}: not taken: {why}{again}")]
        }
        Event::ParentLeft { receiver, parent, fault, why } => {
            let is_lie = *fault == thalweg_wire::cast::Fault::Corrupt;
            match is_lie || verbose {
                true => vec![format!("{receiver} leaves {parent}: {why}")],
                false => Vec::new(),
            }
        }
        Event::Progress { receivers, .. } => progress(receivers, verbose),
        Event::Received { receiver, seconds, rate_bps, .. } => match *rate_bps {
            0 => vec![format!("{receiver}: has it")],
            bps => vec![format!("{receiver}: has it, in {} ({})", time(*seconds), rate(bps))],
        },
        Event::Broken { why } => vec![format!("it cannot be given any more: {why}")],
        Event::Ended(totals) => vec![ended(totals)],
        _ => Vec::new(),
    }
}

fn progress(receivers: &[ReceiverProgress], verbose: bool) -> Vec<String> {
    if verbose {
        return receivers.iter().filter(|r| r.state != Standing::Complete).map(one).collect();
    }
    let count = |state| receivers.iter().filter(|r| r.state == state).count();
    let moving = receivers.iter().filter(|r| r.state == Standing::Receiving);
    let slowest = moving.min_by_key(|r| r.held_bytes).map(one);
    let slowest = slowest.map(|line| format!("; the last: {line}")).unwrap_or_default();
    let (complete, receiving) = (count(Standing::Complete), count(Standing::Receiving));
    vec![format!("{complete} of {} have it, {receiving} receive it{slowest}", receivers.len())]
}

fn one(receiver: &ReceiverProgress) -> String {
    let parents = receiver.parents.iter();
    let parents: Vec<String> =
        parents.map(|parent| format!("{} {}", parent.name, rate(parent.rate_bps))).collect();
    let left = receiver.left_seconds.map(|left| format!(", {} left", time(left)));
    let hop = receiver.min_hop_bps.map(|bps| format!(" of {}", rate(bps)));
    format!(
        "{} {}, {}{}{} from {}",
        receiver.name,
        size(receiver.held_bytes),
        rate(receiver.rate_bps),
        hop.unwrap_or_default(),
        left.unwrap_or_default(),
        if parents.is_empty() { "nobody yet".to_owned() } else { parents.join(", ") }
    )
}

fn ended(totals: &Totals) -> String {
    let Totals { complete, receivers, seconds, bytes, served_bytes, .. } = totals;
    let sent =
        format!("{} in {}; this host sent {}", size(*bytes), time(*seconds), size(*served_bytes));
    match totals.outcome {
        Outcome::Complete => format!("all {receivers} have it: {sent}"),
        Outcome::Partial => format!(
            "{complete} of {receivers} have it: {sent}; the same command goes on with the others"
        ),
        Outcome::Failed => "nobody has it; the same command tries again".to_owned(),
        Outcome::Interrupted => format!(
            "interrupted: {complete} of {receivers} have it; the others go on among themselves, and \
             the same command goes on from here"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_says_who_has_it() {
        let totals = Totals {
            outcome: Outcome::Partial,
            bytes: 2_000_000,
            complete: 2,
            receivers: 3,
            seconds: 4.0,
            served_bytes: 2_500_000,
            why: None,
        };
        let said = told(&Event::Ended(totals.clone()), false);
        assert_eq!(
            said,
            [
                "2 of 3 have it: 2 MB in 4.0 s; this host sent 2.5 MB; the same command goes on with \
              the others"
            ]
        );
        let all = Totals { outcome: Outcome::Complete, complete: 3, ..totals };
        assert!(ended(&all).starts_with("all 3 have it: 2 MB in 4.0 s"));
    }
}
