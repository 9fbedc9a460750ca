//! The messages of `thalweg cast` for people.

use crate::commands::{
    gather::messages::{bound_line, rate, size, time},
    text::counted,
};
use thalweg_base::sample::UnlistedFailures;
use thalweg_cast::{
    average_bps,
    source::{Event, Outcome, PlannedReceiver, ReceiverProgress, ReceiverState, Totals},
};
use thalweg_part::special_bits_note;
use thalweg_wire::mesh::Name;

/// The most receivers with a line of their own: a terminal has few more lines.
const ROWS: usize = 16;

/// The most receivers named in a line.
const NAMED: usize = 3;

/// The lines for an event; none if it is of interest with `--verbose` only.
pub fn message_lines(event: &Event, verbose: bool) -> Vec<String> {
    match event {
        Event::PassedOver { path } => {
            vec![format!("{path}: not a file, directory or link; left out")]
        }
        Event::SpecialBits { count } => special_bits_note(*count).into_iter().collect(),
        Event::OwnersIgnored { receiver, count } => vec![owners_ignored(receiver, *count)],
        Event::LinksRefused { receiver, count, first } => {
            vec![links_refused(receiver, *count, first)]
        }
        Event::FileFailed { file, why } => vec![format!("{file}: {why}; left out")],
        Event::MoreFailed { count } => vec![more("cannot be read; left out", *count)],
        Event::Hashing { done_bytes, total_bytes } => {
            vec![format!("reading: {} of {}", size(*done_bytes), size(*total_bytes))]
        }
        Event::Started { name, bytes, receivers, cast, .. } => {
            let to = counted(receivers.len() as u64, "receiver");
            let id = if verbose { format!(", cast {cast}") } else { String::new() };
            vec![format!("{name}: {} to {to}{id}", size(*bytes))]
        }
        Event::Planned { receivers } if verbose => receivers.iter().map(plan_line).collect(),
        Event::Accepted { receiver, held_bytes: held @ 1.. } => {
            vec![format!("{receiver}: has {} already", size(*held))]
        }
        Event::MorePassedOver { count } => {
            vec![more("not a file, directory or link; left out", *count)]
        }
        Event::WouldTake { receiver, uncompared: true } => vec![format!(
            "{receiver}: would accept it unless a file of the existing copy differs; only the cast \
             itself compares copies of this size"
        )],
        Event::WouldTake { receiver, .. } if verbose => {
            vec![format!("{receiver}: would accept it")]
        }
        Event::Unreached { receiver, why } => vec![format!("{receiver}: {why}")],
        Event::Refused { receiver, why, again } => {
            let again = if *again { "; will be tried again" } else { "" };
            vec![format!("{receiver}: refused: {why}{again}")]
        }
        Event::ParentLeft { receiver, parent, fault, why } => {
            let is_lie = *fault == thalweg_wire::cast::Fault::Corrupt;
            match is_lie || verbose {
                true => vec![format!("{receiver} leaves {parent}: {why}")],
                false => Vec::new(),
            }
        }
        Event::Progress { receivers, total_bytes, .. } => {
            progress(receivers, *total_bytes, verbose)
        }
        Event::Received { receiver, already: true, .. } => {
            vec![format!("{receiver}: has it already")]
        }
        Event::Received { receiver, seconds, received_bytes, duplicate_bytes, .. } => {
            match average_bps(received_bytes.saturating_sub(*duplicate_bytes), *seconds) {
                Some(bps) => {
                    vec![format!("{receiver}: has it, in {} ({})", time(*seconds), rate(bps))]
                }
                None => vec![format!("{receiver}: has it")],
            }
        }
        Event::Broken { why } => vec![format!("the files can no longer be sent: {why}")],
        Event::Note { text } => vec![text.clone()],
        Event::Ended(totals) => vec![end_line(totals)],
        Event::Verdict(verdict) if verbose => vec![bound_line(verdict)],
        _ => Vec::new(),
    }
}

/// The parents of a receiver and the planned rates.
fn plan_line(planned: &PlannedReceiver) -> String {
    let parents: Vec<&str> = planned.parents.iter().map(|name| name.as_str()).collect();
    format!("{} from {}{}", planned.name, parents.join(", "), plan_rates(planned))
}

