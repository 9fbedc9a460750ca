//! x
#![allow(warnings, clippy::all)]
use std::time::Instant;
use thalweg_plan::streams::{Flows, Terms};
use thalweg_sim::{random, streams::{Mesh, Size, small}};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args[1] == "exact" {
        let from: u64 = args[2].parse().unwrap(); let n: u64 = args[3].parse().unwrap();
        let (mut least, mut sum, mut cnt, mut opt) = (1.0f64, 0.0, 0, 0);
        let mut bad = vec![];
        for s in from..from + n {
            let Some((o, _)) = small(s, Terms::none()).unwrap().exact() else { continue };
            let p = small(s, Terms::default()).unwrap();
            let r = p.plan(p.moves(), &mut random::stream(s, "plan of streams", 0));
            let share = if o > 0.0 { r.flows.utility / o } else { 1.0 };
            if share < 0.98 { bad.push((s, share, o)); }
            least = least.min(share); sum += share; cnt += 1; opt += (share > 1.0 - 1e-9) as u32;
        }
        println!("least {least} mean {} cnt {cnt} optimal {opt} bad {bad:?}", sum / cnt as f64);
        return;
    }
    let (n, s, sub): (u32, u32, u32) = (args[2].parse().unwrap(), args[3].parse().unwrap(), args[4].parse().unwrap());
    for seed in 1..=2 {
        let mut mesh = Mesh::new(seed, Size { nodes: n, streams: s, subscribers: sub });
        let mut present = None;
        for round in 0..4 {
            let t = Instant::now();
            let mut p = mesh.problem().unwrap();
            if let Some(c) = present.take() { p = p.with_present(c); }
            let tp = t.elapsed();
            let r = p.plan(args.get(5).map_or(p.moves(), |m| m.parse().unwrap()), &mut random::stream(seed, "plan of streams", round));
            let took = t.elapsed();
            assert_eq!(Flows::checked(&p, &r.configuration).as_ref(), Ok(&r.flows));
            let full = r.configuration.choices.iter().filter(|c| **c == Some(0)).count();
            let none = r.configuration.choices.iter().filter(|c| c.is_none()).count();
            let deep = r.configuration.parents.iter().map(|m| m.len()).sum::<usize>();
            println!("seed {seed} round {round} prep {:.0?} took {took:.0?} subs {} moves {} utility {:.1} worth {:.1} full {full} none {none} places {deep}", tp, p.subscribers().len(), p.moves(), r.flows.utility, r.worth);
            present = Some(r.configuration);
            mesh.change();
        }
    }
}
