//! Trains of other programs: `n0` and `n1` are nodes, each with its socket.

use crate::{
    members::{self, name},
    scene::{Far, PLENTY, busy},
};
use serde_json::{Value, json};
use std::{
    net::{Ipv6Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use thalweg_base::log::Log;
use thalweg_node::daemon::bind_local;
use thalweg_probe::trains::ProbeService;
use thalweg_units::Rate;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
    sync::Semaphore,
};

struct Node {
    n: u8,
    far: Far,
    flows: Arc<Semaphore>,
    socket: PathBuf,
}

impl Node {
    async fn start(n: u8, per_day: u64) -> Self {
        Self::at(Far::start(n, per_day).await, n)
    }

    fn at(mut far: Far, n: u8) -> Self {
        let socket = far.dir.path().join("probe.sock");
        let listener = bind_local(&socket).unwrap();
        let dialer = members::dialer(n, &members::key(n), &far.membership);
        let flows = Arc::new(Semaphore::new(1));
        let endpoint = Arc::clone(&far.endpoint);
        let service = ProbeService::new(
            far.trains.clone(),
            endpoint,
            dialer,
            Arc::clone(&flows),
            Log::to_queue().0,
        );
        far.tasks.spawn(service.run(listener));
        Self { n, far, flows, socket }
    }
}

async fn pair(per_day: u64) -> [Node; 2] {
    met([Node::start(0, per_day).await, Node::start(1, per_day).await])
}

/// Gives both nodes a roster with both.
fn met(nodes: [Node; 2]) -> [Node; 2] {
    let member = |node: &Node| members::member(node.n, Some(node.far.at), &[]);
    let signed = members::signed(1, nodes.iter().map(member).collect());
    nodes.iter().for_each(|node| _ = node.far.membership.offer(&signed).unwrap());
    nodes
}

struct Program(BufReader<UnixStream>);

impl Program {
    async fn at(node: &Node) -> Self {
        Self(BufReader::new(UnixStream::connect(&node.socket).await.unwrap()))
    }

    async fn say(&mut self, line: &str) {
        self.0.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"))
    }

    async fn ask(&mut self, what: Value) -> Value {
        self.say(&what.to_string()).await;
        self.hear().await
    }
}

fn three() -> Value {
    json!({ "send": { "to": "n1", "probes": [
        { "size": 200, "header": "aa01" },
        { "size": 300, "gap_us": 500, "header": "bb02" },
        { "size": 400, "gap_us": 500, "header": "aa03", "count": 2 },
    ] } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_train_is_sent_whole_and_both_programs_get_their_reports() {
    let nodes = pair(PLENTY).await;
    let mut receiver = Program::at(&nodes[1]).await;
    let wanted = json!({ "receive": { "from": "n0", "prefix": "aa" } });
    assert_eq!(receiver.ask(wanted).await, json!({ "receiving": {} }));
    let mut sender = Program::at(&nodes[0]).await;
    let opened = sender.ask(json!({ "open": { "to": "n1" } })).await;
    assert_eq!(opened["opened"]["largest"], 1472, "{opened}");
    assert_eq!(opened["opened"]["overhead"], 28, "{opened}");
    // The stated time is when the probes leave, and not when they were sealed, up to 100 us earlier. A busy machine may
    // preempt the sender in between, so one of many trains suffices.
    let mut late = Vec::new();
    for _ in 0..200 {
        let report = sender.ask(three()).await["report"].clone();
        late.extend(check_train(&report, &mut receiver).await);
        if late.iter().any(|ns| *ns < 20_000) {
            return;
        }
    }
    panic!("{late:?}");
}

/// Checks that the program receives those of the four probes of [`three`] that begin with the requested bytes. Returns
/// how long before their departure, in nanoseconds, their stated send times were.
async fn check_train(report: &Value, receiver: &mut Program) -> Vec<u64> {
    let sent: Vec<u64> =
        report["sent_ns"].as_array().unwrap().iter().map(|at| at.as_u64().unwrap()).collect();
    assert!(sent.is_sorted(), "{sent:?}");
    assert_eq!(report["bytes"], 200 + 300 + 400 + 400 + 4 * 28);
    assert_eq!((&report["carriers"], &report["carried"]), (&json!(0), &json!([0, 0, 0, 0])));
    let mut late = Vec::new();
    for (place, header) in [(0, "aa01"), (2, "aa03"), (3, "aa03")] {
        let probe = receiver.hear().await["probe"].clone();
        assert_eq!((&probe["place"], &probe["header"]), (&json!(place), &json!(header)), "{probe}");
        let size = [200, 300, 400, 400][place];
        assert_eq!((&probe["from"], &probe["size"]), (&json!("n0"), &json!(size)));
        assert_eq!(probe["arrived_ns"], report["arrived_ns"][place], "{probe}");
        let sent_ns = probe["sent_ns"].as_u64().unwrap();
        assert!(sent_ns <= sent[place], "{probe} {sent:?}");
        late.push(sent[place] - sent_ns);
    }
    late
}

#[tokio::test(flavor = "multi_thread")]
async fn over_ipv6_probes_are_shorter_and_its_headers_are_charged() {
    let anywhere = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    if let Err(why) = std::net::TcpListener::bind(anywhere) {
        println!("skipped: this host has no IPv6: {why}");
        return;
    }
    let [near, far] = [0, 1].map(|n| Far::start_at(anywhere, n, PLENTY));
    let nodes = met([Node::at(near.await, 0), Node::at(far.await, 1)]);
    let mut sender = Program::at(&nodes[0]).await;
    let opened = &sender.ask(json!({ "open": { "to": "n1" } })).await["opened"];
    assert_eq!((&opened["largest"], &opened["overhead"]), (&json!(1452), &json!(48)), "{opened}");
    let left = || nodes.each_ref().map(|node| node.far.purse.left().as_bytes());
    let before = left();
    let report = &sender.ask(three()).await["report"];
    let cost = 200 + 300 + 400 + 400 + 4 * 48;
    assert_eq!(report["bytes"], cost);
    assert_eq!(left(), before.map(|bytes| bytes - cost));
}

#[tokio::test(flavor = "multi_thread")]
async fn arrivals_that_were_not_requested_are_seen_at_the_member() {
    let nodes = pair(PLENTY).await;
    let mut receiver = Program::at(&nodes[1]).await;
    receiver.ask(json!({ "receive": {} })).await;
    let mut sender = Program::at(&nodes[0]).await;
    let mut unasked = three();
    unasked["send"]["await_arrivals"] = json!(false);
    for train in 0..20 {
        let report = &sender.ask(unasked.clone()).await["report"];
        assert_eq!(report["arrived_ns"], json!([null, null, null, null]), "{report}");
        assert!(report["sent_ns"][3].is_u64(), "{report}");
        let probe = receiver.hear().await["probe"].clone();
        assert_eq!((&probe["train"], &probe["place"]), (&json!(train), &json!(0)), "{probe}");
        for _ in 1..4 {
            receiver.hear().await;
        }
    }
    assert!(sender.ask(three()).await["report"]["arrived_ns"][0].is_u64());
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_are_answered_and_the_connection_continues() {
    let nodes = pair(PLENTY).await;
    let mut program = Program::at(&nodes[0]).await;
    program.say("{").await;
    assert!(program.hear().await["error"].as_str().unwrap().contains("cannot parse the request"));
    for (line, why) in [
        (json!({ "send": { "to": "n7", "probes": [{ "size": 100 }] } }), "n7"),
        (json!({ "open": { "to": "n0" } }), "`n0` is this host"),
        (json!({ "send": { "to": "n1", "probes": [{ "size": 20 }] } }), "needs at least 45"),
        (json!({ "send": { "to": "n1", "probes": [] } }), "at least one probe"),
        (json!({ "send": { "to": "n1", "probes": [{ "size": 99, "header": "x" }] } }), "hexa"),
        (json!({ "send": { "to": "n1", "probes": [{ "size": 99, "ttl": 1 }] } }), "ttl"),
    ] {
        let said = program.ask(line.clone()).await;
        assert!(said["error"].as_str().unwrap().contains(why), "{line}: {said}");
    }
    let report = program.ask(three()).await;
    assert!(report["report"]["arrived_ns"].is_array(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn trains_of_a_busy_host_are_sent_only_if_accepted_and_are_doubted() {
    let nodes = pair(PLENTY).await;
    nodes[0].far.trains.set_calibration(busy());
    let mut program = Program::at(&nodes[0]).await;
    let refused = program.ask(three()).await;
    assert!(refused["error"].as_str().unwrap().contains("too busy"), "{refused}");
    let mut accepted = three();
    accepted["send"]["accept_busy"] = json!(true);
    let report = &program.ask(accepted).await["report"];
    assert_eq!(report["is_valid"], json!(false), "{report}");
    assert!(report["doubts"][0].as_str().unwrap().contains("sending host"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_are_charged_to_the_node_s_bytes_of_the_day() {
    let nodes = pair(20_000).await;
    let mut program = Program::at(&nodes[0]).await;
    let ten = json!({ "send": { "to": name(1), "probes": [{ "size": 1000, "count": 10 }] } });
    assert!(program.ask(ten.clone()).await["report"].is_object());
    let refused = program.ask(ten).await;
    assert!(refused["error"].as_str().unwrap().contains("used up"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_trains_cost_nothing() {
    let nodes = pair(20_000).await;
    let mut program = Program::at(&nodes[0]).await;
    for (probe, why) in [
        (json!({ "size": 1000, "gap_us": 1, "count": 15 }), "allows only gaps"),
        (json!({ "size": 40, "count": 250 }), "needs at least 45"),
    ] {
        for _ in 0..3 {
            let said = program.ask(json!({ "send": { "to": "n1", "probes": [probe] } })).await;
            assert!(said["error"].as_str().unwrap().contains(why), "{said}");
        }
    }
    let most = json!({ "send": { "to": "n1", "probes": [{ "size": 1000, "count": 19 }] } });
    let report = program.ask(most).await;
    assert!(report["report"].is_object(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn finding_the_longest_probe_is_charged_as_well() {
    let nodes = pair(20_000).await;
    let mut program = Program::at(&nodes[0]).await;
    let open = json!({ "open": { "to": "n1" } });
    // Five of the longest each time.
    for _ in 0..2 {
        assert!(program.ask(open.clone()).await["opened"].is_object());
    }
    let refused = program.ask(open).await;
    assert!(refused["error"].as_str().unwrap().contains("used up"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_train_waits_until_no_bulk_flow_is_under_way() {
    let nodes = pair(PLENTY).await;
    let flow = nodes[0].flows.clone().acquire_owned().await.unwrap();
    let mut program = Program::at(&nodes[0]).await;
    let mut report = Box::pin(program.ask(three()));
    let early = tokio::time::timeout(Duration::from_millis(200), &mut report).await;
    assert!(early.is_err(), "{early:?}");
    drop(flow);
    assert!(report.await["report"].is_object());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_max_rate_bounds_programs_even_if_they_accept_a_busy_host() {
    let nodes = pair(PLENTY).await;
    nodes[0].far.trains.set_max_rate(Rate::from_mbps(10.0));
    let mut program = Program::at(&nodes[0]).await;
    for is_accepted in [false, true] {
        let send = json!({ "send": { "to": "n1", "accept_busy": is_accepted, "probes": [
            { "size": 1472, "gap_us": 200, "count": 3 } ] } });
        let refused = program.ask(send).await;
        assert!(refused["error"].as_str().unwrap().contains("max_rate"), "{refused}");
    }
    let opened = &program.ask(json!({ "open": { "to": "n1" } })).await["opened"];
    assert_eq!(opened["hosts"][0]["honest_bps"], 10_000_000, "{opened}");
}

/// With as many programs as a member has sessions for, and trains that would be sent in an hour.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_disconnects_before_its_train_is_sent_keeps_no_place() {
    let nodes = pair(PLENTY).await;
    let mut later = three();
    later["send"]["after_us"] = json!(3_600_000_000_u32);
    let mut waiting = Vec::new();
    for _ in 0..16 {
        let mut program = Program::at(&nodes[0]).await;
        program.say(&later.to_string()).await;
        waiting.push(program);
    }
    drop(waiting);
    let served = async {
        // Until the node has noticed that they have disconnected, the member has all the sessions it allows.
        loop {
            let said = Program::at(&nodes[0]).await.ask(three()).await;
            if said["report"].is_object() {
                break;
            }
            assert!(said["error"].as_str().unwrap().contains("no free session"), "{said}");
        }
    };
    tokio::time::timeout(Duration::from_secs(60), served).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_has_closed_its_writing_side_gets_its_report() {
    let nodes = pair(PLENTY).await;
    let mut program = Program::at(&nodes[0]).await;
    let mut later = three();
    later["send"]["after_us"] = json!(1_200_000);
    program.say(&later.to_string()).await;
    program.0.get_mut().shutdown().await.unwrap();
    assert!(program.hear().await["report"].is_object());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_owner_can_open_the_socket() {
    let [node, _] = pair(PLENTY).await;
    let mode = std::fs::metadata(&node.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vanished_member_is_reported_and_reached_again_when_it_is_back() {
    let nodes = pair(PLENTY).await;
    let mut program = Program::at(&nodes[0]).await;
    assert!(program.ask(three()).await["report"].is_object());
    let [near, mut far] = nodes;
    far.far.kill().await;
    let gone = program.ask(three()).await;
    assert!(gone["error"].is_string(), "{gone}");
    // It returns at another port.
    let back = Node::start(1, PLENTY).await;
    let members = [&near, &back].map(|node| members::member(node.n, Some(node.far.at), &[]));
    let signed = members::signed(2, members.to_vec());
    [&near, &back].into_iter().for_each(|node| _ = node.far.membership.offer(&signed).unwrap());
    let report = program.ask(three()).await;
    assert!(report["report"].is_object(), "{report}");
}
