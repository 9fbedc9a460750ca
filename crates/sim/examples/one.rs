//! x
#![allow(warnings, clippy::all)]
use thalweg_plan::streams::{Flows, Terms};
use thalweg_sim::{random, streams::small};
fn main() {
    let s: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let (o, c) = small(s, Terms::none()).unwrap().exact().unwrap();
    let p = small(s, Terms::default()).unwrap();
    for l in p.legs() { println!("{} -> {} {:?} {:?}", l.from, l.to, l.limit, l.delay); }
    for l in p.streams() { println!("{:?}", l); }
    for l in p.subscribers() { println!("{} at {} w {} {:?}", l.stream, l.node, l.weight, l.preferences.len()); }
    println!("optimum {o} {c:?}");
    println!("{:?}", Flows::checked(&p, &c).map(|f| f.utility));
    for m in [20_000, 200_000, 2_000_000, 10_000_000] { for k in 0..3 {
        let r = p.plan(m, &mut random::stream(s, "plan of streams", k));
        println!("{m} {} {} {:?}", r.flows.utility, r.worth, r.configuration);
    } }
}
