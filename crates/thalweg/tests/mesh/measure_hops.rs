//! `thalweg measure --method hops` through real routers: the kernel's, in network namespaces of a lab's host.
//!
//! ```text
//! client ── r1 ══ 10 Mbit/s ══ r2 ── fra
//! ```
//!
//! The lab's own paths have links, but no routers that answer.

use crate::{
    host::{Daemon, Host, text},
    in_lab::{self, Running, lab, within},
};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Output},
};
use thalweg_lab::client::Lab;

const NETWORK: &str = "[host.client]\n";

/// Starts three sleeping programs, each in a network namespace of its own; prints their process ids.
const SLEEPERS: &str = "for n in 1 2 3; do
    unshare --net sleep infinity & p=$!
    until [ \"$(readlink /proc/$p/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; do :; done
    echo $p; done; wait";

/// The network namespace of a sleeper, by its process id.
struct Namespace(String);

/// Starts the sleepers. Returns the process that owns them, and their namespaces.
fn namespaces(lab: &Lab) -> (Running, [Namespace; 3]) {
    let mut sh = Command::new("sh");
    sh.args(["-ec", SLEEPERS]);
    let mut running = Running(within(lab, "client", &sh).spawn().unwrap());
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    (running, [(); 3].map(|()| Namespace(lines.next().unwrap())))
}

impl Namespace {
    /// The same command inside the namespace.
    fn within(&self, lab: &Lab, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.args(["--target", &self.0, "--net", "--"]).arg(command.get_program());
        inside.args(command.get_args());
        for (name, value) in command.get_envs() {
            inside.envs(value.map(|value| (name, value)));
        }
        within(lab, "client", inside.current_dir(command.get_current_dir().unwrap()))
    }
}

fn script(lab: &Lab, text: &str) -> Output {
    let mut sh = Command::new("sh");
    sh.args(["-ec", text]);
    within(lab, "client", &sh).output().unwrap()
}

/// Connects the namespaces in a row. `None` if this kernel lacks the queue, or `ip` and `tc` are missing.
fn join(lab: &Lab, [r1, r2, fra]: [&Namespace; 3]) -> Option<()> {
    let [Namespace(r1), Namespace(r2), Namespace(fra)] = [r1, r2, fra];
    let text = format!(
        "in_r1='nsenter --target {r1} --net --'; in_r2='nsenter --target {r2} --net --'
        in_fra='nsenter --target {fra} --net --'
        ip link set lo up; $in_fra ip link set lo up
        ip link add c0 type veth peer name r1a netns {r1}
        $in_r1 ip link add r1b type veth peer name r2a netns {r2}
        $in_r2 ip link add r2b type veth peer name f0 netns {fra}
        ip addr add 10.9.1.1/24 dev c0; ip link set c0 up
        $in_r1 ip addr add 10.9.1.2/24 dev r1a; $in_r1 ip link set r1a up
        $in_r1 ip addr add 10.9.2.1/24 dev r1b; $in_r1 ip link set r1b up
        $in_r2 ip addr add 10.9.2.2/24 dev r2a; $in_r2 ip link set r2a up
        $in_r2 ip addr add 10.9.3.1/24 dev r2b; $in_r2 ip link set r2b up
        $in_fra ip addr add 10.9.3.2/24 dev f0; $in_fra ip link set f0 up
        ip route add 10.9.0.0/16 via 10.9.1.2
        $in_r1 ip route add 10.9.3.0/24 via 10.9.2.2
        $in_r2 ip route add 10.9.1.0/24 via 10.9.2.1
        $in_fra ip route add default via 10.9.3.1
        for r in \"$in_r1\" \"$in_r2\"; do $r sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'; done
        $in_r1 tc qdisc add dev r1b root tbf rate 10mbit burst 3100 limit 300000"
    );
    let output = script(lab, &text);
    if !output.status.success() {
        let why = text_of(&output);
        let set = |name| std::env::var_os(name).is_some();
        assert!(!set("CI") || set("THALWEG_SKIP"), "no routers here: {why}");
        eprintln!("skipped: no routers here: {why}");
        return None;
    }
    Some(())
}

fn text_of(output: &Output) -> String {
    text(&output.stderr)
}

struct Scene {
    lab: Lab,
    client: Host,
    _fra: (Host, Daemon),
    _sleepers: Running,
}

fn scene() -> Option<Scene> {
    let lab = lab(NETWORK)?;
    let (sleepers, [r1, r2, at]) = namespaces(&lab);
    join(&lab, [&r1, &r2, &at])?;
    let fra = Host::new();
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    };
    let init = ["mesh", "init", "--name", "fra", "--address", "10.9.3.2:7373"];
    run(&mut at.within(&lab, &fra.command(&init)));
    let node = ["node", "--json", "--listen", "0.0.0.0:7373"];
    let runs = Daemon::spawn(&mut at.within(&lab, &fra.command(&node)));
    let token = run(&mut at.within(&lab, &fra.command(&["mesh", "token"])));
    let client = Host::new();
    let join = ["mesh", "join", &token, "--name", "client", "--no-daemon"];
    in_lab::ok(&lab, "client", &client.command(&join));
    Some(Scene { lab, client, _fra: (fra, runs), _sleepers: sleepers })
}

#[test]
fn routers_are_named_and_the_narrowest_link_is_found() {
    let Some(scene) = scene() else { return };
    let args = ["measure", "fra", "--method", "hops", "--json", "--accept-busy"];
    let output = within(&scene.lab, "client", &scene.client.command(&args)).output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    let results = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let results: Vec<Value> = results.filter(|line| line["event"] == "result").collect();
    results.iter().for_each(|result| println!("{result}"));
    let at = |hop: u64| {
        let of = results.iter().find(|one| one["of"] == "rate_at_hop" && one["hop"] == hop);
        of.unwrap_or_else(|| panic!("no hop {hop}: {out}")).clone()
    };
    assert_eq!(at(1)["router"], "10.9.1.2");
    assert_eq!(at(2)["router"], "10.9.2.2");
    assert_eq!(at(3)["router"], Value::Null, "the destination");
    let is_valid = at(2)["valid"] == true;
    for hop in [2, 3] {
        let mbps = at(hop)["value"].as_f64().unwrap() / 1e6;
        assert!((mbps / 10.0 - 1.0).abs() < 0.25 || !is_valid, "hop {hop}: {mbps} Mbit/s");
    }
    let narrowest = results.iter().find(|one| one["of"] == "narrowest_hop");
    let is_second = narrowest.is_some_and(|one| one["value"] == 2.0 && one["low"] == 2.0);
    assert!(is_second || !is_valid, "{out}");
}
