//! Decides whether a run is valid, from its measurements of the conditions.

use crate::{
    plan::{Arm, Plan, Validity},
    record::{ArmRecord, Outcome, RoundRecord},
};

/// The reasons why a run is invalid; empty if it is valid.
pub fn faults(plan: &Plan, rounds: &[RoundRecord]) -> Vec<String> {
    let mut faults = Vec::new();
    for round in rounds {
        for arm in &round.arms {
            let place = || place(round, arm);
            if let Outcome::Failed(why) = &arm.outcome {
                faults.push(format!("{}: {why}", place()));
            }
            faults.extend(out_of_bounds(plan, arm).map(|why| format!("{}: {why}", place())));
        }
    }
    faults.extend(missing_connections(plan, rounds));
    faults
}

fn place(round: &RoundRecord, arm: &ArmRecord) -> String {
    let cell = if round.cell.is_empty() { String::new() } else { format!("{}, ", round.cell) };
    format!("{} ({cell}seed {}, repeat {})", arm.name, round.seed, round.repeat)
}

/// The bound of validity that an arm's run exceeds, as a message.
pub fn out_of_bounds(plan: &Plan, arm: &ArmRecord) -> Option<String> {
    let bounds = &plan.validity;
    let exempt = plan.arm.iter().any(|a| a.name == arm.name && a.measures_lateness);
    let late = if exempt { None } else { lateness_message(bounds, arm) };
    if let Some(why) = late.or_else(|| pressure_message(bounds, arm)) {
        return Some(why);
    }
    let wanted = arm.wanted_congestion.as_ref()?;
    let other = arm.sockets.congestion_control.iter().find(|c| *c != wanted)?;
    Some(format!(
        "a connection used the congestion control {other}, but the plan requires {wanted}"
    ))
}

fn lateness_message(bounds: &Validity, arm: &ArmRecord) -> Option<String> {
    let (late, bound) = (arm.lateness_p99_us?, bounds.lateness_p99?);
    let broken = u128::from(late) > bound.as_micros();
    broken.then(|| format!("packets were {late} µs late at p99, above the bound of {bound:?}"))
}

fn pressure_message(bounds: &Validity, arm: &ArmRecord) -> Option<String> {
    let (pressure, bound) = (arm.cpu_pressure?, bounds.cpu_pressure?);
    let (percent, most) = (pressure * 100.0, bound * 100.0);
    let broken = pressure > bound;
    broken.then(|| format!("CPU pressure was {percent:.0} %, above the bound of {most:.0} %"))
}

/// Messages about arms without any observed connection, if the plan requires a congestion control.
fn missing_connections(plan: &Plan, rounds: &[RoundRecord]) -> Vec<String> {
    if plan.validity.congestion_control.is_none() {
        return vec![];
    }
    let done = |a: &&ArmRecord| a.outcome == Outcome::Done;
    let never = |arm: &&Arm| {
        let mut own = rounds.iter().filter_map(|r| r.arm(&arm.name)).filter(done).peekable();
        own.peek().is_some() && own.all(|a| a.sockets.seen == 0)
    };
    let why = |arm: &Arm| {
        format!("{}: its congestion control is unknown, because no socket was observed", arm.name)
    };
    plan.arm.iter().filter(never).map(why).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Sockets;
    use std::collections::BTreeMap;

    fn plan() -> Plan {
        let text = "name='x'\nclaim='x'\nkind='host'\nheadline='v'\n\
            [validity]\nlateness_p99='2 ms'\ncpu_pressure='50 %'\ncongestion_control='cubic'\n\
            [[arm]]\nname='a'\nrole='ours'\ncommand=['x']\ntimeout='1 s'\nexpect='1 s'\n\
            [[check]]\nname='k'\nmetric='v'\nof='a'\nop='>='\nbound=1\n";
        Plan::parse(text, "x").unwrap()
    }

    /// The faults of a run whose only arm is exactly at every bound, after a `change`.
    fn faults_after(change: impl Fn(&mut ArmRecord)) -> Vec<String> {
        faults(&plan(), &[round(change)])
    }

    fn round(change: impl Fn(&mut ArmRecord)) -> RoundRecord {
        let mut arm = ArmRecord::new("a", vec![], Outcome::Done);
        arm.sockets.congestion_control.insert("cubic".into());
        arm.sockets.seen = 1;
        arm.wanted_congestion = Some("cubic".into());
        (arm.lateness_p99_us, arm.cpu_pressure) = (Some(2000), Some(0.5));
        change(&mut arm);
        let (cell, cases) = (String::new(), BTreeMap::new());
        RoundRecord { cell, cases, seed: 7, repeat: 0, limit: None, arms: vec![arm] }
    }

    #[test]
    fn an_arm_that_measures_lateness_is_not_judged_by_it() {
        let mut plan = plan();
        plan.arm[0].measures_lateness = true;
        let late = |a: &mut ArmRecord| a.lateness_p99_us = Some(9000);
        assert_eq!(faults(&plan, &[round(late)]), [""; 0]);
        let pressed = |a: &mut ArmRecord| a.cpu_pressure = Some(1.0);
        assert_eq!(faults(&plan, &[round(pressed)]).len(), 1);
    }

    #[test]
    fn a_run_within_all_bounds_has_no_fault() {
        assert_eq!(faults_after(|_| ()), [""; 0]);
        assert_eq!(faults_after(|a| a.outcome = Outcome::Unfinished("slow".into())), [""; 0]);
    }

    #[test]
    fn each_exceeded_bound_is_reported_with_its_place() {
        type Change = fn(&mut ArmRecord);
        let cases: [(Change, &str); 5] = [
            (|a| a.lateness_p99_us = Some(2001), "a (seed 7, repeat 0): packets were 2001 µs late"),
            (|a| a.cpu_pressure = Some(0.51), "CPU pressure was 51 %"),
            (
                |a| a.sockets.congestion_control = ["bbr".to_owned()].into(),
                "congestion control bbr",
            ),
            (|a| a.sockets = Sockets::default(), "congestion control is unknown"),
            (|a| a.outcome = Outcome::Failed("WRONG BYTES".into()), "WRONG BYTES"),
        ];
        for (change, why) in cases {
            let faults = faults_after(change);
            assert!(faults.len() == 1 && faults[0].contains(why), "{why}: {faults:?}");
        }
    }
}
