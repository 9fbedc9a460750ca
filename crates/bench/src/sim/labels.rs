//! The names and the order of a figure's numbers in a table. JSON has the short names.

use super::figure::Figure;
use std::cmp::Ordering;

/// The meanings of prefixes of names, longer prefixes before their own prefixes; `#` stands for the number that
/// follows.
type PrefixLabels = &'static [(&'static str, &'static str)];

const PROPERTIES: PrefixLabels = &[
    ("paths_that_gain", "paths with a detour worth taking"),
    ("paths_below_limit", "paths below the limit for detours"),
    ("direct_median", "direct rate, median"),
    ("best_gain_median", "gain of the best detour, median"),
    ("latency_lower", "best detours with less latency"),
    ("latency_more_ms", "added round trip, median"),
    ("latency_more", "added round trip, relative, median"),
    ("valid_#", "best detours that still gain, # days later"),
    ("gain_#", "their gain, median, # days later"),
    ("valid", "best detours that still gain, later"),
    ("gain", "their gain, median, later"),
];
const SETS: PrefixLabels = &[
    ("improvement_#", "improvement, # random detours"),
    ("kept_#", "of the largest set's, # random detours"),
    ("size_#", "nodes, for the paper's #"),
];
const RANKINGS: PrefixLabels = &[
    ("in_the_paper_s_order", "neighbours in the paper's order"),
    ("gain", "gain, median:"),
    ("rate", "rate, median:"),
];
const RELAYED: PrefixLabels = &[
    ("median", "rate over direct, median:"),
    ("not_slower", "not slower than direct:"),
    ("half_more", "faster by half or more:"),
    ("doubled", "at least twice as fast:"),
    ("clearly_slower", "slower by over a tenth:"),
];
const ADAPTIVE: PrefixLabels = &[
    ("proportional_#", "drawn by score, after # downloads"),
    ("top_#", "the best of the list, after # downloads"),
];
const CROWD: PrefixLabels = &[
    ("improvement_#", "geometric mean, # clients:"),
    ("mean_#", "arithmetic mean, # clients:"),
    ("median_#", "median, # clients:"),
];
const BUDGET: PrefixLabels = &[
    ("at_40", "gain after 40 % of all paths:"),
    ("best", "best gain on the way:"),
    ("paths_for_50", "paths until a gain of 50 %:"),
    ("paths_for_half_of_gain", "paths until half of the gain:"),
    ("paths_for_three_quarters_of_gain", "paths until 3/4 of the gain:"),
    ("paths_for_nearly_all_of_gain", "paths until 9/10 of the gain:"),
    ("tests_for_half_of_gain", "tests until half of the gain:"),
    ("tests_for_three_quarters_of_gain", "tests until 3/4 of the gain:"),
    ("tests_for_nearly_all_of_gain", "tests until 9/10 of the gain:"),
    ("traffic_for_half_of_gain", "traffic until half of the gain:"),
    ("traffic_for_three_quarters_of_gain", "traffic until 3/4 of the gain:"),
    ("traffic_for_nearly_all_of_gain", "traffic until 9/10 of the gain:"),
    ("unmeasured", "gain with nothing measured"),
    ("measured", "gain with all measured"),
];
const POPULATION: PrefixLabels = &[
    ("others_worst_tenth_#", "who do not, worst tenth, # % detour:"),
    ("others_#", "who do not, mean, # % detour:"),
    ("users_#", "who do, mean, # % detour:"),
    ("all_#", "all traffic, # % detour:"),
];

fn words(figure: Figure) -> PrefixLabels {
    match figure {
        Figure::Properties => PROPERTIES,
        Figure::Fig1 => SETS,
        Figure::Fig2 => RANKINGS,
        Figure::Fig5 | Figure::Fig6 => RELAYED,
        Figure::Fig7 => ADAPTIVE,
        Figure::Fig8 => CROWD,
        Figure::Fig9 => BUDGET,
        Figure::Population => POPULATION,
    }
}

