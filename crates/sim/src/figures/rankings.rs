//! Fig. 2: rates with five candidates of different rankings.

use super::{Report, best_relay, pairs};
use crate::{
    input::{Input, Roles},
    random, stats,
};
use thalweg_plan::ranking::Ranking;

/// Candidates per client (UKAIRO §2.2.3: m = 5).
const M: usize = 5;

/// Rates between clients over the best of the direct path and the candidates' detours.
pub fn compute(input: &Input, seed: u64) -> Report {
    let roles = input.draw_roles(seed, 0, input.scale_count(50));
    let measured = input.planned.restricted_to(&roles.detours).graph();
    let oblivious = nodes_at(&roles, &Ranking::oblivious(&measured).top(M));
    let mut random = random::stream(seed, "five at random", 0);
    let mut draw = |_| nodes_at(&roles, &random::sample(&mut random, roles.detours.len(), M));
    let mut report = Report::default();
    let mut medians = Vec::new();
    let direct = evaluate(input, &roles, |_| Vec::new());
    for (name, rates) in [
        ("direct", direct.clone()),
        ("random_5", evaluate(input, &roles, &mut draw)),
        ("oblivious_5", evaluate(input, &roles, |_| oblivious.clone())),
        ("specific_5", specific(input, &roles)),
        ("best", evaluate(input, &roles, |_| roles.detours.clone())),
    ] {
        medians.push(stats::median(&rates));
        add(&mut report, name, &rates, &direct);
    }
    let robust = nodes_at(&roles, &super::default_ranking(&measured).top(M));
    let rates = evaluate(input, &roles, |_| robust.clone());
    add(&mut report, "robust_5", &rates, &direct);
    let order = medians.windows(2).map(|two| if two[0] <= two[1] { 100.0 } else { 0.0 });
    report.add("in_the_paper_s_order", "%", stats::mean(&order.collect::<Vec<_>>()));
    report
}

fn add(report: &mut Report, name: &str, rates: &[f64], direct: &[f64]) {
    let gains: Vec<f64> =
        rates.iter().zip(direct).map(|(rate, direct)| 100.0 * (rate / direct - 1.0)).collect();
    report.add(format!("rate_{name}"), "Mbit/s", stats::median(rates));
    report.add(format!("gain_{name}"), "%", stats::median(&gains));
    report.curve(format!("rate_{name}"), stats::distribution(rates));
}

/// Converts positions in the set to nodes.
fn nodes_at(roles: &Roles, positions: &[usize]) -> Vec<usize> {
    positions.iter().map(|&at| roles.detours[at]).collect()
}

/// For each pair of clients, the rate with the candidates of the first.
fn evaluate(
    input: &Input,
    roles: &Roles,
    mut candidates: impl FnMut(usize) -> Vec<usize>,
) -> Vec<f64> {
    let mut rates = Vec::new();
    for (i, j) in pairs(&roles.others) {
        let Some(direct) = input.judged.get(i, j) else { continue };
        let gain = best_relay(&input.judged, &candidates(i), i, j).map_or(0.0, |(_, gain)| gain);
        rates.push(direct * (1.0 + gain));
    }
    rates
}

/// Eq. 4: each client is measured with the detours.
fn specific(input: &Input, roles: &Roles) -> Vec<f64> {
    let mut lists = std::collections::BTreeMap::new();
    for &client in &roles.others {
        let mut nodes = roles.detours.clone();
        nodes.push(client);
        let ranking =
            Ranking::specific(&input.planned.restricted_to(&nodes).graph(), nodes.len() - 1);
        lists.insert(client, nodes_at(roles, &ranking.top(M)));
    }
    evaluate(input, roles, |client| lists.get(&client).cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rankings_come_in_the_paper_s_order() {
        let report = compute(&Input::planetlab(2, 0), 2);
        let order = ["direct", "random_5", "oblivious_5", "specific_5", "best"];
        let rates = order.map(|name| report.value(&format!("rate_{name}")).unwrap());
        assert!(rates.windows(2).all(|two| two[0] < two[1]), "{rates:?}");
    }
}