/// The number of further messages of this kind, which are not listed.
fn more(why: &str, count: u64) -> String {
    UnlistedFailures { whose: String::new(), why: why.to_owned(), count }.to_string()
}

fn links_refused(receiver: &Name, count: u64, first: &str) -> String {
    let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
    format!(
        "{receiver} leaves out {first}{more}; it stores such links only with `links = true` for the \
         inbox in its `[cast]` settings"
    )
}

fn owners_ignored(receiver: &Name, count: u64) -> String {
    let what = match count {
        1 => "1 file, directory or link".to_owned(),
        n => format!("{n} files, directories and links"),
    };
    format!(
        "{receiver}: owners and groups of {what} are not kept there, because its node does not run \
         as root, or its settings do not set `owners = true` for that inbox"
    )
}

/// The expected rates of a receiver, if known.
fn plan_rates(planned: &PlannedReceiver) -> String {
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

/// The progress display, redrawn in place: with `verbose` it lists the receivers that lack most.
pub fn progress_lines(event: &Event, verbose: bool) -> Vec<String> {
    let Event::Progress { receivers, total_bytes, .. } = event else {
        return message_lines(event, verbose);
    };
    let total = *total_bytes;
    let mut last: Vec<_> = incomplete(receivers).filter(|_| verbose).collect();
    last.sort_by_key(|receiver| receiver.held_bytes);
    let more = last.len().saturating_sub(ROWS);
    let mut lines: Vec<String> =
        last.into_iter().take(ROWS).map(|receiver| receiver_line(receiver, total)).collect();
    if more > 0 {
        lines.push(format!("… and {more} more receivers"));
    }
    lines.push(progress_summary(receivers, total));
    lines
}

fn incomplete(receivers: &[ReceiverProgress]) -> impl Iterator<Item = &ReceiverProgress> {
    receivers.iter().filter(|receiver| receiver.state != ReceiverState::Complete)
}

fn progress(receivers: &[ReceiverProgress], total: u64, verbose: bool) -> Vec<String> {
    match verbose {
        true => incomplete(receivers).map(|receiver| receiver_line(receiver, total)).collect(),
        false => vec![progress_summary(receivers, total)],
    }
}

/// All receivers in one line: how many are complete, how far the last one is, and which are waited for.
fn progress_summary(receivers: &[ReceiverProgress], total: u64) -> String {
    let of = |state: &[ReceiverState]| -> Vec<&ReceiverProgress> {
        receivers.iter().filter(|receiver| state.contains(&receiver.state)).collect()
    };
    let (complete, receiving) = (of(&[ReceiverState::Complete]), of(&[ReceiverState::Receiving]));
    let mut line = format!("{} of {} have it", complete.len(), receivers.len());
    if let Some(last) = receiving.iter().min_by_key(|receiver| receiver.held_bytes) {
        let so_many = format!("{} receive it; the last: ", receiving.len());
        let many = if receiving.len() > 1 { &so_many } else { "" };
        let sign = if many.is_empty() { ";" } else { "," };
        line += &format!("{sign} {many}{}", progress_of(last, total));
    }
    for (words, state) in [
        ("waiting for", &[ReceiverState::Waiting, ReceiverState::Lost][..]),
        ("given up:", &[ReceiverState::Failed]),
    ] {
        let its = of(state);
        if !its.is_empty() {
            line += &format!("; {words} {}", first_names(&its));
        }
    }
    line
}

/// The names of the first few.
fn first_names(receivers: &[&ReceiverProgress]) -> String {
    let names: Vec<&str> = receivers.iter().take(NAMED).map(|r| Name::as_str(&r.name)).collect();
    match receivers.len() - names.len() {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// `ber 45 %, 7.5 Mbit/s, 12 s left`
fn progress_of(receiver: &ReceiverProgress, total: u64) -> String {
    let share = receiver.held_bytes as f64 / total.max(1) as f64 * 100.0;
    let left = receiver.left_seconds.map(|left| format!(", {} left", time(left)));
    let (name, bps) = (&receiver.name, rate(receiver.rate_bps));
    // Rounded down: only a complete receiver shows 100 %.
    format!("{name} {} %, {bps}{}", share.floor(), left.unwrap_or_default())
}

fn receiver_line(receiver: &ReceiverProgress, total: u64) -> String {
    let parents = receiver.parents.iter();
    let parents: Vec<String> =
        parents.map(|parent| format!("{} {}", parent.name, rate(parent.rate_bps))).collect();
    let from = if parents.is_empty() { "no node yet".to_owned() } else { parents.join(", ") };
    format!("{}; from {from}", progress_of(receiver, total))
}

fn end_line(totals: &Totals) -> String {
    let Totals { complete, receivers, seconds, bytes, served_bytes, .. } = totals;
    let without = missing_parts(totals);
    if totals.dry_run {
        let all = if complete == receivers { "all" } else { "only" };
        return match complete {
            0 => "nothing was cast (--dry-run); no receiver would accept it".to_owned(),
            _ => format!(
                "nothing was cast (--dry-run); {all} {complete} of {receivers} would accept \
                 it{without}"
            ),
        };
    }
    let sent =
        format!("{} in {}; this host sent {}", size(*bytes), time(*seconds), size(*served_bytes));
    let others = match totals.why {
        Some(_) => "the same command starts another cast of the current content",
        None => "the same command continues with the others",
    };
    match totals.outcome {
        Outcome::Complete if totals.already == *receivers => {
            format!("all {receivers} have it already: {}", size(*bytes))
        }
        Outcome::Complete => format!("all {receivers} have it: {sent}"),
        Outcome::Partial if complete == receivers => {
            format!("all {receivers} have it{without}: {sent}")
        }
        Outcome::Partial => {
            format!("{complete} of {receivers} have it{without}: {sent}; {others}")
        }
        Outcome::Failed if totals.why.is_some() => format!("no receiver has it; {others}"),
        Outcome::Failed => "no receiver has it; the same command tries again".to_owned(),
        Outcome::Interrupted => format!(
            "interrupted: {complete} of {receivers} have it; the others continue among \
             themselves, and the same command continues from here"
        ),
    }
}

/// The parts of the object that receivers lack.
fn missing_parts(totals: &Totals) -> String {
    let unread = match totals.failed_files {
        0 => None,
        n => Some(format!("{} that could not be read", counted(n, "path"))),
    };
    let refused = match totals.refused_links {
        0 => None,
        n => Some(format!("{} that could lead out of an inbox", counted(n, "link"))),
    };
    let all: Vec<String> = unread.into_iter().chain(refused).collect();
    if all.is_empty() { String::new() } else { format!(", without {}", all.join(" and ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_cast::source::PredictedRates;

    #[test]
    fn the_end_says_who_has_it() {
        let totals = Totals {
            outcome: Outcome::Partial,
            dry_run: false,
            bytes: 2_000_000,
            complete: 2,
            already: 0,
            receivers: 3,
            failed_files: 0,
            refused_links: 0,
            seconds: 4.0,
            served_bytes: 2_500_000,
            why: None,
        };
        let lines = message_lines(&Event::Ended(totals.clone()), false);
        assert_eq!(
            lines,
            ["2 of 3 have it: 2 MB in 4.0 s; this host sent 2.5 MB; the same command \
                 continues with \
              the others"]
        );
        let changed = Totals { why: Some("it has changed".to_owned()), ..totals.clone() };
        assert!(end_line(&changed).ends_with("starts another cast of the current content"));
        let lacking = Totals { complete: 3, failed_files: 2, refused_links: 1, ..totals.clone() };
        let without = "all 3 have it, without 2 paths that could not be read and 1 link that could lead \
                       out of an inbox: 2 MB";
        assert!(end_line(&lacking).starts_with(without), "{}", end_line(&lacking));
        let dry = end_line(&Totals { dry_run: true, ..lacking });
        assert!(dry.contains("all 3 of 3 would accept it, without 2 paths"), "{dry}");
        let all = Totals { outcome: Outcome::Complete, complete: 3, ..totals };
        assert!(end_line(&all).starts_with("all 3 have it: 2 MB in 4.0 s"));
        let again = Totals { already: 3, ..all };
        assert_eq!(end_line(&again), "all 3 have it already: 2 MB");
    }

    #[test]
    fn no_rate_is_shown_if_the_receiver_had_it_or_got_it_in_an_instant() {
        let received = |already: bool, seconds: f64| {
            let event = Event::Received {
                receiver: "a".parse().unwrap(),
                already,
                received_bytes: 1_000_000,
                duplicate_bytes: 0,
                served_bytes: 0,
                parents: Vec::new(),
                seconds,
                rate_bps: 4_000_000,
                after_seconds: 2.5,
            };
            message_lines(&event, false).concat()
        };
        assert_eq!(received(false, 2.0), "a: has it, in 2.0 s (4 Mbit/s)");
        assert_eq!(received(false, 0.09), "a: has it");
        assert_eq!(received(true, 2.0), "a: has it already");
    }

    #[test]
    fn the_plan_shows_rates_only_where_they_are_known() {
        let planned = PlannedReceiver {
            name: "b".parse().unwrap(),
            parents: vec!["a".parse().unwrap(), "lab".parse().unwrap()],
            min_hop_bps: Some(40_000_000),
            expected_bps: Some(37_000_000),
            predicted: Some(PredictedRates { eq2_bps: 36_000_000, eq3_bps: 12_000_000 }),
        };
        let blind = PlannedReceiver {
            min_hop_bps: None,
            expected_bps: None,
            predicted: None,
            ..planned.clone()
        };
        let event = Event::Planned { receivers: vec![planned, blind] };
        assert_eq!(
            message_lines(&event, true),
            [
                "b from a, lab; expected 37 Mbit/s; at most 40 Mbit/s; by Eq. (2) 36 Mbit/s; by Eq. (3) \
                 12 Mbit/s",
                "b from a, lab",
            ]
        );
        assert!(message_lines(&event, false).is_empty());
    }

    fn receiver(n: u64, state: ReceiverState) -> ReceiverProgress {
        ReceiverProgress {
            name: format!("n{n}").parse().unwrap(),
            state,
            held_bytes: 1_000 - n,
            rate_bps: 8_000,
            min_hop_bps: None,
            left_seconds: Some(12.0),
            missed_symbols: 0,
            ring_peak_bytes: 0,
            parents: Vec::new(),
        }
    }

    fn progress_event(receivers: Vec<ReceiverProgress>) -> Event {
        Event::Progress {
            seconds: 1.0,
            total_bytes: 2_000,
            served_bytes: 0,
            ring_peak_bytes: 0,
            receivers,
            relays: Vec::new(),
        }
    }

    #[test]
    fn a_terminal_shows_the_receivers_that_lack_most_and_a_summary() {
        let state = |n| if n == 0 { ReceiverState::Complete } else { ReceiverState::Receiving };
        let event = progress_event((0..=20).map(|n| receiver(n, state(n))).collect());
        let lines = progress_lines(&event, true);
        assert_eq!(lines.len(), ROWS + 2);
        assert_eq!(lines[0], "n20 49 %, 8 kbit/s, 12 s left; from no node yet");
        assert_eq!(lines[ROWS], "… and 4 more receivers");
        assert_eq!(
            lines[ROWS + 1],
            "1 of 21 have it, 20 receive it; the last: n20 49 %, 8 kbit/s, 12 s left"
        );
        assert_eq!(progress_lines(&event, false), lines[ROWS + 1..]);
    }

    #[test]
    fn receivers_that_are_waited_for_are_named() {
        let waiting = (1..=5).map(|n| receiver(n, ReceiverState::Waiting));
        let mut all: Vec<_> =
            [receiver(0, ReceiverState::Complete)].into_iter().chain(waiting).collect();
        let lines = progress_lines(&progress_event(all.clone()), false);
        assert_eq!(lines, ["1 of 6 have it; waiting for n1, n2, n3 and 2 more"]);
        all.truncate(3);
        all[1].state = ReceiverState::Receiving;
        all[2].state = ReceiverState::Failed;
        let lines = progress_lines(&progress_event(all), false);
        assert_eq!(lines, ["1 of 3 have it; n1 49 %, 8 kbit/s, 12 s left; given up: n2"]);
    }
}