/// A number's name in words; an unknown name is kept, with spaces.
pub fn label(figure: Figure, name: &str) -> String {
    let known = words(figure).iter().filter_map(|(begin, text)| {
        let (number, rest) = after(begin, name)?;
        Some((begin.len(), text.replace('#', number), rest))
    });
    match known.max_by_key(|(length, ..)| *length) {
        Some((_, text, "")) => text.trim_end_matches(':').to_owned(),
        Some((_, text, rest)) => format!("{text} {}", part(rest)),
        None => part(name),
    }
}

/// Matches a name with a prefix; returns the number in place of `#`, and the rest.
fn after<'a>(begin: &str, name: &'a str) -> Option<(&'a str, &'a str)> {
    let Some(stem) = begin.strip_suffix('#') else {
        let rest = name.strip_prefix(begin)?;
        return if rest.is_empty() { Some(("", "")) } else { Some(("", rest.strip_prefix('_')?)) };
    };
    let rest = name.strip_prefix(stem)?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = rest.split_at(digits);
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix('_')? };
    (digits > 0).then_some((number, rest))
}

/// The name of a strategy or schedule; a number after it is the number of its candidates.
fn part(name: &str) -> String {
    let (name, count) = match name.rsplit_once('_') {
        Some((name, n)) if n.parse::<u64>().is_ok() => (name, Some(n)),
        _ => (name, None),
    };
    let text = match name {
        "peerwise" => "PeerWise".to_owned(),
        "load_aware" => "load-aware".to_owned(),
        "load_only" => "load only".to_owned(),
        "algorithm_1_completed" => "Algorithm 1, completed".to_owned(),
        "algorithm" => return "Algorithm 1".to_owned(),
        other => other.replace('_', " "),
    };
    count.map_or(text.clone(), |n| format!("{text}, {n} of them"))
}

/// Compares as [`str::cmp`] does, but 2 comes before 12.
pub fn by_number(a: &str, b: &str) -> Ordering {
    pieces(a).cmp(&pieces(b))
}

/// Alternating pieces of text and the numbers after them. Numbers have few digits.
fn pieces(name: &str) -> Vec<(&str, u64)> {
    let (mut rest, mut all) = (name, Vec::new());
    while !rest.is_empty() {
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (before, tail) = rest.split_at(text);
        let digits = tail.bytes().take_while(u8::is_ascii_digit).count();
        all.push((before, tail[..digits].parse().unwrap_or(0)));
        rest = &tail[digits..];
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_in_words() {
        for (figure, name, text) in [
            (Figure::Fig2, "in_the_paper_s_order", "neighbours in the paper's order"),
            (Figure::Fig2, "gain_oblivious_5", "gain, median: oblivious, 5 of them"),
            (Figure::Fig6, "doubled_peerwise", "at least twice as fast: PeerWise"),
            (Figure::Properties, "latency_more", "added round trip, relative, median"),
            (Figure::Properties, "latency_more_ms", "added round trip, median"),
            (Figure::Properties, "gain_14", "their gain, median, 14 days later"),
            (Figure::Fig8, "mean_16_load_aware", "arithmetic mean, 16 clients: load-aware"),
            (Figure::Fig8, "mean_16", "arithmetic mean, 16 clients"),
            (Figure::Fig9, "at_40_algorithm_1", "gain after 40 % of all paths: Algorithm 1"),
            (Figure::Fig9, "unmeasured", "gain with nothing measured"),
            (Figure::Population, "others_10_balanced", "who do not, mean, 10 % detour: balanced"),
            (Figure::Fig1, "something_new", "something new"),
        ] {
            assert_eq!(label(figure, name), text, "{name}");
        }
    }

    #[test]
    fn numbers_are_ordered_as_numbers() {
        let mut names = ["a_12_x", "a_1_x", "a_2_x", "a_2_b", "b_1", "a"];
        names.sort_by(|a, b| by_number(a, b));
        assert_eq!(names, ["a", "a_1_x", "a_2_b", "a_2_x", "a_12_x", "b_1"]);
    }
}
