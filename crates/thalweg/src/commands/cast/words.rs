//! What is said of a cast, to people.

use crate::commands::{
    gather::words::{rate, size, time},
    text::counted,
};
use thalweg_node::cast::source::{Event, Outcome, Planned, ReceiverProgress, Standing, Totals};

/// Receivers with a line on a terminal, which has not many more.
const ROWS: usize = 16;

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
            let line = |planned: &Planned| {
                let parents: Vec<&str> = planned.parents.iter().map(|name| name.as_str()).collect();
                format!("{} from {}{}", planned.name, parents.join(", "), foreseen(planned))
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
        Event::Note { text } => vec![text.clone()],
        Event::Ended(totals) => vec![ended(totals)],
        _ => Vec::new(),
    }
}

/// What a receiver is expected to get, as far as that is known.
fn foreseen(planned: &Planned) -> String {
    let some = |words: &str, bps: Option<u64>| {
        bps.map(|bps| format!("; {words} {}", rate(bps))).unwrap_or_default()
    };
    let by = planned.predicted;
    [
        some("expected", planned.expected_bps),
        some("at most", planned.min_hop_bps),
        some("by Eq. (2)", by.map(|by| by.eq2_bps)),
        some("by Eq. (3)", by.map(|by| by.eq3_bps)),
    ]
    .concat()
}

/// How far all are, as it is redrawn in place: if it was asked for, those that lack most as well.
pub fn picture(event: &Event, verbose: bool) -> Vec<String> {
    let Event::Progress { receivers, .. } = event else { return told(event, verbose) };
    let mut last: Vec<_> = lacking(receivers).filter(|_| verbose).collect();
    last.sort_by_key(|receiver| receiver.held_bytes);
    let more = last.len().saturating_sub(ROWS);
    let mut lines: Vec<String> = last.into_iter().take(ROWS).map(one).collect();
    if more > 0 {
        lines.push(format!("… and {more} more receivers"));
    }
    lines.push(whole(receivers));
    lines
}

fn lacking(receivers: &[ReceiverProgress]) -> impl Iterator<Item = &ReceiverProgress> {
    receivers.iter().filter(|receiver| receiver.state != Standing::Complete)
}

fn progress(receivers: &[ReceiverProgress], verbose: bool) -> Vec<String> {
    match verbose {
        true => lacking(receivers).map(one).collect(),
        false => vec![whole(receivers)],
    }
}

fn whole(receivers: &[ReceiverProgress]) -> String {
    let count = |state| receivers.iter().filter(|r| r.state == state).count();
    let moving = receivers.iter().filter(|r| r.state == Standing::Receiving);
    let slowest = moving.min_by_key(|r| r.held_bytes).map(one);
    let slowest = slowest.map(|line| format!("; the last: {line}")).unwrap_or_default();
    let (complete, receiving) = (count(Standing::Complete), count(Standing::Receiving));
    format!("{complete} of {} have it, {receiving} receive it{slowest}", receivers.len())
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
    use thalweg_node::cast::source::Predicted;

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

    #[test]
    fn the_plan_says_what_the_formulas_say_where_they_say_anything() {
        let planned = Planned {
            name: "b".parse().unwrap(),
            parents: vec!["a".parse().unwrap(), "lab".parse().unwrap()],
            min_hop_bps: Some(40_000_000),
            expected_bps: Some(37_000_000),
            predicted: Some(Predicted { eq2_bps: 36_000_000, eq3_bps: 12_000_000 }),
        };
        let blind =
            Planned { min_hop_bps: None, expected_bps: None, predicted: None, ..planned.clone() };
        let event = Event::Planned { receivers: vec![planned, blind] };
        assert_eq!(
            told(&event, true),
            [
                "b from a, lab; expected 37 Mbit/s; at most 40 Mbit/s; by Eq. (2) 36 Mbit/s; by Eq. (3) \
                 12 Mbit/s",
                "b from a, lab",
            ]
        );
        assert!(told(&event, false).is_empty());
    }

    #[test]
    fn a_terminal_shows_those_that_lack_most_and_the_whole() {
        let receiver = |n: u64| ReceiverProgress {
            name: format!("n{n}").parse().unwrap(),
            state: if n == 0 { Standing::Complete } else { Standing::Receiving },
            held_bytes: 1_000 - n,
            rate_bps: 8_000,
            min_hop_bps: None,
            left_seconds: None,
            missed_symbols: 0,
            ring_peak_bytes: 0,
            parents: Vec::new(),
        };
        let receivers = (0..=20).map(receiver).collect();
        let relays = Vec::new();
        let event = Event::Progress {
            seconds: 1.0,
            served_bytes: 0,
            ring_peak_bytes: 0,
            receivers,
            relays,
        };
        let lines = picture(&event, true);
        assert_eq!(lines.len(), ROWS + 2);
        assert_eq!(lines[0], "n20 980 B, 8 kbit/s from nobody yet");
        assert_eq!(lines[ROWS], "… and 4 more receivers");
        assert!(lines[ROWS + 1].starts_with("1 of 21 have it, 20 receive it; the last: n20 "));
        assert_eq!(picture(&event, false), lines[ROWS + 1..]);
    }
}
